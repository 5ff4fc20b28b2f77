//! The locks of a request: what a handler sees of them, and the guard that releases them.

use std::fmt;
use std::future::{IntoFuture as _, poll_fn};
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::select_all;
use polylock_core::{
    Error, FencingToken, LockGuard, LockKey, LostReason, LostSignal, MultiGuard, Released,
};
use tokio::time::{Instant, timeout};

use crate::locker::{AdmissionSlot, Namespace};

/// The locks of a request; a handler gets it as an extractor (feature `axum`) or from the
/// extensions of its request.
///
/// Behind several layers, these are the locks of the innermost one. Clones refer to the same locks. A clone
/// that outlives the handler does not keep them held, except with
/// [`HoldUntil::Manual`](crate::HoldUntil::Manual).
///
/// Send [`fencing_token`](HeldLock::fencing_token) to the data store with each write that must not happen
/// twice: a lock can be lost while a write is in flight.
///
/// # Examples
///
/// A handler of axum:
///
/// ```
/// use std::sync::Arc;
///
/// use axum::extract::Path;
/// use axum::{Router, routing::post};
/// use polylock_core::memory::Memory;
/// use polylock_tower::{HeldLock, KeyLockLayer, Keys, Locker, NotHeld};
/// use tower::ServiceExt as _;
///
/// async fn transfer(held: HeldLock) -> Result<String, NotHeld> {
///     held.ensure_held()?;
///     Ok(format!("written with token {:?}", held.fencing_token()))
/// }
///
/// # #[cfg(not(feature = "axum"))] fn main() {}
/// # #[cfg(feature = "axum")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let accounts = Locker::builder(Arc::new(Memory::new()), "accounts").build()?;
/// let layer = KeyLockLayer::from_extractor(accounts, |Path(id): Path<u64>| Keys::one(id.to_string()));
/// let app: Router = Router::new().route("/accounts/{id}", post(transfer).route_layer(layer));
///
/// let request = http::Request::post("/accounts/42").body(axum::body::Body::empty())?;
/// assert_eq!(app.oneshot(request).await?.status(), 200);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct HeldLock(Arc<HeldState>);

struct HeldState {
    namespace: Namespace,
    /// Sorted by key.
    locks: Box<[OneLock]>,
    /// Keys whose locks the request runs without.
    missing: Box<[LockKey]>,
    /// `None` once the locks are released. Guards are dropped before the slots: the request that is admitted
    /// to a free slot is the next holder, and not a waiter.
    held: Mutex<Option<Acquired>>,
}

type Acquired = (Vec<LockGuard>, Vec<AdmissionSlot>);

struct OneLock {
    key: LockKey,
    token: Option<FencingToken>,
    lost: LostSignal,
}

/// Why a handler's lock is not held.
///
/// The examples of [`HeldLock`] and [`LockerGuard`] return and compare it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, thiserror::Error)]
pub enum NotHeld {
    /// A lock was lost.
    #[error("the lock was lost: {0}")]
    Lost(LostReason),
    /// The locks were released.
    #[error("the lock has been released")]
    Released,
    /// The lock service did not answer, and the service is configured to run without a lock. As a response,
    /// `Retry-After` is 1 s, whatever the locker says.
    #[error("the lock service was unavailable, the request runs without its lock")]
    Unprotected,
}

impl HeldLock {
    /// `guards` are sorted by key; `missing` has the requested keys that are not held.
    pub(crate) fn new(
        namespace: &Namespace,
        guards: Vec<LockGuard>,
        missing: Vec<LockKey>,
        mut slots: Vec<AdmissionSlot>,
    ) -> Self {
        slots.iter_mut().for_each(AdmissionSlot::granted);
        let one = |guard: &LockGuard| OneLock {
            key: guard.key().clone(),
            token: guard.fencing_token(),
            lost: guard.lost(),
        };
        Self(Arc::new(HeldState {
            namespace: namespace.clone(),
            locks: guards.iter().map(one).collect(),
            missing: missing.into(),
            held: Mutex::new(Some((guards, slots))),
        }))
    }

