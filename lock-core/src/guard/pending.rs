use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::joined::Parts;
use super::{HeldLease, LockGuard};
use crate::engine::{Engine, Moment, catch_panic_async};
use crate::error::{Error, ErrorKind, Result};
use crate::key::LockKey;
use crate::lease::{Grant, Lease, Liveness};
use crate::request::AcquireRequest;

/// Undoes an acquisition with an unknown outcome. For implementors.
///
/// Arm it before the request that may take the lock leaves. Dropped while armed, because the future
/// was dropped, the reply was lost or the time was over, it releases the lease by its id in the
/// background, again and again until the server gives a definite answer or one ttl has passed; where
/// the lock lives with a session or a connection, until there is an answer.
///
/// # Examples
///
/// ```
/// # use std::sync::Arc;
/// # use lock_core::engine::Engine;
/// # use lock_core::{AcquireRequest, FencingToken, Grant, Lease, LockGuard, Result};
/// # async fn send_to_server() -> Result<Option<FencingToken>> { Ok(None) }
/// # fn refused() -> lock_core::Error { lock_core::Error::new(lock_core::ErrorKind::Contended, "held") }
/// # async fn attempt(engine: &Engine, request: &AcquireRequest, lease: Arc<dyn Lease>) -> Result<LockGuard> {
/// let pending = engine.pending(request.key(), lease, request.ttl());
/// let sent = engine.now();
/// match send_to_server().await? {
///     Some(token) => pending.granted(request, Grant::new(sent, Some(token))),
///     None => {
///         pending.disarm();
///         Err(refused())
///     }
/// }
/// # }
/// ```
#[must_use = "dropping it releases the lease"]
pub struct PendingRelease {
    engine: Engine,
    key: LockKey,
    ttl: Duration,
    lease: Option<Arc<dyn Lease>>,
}

impl PendingRelease {
    pub(crate) fn arm(engine: Engine, key: LockKey, lease: Arc<dyn Lease>, ttl: Duration) -> Self {
        Self {
            engine,
            key,
            ttl,
            lease: Some(lease),
        }
    }

    /// The server granted the lock: makes the guard, which manages the lease from now on.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](ErrorKind::Unavailable) if the grant arrived after its lease had expired; it
    /// is then released in the background, and the request may be repeated.
    pub fn granted(self, request: &AcquireRequest, grant: Grant) -> Result<LockGuard> {
        self.granted_with(request, grant, None)
    }

    /// The same for a lock that consists of others.
    pub(super) fn granted_with(
        mut self,
        request: &AcquireRequest,
        grant: Grant,
        parts: Option<Parts>,
    ) -> Result<LockGuard> {
        let lease = self.take();
        let hold = HeldLease::new(self.engine.clone(), request, lease, grant, parts);
        let guard = LockGuard::new(hold);
        if guard.is_held() {
            return Ok(guard);
        }
        // Dropping the guard releases what may still be held.
        let message = "the lock was granted, but the answer came after its lease had run out";
        Err(Error::new(ErrorKind::Unavailable, message)
            .with_backend(self.engine.backend())
            .with_key(request.key()))
    }

    /// Releases now and waits for the answer, for an attempt that must be out of everybody's way
    /// before it is reported as failed. Without a definite answer it goes on in the background.
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background.
    pub async fn undo(mut self) {
        if let Some(lease) = self.lease.clone() {
            // Armed until there is an answer: dropped before, it begins again.
            let release = self
                .engine
                .within(release_timeout(self.ttl), lease.release());
            if let Some(Ok(_)) = release.await {
                self.lease = None;
            }
        }
    }

    fn take(&mut self) -> Arc<dyn Lease> {
        self.lease
            .take()
            .expect("BUG: taken by the methods that consume self only")
    }

    /// The server refused for certain, or never saw the request: nothing is to be undone.
    pub fn disarm(mut self) {
        self.lease = None;
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            let undo =
                release_until_confirmed(self.engine.clone(), lease, self.key.clone(), self.ttl);
            self.engine.detach(Box::pin(undo));
        }
    }
}

impl fmt::Debug for PendingRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingRelease")
            .field("key", &self.key)
            .field("armed", &self.lease.is_some())
            .finish_non_exhaustive()
    }
}

/// Releases until the server gives a definite answer. A lease is over by itself soon after one ttl;
/// what has none is released for as long as it takes.
pub(super) async fn release_until_confirmed(
    engine: Engine,
    lease: Arc<dyn Lease>,
    key: LockKey,
    ttl: Duration,
) {
    let attempt = release_timeout(ttl);
    let (until, longest_pause) = match lease.liveness() {
        // Several attempts fit into the shortest lease, and the last one begins after its end: what
        // stands in a queue without a lease is taken back as well.
        Liveness::Renewed { .. } => (engine.now() + ttl + attempt, Duration::from_secs(1)),
        Liveness::Reported => (Moment::NEVER, Duration::from_secs(30)),
    };
    let mut pause = Duration::from_millis(20);
    loop {
        let answer = tokio::time::timeout(attempt, catch_panic_async(lease.release())).await;
        let error = match answer.ok().flatten() {
            Some(Ok(_)) => return,
            Some(Err(error)) if !error.is_outcome_unknown() && !error.is_retryable() => error,
            _ if engine.now() < until => {
                tokio::time::sleep(engine.jitter(pause / 2, pause)).await;
                pause = (pause * 2).min(longest_pause);
                continue;
            }
            Some(Err(error)) => error,
            None => Error::new(ErrorKind::Unavailable, "the server does not answer"),
        };
        let backend = engine.backend();
        tracing::warn!(backend, %key, %error, "background release failed");
        return;
    }
}

/// Time for one attempt to give a lease back, or to hand it over.
pub(super) fn release_timeout(ttl: Duration) -> Duration {
    MAX_RELEASE_TIMEOUT.min(ttl / 3)
}

/// Longest time that one release may take; the next one uses a connection that may be healthier.
const MAX_RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
