//! Watches the command and the locks, and stops the command before the locks are gone.

use std::future::pending;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tokio::time::Instant;

use super::Locks;
use super::signals::Signals;
use super::spawn::Running;
use super::stop::{Stop, Stopping};
use crate::commands::OnLost;
use crate::exit::Exit;
use crate::output::{Console, Events};

/// What the command may do, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) kill_after: Duration,
    pub(crate) max_run: Option<Duration>,
    pub(crate) on_lost: OnLost,
    pub(crate) signal_on_lost: Signal,
    /// Whether the command is a service: what is left of it when it ends is killed, and a signal that ends
    /// `lockctl` stops it by force. Else both are left to the command.
    pub(crate) is_service: bool,
    /// Whether the command leads a process group of its own.
    pub(crate) own_group: bool,
    /// Whether the terminal sends INT and QUIT to the command itself.
    pub(crate) terminal_signals: bool,
}

/// Everything that is looked at while the command runs.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    pub(crate) running: Running,
    pub(crate) locks: &'a Locks<'a>,
    pub(crate) rules: Rules,
    pub(crate) console: &'a Console,
    pub(crate) events: &'a Events,
}

/// How the command ended.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) status: ExitStatus,
    /// Why it was stopped, if it was, or that the lock was not held to its end.
    pub(crate) stop: Option<Stop>,
    /// Whether a signal asked for the end.
    pub(crate) is_asked: bool,
}

impl Watch<'_> {
    /// Waits for the command to end, passes signals on, and stops it when a lock is lost.
    pub(crate) async fn until_the_end(mut self, signals: &mut Signals) -> io::Result<Ending> {
        let mut lost = pin!(self.locks.lost());
        let mut expiring = pin!(self.locks.expiring(self.time_to_stop()));
        let mut max_run = pin!(after(self.rules.max_run));
        let stops = self.rules.on_lost == OnLost::Term;
        let (mut stopping, mut is_lost, mut interrupts) = (None::<Stopping>, false, 0);
        let mut is_asked = false;
        let status = loop {
            let kill_at = stopping.and_then(|stopping| stopping.kill_at);
            // A command that is asked to end may end before its children.
            let has_time =
                stopping.is_some_and(|stopping| stopping.why == Stop::Asked) && kill_at.is_some();
            tokio::select! {
                // A command that has ended is not stopped, and a loss that is certain comes before
                // the warning of one.
                biased;
                status = self.running.ended(has_time) => break status,
                reason = &mut lost, if !is_lost => {
                    is_lost = true;
                    self.tell_loss(reason);
                    if stops {
                        stopping = Some(self.stop_lost(reason, stopping));
                    }
                }
                () = &mut expiring, if stops && stopping.is_none() => {
                    stopping = Some(self.stop_expiring());
                }
                () = &mut max_run, if stopping.is_none() => {
                    stopping = Some(self.stop(Stop::MaxRun, Signal::TERM, self.rules.kill_after));
                }
                () = at(kill_at) => {
                    self.send(Signal::KILL);
                    stopping = stopping.map(|stopping| Stopping { kill_at: None, ..stopping });
                }
                signal = signals.next() => {
                    if signal == Signal::TSTP {
                        self.sleep_together();
                        continue;
                    }
                    interrupts += usize::from(signal == Signal::INT);
                    self.pass_on(signal, interrupts);
                    is_asked |= signals.is_ending(signal);
                    if self.rules.is_service && is_asked {
                        stopping = stopping.or_else(|| Some(self.stop_asked(signal)));
                    }
                }
            }
        };
        let stop = self.end(&status, stopping, is_lost).await;
        Ok(Ending {
            status: status?,
            stop,
            // A signal that the command got as well may be seen after its end.
            is_asked: is_asked || signals.has_ending().await,
        })
    }

    /// How long before the end of the lock the command gets its signal. A lock that lives with a
    /// session may never be valid for as long as its ttl.
    fn time_to_stop(&self) -> Duration {
        let most = self.locks.valid_for().map(|left| left * 2 / 5);
        most.map_or(self.rules.kill_after, |most| {
            self.rules.kill_after.min(most)
        })
    }

    async fn end(
        &self,
        status: &io::Result<ExitStatus>,
        stopping: Option<Stopping>,
        is_lost: bool,
    ) -> Option<Stop> {
        if let Ok(status) = status {
            let fields = json!({ "code": status.code(), "signal": status.signal() });
            self.events.tell("child_exit", fields);
        }
        let mut stop = stopping.map(|stopping| stopping.why);
        // lockctl or the machine may have slept through the end of the lease.
        let reason = self.locks.lost_one().map(|(_, reason)| reason);
        if let Some(reason) = reason.filter(|_| !is_lost) {
            self.tell_loss(reason);
        }
        if let (OnLost::Term, Some(reason)) = (self.rules.on_lost, reason) {
            stop = Some(Stop::Lost(reason));
        }
        if stop.is_some() || self.rules.is_service || status.is_err() {
            // What the command started must not go on without the lock either.
            self.kill_the_rest().await;
        }
        stop
    }
}

impl Ending {
    /// The code of the command itself.
    pub(crate) fn exit(&self) -> Exit {
        Exit::of_child(self.status)
    }
}

async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => pending().await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => pending().await,
    }
}
