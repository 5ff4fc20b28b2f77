//! A move from one backend to another while the locks are in use.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::admin::LockAdmin;
use crate::capabilities::{Capabilities, Fencing, Waiting};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::LockGuard;
use crate::lock::DistributedLock;
use crate::mode::Renewal;
use crate::request::AcquireRequest;

use super::LocalQueue;
use super::multi::{left_of, used_up};

/// Acquires each lock on two backends, while a fleet moves from one to the other.
///
/// A process on the old backend alone and one on the new backend alone do not exclude each other, so
/// both kinds must never run at once. With this layer a fleet moves in two steps. Each step mixes only
/// two kinds of processes, which share a backend:
///
/// 1. every process gets this layer: processes with and without it share the old backend;
/// 2. once no process is left without the layer, every process gets the new backend alone, which it
///    shares with the processes that still have the layer.
///
/// A step is undone by the reverse. `docs/migration.md` has the steps in full.
///
/// The lock is held while both backends hold it, and lost when either is lost. It costs an acquisition
/// on each, one after the other. A min hold that either cannot keep is
/// [`InvalidRequest`](ErrorKind::InvalidRequest).
///
/// # Fencing tokens
///
/// The token is that of the new backend, if both draw their tokens from a clock
/// ([`Capabilities::clock_tokens`]): it is larger than that of every earlier holder on either backend,
/// and smaller than that of every later one, as long as the clocks of the servers differ by less than
/// the time between the two acquisitions. Otherwise there is no token, and [`Capabilities::fencing`] says so: a
/// number that cannot be compared to those before it would let a late writer pass.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use polylock_core::layers::Migrate;
/// use polylock_core::memory::Memory;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let (old, new) = (Memory::new(), Memory::new());
/// let locks = Migrate::new(Arc::new(old.client()), Arc::new(new.client()));
/// let guard = locks.lock("orders/42").await?;
///
/// // It excludes processes that use one of the two backends alone.
/// assert!(old.try_lock("orders/42").await?.is_none());
/// assert!(new.try_lock("orders/42").await?.is_none());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Migrate {
    old: Arc<dyn DistributedLock>,
    new: Arc<dyn DistributedLock>,
}

impl Migrate {
    /// Makes one lock of two. Each gets a [`LocalQueue`], unless it has one; there is none above.
    /// [`Registry::connect_migrating`](crate::Registry::connect_migrating) connects to both.
    #[must_use]
    pub fn new(old: Arc<dyn DistributedLock>, new: Arc<dyn DistributedLock>) -> Self {
        let [old, new] = [old, new].map(|locks| match locks.capabilities().reentry {
            true => locks,
            false => Arc::new(LocalQueue::new(locks)),
        });
        Self { old, new }
    }

    /// Waits for the new lock, unless the old one is lost meanwhile. The old one has used a part of the wait,
    /// if there is one.
    async fn acquire_new(
        &self,
        request: &AcquireRequest,
        old: &LockGuard,
        used: Option<Duration>,
    ) -> Result<LockGuard> {
        // The old backend was asked for no min hold, and has not refused it.
        if !old.can_last_for(request) {
            let min_hold = request.min_hold();
            let message =
                format!("the old backend cannot keep a lock for a min_hold of {min_hold:?}");
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_key(request.key()));
        }
        let lost = old.lost().into_future();
        tokio::select! {
            // Another request of the owner must not enter a new lock that ends with this old one.
            biased;
            reason = lost => {
                let message = format!("the lock was lost on the old backend meanwhile: {reason}");
                // The request to the new backend is dropped, and may have been granted.
                Err(Error::new(ErrorKind::Unavailable, message)
                    .with_unknown_outcome()
                    .with_key(request.key()))
            }
            acquired = self.new.acquire(request) => acquired.map_err(|error| match used {
                Some(used) => used_up(error, request.wait(), used, "the lock on the old backend"),
                None => error,
            }),
        }
    }
}

/// Time that a refused request takes to release the old lock.
const RETREAT_TIMEOUT: Duration = Duration::from_millis(500);

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for Migrate {
    fn capabilities(&self) -> Capabilities {
        let (old, new) = (self.old.capabilities(), self.new.capabilities());
        let clock_tokens = old.clock_tokens && new.clock_tokens;
        let fencing = match clock_tokens {
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
            clock_tokens,
            admin: false,
            max_key_len: old.max_key_len.min(new.max_key_len),
            max_locks: old.max_locks.min(new.max_locks),
            min_ttl: old.min_ttl.max(new.min_ttl),
            permits: old.permits && new.permits,
            reentry: true,
            shared: old.shared && new.shared,
            tickets: false,
            waiting: match (old.waiting, new.waiting) {
                (Waiting::Push, Waiting::Push) => Waiting::Push,
                _ => Waiting::Poll,
            },
        }
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        let capabilities = self.capabilities();
        capabilities.check(request)?;
        let (began, deadline) = (Instant::now(), request.wait().deadline());
        // It lives as long as the new one, which ends at its own time.
        let companion = request
            .clone()
            .with_renewal(Renewal::Automatic)
            .with_min_hold(Duration::ZERO)
            .with_max_hold(None);
        // Always the old one first: two that acquire them crosswise would wait for each other.
        let old = self.old.acquire(&companion).await?;
        let left = left_of(request.wait(), deadline);
        let used = request.wait().waits().then(|| began.elapsed());
        let request = request.clone().with_wait(left);
        match self.acquire_new(&request, &old, used).await {
            Ok(new) => new.with_old(old, capabilities.clock_tokens),
            Err(error) => {
                // Before the reply: a caller that sees the lock held may inspect its holder.
                // Dropped after a while, the release goes on in the background.
                drop(tokio::time::timeout(RETREAT_TIMEOUT, old.release()).await);
                Err(error)
            }
        }
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        // Each backend reports its own part; a lock that is broken on one of them is lost as a
        // whole.
        None
    }

    async fn shutdown(&self, within: Duration) -> bool {
        let (old, new) = tokio::join!(self.old.shutdown(within), self.new.shutdown(within));
        old && new
    }
}
