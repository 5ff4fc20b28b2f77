//! One run: all workloads on all targets, repeated.

mod crash;
mod measurement;
mod prepared;
mod schedule;

use fastrand::Rng;

use self::measurement::TargetMeasurement;
use self::prepared::PreparedTarget;
use self::schedule::{check, schedule};
use crate::environment;
use crate::plan::{Plan, name_of};
use crate::report::{Report, SCHEMA, Series};
use crate::subject::{Failure, INVALID};
use crate::target::Target;

/// Is told how many measurements are made, of how many, and what the next one is.
pub type Progress<'a> = dyn Fn(u32, u32, &str) + Send + Sync + 'a;

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
    progress: &Progress<'_>,
) -> Result<Report, Failure> {
    check(plan, &targets)?;
    let mut environment = environment::of_this_machine();
    let warnings = &mut environment.warnings;
    let mut prepared = Vec::new();
    progress(0, 0, "opening the targets");
    let id = fastrand::u64(..);
    let measured = async {
        open(plan, targets, id, &mut prepared, warnings).await?;
        measure(plan, &mut prepared, id, progress, warnings).await
    };
    let measured = measured.await;
    // Also after a failure: something may have been made on the servers.
    for target in &prepared {
        target.close(warnings).await;
    }
    let series = measured?;
    // Bare commands have the server of the target before them.
    for at in 1..prepared.len() {
        if prepared[at].bare_run().is_some() {
            prepared[at].info.round_trip = prepared[at - 1].info.round_trip.clone();
        }
    }
    Ok(Report {
        schema: SCHEMA.to_owned(),
        environment,
        plan: plan.clone(),
        targets: prepared.into_iter().map(|target| target.info).collect(),
        series,
    })
}

/// Opens targets, each with its bare commands behind it.
async fn open(
    plan: &Plan,
    targets: Vec<Target>,
    id: u64,
    prepared: &mut Vec<PreparedTarget>,
    warnings: &mut Vec<String>,
) -> Result<(), Failure> {
    for target in targets {
        let name = target.name.clone();
        let opened = PreparedTarget::open(target, id).await;
        let opened = opened.map_err(|failure| failure.at(&name))?;
        let bare = opened.bare(plan, warnings).await;
        prepared.push(opened);
        prepared.extend(bare.map_err(|failure| failure.at(&name))?);
    }
    let urls = prepared.iter().map(|target| &*target.info.url);
    warnings.extend(environment::distances(urls));
    Ok(())
}

async fn measure(
    plan: &Plan,
    prepared: &mut [PreparedTarget],
    id: u64,
    progress: &Progress<'_>,
    warnings: &mut Vec<String>,
) -> Result<Vec<Series>, Failure> {
    let opened = prepared.iter().map(|t| (&*t.info.name, &t.opened));
    let (entries, left_out) = schedule(plan, &opened.collect::<Vec<_>>());
    if entries.is_empty() {
        return Err(Failure::new(INVALID, left_out.join("; ")));
    }
    warnings.extend(left_out);
    let mut random = Rng::with_seed(plan.seed);
    let series = entries.iter().map(|entry| entry.series(prepared));
    let mut series: Vec<Vec<_>> = series.collect();
    let measurements = series.iter().map(Vec::len).sum::<usize>() as u32;
    let (mut done, of) = (0, measurements * plan.repeats);
    for _repeat in 0..plan.repeats {
        for target in prepared.iter_mut().filter(|t| t.bare_run().is_none()) {
            target.time_round_trips(warnings).await;
        }
        for (entry, series) in entries.iter().zip(&mut series) {
            let mut order: Vec<_> = entry.targets.iter().zip(series).collect();
            random.shuffle(&mut order);
            for (&target, series) in order {
                let (workload, parameters) = (name_of(series.workload), &series.parameters);
                let what = format!("{}: {workload}, {parameters}", series.target);
                progress(done, of, &what);
                let measurement = TargetMeasurement {
                    plan,
                    target: &prepared[target],
                    series,
                    prefix: format!("lock-bench/{id:x}/{done}"),
                    seed: random.u64(..),
                };
                measurement.make().await?;
                done += 1;
            }
        }
    }
    progress(done, of, "");
    Ok(series.into_iter().flatten().collect())
}