    /// Returns the key with its namespace; of several, the first in key order.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        self.first()
    }

    /// The keys in their order.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        let held = self.0.locks.iter().map(|one| &one.key);
        held.chain(&self.0.missing)
    }

    /// Returns the fencing token to send with every write that the lock protects. It grows with every
    /// holder of the key, within the limits of the backend's [`Fencing`](polylock_core::Fencing).
    ///
    /// `None` if the backend has no tokens, if the request is unprotected, or if it holds several locks:
    /// each has its own token, see [`fencing_token_of`](HeldLock::fencing_token_of).
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        match &*self.0.locks {
            [one] => one.token,
            _ => None,
        }
    }

    /// The token of one of several locks, by its name without the namespace.
    #[must_use]
    pub fn fencing_token_of(&self, name: &str) -> Option<FencingToken> {
        let key = self.0.namespace.key(name).ok()?;
        self.0.locks.iter().find(|one| one.key == key)?.token
    }

    /// The tokens of all keys, in their order.
    pub fn fencing_tokens(&self) -> impl Iterator<Item = (&LockKey, Option<FencingToken>)> {
        self.0.locks.iter().map(|one| (&one.key, one.token))
    }

    /// Returns until when all locks are held if they are not renewed; the current time if one is lost.
    /// `None` if they have no time limit, were released, or the request is unprotected.
    ///
    /// Compute it again instead of storing it: the clock of an [`Instant`] may stand still while the machine is
    /// suspended, and the locks expire meanwhile. [`lost_reason`](Self::lost_reason) counts that time.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.held().as_ref()?;
        let deadlines = self.0.locks.iter().map(|one| one.lost.valid_until());
        deadlines.flatten().min()
    }

    /// Returns why the first lost lock was lost, by the clock of this machine; `None` if no lock is lost. A
    /// loss is final.
    #[must_use]
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.0.locks.iter().find_map(|one| one.lost.reason())
    }

    /// Whether the request runs without its lock, because the lock service does not answer and
    /// [`WhenUnavailable::Bypass`](crate::WhenUnavailable::Bypass) allows it.
    #[must_use]
    pub fn is_unprotected(&self) -> bool {
        !self.0.missing.is_empty()
    }

    /// Fails unless all locks are held. Call it right before an effect that cannot be fenced.
    ///
    /// # Errors
    ///
    /// [`NotHeld`] says why. With the feature `axum` a handler can return it.
    pub fn ensure_held(&self) -> Result<(), NotHeld> {
        if let Some(reason) = self.lost_reason() {
            return Err(NotHeld::Lost(reason));
        }
        if self.is_unprotected() {
            return Err(NotHeld::Unprotected);
        }
        if self.held().is_none() {
            return Err(NotHeld::Released);
        }
        Ok(())
    }

    /// Waits until one of the locks is lost. Never resolves if they are released before that.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; a loss is final.
    pub async fn lost(&self) -> LostReason {
        let signals = self.0.locks.iter().map(|one| one.lost.clone());
        match signals.len() {
            0 => std::future::pending().await,
            _ => select_all(signals.map(LostSignal::into_future)).await.0,
        }
    }

    /// Releases the locks before the handler ends, and waits for the reply. A second call does
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](polylock_core::ErrorKind::Unavailable) if the service did not confirm the release,
    /// which is then retried in the background.
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background.
    pub async fn release(&self) -> Result<Released, Error> {
        match self.take() {
            Some((guards, slots)) => {
                let released = release_all(guards).await;
                drop(slots);
                released
            }
            None if self.lost_reason().is_some() => Ok(Released::AlreadyLost),
            None => Ok(Released::Clean),
        }
    }

    /// Runs `work` until it is done or a lock is lost. The clock is read before each poll, so that a
    /// process that was paused for longer than its lease does not continue. Dropping the future does not
    /// drop `work`.
    pub(crate) async fn run_while_held<W: Future>(
        &self,
        mut work: Pin<&mut W>,
    ) -> Result<W::Output, NotHeld> {
        // Handlers that finish at once need no wake-up.
        let mut lost = None;
        poll_fn(|cx| {
            if let Some(reason) = self.lost_reason() {
                return Poll::Ready(Err(NotHeld::Lost(reason)));
            }
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                // Work that ended after the lock was lost was not done under the lock.
                let lost = self.lost_reason();
                return Poll::Ready(lost.map_or(Ok(output), |reason| Err(NotHeld::Lost(reason))));
            }
            let lost = lost.get_or_insert_with(|| Box::pin(self.lost()));
            lost.as_mut()
                .poll(cx)
                .map(|reason| Err(NotHeld::Lost(reason)))
        })
        .await
    }

    fn first(&self) -> &LockKey {
        self.keys().next().expect("BUG: a request has a key")
    }

    /// Ends the hold; dropped guards are released in the background.
    pub(crate) fn take(&self) -> Option<Acquired> {
        self.held().take()
    }

    fn held(&self) -> MutexGuard<'_, Option<Acquired>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Releases all of them at the same time, and reports the worst outcome.
