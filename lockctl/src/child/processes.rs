//! The processes that a command is made of.
//!
//! They are the process group that the command leads, and the descendants of this process: programs such as
//! timeout(1) start their command in a group of its own. In the foreground group of a terminal there is no
//! group to signal that would not hit `lockctl` and its neighbors in a pipeline as well.

use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, getpid, kill_process, kill_process_group,
    test_kill_process_group, wait, waitpid,
};

use super::linger::LINGER;

/// Time between two polls of the processes of a command.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Makes orphans of the command children of this process, so that they can be found.
#[cfg(target_os = "linux")]
fn adopt_orphans() {
    // Without it they are left alone.
    rustix::process::set_child_subreaper(Some(getpid())).ok();
}

/// Orphans go to init, out of reach.
#[cfg(not(target_os = "linux"))]
fn adopt_orphans() {}

/// Removes the zombies among the children of this process, which has no child then that it waits for
/// elsewhere.
pub(super) fn reap_orphans() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// The command and what it has started.
#[derive(Debug)]
pub(super) struct CommandProcesses {
    /// The process group that the command leads.
    group: Option<Pid>,
    /// The command itself until it is reaped; then its number may be that of a stranger.
    command: Option<Pid>,
    /// The children that this process had before the command.
    others: Vec<Pid>,
}

impl CommandProcesses {
    /// Says how the processes of the next command are found.
    pub(super) fn before(own_group: bool) -> impl FnOnce(Pid) -> Self {
        adopt_orphans();
        let others = children(getpid());
        move |command| Self {
            group: own_group.then_some(command),
            command: Some(command),
            others,
        }
    }

    /// Notes that the command has ended and was waited for. A group keeps its number while it has members.
    pub(super) fn reaped(&mut self) {
        self.command = None;
        self.group = self.group.filter(|group| is_group_alive(*group));
    }

    /// Sends a signal to the group, or to the command alone. Fails if it may not be sent.
    pub(super) fn signal_command(&self, signal: Signal) -> Result<(), Errno> {
        let sent = match (self.group, self.command) {
            (Some(group), _) => kill_process_group(group, signal),
            (None, Some(command)) => kill_process(command, signal),
            (None, None) => Ok(()),
        };
        match sent {
            Err(Errno::PERM) => sent,
            // It ended in the meantime.
            _ => Ok(()),
        }
    }

    /// Sends a signal to all of them. Fails if the command may not be sent it.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        let sent = self.signal_command(signal);
        for pid in self.outside_the_group() {
            let is_told = self.group.is_none() && Some(pid) == self.command;
            if !is_told && !is_linger(pid) {
                kill_process(pid, signal).ok();
            }
        }
        sent
    }

    /// Asks those to end that the command has left behind and that did not get the signal that it got: that of a
    /// terminal reaches all that is in the foreground. Children of theirs are left to them, as timeout(1) passes
    /// the signal on. `asked` are those that were asked before.
    pub(super) fn ask_the_rest(&self, is_of_terminal: bool, asked: &mut Vec<Pid>) {
        let rest = self.outside_the_group();
        let is_first = |pid: Pid| {
            let parent = parent_of(pid.as_raw_nonzero().get()).and_then(Pid::from_raw);
            parent.is_none_or(|parent| !rest.contains(&parent))
        };
        for pid in rest.iter().copied() {
            let is_told = is_of_terminal && group_of(pid) == Some(getpgrp());
            if is_first(pid) && !is_told && !is_linger(pid) && !asked.contains(&pid) {
                asked.push(pid);
                kill_process(pid, Signal::TERM).ok();
                // One that is stopped by job control would not see the signal.
                kill_process(pid, Signal::CONT).ok();
            }
        }
    }

    /// Kills what is left when the command has ended, also what is born meanwhile.
    pub(super) fn kill_the_rest(&self) {
        self.signal_command(Signal::KILL).ok();
        // Each round can only be outrun by a process that forks faster than it is listed.
        for _ in 0..ROUNDS {
            let mut alive = self.outside_the_group();
            alive.retain(|pid| !is_dead(*pid) && !is_linger(*pid));
            if alive.is_empty() {
                return;
            }
            for pid in alive {
                kill_process(pid, Signal::KILL).ok();
            }
        }
    }

    /// Whether anything of it can still act: zombies cannot.
    pub(super) fn is_alive(&self) -> bool {
        let mut lists = (0..2).map(|_| self.outside_the_group());
        // A process whose parent ends while a list is made is not on it.
        self.group.is_some_and(is_group_alive)
            || lists.any(|rest| rest.into_iter().any(|pid| !is_dead(pid)))
    }

    /// Removes the zombies of orphans, which this process has adopted.
    pub(super) fn reap_adopted(&self) {
        for pid in children(getpid()) {
            if Some(pid) != self.command && !self.others.contains(&pid) && is_dead(pid) {
                waitpid(Some(pid), WaitOptions::NOHANG).ok();
            }
        }
    }

    /// The descendants that a signal to the group does not reach.
    fn outside_the_group(&self) -> Vec<Pid> {
        let mut found = descendants(getpid(), &self.others);
        found.retain(|pid| self.group.is_none() || group_of(*pid) != self.group);
        found
    }
}

