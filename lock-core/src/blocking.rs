//! Locks for code without `async`: threads, scripts, programs of one thread.
//!
//! Calls run on the thread of their caller. The thread of the lease engine renews the locks while their
//! holder computes or sleeps. No runtime has to be started.
//!
//! ```
//! use polylock_core::blocking::BlockingLock;
//! use polylock_core::memory::Memory;
//!
//! # fn main() -> polylock_core::Result<()> {
//! let locks = BlockingLock::new(Memory::new());
//! let guard = locks.lock("orders/42")?; // waits at most 30 s
//! let token = guard.fencing_token(); // goes along with every write
//! guard.ensure_held()?; // before an effect that cannot be fenced
//! guard.release()?; // or drop it
//! # assert!(token.is_some());
//! # Ok(()) }
//! ```
//!
//! # Panics
//!
//! Every function of this module that blocks panics in async code, where it would stop all tasks of
//! the thread. The panic names the caller. Call it in `tokio::task::spawn_blocking`.

use std::fmt;
use std::future::IntoFuture;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine;
use crate::error::{Error, Result};
use crate::ext::DistributedLockExt;
use crate::guard::LockGuard;
use crate::key::LockKey;
use crate::lease::Released;
use crate::lock::DistributedLock;
use crate::request::AcquireRequest;

/// Blocks the thread until a future is ready; for operations that [`BlockingLock`] lacks.
///
/// The future runs on this thread. Its timers, sockets and spawned tasks belong to the thread of the
/// lease engine: do not spawn tasks that compute.
///
/// # Panics
///
/// In async code; see [`blocking`](self). A panic of the future passes through.
///
/// # Examples
///
/// ```
/// use polylock_core::blocking::block_on;
/// use polylock_core::prelude::*;
///
/// # fn main() -> polylock_core::Result<()> {
/// let locks = polylock_core::memory::Memory::new();
/// let both = block_on(locks.lock_all(["acct/1", "acct/2"]))?;
/// block_on(both.release())?;
/// # Ok(()) }
/// ```
#[track_caller]
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    engine::block_on(future.into_future())
}

/// A [`DistributedLock`] for code without `async`. A clone is the same connection.
///
/// # Panics
///
/// Methods that send a request, and `shutdown`, block and panic in async code; see [`blocking`](self).
///
/// # Examples
///
/// ```
/// use std::thread;
///
/// use polylock_core::blocking::BlockingLock;
/// use polylock_core::memory::Memory;
///
/// let locks = BlockingLock::new(Memory::new());
/// thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| {
///             let guard = locks.lock("report")?;
///             // One thread at a time is here, also among processes.
///             guard.release()
///         });
///     }
/// });
/// ```
#[derive(Clone, Debug)]
pub struct BlockingLock {
    lock: Arc<dyn DistributedLock>,
}

impl BlockingLock {
    /// The blocking functions of a lock.
    #[must_use]
    pub fn new(lock: impl DistributedLock) -> Self {
        Self {
            lock: Arc::new(lock),
        }
    }

