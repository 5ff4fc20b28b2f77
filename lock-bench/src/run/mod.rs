//! One run: all workloads on all targets, repeated.

mod crash;
mod measurement;
mod prepared;
mod schedule;

use self::measurement::Measurement;
use self::prepared::Prepared;
use self::schedule::{RunSchedule, ScheduledWorkload, check};
use crate::environment;
use crate::plan::Plan;
use crate::report::{Environment, Report, SCHEMA, Series};
use crate::subject::{Failure, INVALID};
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
    let abilities: Vec<_> = prepared.iter().map(Prepared::abilities).collect();
    let schedule = RunSchedule::of(plan, &abilities);
    environment
        .warnings
        .extend(schedule.left_out.iter().cloned());
    if schedule.entries.is_empty() {
        return Err(Failure::new(INVALID, schedule.left_out.join("; ")));
    }
    measure_all(plan, &schedule, prepared, run, progress).await
}

async fn measure_all(
    plan: &Plan,
    schedule: &RunSchedule,
    targets: &mut [Prepared],
    run: u64,
    progress: &dyn Progress,
) -> Result<Vec<Series>, Failure> {
    let run_id = format!("lock-bench/{run:x}");
    let mut random = Random::new(plan.seed);
    let mut series = schedule.series(targets);
    let of = schedule.measurements() * plan.repeats;
    let mut done = 0;
    for _repeat in 0..plan.repeats {
        for target in &mut *targets {
            target.time_round_trips().await;
        }
        for entry in &schedule.entries {
            let mut order: Vec<_> = entry.measured.iter().collect();
            random.shuffle(&mut order);
            for &&(target, part, at) in &order {
                let target = &targets[target];
                let name = target.name(part);
                progress.step(done, of, &describe(entry, &name));
                let series = &mut series[at];
                let measurement = Measurement {
                    plan,
                    target,
                    part,
                    workload: entry.workload,
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

fn describe(entry: &ScheduledWorkload, name: &str) -> String {
    let (workload, parameters) = (crate::plan::name_of(entry.workload), &entry.parameters);
    format!("{name}: {workload}, {parameters}")
}
