use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The time that `percent` of `times` do not exceed.
pub(crate) fn percentile(times: impl IntoIterator<Item = Duration>, percent: usize) -> Duration {
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100);
    times[rank.saturating_sub(1)]
}

/// Memory of this process that is resident, in bytes.
pub(crate) fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm.split(' ').nth(1).expect("it has seven columns");
    let pages: u64 = pages.parse().expect("a number");
    pages * 4096
}

/// Whether this process has to run nothing but the test `name`. If not, one is started that has, and
/// has to succeed: the memory of a process says something about a test only if that is alone in it.
pub(crate) fn is_alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        say(&format!("\n{RUNS}{name}\n"));
        return true;
    }
    let test = std::env::current_exe().expect("a test has a path");
    let child = Command::new(test)
        .args([name, "--exact", "--nocapture"])
        .env(ALONE, "1")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("the test can be run");
    let said = String::from_utf8_lossy(&child.stdout);
    say(&said);
    let success = child.status.success();
    assert!(success, "{name} fails in a process of its own");
    // A name that no test has is a success as well.
    let runs = format!("{RUNS}{name}");
    assert!(said.lines().any(|line| line == runs), "{name} has not run");
    false
}

fn say(text: &str) {
    let written = std::io::stdout().write_all(text.as_bytes());
    written.expect("somebody reads it");
}

const ALONE: &str = "POLYLOCK_LOAD_ALONE";
const RUNS: &str = "runs alone: ";
