//! `run`: a command under one or several locks.

mod args;
mod plan;

use std::collections::BTreeSet;
use std::env;
use std::sync::Arc;
use std::time::Duration;

use polylock::layers::acquire_all;
use polylock::{Capabilities, DistributedLock, LockKey, LockLifetime, MultiGuard, Released};
use serde_json::json;

use super::{App, SHUTDOWN};
use crate::backend::BackendUrl;
use crate::child::{self, Ending, Facts, Linger, Signals, Stop, Suspensions, Watch};
use crate::exit::Exit;
use crate::held::{self, HeldKeys};
use crate::output::{Console, Events, Failure, Renewals, escaped, human, millis, unix_ms};
use crate::waiting::{Acquired, Outcome, Waiting};

use self::plan::Plan;

pub(crate) use self::args::{ModeArgs, OnLost, Pgid, RunArgs, WaitArgs};

/// Runs a command while holding locks.
pub(super) async fn run(app: &App, args: RunArgs) -> Result<Exit, Failure> {
    let backend = app.backend()?;
    let plan = Plan::new(args, &backend)?;
    // Before anything can be held: a signal from here on leaves nothing behind.
    let mut signals = Signals::catch().map_err(Failure::internal("cannot catch signals"))?;
    let outer = HeldKeys::read(env::var_os(held::VARIABLE).as_deref());
    outer.refuse(&backend, plan.keys.iter().map(LockKey::as_str))?;
    let run = Run {
        events: Events::open(plan.args.events.as_ref())?,
        console: app.console.in_background(),
        backend,
        plan,
    };
    let exit = run.under_locks(&mut signals).await;
    run.events.flush();
    run.console.flush();
    exit
}

/// One run.
#[derive(Debug)]
struct Run {
    plan: Plan,
    backend: BackendUrl,
    console: Console,
    events: Events,
}

impl Run {
    async fn under_locks(&self, signals: &mut Signals) -> Result<Exit, Failure> {
        let acquired = Acquired::new();
        let renewals = Renewals {
            acquired: acquired.clone(),
            events: self.events.clone(),
            console: self.console.clone(),
        };
        let locks = tokio::select! {
            signal = signals.next_that_ends() => return Ok(Exit::Signaled(signal.as_raw())),
            locks = self.backend.connect(Some(Arc::new(renewals))) => locks?,
        };
        let waiting = Waiting {
            locks: &*locks,
            keys: &self.plan.keys,
            request: &self.plan.request,
            console: &self.console,
            events: &self.events,
            program: &self.backend.program(),
            acquired: &acquired,
        };
        let began = tokio::time::Instant::now();
        let request = &self.plan.request;
        // In one order for all processes: crossing pairs cannot deadlock. It looks for holders itself.
        let keys: BTreeSet<_> = self.plan.keys.iter().cloned().collect();
        let requests: Vec<_> = keys
            .into_iter()
            .map(|key| request.clone().with_key(key))
            .collect();
        let acquiring = async { acquire_all(&*locks, &requests).await.map(MultiGuard::new) };
        let acquired = waiting.wait_for(acquiring, signals).await;
        let exit = match acquired {
            Ok(Outcome::Acquired(guard)) => {
                self.tell_acquired(&guard, began.elapsed());
                self.holding(&locks, guard, signals).await
            }
            Ok(Outcome::Held(failure)) => self.not_acquired(failure),
            Ok(Outcome::Interrupted(signal)) => Ok(Exit::Signaled(signal.as_raw())),
            Err(failure) => Err(failure),
        };
        locks.shutdown(self.time_to_shut_down(&*locks)).await;
        exit
    }

    fn tell_acquired(&self, guard: &MultiGuard, waited: Duration) {
        let locks: Vec<_> = guard
            .guards()
            .iter()
            .map(|guard| {
                let token = guard.fencing_token().map(|token| token.value());
                json!({ "key": guard.key().as_str(), "token": token })
            })
            .collect();
        let deadline =
            child::valid_for(guard).map(|left| unix_ms(std::time::SystemTime::now() + left));
        self.events.tell(
            "acquired",
            json!({ "locks": locks, "waited_ms": millis(waited), "deadline_unix_ms": deadline }),
        );
    }

    fn not_acquired(&self, failure: Failure) -> Result<Exit, Failure> {
        if self.plan.args.skip_if_held {
            self.console
                .note(format_args!("skipped: {}", failure.message()));
            return Ok(Exit::Success);
        }
        Err(failure.with_exit(Exit::Of(self.plan.args.conflict_exit_code)))
    }

