//! `run --once-per` and `--once-key`: a command that runs once, whichever host starts it.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use polylock::coordination::{Once, OnceStart, RunOutcome};
use polylock::{DistributedLock, LockKey, LostReason};
use serde_json::json;
use tokio::time::Instant;

use super::{Run, RunArgs};
use crate::args::{once_key, period};
use crate::backend::BackendUrl;
use crate::child::{CommandLocks, ENDED_BEFORE, Ending, LostAction, ReleasedLocks, Signals, name};
use crate::commands::app;
use crate::exit::Exit;
use crate::output::{
    CommandFailure, Escaped, escaped, holder_refusing, holders_json, last_run_json, last_run_text,
};
use crate::waiting::look;

/// How often the command runs.
#[derive(Args, Clone, Debug)]
pub(crate) struct OnceArgs {
    /// Run the command if it has not run for this time on any host; else exit 0. One that failed is
    /// due at once
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = period,
        conflicts_with_all = SENSELESS
    )]
    once_per: Option<Duration>,
    /// Run the command if it has not run for KEY, such as a date, within 7 days; else exit 0
    #[arg(
        long,
        value_name = "KEY",
        value_parser = once_key,
        conflicts_with = "once_per",
        conflicts_with_all = SENSELESS
    )]
    once_key: Option<String>,
}

/// A job that another host runs is not waited for, and its record lasts longer than any hold.
const SENSELESS: [&str; 6] = [
    "conflict_exit_code",
    "min_hold",
    "no_wait",
    "permits",
    "shared",
    "wait",
];

impl OnceArgs {
    /// Refuses what cannot be one job.
    pub(super) fn check(&self, args: &RunArgs, backend: &BackendUrl) -> Result<(), CommandFailure> {
        let option = match (self.once_per, &self.once_key) {
            (Some(_), _) => "--once-per",
            (None, Some(_)) => "--once-key",
            (None, None) => return Ok(()),
        };
        let problem = if args.keys.len() > 1 {
            "is for one key, whose last run it looks up"
        } else if args.on_lost == LostAction::Warn {
            "does not go with --on-lost warn: a run without its lock is not recorded"
        } else {
            return backend.check_is_one();
        };
        let message = format!("{option} {problem}");
        Err(CommandFailure::new(Exit::Usage, message))
    }

    /// The key of the lock of the job.
    pub(super) fn lock_key(&self, name: &str) -> Result<LockKey, CommandFailure> {
        match &self.once_key {
            Some(key) => app::key(&format!("{name}/{key}")),
            None => app::key(name),
        }
    }

    /// The job, if there is one.
    pub(super) fn job(
        &self,
        locks: &Arc<dyn DistributedLock>,
        name: &str,
    ) -> Result<Option<Once>, CommandFailure> {
        let locks = Arc::clone(locks);
        Ok(match (self.once_per, &self.once_key) {
            (Some(period), _) => Some(Once::every(locks, name, period)?),
            (None, Some(key)) => Some(Once::for_key(locks, name, key)?),
            (None, None) => None,
        })
    }
}

impl Run {
    /// Runs the command if it is due and no other host is at it.
    pub(super) async fn once(
        &self,
        locks: &dyn DistributedLock,
        job: Once,
        signals: &mut Signals,
    ) -> Result<Exit, CommandFailure> {
        let request = &self.request;
        let job = job
            .ttl(request.ttl())
            .max_hold(request.max_hold())
            .label(request.label().clone());
        let began = Instant::now();
        let start = tokio::select! {
            biased;
            signal = signals.next_that_ends() => return Ok(Exit::Signaled(signal.as_raw())),
            start = job.start() => start?,
        };
        let run = match start {
            OnceStart::Started(run) => run,
            OnceStart::Skipped(last) => {
                let fields = json!({ "last_run": last_run_json(&last) });
                self.skip(&last_run_text(&last), fields);
                return Ok(Exit::Success);
            }
            _ => {
                self.skip_busy(locks).await;
                return Ok(Exit::Success);
            }
        };
        let held = CommandLocks::new([run.guard()]);
        self.runner.tell_acquired(&held, began.elapsed());
        let capabilities = locks.capabilities();
        let ended = self.runner.run_under(&held, capabilities, signals).await;
        let outcome = outcome(&ended);
        let was_lost = tokio::select! {
            biased;
            (guard, recorded) = run.record(outcome) => {
                // A loss that was noticed while the run was recorded; the release does not ask again.
                let reason = guard.lost().reason();
                let is_taken = matches!(reason, Some(LostReason::Broken | LostReason::Stolen));
                let is_known = reason.is_some();
                let locks = ReleasedLocks::new(&CommandLocks::new([&guard]));
                let (_, is_lost) = self.runner.released(&locks, &ended, guard.release()).await;
                // A session that has ended meanwhile may have lasted until the command ended.
                let was_lost = is_taken || (is_lost && !is_known);
                if is_lost && !was_lost {
                    let key = Escaped(self.request.key().as_str());
                    let message = format_args!("{key} was lost after the command had ended");
                    self.runner.console.warn(message);
                }
                self.tell_recorded(outcome, recorded.map_err(|error| escaped(&error.to_string())));
                was_lost
            }
            signal = signals.next_that_ends() => {
                self.tell_recorded(outcome, Err(format!("ended by {}", name(signal))));
                false
            }
        };
        self.verdict(ended, was_lost.then_some(ENDED_BEFORE))
    }

    async fn skip_busy(&self, locks: &dyn DistributedLock) {
        let info = look(locks, self.request.key()).await;
        let fields = json!({ "holders": info.as_ref().map(holders_json) });
        let holder = info.as_ref().and_then(|info| info.holders.first());
        let holder = holder.map_or_else(|| "another host".to_owned(), holder_refusing);
        self.skip(&format!("is held by {holder}"), fields);
    }

    fn skip(&self, why: &str, mut fields: serde_json::Value) {
        let key = self.request.key().as_str();
        self.runner
            .console
            .note(format_args!("skipped: {} {why}", Escaped(key)));
        fields["key"] = key.into();
        self.runner.events.tell("skipped", fields);
    }

    fn tell_recorded(&self, outcome: RunOutcome, recorded: Result<(), String>) {
        let key = self.request.key().as_str();
        let word = match (recorded, outcome) {
            (Ok(()), outcome) => outcome.as_str(),
            (Err(error), RunOutcome::Ran) => {
                self.runner.console.warn(format_args!(
                    "{}: the run may not be recorded, and others may repeat it: {error}",
                    Escaped(key)
                ));
                "unrecorded"
            }
            // It is due all the same.
            (Err(_), _) => "unrecorded",
        };
        self.runner
            .events
            .tell("recorded", json!({ "key": key, "outcome": word }));
    }
}

/// A command that was stopped or asked to end, or ended without its lock, has not succeeded, whatever it says.
fn outcome(ended: &Result<Ending, CommandFailure>) -> RunOutcome {
    match ended {
        Ok(ending) if ending.stop.is_none() && !ending.is_asked && ending.status.success() => {
            RunOutcome::Ran
        }
        _ => RunOutcome::Failed,
    }
}
