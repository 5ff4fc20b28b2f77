use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::LockGuard;
use super::held_lease::HeldLease;
use super::release::{release_timeout, release_until_confirmed};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::key::LockKey;
use crate::lease::{Grant, Lease};
use crate::lost_reason::LostReason;
use crate::request::AcquireRequest;

/// Undoes an acquisition with an unknown outcome. For implementors.
///
/// Arm it before the acquire request is sent. It is dropped while armed if the future is dropped,
/// the reply is lost or the request times out. It then releases the lease by its id in the
/// background. The release is retried until the server gives a definite reply or the lease has expired:
/// after one ttl, or at the end of an adopted lease that lasts longer. For a lock that lives with a session
/// or a connection, it is retried until there is a reply.
///
/// # Examples
///
/// ```
/// # use std::sync::Arc;
/// # use polylock_core::engine::Engine;
/// # use polylock_core::{AcquireRequest, FencingToken, Grant, Lease, LockGuard, Result};
/// # async fn send_to_server() -> Result<Option<FencingToken>> { Ok(None) }
/// # fn refused() -> polylock_core::Error { polylock_core::Error::new(polylock_core::ErrorKind::Contended, "held") }
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
    pub(super) engine: Engine,
    key: LockKey,
    /// How long a release without a reply is retried: as long as the lease may last.
    pub(super) ttl: Duration,
    lease: Option<Arc<dyn Lease>>,
}

impl Engine {
    /// Arms the undoing of an acquisition: call it before the acquire request is sent.
    ///
    /// `ttl` limits how long an unknown outcome is followed up.
    pub fn pending(&self, key: &LockKey, lease: Arc<dyn Lease>, ttl: Duration) -> PendingRelease {
        PendingRelease {
            engine: self.clone(),
            key: key.clone(),
            ttl,
            lease: Some(lease),
        }
    }
}

impl PendingRelease {
    /// The server granted the lock: makes the guard, which manages the lease from now on.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](ErrorKind::Unavailable) if the grant arrived after its lease had expired; it
    /// is then released in the background, and the request may be repeated. Until that release the lock may stay
    /// held, so the outcome is unknown. The same if the lease reports its loss as soon as it is attached; the message
    /// has the reason.
    pub fn granted(mut self, request: &AcquireRequest, grant: Grant) -> Result<LockGuard> {
        let lease = self.armed();
        let hold = HeldLease::new(self.engine.clone(), request, lease, grant);
        // Armed until here, for a backend that panics when it is attached.
        self.lease = None;
        let guard = LockGuard::new(hold);
        if guard.is_held() {
            return Ok(guard);
        }
        // Dropping the guard releases what may still be held.
        let message = match guard.lost().reason() {
            None | Some(LostReason::Expired | LostReason::Unreachable) => {
                "the lock was granted, but the answer came after its lease had expired".to_owned()
            }
            Some(reason) => format!("the lock was granted, and lost at once: {reason}"),
        };
        Err(Error::new(ErrorKind::Unavailable, message)
            .with_unknown_outcome()
            .with_backend(self.engine.backend())
            .with_key(request.key()))
    }

    /// Releases now and waits for the reply, for an attempt that must be undone before it is
    /// reported as failed. Without a definite reply the release continues in the background.
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background.
    pub async fn undo(mut self) {
        if let Some(lease) = self.lease.clone() {
            // Armed until there is a reply: dropped before, the release starts again.
            let release = self
                .engine
                .within(release_timeout(self.ttl), lease.release());
            if let Some(Ok(_)) = release.await {
                self.lease = None;
            }
        }
    }

    fn armed(&self) -> Arc<dyn Lease> {
        self.lease
            .clone()
            .expect("BUG: taken by the methods that consume self only")
    }

    /// Cancels the release: the server refused the request for certain, or never saw it.
    pub fn disarm(mut self) {
        self.lease = None;
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            let undo =
                release_until_confirmed(self.engine.clone(), lease, self.key.clone(), self.ttl);
            self.engine.detach(Box::pin(async move {
                undo.await;
            }));
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
