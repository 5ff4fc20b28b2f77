//! `run`: a command under one or several locks.

mod args;
mod command;
mod once;

use std::collections::BTreeSet;
use std::time::Duration;

use polylock::layers::acquire_all;
use polylock::{AcquireRequest, DistributedLock, LockKey, LockLifetime, MultiGuard, Wait};
use tokio::time::{Instant, sleep_until};

use super::app::{App, SHUTDOWN};
use crate::backend::BackendUrl;
use crate::child::{
    CommandLocks, CommandRules, ENDED_BEFORE, Ending, LostAction, ReleasedLocks, Runner, Signals,
    Stop,
};
use crate::exit::Exit;
use crate::held_keys::{refuse_held, refuse_too_many};
use crate::output::{CommandFailure, Events, human, names};
use crate::waiting::{LockWait, WaitOutcome};

pub(crate) use self::args::{ModeArgs, RunArgs, WaitArgs};
pub(crate) use self::command::CommandArgs;
pub(crate) use self::once::OnceArgs;

pub(super) async fn run(app: &App, args: RunArgs) -> Result<Exit, CommandFailure> {
    let backend = app.backend()?;
    args.once.check(&args, &backend)?;
    let keys = args.keys.iter().map(|key| args.once.lock_key(key));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let request = request(&args, &keys[0], &backend)?;
    let rules = CommandRules {
        max_run: args.max_run,
        on_lost: args.on_lost,
        ..args.command.rules(request.ttl())?
    };
    refuse_held(&backend, keys.iter().map(LockKey::as_str))?;
    refuse_too_many(&backend, &keys)?;
    let command = &args.command;
    // Before anything can be held: a signal from here on leaves nothing behind.
    let mut signals = Signals::catch()?;
    let events = tokio::select! {
        biased;
        signal = signals.next_that_ends() => return Ok(Exit::Signaled(signal.as_raw())),
        events = Events::open(command.events.clone(), &app.console) => events?,
    };
    let runner = command.runner(rules, &request, backend, &app.console, events);
    let run = Run {
        args,
        keys,
        request,
        runner,
    };
    let exit = run.under_locks(&mut signals).await;
    run.runner.flush();
    exit
}

fn request(
    args: &RunArgs,
    key: &LockKey,
    backend: &BackendUrl,
) -> Result<AcquireRequest, CommandFailure> {
    // Without a configuration it waits forever, and the life of the command is the limit.
    let request = AcquireRequest::new(key.clone())
        .with_wait(Wait::Forever)
        .with_max_hold(None)
        .with_mode(args.mode.mode())
        .with_label(args.command.label());
    let mut request = backend.lock_settings.apply(request);
    let skipping = args.skip_if_held.then_some(Wait::Never);
    if let Some(wait) = args.wait.wanted().or(skipping) {
        request = request.with_wait(wait);
    }
    if let Some(ttl) = args.command.ttl {
        request = request.with_ttl(ttl);
    }
    if let Some(min_hold) = args.min_hold {
        request = request.with_min_hold(min_hold);
    }
    let request = backend.in_class(request);
    request.validate()?;
    Ok(request)
}

#[derive(Debug)]
struct Run {
    args: RunArgs,
    keys: Vec<LockKey>,
    /// The options for all of the keys; its key is the first of them.
    request: AcquireRequest,
    runner: Runner,
}

impl Run {
    async fn under_locks(&self, signals: &mut Signals) -> Result<Exit, CommandFailure> {
        let locks = tokio::select! {
            signal = signals.next_that_ends() => return Ok(Exit::Signaled(signal.as_raw())),
            locks = self.runner.connect() => locks?,
        };
        let exit = match self.args.once.job(&locks, &self.args.keys[0])? {
            Some(job) => Box::pin(self.once(&*locks, job, signals)).await,
            None => self.waiting_for(&*locks, signals).await,
        };
        tokio::select! {
            _ = locks.shutdown(self.time_to_shut_down(&*locks)) => {}
            // Nothing is left to do but to keep the lock for its min hold.
            _ = signals.next_that_ends() => {
                locks.shutdown(SHUTDOWN).await;
            }
        }
        exit
    }

    async fn waiting_for(
        &self,
        locks: &dyn DistributedLock,
        signals: &mut Signals,
    ) -> Result<Exit, CommandFailure> {
        let runner = &self.runner;
        let waiting = LockWait {
            locks,
            keys: &self.keys,
            request: &self.request,
            console: &runner.console,
            events: &runner.events,
            programs: &runner.backend.programs(),
            progress: &runner.progress,
        };
        let began = Instant::now();
        let request = match self.keeps_min_hold(locks) {
            true => self.request.clone().with_min_hold(Duration::ZERO),
            false => self.request.clone(),
        };
        // In one order for all processes: crossing pairs cannot deadlock. It looks for holders itself.
        let keys: BTreeSet<_> = self.keys.iter().cloned().collect();
        let requests: Vec<_> = keys
            .into_iter()
            .map(|key| request.clone().with_key(key))
            .collect();
        let acquiring = async { acquire_all(locks, &requests).await.map(MultiGuard::new) };
        let waited = waiting.wait_for(acquiring, signals).await;
        match waited.map_err(|failure| self.with_lost_code(failure))? {
            WaitOutcome::Acquired(guard) => {
                let held = CommandLocks::new(guard.guards());
                let acquired = Instant::now();
                runner.tell_acquired(&held, began.elapsed());
                let ended = runner.run_under(&held, locks.capabilities(), signals).await;
                let found = match self.keeps_min_hold(locks) {
                    true => self.keep(&held, acquired, signals).await,
                    false => Some(ENDED_BEFORE),
                };
                let held = ReleasedLocks::new(&held);
                let was_lost = runner.release(&held, &ended, guard.release()).await;
                if was_lost && found.is_none() {
                    let keys = names(self.keys.iter().map(LockKey::as_str));
                    let message = format_args!("{keys} was lost before the end of its min hold");
                    runner.console.warn(message);
                }
                self.verdict(ended, found.filter(|_| was_lost))
            }
            WaitOutcome::Held(failure) => self.not_acquired(failure),
            WaitOutcome::Interrupted(signal) => Ok(Exit::Signaled(signal.as_raw())),
        }
    }

