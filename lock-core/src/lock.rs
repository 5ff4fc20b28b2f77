use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::admin::LockAdmin;
use crate::capabilities::Capabilities;
use crate::error::Result;
use crate::guard::LockGuard;
use crate::request::AcquireRequest;

/// A connection to one lock service: a backend, or layers on one.
///
/// Users call the conveniences of [`DistributedLockExt`](crate::DistributedLockExt), which every
/// implementation has. The trait is dyn-compatible; pass it around as `Arc<dyn DistributedLock>`.
///
/// # Guarantees
///
/// While a guard [is held](LockGuard::is_held), no conflicting guard is held, under the assumptions
/// that `docs/guarantees.md` states for each backend. An error is never reported as contention, and
/// contention never as a server error.
///
/// # For implementors
///
/// There are no default methods, so that a wrapper cannot forget to forward one; wrappers carry
/// `#[deny(clippy::missing_trait_methods)]`. A backend checks the request by
/// [`Capabilities::check`], arms a [`PendingRelease`](crate::PendingRelease), sends, and makes the
/// guard by [`PendingRelease::granted`](crate::PendingRelease::granted). When the server reports
/// that the lock is held, it calls [`AcquireRequest::mark_contended`].
///
/// # Examples
///
/// Code that works with every backend:
///
/// ```
/// use std::sync::Arc;
///
/// use polylock_core::memory::Memory;
/// use polylock_core::prelude::*;
///
/// /// Bills an account, unless another process is doing it; returns whether it did.
/// async fn bill(locks: &dyn DistributedLock, account: u32) -> polylock_core::Result<bool> {
///     match locks.try_lock(format!("billing/{account}")).await? {
///         Some(guard) => guard.run(async { true }).await,
///         None => Ok(false),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let locks: Arc<dyn DistributedLock> = Arc::new(Memory::new());
/// assert!(bill(&*locks, 42).await?);
///
/// let _other = locks.lock("billing/42").await?;
/// assert!(!bill(&*locks, 42).await?);
/// # Ok(()) }
/// ```
#[doc(alias = "leader election")]
#[doc(alias = "lease")]
#[doc(alias = "mutex")]
#[async_trait]
pub trait DistributedLock: fmt::Debug + Send + Sync + 'static {
    /// What this stack can do.
    fn capabilities(&self) -> Capabilities;

    /// Acquires the requested lock, and waits as long as the request allows.
    ///
    /// # Errors
    ///
    /// - [`Contended`](crate::ErrorKind::Contended) if another client holds the lock and the wait
    ///   has timed out.
    /// - [`Unavailable`](crate::ErrorKind::Unavailable) if the server is unreachable or does not
    ///   answer; a grant that was not received is released in the background.
    /// - [`Unsupported`](crate::ErrorKind::Unsupported),
    ///   [`InvalidKey`](crate::ErrorKind::InvalidKey) or
    ///   [`InvalidRequest`](crate::ErrorKind::InvalidRequest) before anything is sent;
    ///   [`Migrate`](crate::layers::Migrate) refuses a min hold that the old backend cannot keep once that has
    ///   granted its lock.
    /// - [`Foreign`](crate::ErrorKind::Foreign) if something other than a lock is stored in the
    ///   place of the lock; it is left unchanged.
    /// - [`Lost`](crate::ErrorKind::Lost) if a ticket holds nothing any more, and from
    ///   [`Migrate`](crate::layers::Migrate) if one of its two locks is lost right after the grant.
    /// - [`QueueFull`](crate::ErrorKind::QueueFull) if too many tasks of this process wait for the key, or its other
    ///   locks use all connections.
    /// - [`Denied`](crate::ErrorKind::Denied) and [`Protocol`](crate::ErrorKind::Protocol) as their names say.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves the queue. A lock that the server granted meanwhile is released in
    /// the background; if that fails, it is free after one ttl.
    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard>;

    /// The administration of the locks, if the backend has any.
    fn admin(&self) -> Option<&dyn LockAdmin>;

    /// Waits for the background releases of this stack; true if all finish `within` the time.
    ///
    /// Call it before the process ends. Live guards are not affected, and the locks stay usable.
    ///
    /// With `mode=row` and `mode=advisory` of PostgreSQL and MySQL it also ends idle sessions and deletes
    /// their records, for which locks would otherwise wait after a restart of the server.
    ///
    /// # Cancel safety
    ///
    /// The releases go on.
    async fn shutdown(&self, within: Duration) -> bool;
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl<L: DistributedLock + ?Sized> DistributedLock for Arc<L> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    /// Written out: an `async fn` would box the future a second time.
    fn acquire<'l, 'r, 'f>(
        &'l self,
        request: &'r AcquireRequest,
    ) -> Pin<Box<dyn Future<Output = Result<LockGuard>> + Send + 'f>>
    where
        'l: 'f,
        'r: 'f,
        Self: 'f,
    {
        (**self).acquire(request)
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        (**self).admin()
    }

    async fn shutdown(&self, within: Duration) -> bool {
        (**self).shutdown(within).await
    }
}