    /// Acquires an exclusive lock, and waits for it for at most 30 s.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`].
    #[track_caller]
    pub fn lock<K>(&self, key: K) -> Result<BlockingGuard>
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        block_on(self.lock.lock(key)).map(BlockingGuard::from)
    }

    /// Acquires an exclusive lock without waiting for its holder; `None` if it is held.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`] except [`Contended`](crate::ErrorKind::Contended).
    #[track_caller]
    pub fn try_lock<K>(&self, key: K) -> Result<Option<BlockingGuard>>
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        let guard = block_on(self.lock.try_lock(key))?;
        Ok(guard.map(BlockingGuard::from))
    }

    /// Asks the server for an answer; see [`DistributedLockExt::ping`].
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLockExt::ping`].
    #[track_caller]
    pub fn ping(&self, within: Duration) -> Result<()> {
        block_on(self.lock.ping(within))
    }

    /// Acquires an exclusive lock, and waits for it for at most `limit`.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`].
    #[track_caller]
    pub fn lock_within<K>(&self, key: K, limit: Duration) -> Result<BlockingGuard>
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        block_on(self.lock.lock_within(key, limit)).map(BlockingGuard::from)
    }

    /// Acquires the requested lock, and waits as long as the request allows; for shared locks,
    /// permits and other ttls.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`].
    #[track_caller]
    pub fn acquire(&self, request: AcquireRequest) -> Result<BlockingGuard> {
        let builder = self.lock.request(request.key().clone());
        block_on(builder.with(|_| request).acquire()).map(BlockingGuard::from)
    }

    /// Waits for the releases of dropped guards; true if all finish `within` the time.
    ///
    /// Call it before the program ends: a lock whose release was not sent is free only after its
    /// ttl.
    #[must_use]
    #[track_caller]
    pub fn shutdown(&self, within: Duration) -> bool {
        block_on(self.lock.shutdown(within))
    }

    /// The lock itself, for async code and for its [`admin`](DistributedLock::admin).
    #[must_use]
    pub fn as_async(&self) -> &Arc<dyn DistributedLock> {
        &self.lock
    }
}

/// A held lock, for code without `async`; see [`LockGuard`].
///
/// Dropping it releases the lock in the background and does not block.
///
/// # Panics
///
/// Methods that send a request, and `shutdown`, block and panic in async code; see [`blocking`](self).
///
/// # Examples
///
/// ```
/// use polylock_core::blocking::BlockingLock;
/// use polylock_core::memory::Memory;
///
/// # fn main() -> polylock_core::Result<()> {
/// let locks = BlockingLock::new(Memory::new());
/// let mut guard = locks.lock("settings")?;
/// guard.downgrade()?; // from now on readers may enter, and no other writer
/// assert!(guard.is_held()); // a method of `LockGuard`, like all that do not block
/// assert!(locks.try_lock("settings")?.is_none());
///
/// guard.release()?;
/// assert!(locks.try_lock("settings")?.is_some());
/// # Ok(()) }
/// ```
#[must_use = "dropping the guard releases the lock"]
pub struct BlockingGuard {
    guard: LockGuard,
}

impl BlockingGuard {
    /// Until when the lock is held if nothing renews it; see [`LockGuard::valid_until`]. Compute it again
    /// instead of storing it: the machine may be suspended.
    #[must_use]
    pub fn valid_until(&self) -> Option<Instant> {
        self.guard.valid_until().map(Instant::from)
    }

    /// Extends the lease to its ttl from now; see [`LockGuard::renew`].
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::renew`].
    #[track_caller]
    pub fn renew(&self) -> Result<()> {
        block_on(self.guard.renew())
    }

    /// Extends the lease, once, so that it lasts for `ttl` at least; see [`LockGuard::renew_for`].
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::renew_for`].
    #[track_caller]
    pub fn renew_for(&self, ttl: Duration) -> Result<()> {
        block_on(self.guard.renew_for(ttl))
    }

    /// Makes an exclusive lock a shared one; see [`LockGuard::downgrade`].
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::downgrade`].
    #[track_caller]
    pub fn downgrade(&mut self) -> Result<()> {
        block_on(self.guard.downgrade())
    }

    /// Releases the lock and waits for the reply; see [`LockGuard::release`].
    ///
    /// # Errors
    ///
    /// Those of [`LockGuard::release`].
    #[track_caller]
    pub fn release(self) -> Result<Released> {
        block_on(self.guard.release())
    }

    /// The guard for async code.
    pub fn into_async(self) -> LockGuard {
        self.guard
    }
}

/// The other methods are those of the guard for async code.
impl Deref for BlockingGuard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.guard
    }
}

impl From<LockGuard> for BlockingGuard {
    fn from(guard: LockGuard) -> Self {
        Self { guard }
    }
}

impl fmt::Debug for BlockingGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