async fn release_all(guards: Vec<LockGuard>) -> Result<Released, Error> {
    match <[LockGuard; 1]>::try_from(guards) {
        Ok([guard]) => guard.release().await,
        Err(guards) => MultiGuard::new(guards).release().await,
    }
}

impl fmt::Debug for HeldLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldLock")
            .field("keys", &self.keys().collect::<Vec<_>>())
            .field("fencing_token", &self.fencing_token())
            .field("lost", &self.lost_reason())
            .field("unprotected", &self.is_unprotected())
            .finish_non_exhaustive()
    }
}

/// Locks that a [`Locker`](crate::Locker) has acquired, until they are released or dropped.
///
/// Dereferences to [`HeldLock`], which describes the locks. Dropping the guard releases the locks, even if
/// a clone of the [`HeldLock`] remains.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use polylock_core::Released;
/// use polylock_core::memory::Memory;
/// use polylock_tower::{HeldLock, Locker, NotHeld};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let accounts = Locker::builder(Arc::new(Memory::new()), "accounts").build()?;
/// let both = accounts.lock_all(["42", "7"]).await?;
/// let sum = both.run(async { 40 + 2 }).await?; // stops if one of the locks is lost
/// assert_eq!(sum, 42);
/// assert!(both.fencing_token_of("7").is_some()); // a method of `HeldLock`
///
/// let held = HeldLock::clone(&both); // what work in the background may have
/// assert_eq!(both.release().await?, Released::Clean);
/// assert_eq!(held.ensure_held(), Err(NotHeld::Released));
/// # Ok(()) }
/// ```
#[must_use = "dropping it releases the lock"]
#[derive(Debug)]
pub struct LockerGuard {
    held: HeldLock,
}

impl LockerGuard {
    pub(crate) fn new(held: HeldLock) -> Self {
        Self { held }
    }

    /// Runs `work` for as long as the locks are held.
    ///
    /// # Errors
    ///
    /// [`NotHeld`] if a lock was lost before `work` was done. `work` is dropped by then; it may have
    /// had effects.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`; the locks stay held.
    pub async fn run<W: Future + Send>(&self, work: W) -> Result<W::Output, NotHeld> {
        self.held.run_while_held(pin!(work)).await
    }

    /// Releases the locks and waits for the reply.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](polylock_core::ErrorKind::Unavailable) if the service did not confirm the release,
    /// which is then retried in the background.
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background.
    pub async fn release(self) -> Result<Released, Error> {
        self.held.release().await
    }

    /// Waits for the release for up to `RELEASE_TIMEOUT`; then it continues in the background. Errors have
    /// been logged, and the release is retried in the background.
    pub(crate) async fn release_before_response(self) {
        drop(timeout(RELEASE_TIMEOUT, self.held.release()).await);
    }
}

/// How long a response waits for the release of its lock.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

impl Deref for LockerGuard {
    type Target = HeldLock;

    fn deref(&self) -> &HeldLock {
        &self.held
    }
}

impl Drop for LockerGuard {
    fn drop(&mut self) {
        drop(self.held.take());
    }
}
