//! A move from one backend to another while the locks are in use.

mod tokens;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::admin::LockAdmin;
use crate::capabilities::{Capabilities, Fencing, Waiting};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::{LockGuard, TokenRange};
use crate::lock::DistributedLock;
use crate::mode::Wait;
use crate::request::AcquireRequest;

use self::tokens::{Drawn, Verdict, settle};

/// Takes each lock on two backends, for the time in which a fleet moves from one to the other.
///
/// A process that uses the old backend alone and one that uses the new one alone do not exclude each
/// other, so there must never be both. With this layer a fleet moves in two steps that each mix two
/// kinds of processes only, and each pair has a backend in common:
///
/// 1. every process gets this layer: those without it and those with it meet on the old backend;
/// 2. when no process is left without, every process gets the new backend alone: it meets those with
///    the layer on the new one.
///
/// A step is undone by the reverse. `docs/migration.md` has the steps in full.
///
/// The lock is held while it is held on both, and lost when either is lost. It costs both, one after
/// the other.
///
/// # Fencing tokens
///
/// The token is larger than that of every earlier holder of the key, and smaller than that of every
/// later one, on either backend, if both draw their tokens from a clock
/// ([`Capabilities::clock_tokens`]), no clock is set back, and no key is taken more than 10,000
/// times a second. The layer waits until the slower clock has passed the token, which takes as long
/// as the clocks differ, or as a grant was noticed late, and is part of the wait of a request; locks
/// are refused with [`InvalidConfig`](ErrorKind::InvalidConfig) while the clocks differ by more than a
/// second. Otherwise there is no token, and [`Capabilities::fencing`] says so: a
/// number that cannot be compared to those before it would let a late writer pass.
///
/// The idea is the commit-wait of [Spanner](https://research.google/pubs/pub39966/).
#[derive(Debug)]
pub struct Migrate {
    old: Arc<dyn DistributedLock>,
    new: Arc<dyn DistributedLock>,
}

impl Migrate {
    /// Makes one lock of two. [`Registry::connect_migrating`](crate::Registry::connect_migrating)
    /// builds the whole stack.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if one of them has a local queue, which belongs
    /// above this layer: a lease that is handed over below would bring a token from before.
    pub fn new(old: Arc<dyn DistributedLock>, new: Arc<dyn DistributedLock>) -> Result<Self> {
        if old.capabilities().reentry || new.capabilities().reentry {
            return Err(Error::config(
                "the local queue belongs above the two backends of a migration",
            ));
        }
        Ok(Self { old, new })
    }

    /// Waits for the new one, unless what is held of the old one is lost meanwhile.
    async fn acquire_new(&self, request: &AcquireRequest, old: &LockGuard) -> Result<LockGuard> {
        let lost = old.lost().into_future();
        tokio::select! {
            acquired = self.new.acquire(request) => acquired,
            reason = lost => {
                let message = format!("the lock was lost on the old backend meanwhile: {reason}");
                Err(Error::new(ErrorKind::Unavailable, message).with_key(request.key()))
            }
        }
    }

    /// Draws the tokens of a lock that is held on both; `None` if they cannot be compared.
    async fn tokens(
        &self,
        old: &Held,
        new: &Held,
        request: &AcquireRequest,
        deadline: Option<Instant>,
    ) -> Result<Option<TokenRange>> {
        if !self.capabilities().clock_tokens {
            return Ok(None);
        }
        let (Some(old), Some(new)) = (old.drawn(), new.drawn()) else {
            return Ok(None);
        };
        match settle(old, new) {
            Verdict::After { pause, tokens } => {
                let end = Instant::now() + pause;
                if pause > SHORT_PAUSE && deadline.is_some_and(|deadline| end > deadline) {
                    return Err(Error::new(ErrorKind::Contended, no_time_for(pause)));
                }
                // Both servers have answered: a wait that ends now is no sign of an outage.
                request.mark_contended();
                tokio::time::sleep_until(end).await;
                Ok(Some(tokens))
            }
            Verdict::TooLate { by } => {
                let message = format!(
                    "a grant was noticed up to {} ms late, or the clocks of the servers differ",
                    by.as_millis()
                );
                Err(Error::new(ErrorKind::Unavailable, message))
            }
            Verdict::TooFar { difference } => Err(Error::config(format!(
                "the clocks of the two servers differ by {} ms: during a migration tokens are \
                 compared, and that takes clocks that agree to a second",
                difference.as_millis()
            ))),
        }
    }
}