/// Whether it keeps the connection of a nested `lockctl`, and ends when the command of that one is dead.
fn is_linger(pid: Pid) -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(LINGER.as_bytes())
}

fn is_group_alive(group: Pid) -> bool {
    if test_kill_process_group(group) == Err(Errno::SRCH) {
        return false;
    }
    // There may be only zombies, if the system can tell.
    fs::read_dir("/proc").map_or(true, |all| {
        let names = all.flatten().map(|process| process.file_name());
        let mut pids = names.filter_map(|name| Pid::from_raw(name.to_str()?.parse().ok()?));
        pids.any(|pid| group_of(pid) == Some(group) && !is_dead(pid))
    })
}

fn group_of(pid: Pid) -> Option<Pid> {
    let group = number_after_name(pid.as_raw_nonzero().get(), 2)?;
    // The group of a process that is ending is -1.
    Pid::from_raw(group.max(0))
}

/// The parent of a process, 0 for none that is seen here; `None` where the system does not tell.
pub(crate) fn parent_of(pid: i32) -> Option<i32> {
    number_after_name(pid, 1)
}

fn number_after_name(pid: i32, at: usize) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    after_name(&stat)?.split(' ').nth(at)?.parse().ok()
}

const ROUNDS: usize = 16;

/// Those of `of`, without the children `others` and theirs.
fn descendants(of: Pid, others: &[Pid]) -> Vec<Pid> {
    let mut found = children(of);
    found.retain(|child| !others.contains(child));
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

/// Whether it is a zombie with all of its threads, which no signal makes any deader.
fn is_dead(pid: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let mut threads = threads.into_iter().flatten().flatten();
    threads.all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        after_name(&stat).is_none_or(|state| state.starts_with(['Z', 'X']))
    })
}

/// The fields of a process or thread from its state on. The name in parentheses before may contain
/// anything, also parentheses.
fn after_name(stat: &str) -> Option<&str> {
    Some(stat.rsplit_once(") ")?.1)
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
        let pid = Pid::from_child(&shell);
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while descendants(pid, &[]).is_empty() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        let found = descendants(pid, &[]);
        assert_eq!(found.len(), 1);
        assert!(!descendants(getpid(), &[pid]).contains(&found[0]));
        assert!(descendants(getpid(), &[]).contains(&found[0]));
        kill_process(found[0], Signal::KILL).unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn a_number_of_a_command_that_was_reaped_gets_no_signal() {
        let mut stranger = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let number = Pid::from_child(&stranger);
        let mut processes = CommandProcesses {
            group: None,
            command: Some(number),
            others: Vec::new(),
        };
        processes.reaped();
        processes.signal_command(Signal::KILL).unwrap();
        // It ends with its input. A signal that was sent before takes effect before.
        drop(stranger.stdin.take());
        assert!(stranger.wait().unwrap().success(), "a stranger was killed");
    }

    #[test]
    fn a_group_of_zombies_is_not_alive() {
        use std::os::unix::process::CommandExt;
        let mut shell = Command::new("sleep")
            .arg("60")
            .process_group(0)
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&shell);
        let processes = CommandProcesses {
            group: Some(pid),
            command: Some(pid),
            others: children(getpid()),
        };
        assert!(processes.is_alive());
        processes.kill_the_rest();
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while processes.is_alive() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        // The process has not been reaped.
        assert!(test_kill_process_group(pid).is_ok() && !processes.is_alive());
        shell.wait().unwrap();
    }
}
