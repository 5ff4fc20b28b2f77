//! What a handler sees of the locks that its request holds.

use std::fmt;
use std::future::IntoFuture as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use lock_core::{Error, FencingToken, LockGuard, LockKey, LostReason, LostSignal, Released};
use tokio::time::Instant;

use crate::locker::{Claim, Namespace};

/// The locks of a request; a handler gets it as an extractor (feature `axum`) or from the
/// extensions of its request.
///
/// Behind several layers it is that of the innermost. Clones are the same locks. A clone that outlives
/// the handler keeps nothing held, except with [`HoldUntil::Manual`](crate::HoldUntil::Manual).
///
/// Work that must not happen twice carries [`fencing_token`](HeldLock::fencing_token) to where the
/// data live: a lock can be lost while a write is on its way.
#[derive(Clone)]
pub struct HeldLock(Arc<State>);

struct State {
    namespace: Namespace,
    /// Sorted by key.
    locks: Box<[One]>,
    /// Keys that the request runs without.
    missing: Box<[LockKey]>,
    /// Taken when the locks are released.
    claim: Mutex<Option<Claim>>,
}

struct One {
    key: LockKey,
    token: Option<FencingToken>,
    lost: LostSignal,
}

/// A handler goes on although its lock is not held.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, thiserror::Error)]
pub enum NotHeld {
    /// A lock was lost.
    #[error("the lock was lost: {0}")]
    Lost(LostReason),
    /// The locks were released.
    #[error("the lock has been released")]
    Released,
    /// The lock service did not answer, and the service is set up to go on without.
    #[error("the lock service was unavailable, the request runs without its lock")]
    Unprotected,
}

impl HeldLock {
    pub(crate) fn new(claim: Claim) -> Self {
        let one = |guard: &LockGuard| One {
            key: guard.key().clone(),
            token: guard.fencing_token(),
            lost: guard.lost(),
        };
        Self(Arc::new(State {
            namespace: claim.namespace().clone(),
            locks: claim.guards().iter().map(one).collect(),
            missing: claim.missing().into(),
            claim: Mutex::new(Some(claim)),
        }))
    }

    /// The key, with its namespace; the first of several in their order.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        self.first()
    }

    /// The keys in their order.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        let held = self.0.locks.iter().map(|one| &one.key);
        held.chain(&self.0.missing)
    }

    /// The number to send with every write that the lock protects: it grows with every holder of
    /// the key, as far as [`Fencing`](lock_core::Fencing) of the backend goes.
    ///
    /// `None` if the backend has no tokens, if the request is unprotected, and if it holds several
    /// locks: each of them has its own, see [`fencing_token_of`](HeldLock::fencing_token_of).
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

    /// Until when all of the locks are held if they are not renewed; now, if one is lost. `None` if
    /// they have no time limit, were released, or the request is unprotected.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.claim().as_ref()?;
        let deadlines = self.0.locks.iter().map(|one| one.lost.valid_until());
        deadlines.flatten().min()
    }

    /// Whether one of the locks is lost, by the clock of this machine. Lost is final.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost_reason().is_some()
    }

    /// Why the first of the lost locks is lost.
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

    /// Fails unless all of the locks are held; for a last look before an effect that cannot be
    /// fenced.
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
        if self.claim().is_none() {
            return Err(NotHeld::Released);
        }
        Ok(())
    }

    /// Resolves when the first of the locks is lost; never, if they are released in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; a loss is final.
    pub async fn lost(&self) -> LostReason {
        let signals = self.0.locks.iter().map(|one| one.lost.clone());
        let mut signals: Vec<_> = signals.map(LostSignal::into_future).collect();
        std::future::poll_fn(|cx| {
            let fired = signals
                .iter_mut()
                .find_map(|signal| match signal.as_mut().poll(cx) {
                    Poll::Ready(reason) => Some(reason),
                    Poll::Pending => None,
                });
            fired.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Gives the locks back before the handler ends, and waits for the answer. A second call does
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](lock_core::ErrorKind::Unavailable) if the service did not confirm it; it is
    /// repeated in the background.
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background.
    pub async fn release(&self) -> Result<Released, Error> {
        match self.take() {
            Some(claim) => claim.release().await,
            None if self.is_lost() => Ok(Released::AlreadyLost),
            None => Ok(Released::Clean),
        }
    }

    /// Runs `work` until it is done or a lock is lost. The clock is read before each poll, so that a
    /// process that was paused beyond its lease does not go on.
    pub(crate) async fn run<W: Future>(&self, work: W) -> Result<W::Output, NotHeld> {
        // Most handlers finish at once, and need no wake-up.
        let mut lost = None;
        tokio::pin!(work);
        std::future::poll_fn(|cx| {
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
        self.keys().next().expect("BUG: a claim has a key")
    }

    /// Ends the hold; dropped guards are released in the background.
    fn take(&self) -> Option<Claim> {
        self.claim().take()
    }

    fn claim(&self) -> std::sync::MutexGuard<'_, Option<Claim>> {
        self.0.claim.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Longest time that an answer waits for the release of its lock.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);

/// Releases the locks when it is dropped, also if a [`HeldLock`] remains.
#[derive(Debug)]
pub(crate) struct Ward {
    held: HeldLock,
}

impl Ward {
    pub(crate) fn new(held: HeldLock) -> Self {
        Self { held }
    }

    pub(crate) fn held(&self) -> &HeldLock {
        &self.held
    }

    /// Waits for the release, but not for long: it goes on in the background, and so does making
    /// good for an error, which has been logged.
    pub(crate) async fn give_back(self) {
        drop(tokio::time::timeout(RELEASE_LIMIT, self.held.release()).await);
    }
}

impl Drop for Ward {
    fn drop(&mut self) {
        drop(self.held.take());
    }
}