    async fn holding(
        &self,
        locks: &Arc<dyn DistributedLock>,
        guard: MultiGuard,
        signals: &mut Signals,
    ) -> Result<Exit, Failure> {
        let ended = self
            .command_under(&guard, locks.capabilities(), signals)
            .await;
        self.release(guard).await;
        let ending = ended?;
        self.verdict(&ending)
    }

    async fn command_under(
        &self,
        guard: &MultiGuard,
        capabilities: Capabilities,
        signals: &mut Signals,
    ) -> Result<Ending, Failure> {
        guard
            .ensure_held()
            .map_err(|error| Failure::from(error).with_exit(self.lost()))?;
        let label = self.plan.request.label().clone();
        let kind = capabilities.backend;
        let facts = Facts::of(guard, self.plan.request.ttl(), &self.backend, kind, label);
        let variables = facts.variables(|name| env::var_os(name));
        if !self.plan.own_group {
            child::adopt_orphans();
        }
        let cannot_catch = Failure::internal("cannot catch signals");
        let suspensions = Suspensions::catch(self.plan.own_group).map_err(cannot_catch)?;
        // A lease outlives lockctl by itself, and so does a session of ZooKeeper. Without this the lock
        // is held as well, so that it is no failure if it cannot be had.
        let mut linger = match capabilities.bound {
            LockLifetime::Connection => Linger::start().ok(),
            _ => None,
        };
        let running = child::spawn(&self.plan.command, variables, self.plan.own_group)?;
        if let Some(linger) = &mut linger {
            linger.outlive(running.pid).ok();
        }
        let watch = Watch {
            running,
            suspensions,
            guard,
            rules: self.plan.rules,
            console: &self.console,
            events: &self.events,
        };
        let cannot_wait = Failure::internal("cannot wait for the command");
        watch.until_the_end(signals).await.map_err(cannot_wait)
    }

    async fn release(&self, guard: MultiGuard) {
        let keys: Vec<_> = guard
            .guards()
            .iter()
            .map(|guard| guard.key().to_string())
            .collect();
        let released = tokio::time::timeout(RELEASE, guard.release()).await;
        let outcome = match released {
            Ok(Ok(Released::Clean)) => "clean",
            Ok(Ok(_)) => "already_lost",
            Ok(Err(error)) => {
                let error = escaped(&error.to_string());
                self.console.warn(format_args!(
                    "not released, the lease will run out: {error}"
                ));
                "failed"
            }
            Err(_) => {
                self.console
                    .warn("the release is not confirmed, the lease may have to run out");
                "unknown"
            }
        };
        self.events
            .tell("released", json!({ "keys": keys, "outcome": outcome }));
    }

    fn verdict(&self, ending: &Ending) -> Result<Exit, Failure> {
        let reason = match ending.stop {
            Some(Stop::Lost(reason)) => reason.to_string(),
            Some(Stop::Expiring) => "its lease could not be renewed in time".to_owned(),
            Some(Stop::MaxRun) => {
                let limit = self.plan.rules.max_run.unwrap_or_default();
                self.console
                    .warn(format_args!("stopped after --max-run {}", human(limit)));
                return Ok(ending.exit());
            }
            None => return Ok(ending.exit()),
        };
        let keys: Vec<_> = self
            .plan
            .keys
            .iter()
            .map(|key| escaped(key.as_str()))
            .collect();
        let message = format!("lost the lock on {}: {reason}", keys.join(", "));
        Err(Failure::new(self.lost(), message)
            .with_detail("command", format!("ended with {}", ending.status))
            .with_hint("what the command did last may have met the work of the next holder"))
    }

    fn lost(&self) -> Exit {
        Exit::Of(self.plan.args.lost_exit_code)
    }

    /// The lease expires by itself where there is one; elsewhere `--min-hold` lasts as long as
    /// this process.
    fn time_to_shut_down(&self, locks: &dyn DistributedLock) -> Duration {
        match locks.capabilities().bound {
            LockLifetime::Lease => SHUTDOWN,
            _ => self.plan.request.min_hold().saturating_add(SHUTDOWN),
        }
    }
}

/// Longest wait for the answer to a release, which goes on in the background after that.
const RELEASE: Duration = Duration::from_secs(5);
