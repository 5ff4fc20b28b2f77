//! Watches the command and the locks, passes signals on, and stops the command before the locks are
//! gone, gently first.

use std::future::pending;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::Duration;

use polylock::LostReason;
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::CommandLocks;
use super::processes::POLL_INTERVAL;
use super::rules::{CommandRules, LostAction};
use super::signals::{Signals, name};
use super::spawn::RunningCommand;
use crate::exit::Exit;
use crate::output::{Console, Escaped, Events, human};

/// Everything that is looked at while the command runs.
#[derive(Debug)]
pub(crate) struct CommandWatch<'a> {
    pub(crate) running: RunningCommand,
    pub(crate) locks: &'a CommandLocks<'a>,
    pub(crate) rules: CommandRules,
    pub(crate) console: &'a Console,
    pub(crate) events: &'a Events,
}

/// How the command ended.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) status: ExitStatus,
    /// Why it was stopped, if it was, or that the lock was not held to its end.
    pub(crate) stop: Option<Stop>,
    /// Whether an event has told that the lock is lost, or about to be.
    pub(crate) is_loss_told: bool,
    /// Whether a signal asked for the end.
    pub(crate) is_asked: bool,
}

/// Why a command is stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    /// `lockctl` was asked to end.
    Asked,
    /// The lease was not renewed and is about to end.
    Expiring,
    /// The lock is lost.
    Lost(LostReason),
    /// The lock is about to reach its max hold.
    MaxHold,
    /// `--max-run` is over.
    MaxRun,
}

/// Time in which a command that is killed has ended, also on a busy machine.
const TIME_TO_KILL: Duration = Duration::from_millis(500);

/// A stop under way.
#[derive(Clone, Copy, Debug)]
struct Stopping {
    why: Stop,
    /// When the command is killed, `None` once it is.
    kill_at: Option<Instant>,
}

impl Ending {
    /// The code of the command itself.
    pub(crate) fn exit(&self) -> Exit {
        Exit::of_child(self.status)
    }
}