    /// Whether `lockctl` keeps the lock for its min hold, so that a signal can release it: it has no lease that
    /// could expire. A lock on two backends may have one.
    fn keeps_min_hold(&self, locks: &dyn DistributedLock) -> bool {
        locks.capabilities().bound != LockLifetime::Lease && !self.request.min_hold().is_zero()
    }

    /// Waits for the end of the min hold, unless a signal or a loss ends the wait. Returns what is known of a
    /// loss that is found after it; `None` if it surely came later than the end of the command.
    async fn keep(
        &self,
        held: &CommandLocks<'_>,
        acquired: Instant,
        signals: &mut Signals,
    ) -> Option<&'static str> {
        let (began, until) = (Instant::now(), acquired + self.request.min_hold());
        if until <= began {
            return Some(ENDED_BEFORE);
        }
        tokio::select! {
            biased;
            _ = signals.next_that_ends() => {}
            _ = held.lost() => {}
            () = sleep_until(until) => {}
        }
        // A loss is noticed in less time.
        let is_soon = began.elapsed() < self.request.ttl();
        is_soon.then_some("it ended before its min hold, and perhaps before the command did")
    }

    fn not_acquired(&self, failure: CommandFailure) -> Result<Exit, CommandFailure> {
        if self.args.skip_if_held {
            self.runner
                .console
                .note(format_args!("skipped: {}", failure.message()));
            return Ok(Exit::Success);
        }
        Err(failure.with_exit(Exit::Of(self.args.conflict_exit_code)))
    }

    /// `found`: what is known of a loss that only the release found.
    fn verdict(
        &self,
        ended: Result<Ending, CommandFailure>,
        found: Option<&str>,
    ) -> Result<Exit, CommandFailure> {
        let ending = ended.map_err(|failure| self.with_lost_code(failure))?;
        let stops = self.runner.rules.on_lost == LostAction::Term;
        if let (Some(found), false) = (found, stops) {
            let keys = names(self.keys.iter().map(LockKey::as_str));
            let message = format_args!("{keys} is lost: {found}");
            self.runner.console.warn(message);
        }
        let found = found.filter(|_| stops);
        let reason = match (ending.stop, found) {
            (Some(Stop::Lost(reason)), _) => reason.to_string(),
            (Some(Stop::MaxHold), _) => {
                let keys = names(self.keys.iter().map(LockKey::as_str));
                let message = format!("max-hold has ended the lock on {keys}");
                return Err(CommandFailure::new(self.lost(), message)
                    .with_detail("command", format!("ended with {}", ending.status))
                    .with_hint("it ended before the lock did"));
            }
            (Some(Stop::Expiring), _) => "its lease could not be renewed in time".to_owned(),
            (_, Some(found)) => found.to_owned(),
            (Some(Stop::MaxRun), None) => {
                let limit = self.runner.rules.max_run.unwrap_or_default();
                self.runner
                    .console
                    .warn(format_args!("stopped after --max-run {}", human(limit)));
                return Ok(ending.exit());
            }
            (Some(Stop::Asked) | None, None) => return Ok(ending.exit()),
        };
        let keys = names(self.keys.iter().map(LockKey::as_str));
        let message = format!("lost the lock on {keys}: {reason}");
        Err(CommandFailure::new(self.lost(), message)
            .with_detail("command", format!("ended with {}", ending.status))
            .with_hint("what the command did last may have met the work of the next holder"))
    }

    /// A lock that was lost before the command began counts like any other.
    fn with_lost_code(&self, failure: CommandFailure) -> CommandFailure {
        match failure.exit() {
            Exit::Lost => failure.with_exit(self.lost()),
            _ => failure,
        }
    }

    fn lost(&self) -> Exit {
        Exit::Of(self.args.lost_exit_code)
    }

    /// A lease expires by itself. Of a lock on two backends, one part may have a lease and the other may not: the
    /// latter is kept for its min hold as long as this process lives.
    fn time_to_shut_down(&self, locks: &dyn DistributedLock) -> Duration {
        match locks.capabilities().bound {
            LockLifetime::Lease if self.runner.backend.migrates() => {
                self.request.min_hold().saturating_add(SHUTDOWN)
            }
            _ => SHUTDOWN,
        }
    }
}
