//! A command from its start to its end, under locks that are held.

use std::env;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use polylock::{
    Capabilities, DistributedLock, Label, LockGuard, LockLifetime, LostReason, Released,
};
use serde_json::json;

use super::{
    CommandLocks, CommandRules, CommandWatch, Ending, Linger, LockVariables, ReleasedLocks,
    Signals, reap_orphans, spawn,
};
use crate::backend::BackendUrl;
use crate::exit::Exit;
use crate::output::{
    CommandFailure, Console, Events, RenewalEvents, escaped, millis, names, unix_ms,
};
use crate::waiting::WaitProgress;

/// What runs under the locks, and where it is reported.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) command: Vec<OsString>,
    pub(crate) rules: CommandRules,
    pub(crate) ttl: Duration,
    pub(crate) label: Label,
    pub(crate) backend: BackendUrl,
    pub(crate) console: Console,
    pub(crate) events: Events,
    /// What the locks of [`connect`](Self::connect) have told of the wait for them.
    pub(crate) progress: WaitProgress,
}

impl Runner {
    /// Connects, and reports events of the locks from then on.
    /// Cancel safety: no lock is held yet.
    pub(crate) async fn connect(&self) -> Result<Arc<dyn DistributedLock>, CommandFailure> {
        let renewals = RenewalEvents {
            progress: self.progress.clone(),
            events: self.events.clone(),
            console: self.console.clone(),
        };
        let observer = Some(Arc::new(renewals) as _);
        self.backend.connect(observer, &self.console).await
    }

    /// Starts the command, and waits for its end. It is stopped before the locks are gone.
    /// Cancel safety: a dropped future kills the command, and not what that has started.
    pub(crate) async fn run_under(
        &self,
        locks: &CommandLocks<'_>,
        capabilities: Capabilities,
        signals: &mut Signals,
    ) -> Result<Ending, CommandFailure> {
        let held = locks.guards().try_for_each(LockGuard::ensure_held);
        held.inspect_err(|error| self.events.tell_loss(error))?;
        let held = locks.guards();
        let facts = LockVariables {
            locks: held
                .map(|guard| (guard.key().as_str(), guard.fencing_token()))
                .collect(),
            valid_for: locks.valid_for(),
            ttl: (capabilities.bound == LockLifetime::Lease).then_some(self.ttl),
            backend: &self.backend,
            kind: capabilities.backend,
            label: &self.label,
        };
        let variables = facts.variables(|name| env::var_os(name));
        if self.rules.own_group {
            // Before the command begins, so that it is never the only one to go on.
            signals.catch_suspensions()?;
        }
        // A lease and a session of ZooKeeper outlive lockctl by themselves, but of a lock on two backends
        // either part may live with a connection. The lock is held without this too, so a failure here is
        // not fatal.
        let mut linger = match capabilities.bound {
            LockLifetime::Connection => Linger::start().ok(),
            _ if self.backend.migrates() => Linger::start().ok(),
            _ => None,
        };
        let own_group = self.rules.own_group;
        let running = spawn(&self.command, variables, own_group, &self.console)?;
        if let Some(linger) = &mut linger {
            linger.outlive(running.pid).ok();
        }
        let watch = CommandWatch {
            running,
            locks,
            rules: self.rules,
            console: &self.console,
            events: &self.events,
        };
        let ended = watch.until_the_end(signals).await;
        drop(linger);
        reap_orphans();
        ended.map_err(CommandFailure::internal("cannot wait for the command"))
    }

    pub(crate) fn tell_acquired(&self, locks: &CommandLocks<'_>, waited: Duration) {
        let held = locks.guards().map(|guard| {
            let token = guard.fencing_token().map(|token| token.value());
            json!({ "key": guard.key().as_str(), "token": token })
        });
        let held: Vec<_> = held.collect();
        let deadline = locks.valid_for();
        let deadline = deadline.map(|left| unix_ms(SystemTime::now() + left));
        self.events.tell(
            "acquired",
            json!({ "locks": held, "waited_ms": millis(waited), "deadline_unix_ms": deadline }),
        );
    }

    /// Waits a moment for the answer to a release, and reports it. True if only the release finds that the lock
    /// was lost before.
    /// Cancel safety: as for `releasing`.
    pub(crate) async fn release(
        &self,
        locks: &ReleasedLocks,
        ended: &Result<Ending, CommandFailure>,
        releasing: impl Future<Output = polylock::Result<Released>>,
    ) -> bool {
        let (outcome, was_lost) = self.released(locks, ended, releasing).await;
        self.events.tell(
            "released",
            json!({ "keys": locks.keys, "outcome": outcome }),
        );
        was_lost
    }

    /// The outcome of a release, and whether only that finds that the lock was lost before.
    /// Cancel safety: as for `releasing`.
    pub(crate) async fn released(
        &self,
        locks: &ReleasedLocks,
        ended: &Result<Ending, CommandFailure>,
        releasing: impl Future<Output = polylock::Result<Released>>,
    ) -> (&'static str, bool) {
        let outcome = self.outcome(releasing).await;
        let is_told = match ended {
            Ok(ending) => ending.is_loss_told,
            // It was lost before the command began.
            Err(failure) => failure.exit() == Exit::Lost,
        };
        let reason = locks.reason();
        // A max hold that ends only after the command has done no harm.
        if outcome != ALREADY_LOST || is_told || reason == Some(LostReason::MaxHold) {
            return (outcome, false);
        }
        let reason = reason.map(LostReason::as_str);
        let fields = json!({ "keys": locks.keys, "reason": reason });
        self.events.tell("lost", fields);
        let were_lost = locks.were_lost();
        if !were_lost {
            let keys = names(locks.keys.iter().map(String::as_str));
            let message = format_args!("the lock on {keys} ended before it was released");
            self.console.warn(message);
        }
        (outcome, were_lost)
    }

    /// The outcome of a release, with a warning if it is not confirmed.
    /// Cancel safety: as for `releasing`.
    async fn outcome(
        &self,
        releasing: impl Future<Output = polylock::Result<Released>>,
    ) -> &'static str {
        match tokio::time::timeout(RELEASE_TIMEOUT, releasing).await {
            Ok(Ok(Released::Clean)) => "clean",
            Ok(Ok(_)) => ALREADY_LOST,
            Ok(Err(error)) => {
                let text = escaped(&error.to_string());
                if error.is_outcome_unknown() {
                    self.console
                        .warn(format_args!("the release is not confirmed: {text}"));
                    return "unknown";
                }
                self.console
                    .warn(format_args!("not released, the lease will expire: {text}"));
                "failed"
            }
            Err(_) => {
                self.console
                    .warn("the release is not confirmed, the lease may have to expire");
                "unknown"
            }
        }
    }

    /// Waits a moment until all is said.
    pub(crate) fn flush(&self) {
        self.events.flush();
        self.console.flush();
    }
}

/// The outcome of a release of a lock that had been lost before.
const ALREADY_LOST: &str = "already_lost";

/// What is known of a loss that only the release finds.
pub(crate) const ENDED_BEFORE: &str = "it had ended before the command did";

/// The release goes on in the background after that.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
