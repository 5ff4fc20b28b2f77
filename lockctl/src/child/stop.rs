//! Stopping the command, gently first, and passing signals on to it.

use std::time::Duration;

use polylock::LostReason;
use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use super::signals::name;
use super::supervise::Watch;
use crate::commands::OnLost;
use crate::output::{Escaped, human};

/// Why a command is stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    /// `lockctl` was asked to end.
    Asked,
    /// The lease was not renewed and is about to end.
    Expiring,
    /// The lock is lost.
    Lost(LostReason),
    /// `--max-run` is over.
    MaxRun,
}

/// A stop under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopping {
    pub(super) why: Stop,
    /// When patience ends, `None` once it has.
    pub(super) kill_at: Option<Instant>,
}

impl Watch<'_> {
    pub(super) fn stop_expiring(&self) -> Stopping {
        let left = self.locks.valid_for().unwrap_or(self.rules.kill_after);
        self.console.warn(format_args!(
            "the lease of {} was not renewed and ends in {}",
            self.locks.names(),
            human(left)
        ));
        self.events.tell(
            "lost",
            json!({ "keys": self.locks.keys(), "reason": "expiring" }),
        );
        self.stop(Stop::Expiring, self.rules.signal_on_lost, left)
    }

    pub(super) fn stop_lost(&self, reason: LostReason, before: Option<Stopping>) -> Stopping {
        let patience = match reason {
            // The time is over by our own clock: there is none left for the command.
            LostReason::Expired | LostReason::Unreachable => Duration::ZERO,
            _ => self.rules.kill_after,
        };
        match before {
            Some(Stopping { kill_at, .. }) => {
                let kill_at = kill_at.map(|at| at.min(Instant::now() + patience));
                Stopping {
                    why: Stop::Lost(reason),
                    kill_at,
                }
            }
            None => self.stop(Stop::Lost(reason), self.rules.signal_on_lost, patience),
        }
    }

    /// The command has got the signal that asked for it, if that came from where it seems to.
    pub(super) fn stop_asked(&self, signal: Signal) -> Stopping {
        if self.is_of_terminal(signal) {
            // A signal of kill(1) looks the same, but the command has not got it.
            self.send(Signal::TERM);
        }
        // A command that is stopped by job control would not see the signal.
        self.send(Signal::CONT);
        Stopping {
            why: Stop::Asked,
            kill_at: Some(Instant::now() + self.rules.kill_after),
        }
    }

    pub(super) fn stop(&self, why: Stop, signal: Signal, patience: Duration) -> Stopping {
        if patience.is_zero() {
            self.console.note("killing the command");
            self.send(Signal::KILL);
            return Stopping { why, kill_at: None };
        }
        self.console.note(format_args!(
            "stopping the command: {} now, KILL in {}",
            name(signal),
            human(patience)
        ));
        self.send(signal);
        // A command that is stopped by job control would not see the signal.
        self.send(Signal::CONT);
        Stopping {
            why,
            kill_at: Some(Instant::now() + patience),
        }
    }

    pub(super) fn tell_loss(&self, reason: LostReason) {
        let key = self.locks.lost_one().map_or("", |(key, _)| key);
        self.console
            .warn(format_args!("{} is lost: {reason}", Escaped(key)));
        self.events
            .tell("lost", json!({ "keys": [key], "reason": reason.as_str() }));
    }

    /// Sends to everything that the command is made of.
    pub(super) fn send(&self, signal: Signal) {
        self.running.processes.signal(signal);
    }

    /// Passes on what `lockctl` got.
    pub(super) fn pass_on(&self, signal: Signal, interrupts: usize) {
        match signal {
            _ if self.is_of_terminal(signal) => {}
            Signal::INT if interrupts > 1 => self.send(Signal::KILL),
            _ => self.running.processes.signal_command(signal),
        }
    }

    /// Whether a terminal sends the signal, to the command as well.
    fn is_of_terminal(&self, signal: Signal) -> bool {
        self.rules.terminal_signals && [Signal::INT, Signal::QUIT, Signal::WINCH].contains(&signal)
    }

    /// Stops the command and then this process, until this process is continued.
    pub(super) fn sleep_together(&self) {
        self.send(Signal::STOP);
        kill_process(getpid(), Signal::STOP).ok();
        // Without the lock the command is not continued, unless a loss is only a warning. The loss is about
        // to be noticed.
        if self.locks.is_held() || self.rules.on_lost == OnLost::Warn {
            self.send(Signal::CONT);
        }
    }

    /// Kills what is left of the command, and waits until it is dead.
    pub(super) async fn kill_the_rest(&self) {
        let processes = &self.running.processes;
        let killing = async {
            loop {
                processes.kill_the_rest();
                if !processes.is_alive() {
                    break;
                }
                sleep(POLL_INTERVAL).await;
            }
        };
        if timeout(KILL_TIMEOUT, killing).await.is_err() {
            self.console.warn(format_args!(
                "processes of the command are not dead {} after KILL",
                human(KILL_TIMEOUT)
            ));
        }
    }
}

/// A process that waits for a disk or a network file system outlasts KILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between two looks at the processes of a command.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);