/// Time that a refused request takes to give the old lock back.
const RETREAT_TIMEOUT: Duration = Duration::from_millis(500);

/// No wait is too short for clocks that agree, which take a part of this.
const SHORT_PAUSE: Duration = Duration::from_millis(5);

fn no_time_for(pause: Duration) -> String {
    format!(
        "the wait leaves no time until the slower clock of the two servers has passed the token, in \
         {} ms",
        pause.as_millis()
    )
}

/// What was acquired on one backend, when it was asked for, and when the grant was known.
struct Held {
    guard: LockGuard,
    asked: Instant,
    since: Instant,
}

impl Held {
    fn now(guard: LockGuard, asked: Instant) -> Self {
        let since = Instant::now();
        Self {
            guard,
            asked,
            since,
        }
    }

    fn drawn(&self) -> Option<Drawn> {
        let token = self.guard.fencing_token()?.value();
        let (age, oldest) = (self.since.elapsed(), self.asked.elapsed());
        Some(Drawn { token, age, oldest })
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for Migrate {
    fn capabilities(&self) -> Capabilities {
        let (old, new) = (self.old.capabilities(), self.new.capabilities());
        let clocked = old.clock_tokens && new.clock_tokens;
        let fencing = match clocked {
            true => Fencing::BestEffort.min(old.fencing).min(new.fencing),
            false => Fencing::Unavailable,
        };
        Capabilities {
            backend: new.backend,
            bound: old.bound.longer(new.bound),
            downgrade: false,
            // Each backend has a queue of its own.
            fair: false,
            fencing,
            clock_tokens: clocked,
            admin: false,
            max_key_len: old.max_key_len.min(new.max_key_len),
            max_locks: old.max_locks.min(new.max_locks),
            permits: old.permits && new.permits,
            reentry: false,
            shared: old.shared && new.shared,
            waiting: match (old.waiting, new.waiting) {
                (Waiting::Push, Waiting::Push) => Waiting::Push,
                _ => Waiting::Poll,
            },
        }
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities().check(request)?;
        let deadline = request.wait().deadline();
        // Always the old one first: two that take them crosswise would wait for each other.
        let part = request.clone().for_a_part(request.wait());
        let asked = Instant::now();
        let old = Held::now(self.old.acquire(&part).await?, asked);
        // The replies of the old backend say nothing about the new one.
        request.mark_unresponsive();
        let left = match deadline {
            Some(deadline) => Wait::AtMost(deadline.saturating_duration_since(Instant::now())),
            None => request.wait(),
        };
        let part = request.clone().for_a_part(left);
        let asked = Instant::now();
        let new = match self.acquire_new(&part, &old.guard).await {
            Ok(guard) => Held::now(guard, asked),
            Err(error) => {
                // Before the reply: a caller that sees the lock held may inspect its holder.
                // Dropped after a while, the release goes on in the background.
                drop(tokio::time::timeout(RETREAT_TIMEOUT, old.guard.release()).await);
                return Err(error);
            }
        };
        let tokens = self.tokens(&old, &new, request, deadline).await;
        let tokens = tokens.map_err(|error| error.with_key(request.key()))?;
        let backend = self.new.capabilities().backend;
        LockGuard::joined(request, old.guard, new.guard, tokens, backend)
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        // Each backend reports its own part; a lock that is broken on one of them is lost as a
        // whole.
        None
    }

    async fn shutdown(&self, within: Duration) -> bool {
        let began = Instant::now();
        // The releases of both are counted with the old one, and may leave some to the new one.
        let old = self.old.shutdown(within).await;
        let left = within.saturating_sub(began.elapsed());
        self.new.shutdown(left).await && old
    }
}
