//! One run: all workloads on all targets, repeated.

mod agenda;
mod check;
mod crash;
mod one;
mod prepared;

use std::time::Duration;

use self::agenda::{Agenda, Question};
use self::check::check;
use self::one::Measurement;
use self::prepared::Prepared;
use crate::environment;
use crate::plan::{Plan, Workload};
use crate::report::{Environment, Report, SCHEMA, Series};
use crate::subject::Failure;
use crate::target::Target;
use crate::workloads::Random;

/// Is told how far a run is.
pub trait Progress: Send + Sync {
    /// `done` measurements of `of` are made; the next one is `what`.
    fn step(&self, done: u32, of: u32, what: &str);
}

/// Measures all targets.
///
/// Takes about `repeats` times the sum of `warm_up` and `duration` for each workload, target and
/// number of contenders. Call it on a runtime with several threads and its timers on.
///
/// # Errors
///
/// If the plan cannot be carried out, a target cannot be opened, or a contender breaks. Failures of
/// single acquisitions are counted in the report, and so are violations.
///
/// # Cancel safety
///
/// Contenders end with the future; locks that they have stay taken for one ttl at most. The tables
/// that bare statements of a database had stay: `polylock_bench_` and the number of the run.
pub async fn run(
    plan: &Plan,
    targets: Vec<Target>,
    progress: &dyn Progress,
) -> Result<Report, Failure> {
    check(plan, &targets)?;
    let mut environment = environment::of_this_machine();
    let mut prepared = Vec::with_capacity(targets.len());
    let opened = open_and_measure(plan, targets, progress, &mut prepared, &mut environment);
    let series = opened.await;
    // Also where it failed: something may have been made on the servers.
    for target in &mut prepared {
        target.close().await;
        environment.warnings.append(&mut target.warnings);
    }
    let series = series?;
    Ok(Report {
        schema: SCHEMA.to_owned(),
        environment,
        plan: plan.clone(),
        targets: prepared.into_iter().flat_map(Prepared::infos).collect(),
        series,
    })
}

async fn open_and_measure(
    plan: &Plan,
    targets: Vec<Target>,
    progress: &dyn Progress,
    prepared: &mut Vec<Prepared>,
    environment: &mut Environment,
) -> Result<Vec<Series>, Failure> {
    progress.step(0, 0, "opening the targets");
    let run = crate::clock::unique();
    for target in targets {
        let name = target.name.clone();
        let opened = Prepared::open(target, plan, run).await;
        prepared.push(opened.map_err(|failure| failure.at(&name))?);
    }
    let shown: Vec<_> = prepared.iter().map(Prepared::shown).collect();
    let distances = environment::distances(shown.iter().map(String::as_str));
    environment.warnings.extend(distances);
    let agenda = Agenda::of(plan, prepared);
    environment.warnings.extend(agenda.left_out.iter().cloned());
    if agenda.questions.is_empty() {
        return Err(Failure::new("invalid", agenda.left_out.join("; ")));
    }
    measure_all(plan, &agenda, prepared, run, progress).await
}

async fn measure_all(
    plan: &Plan,
    agenda: &Agenda,
    targets: &mut [Prepared],
    run: u64,
    progress: &dyn Progress,
) -> Result<Vec<Series>, Failure> {
    let run_id = format!("lock-bench/{run:x}");
    let mut random = Random::new(plan.seed);
    let mut series = agenda.series(targets);
    let of = agenda.measurements() * plan.repeats;
    let mut done = 0;
    for _repeat in 0..plan.repeats {
        for target in &mut *targets {
            target.time_round_trips().await;
        }
        for question in &agenda.questions {
            let mut order: Vec<_> = question.asked.iter().collect();
            random.shuffle(&mut order);
            for &&(target, part, at) in &order {
                let target = &targets[target];
                let name = target.name(part);
                progress.step(done, of, &describe(question, &name));
                let series = &mut series[at];
                let measurement = Measurement {
                    plan,
                    target,
                    part,
                    workload: question.workload,
                    parameters: &mut series.parameters,
                    prefix: format!("{run_id}/{done}"),
                    seed: random.next(),
                };
                let made = measurement.make().await;
                let sample = made.map_err(|failure| failure.at(&name))?;
                series.samples.push(sample);
                done += 1;
            }
        }
    }
    progress.step(done, of, "");
    Ok(series)
}

fn describe(question: &Question, name: &str) -> String {
    let parameters = &question.parameters;
    let what = format!("{name}: {}", crate::report::name_of(question.workload));
    let what = match question.workload {
        Workload::CrashRecovery => what,
        Workload::HoldSweep => {
            let hold = Duration::from_nanos(parameters.hold_ns);
            format!("{what} of {}", humantime::format_duration(hold))
        }
        _ => what,
    };
    format!("{what}, {} contenders", parameters.contenders)
}
