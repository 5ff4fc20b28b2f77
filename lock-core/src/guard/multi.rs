use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use super::{LockGuard, run_while_held};
use crate::error::{Error, Result};
use crate::key::LockKey;
use crate::lease::Released;
use crate::lost_reason::LostReason;
use crate::token::FencingToken;

/// Locks on several keys that were acquired together.
///
/// Dropping it releases all of them, like dropping each [`LockGuard`].
///
/// # Examples
///
/// [`lock_all`](crate::DistributedLockExt::lock_all) makes one. Two locks of two services:
///
/// ```
/// use polylock_core::MultiGuard;
/// use polylock_core::memory::Memory;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let (stock, ledger) = (Memory::new(), Memory::new());
/// let lamp = stock.lock("lamp").await?;
/// let account = ledger.lock("acct/1").await?;
///
/// let both = MultiGuard::new(vec![lamp, account]);
/// let sold = both.run(async { "lamp" }).await?; // stops if one of them is lost
/// assert_eq!(sold, "lamp");
/// assert!(both.fencing_token(&LockKey::new("acct/1")?).is_some());
/// assert_eq!(both.release().await?, Released::Clean);
/// # Ok(()) }
/// ```
#[must_use = "dropping the guards gives the locks back"]
#[derive(Debug)]
pub struct MultiGuard {
    /// In the order in which they were acquired.
    guards: Vec<LockGuard>,
}

impl MultiGuard {
    /// Combines guards that were acquired one by one, also on different backends. Each keeps its own
    /// lease and token.
    pub fn new(guards: Vec<LockGuard>) -> Self {
        Self { guards }
    }

    /// The guards, in the order of their acquisition.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// The token of one of the keys. Each key has its own.
    #[must_use]
    pub fn fencing_token(&self, key: &LockKey) -> Option<FencingToken> {
        self.guards
            .iter()
            .find(|guard| guard.key() == key)?
            .fencing_token()
    }

    /// Whether all of the locks are held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(LockGuard::is_held)
    }

    /// Resolves when the first of the locks is lost; never, if there are none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; a loss is final.
    pub async fn lost(&self) -> LostReason {
        let signals = self.guards.iter().map(|guard| guard.lost().into_future());
        first(signals.collect()).await
    }

    /// Ready when one of the locks expires in `ahead` or less, or is no longer held.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the waiting and nothing else.
    pub async fn expiring(&self, ahead: Duration) {
        let warnings = self.guards.iter().map(|guard| guard.expiring(ahead));
        first(warnings.collect()).await;
    }

    /// Runs `work` for as long as all of the locks are held; see [`LockGuard::run`].
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) with the first key that was lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`; the locks stay held.
    pub async fn run<W: Future + Send>(&self, work: W) -> Result<W::Output>
    where
        W::Output: Send,
    {
        let lost_reason = || self.guards.iter().find_map(|guard| guard.lost().reason());
        let done = run_while_held(work, self.lost(), lost_reason).await;
        done.map_err(|reason| {
            self.ensure_held()
                .err()
                .unwrap_or_else(|| Error::lost(reason))
        })
    }

    /// Fails if one of the locks is lost.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) with the first key that was lost.
    pub fn ensure_held(&self) -> Result<()> {
        self.guards.iter().try_for_each(LockGuard::ensure_held)
    }

    /// Releases all of the locks, and reports the worst outcome.
    ///
    /// The releases are sent in reverse order, without waiting in between, and may take effect in any order.
    /// Release guards one by one where the order matters.
    ///
    /// # Errors
    ///
    /// The first error of [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// The releases go on in the background; only the answer is lost.
    pub async fn release(mut self) -> Result<Released> {
        let guards = self.guards.drain(..).rev();
        let mut releases: Vec<_> = guards.map(|guard| Box::pin(guard.release())).collect();
        let mut worst = Ok(Released::Clean);
        // The first poll of each ends its renewal, however long another release takes.
        std::future::poll_fn(|cx| {
            releases.retain_mut(|release| {
                let Poll::Ready(released) = release.as_mut().poll(cx) else {
                    return true;
                };
                match (released, &worst) {
                    (Err(error), Ok(_)) => worst = Err(error),
                    (Ok(Released::AlreadyLost), Ok(_)) => worst = Ok(Released::AlreadyLost),
                    _ => {}
                }
                false
            });
            match releases.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        worst
    }
}

/// The output of the first future that is ready; never, if there are none.
pub(crate) async fn first<F: Future + Unpin>(mut futures: Vec<F>) -> F::Output {
    std::future::poll_fn(|cx| {
        let mut polled = futures.iter_mut().map(|future| Pin::new(future).poll(cx));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}
