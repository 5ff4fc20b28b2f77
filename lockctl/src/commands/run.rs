//! `run`: a command under one or several locks.

use std::env;
use std::ffi::OsString;
use std::io::{IsTerminal, stdin};
use std::sync::Arc;
use std::time::Duration;

use polylock::{
    AcquireRequest, Bound, DistributedLock, DistributedLockExt, Label, LockKey, MultiGuard,
    Released, Wait,
};
use serde_json::json;

use super::{App, SHUTDOWN};
use crate::args::RunArgs;
use crate::backend::BackendUrl;
use crate::child::{self, Ending, Facts, Rules, Signals, Stop, Watch, wants_own_group};
use crate::events::{Events, Renewals};
use crate::exit::Exit;
use crate::held::{self, HeldKeys};
use crate::messages::{Console, Failure};
use crate::text::{escaped, human, millis, unix_ms};
use crate::waiting::{Outcome, Waiting};

/// Runs a command while holding locks.
pub(super) async fn run(app: &App, args: RunArgs) -> Result<Exit, Failure> {
    let plan = Plan::new(args)?;
    // Before anything can be held: a signal from here on leaves nothing behind.
    let mut signals = Signals::catch()
        .map_err(|e| Failure::new(Exit::Internal, "cannot catch signals").with_cause(&e))?;
    let backend = app.backend()?;
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

/// What the options amount to.
#[derive(Debug)]
struct Plan {
    keys: Vec<LockKey>,
    request: AcquireRequest,
    rules: Rules,
    command: Vec<OsString>,
    own_group: bool,
    args: RunArgs,
}

impl Plan {
    fn new(args: RunArgs) -> Result<Self, Failure> {
        let keys = args
            .keys
            .iter()
            .map(|key| super::key(key))
            .collect::<Result<Vec<_>, _>>()?;
        let wait = match args.wait.wanted() {
            Some(wait) => wait,
            None if args.skip_if_held => Wait::Never,
            None => Wait::Forever,
        };
        let label = Label::of_this_process().with_note(args.note.as_deref().unwrap_or_default());
        let request = AcquireRequest::new(keys[0].clone())
            .with_mode(args.mode.mode())
            .with_wait(wait)
            .with_ttl(args.ttl)
            .with_min_hold(args.at_least_for.unwrap_or_default())
            // The life of the command is the limit.
            .with_max_hold(None)
            .with_label(label);
        request.validate()?;
        let own_group = wants_own_group(args.pgid, stdin().is_terminal());
        let rules = Rules {
            kill_after: kill_after(args.ttl, args.kill_after)?,
            max_run: args.max_run,
            on_lost: args.on_lost,
            signal_on_lost: args.signal_on_lost,
            terminal_signals: !own_group && stdin().is_terminal(),
        };
        let command = match &args.shell {
            Some(line) => shell(line.clone()),
            None => args.command.clone(),
        };
        Ok(Self {
            keys,
            request,
            rules,
            command,
            own_group,
            args,
        })
    }
}

/// Time that the command gets to stop, which the lease has to have room for.
fn kill_after(ttl: Duration, wanted: Option<Duration>) -> Result<Duration, Failure> {
    let period = ttl / 3;
    let Some(wanted) = wanted else {
        return Ok((ttl / 6).min(Duration::from_secs(5)));
    };
    if ttl
        .checked_sub(2 * period)
        .is_some_and(|room| wanted <= room)
    {
        return Ok(wanted);
    }
    let message = format!(
        "--kill-after {} does not fit into --ttl {}: a lease lasts for two renewals, each after a \
         third of it, and --kill-after on top",
        human(wanted),
        human(ttl)
    );
    Err(Failure::new(Exit::Usage, message).with_hint(format!(
        "use --kill-after {} or less, or --ttl {} or more",
        human(period),
        human(wanted.saturating_mul(3))
    )))
}

fn shell(line: OsString) -> Vec<OsString> {
    let shell = env::var_os("SHELL").filter(|shell| !shell.is_empty());
    vec![shell.unwrap_or_else(|| "/bin/sh".into()), "-c".into(), line]
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
        let renewals = Renewals {
            events: self.events.clone(),
            console: self.console.clone(),
            namespace: self.backend.namespace().to_owned(),
        };
        let locks = tokio::select! {
            signal = signals.next_that_ends() => return Ok(Exit::Signalled(signal.as_raw())),
            locks = self.backend.connect(Some(Arc::new(renewals))) => locks?,
        };
        let waiting = Waiting {
            locks: &*locks,
            keys: &self.plan.keys,
            request: &self.plan.request,
            console: &self.console,
            events: &self.events,
        };
        let began = tokio::time::Instant::now();
        let request = &self.plan.request;
        let acquiring = locks
            .request_all(&self.plan.keys)
            .with(|any| request.clone().with_key(any.key().clone()))
            .acquire();
        let acquired = waiting.wait_for(acquiring, signals).await;
        let exit = match acquired {
            Ok(Outcome::Acquired(guard)) => {
                self.tell_acquired(&guard, began.elapsed());
                self.holding(&locks, guard, signals).await
            }
            Ok(Outcome::Held(failure)) => self.not_acquired(failure),
            Ok(Outcome::Interrupted(signal)) => Ok(Exit::Signalled(signal.as_raw())),
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
            .command_under(&guard, locks.capabilities().backend, signals)
            .await;
        self.release(guard).await;
        let ending = ended?;
        self.verdict(&ending)
    }

    async fn command_under(
        &self,
        guard: &MultiGuard,
        kind: &'static str,
        signals: &mut Signals,
    ) -> Result<Ending, Failure> {
        guard.ensure_held()?;
        let label = self.plan.request.label().clone();
        let facts = Facts::of(guard, self.plan.args.ttl, &self.backend, kind, label);
        let variables = facts.variables(|name| env::var_os(name));
        if !self.plan.own_group {
            child::adopt_orphans();
        }
        let running = child::spawn(&self.plan.command, variables, self.plan.own_group)?;
        let watch = Watch {
            running,
            guard,
            rules: self.plan.rules,
            console: &self.console,
            events: &self.events,
        };
        watch
            .until_the_end(signals)
            .await
            .map_err(|e| Failure::new(Exit::Internal, "cannot wait for the command").with_cause(&e))
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
        Err(
            Failure::new(Exit::Of(self.plan.args.lost_exit_code), message)
                .with_detail("command", format!("ended with {}", ending.status))
                .with_hint("what the command did last may have met the work of the next holder"),
        )
    }

    /// The lease lapses by itself where there is one; elsewhere `--at-least-for` lasts as long as
    /// this process.
    fn time_to_shut_down(&self, locks: &dyn DistributedLock) -> Duration {
        match (locks.capabilities().bound, self.plan.args.at_least_for) {
            (Bound::Lease, _) | (_, None) => SHUTDOWN,
            (_, Some(least)) => least.saturating_add(SHUTDOWN),
        }
    }
}

/// Longest wait for the answer to a release, which goes on in the background after that.
const RELEASE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_has_room_for_the_end_of_the_command() {
        let secs = Duration::from_secs;
        assert_eq!(kill_after(secs(30), None).unwrap(), secs(5));
        assert_eq!(kill_after(secs(6), None).unwrap(), secs(1));
        assert_eq!(kill_after(secs(30), Some(secs(10))).unwrap(), secs(10));
        assert_eq!(
            kill_after(secs(30), Some(secs(11))).unwrap_err().exit(),
            Exit::Usage
        );
        assert!(kill_after(Duration::MAX, Some(Duration::MAX)).is_err());
    }
}
