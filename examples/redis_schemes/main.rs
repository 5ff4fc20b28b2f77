//! Seven ways to lock with Redis, each of them better than the one before, how each of them fails,
//! and this library under the same provocations.
//!
//! Needs `redis-server` in the `PATH`; starts its own and ends them. Takes a few seconds:
//!
//! ```console
//! $ cargo run -p polylock-examples --example redis_schemes
//! ```
//!
//! Exits with 0 if every weak scheme broke as it is known to and this library did not. The schemes
//! are written as they are found in the wild; do not copy them.

mod getset;
mod invariant;
mod judge;
mod lua;
mod ours;
mod redlock;
mod report;
mod scene;
mod set_ex_nx;
mod setnx_expire;
mod stage;
#[cfg(test)]
mod tests;
mod timeline;
mod unique_value;
mod watchdog;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::invariant::Invariant;
use crate::report::{Report, Table};
use crate::stage::Result;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let reports = play().await?;
    print(&mut io::stdout().lock(), &reports)?;
    let as_predicted = reports.iter().all(Report::is_as_predicted);
    Ok(if as_predicted {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs all of them at the same time, each on servers of its own.
async fn play() -> Result<Vec<Report>> {
    let playing = [
        start(setnx_expire::crash_between()),
        start(getset::clocks_differ()),
        start(lua::release_is_late()),
        start(set_ex_nx::work_outlives_the_lock()),
        start(unique_value::work_outlives_the_lock()),
        start(watchdog::watchdog_dies()),
        start(watchdog::fail_over()),
        start(redlock::pause()),
        start(redlock::node_forgets()),
        start(ours::crash()),
        start(ours::clocks_differ()),
        start(ours::release_is_late()),
        start(ours::work_outlives_the_lock()),
        start(ours::cut_off()),
        start(ours::fail_over()),
        start(ours::fail_over_with_acks()),
        start(ours::paused()),
        start(ours::node_forgets()),
    ];
    let mut reports = Vec::new();
    for report in playing {
        reports.push(report.await??);
    }
    Ok(reports)
}

fn start(
    scene: impl Future<Output = Result<Report>> + Send + 'static,
) -> JoinHandle<Result<Report>> {
    tokio::spawn(async { timeout(PATIENCE, scene).await? })
}

fn print(out: &mut impl Write, reports: &[Report]) -> io::Result<()> {
    writeln!(
        out,
        "A lock lets one in at a time. Five things are true of one that works:\n"
    )?;
    for invariant in Invariant::ALL {
        writeln!(out, "    {invariant:<16}  {}", invariant.meaning())?;
    }
    writeln!(
        out,
        "\nA, B and C are clients; the times are those since a scene began.\n"
    )?;
    for report in reports {
        writeln!(out, "{report}")?;
    }
    writeln!(out, "{}", Table(reports))?;
    writeln!(out, "{LEGEND}")
}

const LEGEND: &str = "\
.       did not break here
fenced  two were inside at once because the server forgot the first: that one was told, and what
        it wrote after the second had entered was refused, because its token is the smaller one";

/// What a scene gets that gets stuck.
const PATIENCE: Duration = Duration::from_secs(30);
