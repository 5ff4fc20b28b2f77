//! Descendants of the command that share the process group of `lockctl`.
//!
//! In the foreground group of a terminal there is no group to signal that would not hit `lockctl`
//! and its neighbors in a pipeline as well, so the descendants are found one by one.

use std::fs;

use rustix::process::{Pid, Signal, getpid, kill_process};

/// Makes orphans of the command children of this process, so that they can be found.
#[cfg(target_os = "linux")]
pub(crate) fn adopt_orphans() {
    // Without it they are left alone.
    rustix::process::set_child_subreaper(Some(getpid())).ok();
}

/// Orphans go to init, out of reach.
#[cfg(not(target_os = "linux"))]
pub(crate) fn adopt_orphans() {}

/// Sends a signal to all descendants of this process.
pub(super) fn signal_descendants(signal: Signal) {
    for pid in descendants(getpid()) {
        kill_process(pid, signal).ok();
    }
}

/// Kills all descendants of this process, also those that are born meanwhile.
pub(super) fn kill_descendants() {
    // Each round can only be outrun by a process that forks faster than it is listed.
    for _ in 0..ROUNDS {
        let alive: Vec<_> = descendants(getpid())
            .into_iter()
            .filter(|pid| !is_dead(*pid))
            .collect();
        if alive.is_empty() {
            return;
        }
        for pid in alive {
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

const ROUNDS: usize = 16;

fn descendants(of: Pid) -> Vec<Pid> {
    let mut found = children(of);
    let mut at = 0;
    while let Some(pid) = found.get(at) {
        let more = children(*pid);
        found.extend(more);
        at += 1;
    }
    found
}

fn children(of: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{}/task", of.as_raw_nonzero()))
        .into_iter()
        .flatten();
    let lists = tasks.flatten().filter_map(|task| {
        let list = fs::read_to_string(task.path().join("children")).ok()?;
        Some(
            list.split_whitespace()
                .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
                .collect(),
        )
    });
    lists.collect::<Vec<Vec<_>>>().concat()
}

/// Whether it is a zombie, which no signal makes any deader.
fn is_dead(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // The name in parentheses may contain anything, also parentheses.
    stat.is_err()
        || stat.is_ok_and(|stat| {
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('Z'))
        })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_of_children_are_found() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & wait"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(i32::try_from(shell.id()).unwrap()).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while descendants(pid).is_empty() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        let found = descendants(pid);
        assert_eq!(found.len(), 1);
        assert!(descendants(getpid()).contains(&found[0]));
        kill_process(found[0], Signal::KILL).unwrap();
        shell.wait().unwrap();
    }
}