impl CommandWatch<'_> {
    /// Waits for the command to end, passes signals on, and stops it when a lock is lost.
    pub(crate) async fn until_the_end(mut self, signals: &mut Signals) -> io::Result<Ending> {
        let mut lost = pin!(self.locks.lost());
        let mut expiring = pin!(time_to_stop(self.locks, self.rules.kill_after));
        let max_run = self.rules.max_run;
        let max_run = max_run.and_then(|time| Instant::now().checked_add(time));
        let stops = self.rules.on_lost == LostAction::Term;
        let (mut stopping, mut interrupts) = (None::<Stopping>, 0);
        let (mut is_asked, mut is_of_terminal) = (false, true);
        let (mut is_expiring, mut is_lost) = (false, false);
        let status = loop {
            let kill_at = stopping.and_then(|stopping| stopping.kill_at);
            // A command that is asked to end may end before its children, which must not go on without the lock.
            let is_killed = stopping.is_some() && kill_at.is_none();
            let rest_within = match is_asked && !is_killed {
                true => self.rules.kill_after,
                false => Duration::ZERO,
            };
            tokio::select! {
                // A command that has ended is not stopped, and a loss that is certain comes before
                // the warning of one.
                biased;
                status = self.running.ended(rest_within, is_of_terminal) => {
                    if is_asked {
                        break status;
                    }
                    // The command may have died from a signal that this process has not read yet.
                    let Some(signal) = signals.ending_now().await else {
                        break status;
                    };
                    is_asked = true;
                    is_of_terminal = self.is_of_terminal(signal);
                }
                reason = &mut lost, if !is_lost => {
                    is_lost = true;
                    self.tell_loss(reason);
                    if stops {
                        stopping = Some(self.stop_lost(reason, stopping));
                    }
                }
                () = &mut expiring, if stops && !is_expiring && !is_lost => {
                    is_expiring = true;
                    stopping = Some(self.stop_expiring(stopping));
                }
                () = at(max_run), if stopping.is_none() => {
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
                    if signal == Signal::CHILD {
                        self.running.processes.reap_adopted();
                        continue;
                    }
                    interrupts += usize::from(signal == Signal::INT);
                    self.pass_on(signal, interrupts);
                    if !signals.is_ending(signal) {
                        continue;
                    }
                    is_asked = true;
                    is_of_terminal &= self.is_of_terminal(signal);
                    if self.rules.is_service {
                        stopping = stopping.or_else(|| Some(self.stop_asked(signal)));
                    }
                }
            }
        };
        let (stop, is_lost) = self.end(&status, stopping, is_lost, is_asked).await;
        Ok(Ending {
            status: status?,
            stop,
            is_loss_told: is_lost || matches!(stop, Some(Stop::Expiring | Stop::MaxHold)),
            is_asked,
        })
    }

    /// Why the command was stopped, and whether a loss is told.
    async fn end(
        &mut self,
        status: &io::Result<ExitStatus>,
        stopping: Option<Stopping>,
        is_lost: bool,
        is_asked: bool,
    ) -> (Option<Stop>, bool) {
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
        if let (LostAction::Term, Some(reason)) = (self.rules.on_lost, reason) {
            stop = Some(Stop::Lost(reason));
        }
        if stop.is_some() || is_asked || self.rules.is_service || status.is_err() {
            // What the command started must not go on without the lock either.
            self.kill_the_rest().await;
        }
        (stop, is_lost || reason.is_some())
    }

    /// Stops the command before the lease or the max hold ends, whichever is first.
    fn stop_expiring(&self, before: Option<Stopping>) -> Stopping {
        let (valid_for, max_hold) = (self.locks.valid_for(), self.locks.max_hold_left());
        let ends_first = |left: &Duration| valid_for.is_none_or(|valid_for| *left <= valid_for);
        let keys = self.locks.names();
        let (why, reason, message, within) = match max_hold.filter(ends_first) {
            Some(left) => (
                Stop::MaxHold,
                LostReason::MaxHold.as_str(),
                format!("max-hold ends the lock on {keys} in {}", human(left)),
                // At the end of its max hold a lock may be released at once, unlike a lease, which lasts a
                // little longer at the server. So the command is dead before.
                left.saturating_sub(TIME_TO_KILL.min(left / 2)),
            ),
            None => {
                let left = valid_for.unwrap_or(self.rules.kill_after);
                // It has if lockctl or the machine was stopped meanwhile.
                let end = match left.is_zero() {
                    true => "has ended".to_owned(),
                    false => format!("ends in {}", human(left)),
                };
                let message = format!("the lease of {keys} was not renewed and {end}");
                (Stop::Expiring, "expiring", message, left)
            }
        };
        self.console.warn(message);
        let fields = json!({ "keys": self.locks.keys(), "reason": reason });
        self.events.tell("lost", fields);
        self.stop_or_hasten(why, within.min(self.rules.kill_after), before)
    }

    fn stop_lost(&self, reason: LostReason, before: Option<Stopping>) -> Stopping {
        let within = match reason {
            // The time is over by our own clock: there is none left for the command.
            LostReason::Expired | LostReason::MaxHold | LostReason::Unreachable => Duration::ZERO,
            _ => self.rules.kill_after,
        };
        let why = Stop::Lost(reason);
        Stopping {
            why,
            ..self.stop_or_hasten(why, within, before)
        }
    }

    /// Stops the command because of its lock, or kills it sooner if a stop is under way.
    fn stop_or_hasten(&self, why: Stop, within: Duration, before: Option<Stopping>) -> Stopping {
        match before {
            Some(before) => Stopping {
                kill_at: before.kill_at.map(|at| at.min(Instant::now() + within)),
                ..before
            },
            None => self.stop(why, self.rules.signal_on_lost, within),
        }
    }

    /// The command has got the signal that asked for it, if that came from where it seems to.
    fn stop_asked(&self, signal: Signal) -> Stopping {
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

    fn stop(&self, why: Stop, signal: Signal, within: Duration) -> Stopping {
        if within.is_zero() {
            self.console.note("killing the command");
            self.send(Signal::KILL);
            return Stopping { why, kill_at: None };
        }
        self.console.note(format_args!(
            "stopping the command: {} now, KILL in {}",
            name(signal),
            human(within)
        ));
        self.send(signal);
        // A command that is stopped by job control would not see the signal.
        self.send(Signal::CONT);
        Stopping {
            why,
            kill_at: Some(Instant::now() + within),
        }
    }

    fn tell_loss(&self, reason: LostReason) {
        let key = self.locks.lost_one().map_or("", |(key, _)| key);
        self.console
            .warn(format_args!("{} is lost: {reason}", Escaped(key)));
        self.events
            .tell("lost", json!({ "keys": [key], "reason": reason.as_str() }));
    }

    /// Sends to everything that the command is made of.
    fn send(&self, signal: Signal) {
        self.check(self.running.processes.signal(signal));
    }

    fn check(&self, sent: Result<(), Errno>) {
        if sent.is_err() && !self.running.is_out_of_reach.swap(true, Ordering::Relaxed) {
            self.console
                .warn("the command cannot be sent signals, it runs as another user");
        }
    }

    /// Passes on what `lockctl` got.
    fn pass_on(&self, signal: Signal, interrupts: usize) {
        match signal {
            _ if self.is_of_terminal(signal) => {}
            Signal::INT if interrupts > 1 => self.send(Signal::KILL),
            _ => self.check(self.running.processes.signal_command(signal)),
        }
    }

    /// Whether a terminal sends the signal, to the command as well.
    fn is_of_terminal(&self, signal: Signal) -> bool {
        self.rules.terminal_signals && [Signal::INT, Signal::QUIT, Signal::WINCH].contains(&signal)
    }

    /// Stops the command and then this process, until this process is continued.
    fn sleep_together(&self) {
        self.send(Signal::STOP);
        kill_process(getpid(), Signal::STOP).ok();
        // Without the lock the command is not continued, unless a loss is only a warning. The loss is about
        // to be noticed.
        if self.locks.is_held() || self.rules.on_lost == LostAction::Warn {
            self.send(Signal::CONT);
        }
    }

    /// Kills what is left of the command, and waits until it is dead.
    async fn kill_the_rest(&mut self) {
        let processes = &mut self.running.processes;
        let killing = async {
            loop {
                processes.kill_the_rest();
                if !processes.is_alive() {
                    break;
                }
                sleep(POLL_INTERVAL).await;
                processes.reaped();
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

/// Waits until the command has to get its signal: `kill_after` before the end of the lock, and at least the
/// time in which it can be killed.
///
/// A lock that lives with a session may never be valid for as long as its ttl, so two fifths of what is left
/// are enough. The first lease after a wait may be shorter than the later ones, so the time may grow.
async fn time_to_stop(locks: &CommandLocks<'_>, kill_after: Duration) {
    let wanted = kill_after.max(TIME_TO_KILL);
    let mut ahead = Duration::ZERO;
    while ahead < wanted {
        let ends = [locks.valid_for(), locks.max_hold_left()];
        let left = ends.into_iter().flatten().min();
        ahead = ahead.max(left.map_or(wanted, |left| wanted.min(left * 2 / 5)));
        if timeout(TIME_TO_KILL, locks.expiring(ahead)).await.is_ok() {
            return;
        }
    }
    locks.expiring(wanted).await;
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// A process that waits for a disk or a network file system outlasts KILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
