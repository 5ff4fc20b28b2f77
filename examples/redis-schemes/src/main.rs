//! Nine ways to lock with Redis, each found in the wild and most of them better than the one before,
//! how each of them fails, and polylock under the same provocations.
//!
//! ```console
//! $ cargo run -p redis-schemes
//! ```
//!
//! It needs `redis-server` in the `PATH`, and starts private ones. The judge is `lock-history`, the
//! checker that the tests of polylock use: nothing in the table is written down beforehand. The exit
//! code is 0 if each scheme broke as it is known to, and polylock did not. Do not copy schemes 1 to 9.
#![expect(clippy::print_stdout, reason = "the output is the proof")]

mod provocations;
mod scenes;
mod stage;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::scenes::{getset, lua, multi_setnx, multilock, polylock, redlock};
use crate::scenes::{set_ex_nx, setnx_expire, unique_value, watchdog};
use crate::stage::{Fault, Report};

#[tokio::main]
async fn main() -> Result<()> {
    // All scenes at the same time, each on servers of its own.
    let playing = [
        start(setnx_expire::crash()),
        start(multi_setnx::crash()),
        start(getset::clocks_differ()),
        start(lua::late_release()),
        start(set_ex_nx::work_outlives_lock()),
        start(unique_value::work_outlives_lock()),
        start(watchdog::watchdog_dies()),
        start(watchdog::fail_over()),
        start(multilock::master_dies()),
        start(redlock::master_dies()),
        start(redlock::holder_is_paused()),
        start(redlock::node_restarts_empty()),
        start(polylock::crash()),
        start(polylock::clocks_differ()),
        start(polylock::late_release()),
        start(polylock::work_outlives_lease()),
        start(polylock::cut_off()),
        start(polylock::fail_over()),
        start(polylock::holder_is_paused()),
        start(polylock::master_dies()),
        start(polylock::node_restarts_empty()),
    ];
    let mut reports = Vec::new();
    for (number, scene) in playing.into_iter().enumerate() {
        let report = scene.await?;
        reports.push(report.with_context(|| format!("scene {}", number + 1))?);
    }
    reports.iter().for_each(tell);
    let heads = row(COLUMNS.map(|(head, _)| head));
    println!("{:<27} {:<23} {heads}", "scheme", "provoked by");
    for report in &reports {
        let (scheme, provocation) = (report.scheme, report.provocation);
        println!("{scheme:<27} {provocation:<23} {}", row(verdicts(report)));
    }
    println!("fenced: two held it at once; the first was notified, its late write was refused");
    let broke = |report: &&Report| !report.broken.is_empty();
    let (ours, others): (Vec<_>, Vec<_>) = reports
        .iter()
        .partition(|report| report.scheme.ends_with("polylock"));
    let (broken, of) = (others.iter().copied().filter(broke).count(), others.len());
    let (ours, of_ours) = (ours.iter().copied().filter(broke).count(), ours.len());
    println!("other schemes: {broken} of {of} broke; polylock: {ours} of {of_ours} broke");
    for Report {
        scheme,
        provocation,
        as_expected,
        ..
    } in reports
    {
        ensure!(
            as_expected,
            "{scheme}, {provocation}: it did not break as it is known to"
        );
    }
    Ok(())
}

fn start(
    scene: impl Future<Output = Result<Report>> + Send + 'static,
) -> JoinHandle<Result<Report>> {
    tokio::spawn(async { timeout(Duration::from_secs(60), scene).await? })
}

/// Prints what happened when, and what that broke.
fn tell(report: &Report) {
    println!("{}: {}", report.scheme, report.provocation);
    report.story.iter().for_each(|line| println!("{line}"));
    for (fault, evidence) in &report.broken {
        println!("    BROKEN {fault:?}: {evidence}");
    }
    println!();
}

const COLUMNS: [(&str, Fault); 4] = [
    ("exclusion", Fault::Exclusion),
    ("ownership", Fault::Ownership),
    ("liveness", Fault::Liveness),
    ("fencing", Fault::Fencing),
];

fn verdicts(report: &Report) -> [&'static str; 4] {
    COLUMNS.map(|(_, fault)| match fault {
        fault if report.broken.contains_key(&fault) => "BROKEN",
        Fault::Exclusion if report.fenced => "fenced",
        _ => ".",
    })
}

fn row([exclusion, ownership, liveness, fencing]: [&str; 4]) -> String {
    format!("{exclusion:<10}{ownership:<10}{liveness:<9}{fencing}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_scheme_breaks_as_it_is_known_to_and_polylock_does_not() -> anyhow::Result<()> {
        super::main()
    }
}
