use std::ops::Deref;
use std::time::Duration;

use polylock_core::{Error, Released};
use tokio::time::timeout;

use crate::held::{HeldLock, NotHeld};

/// Locks that a [`Locker`](super::Locker) has acquired, until they are released or dropped.
///
/// Dereferences to [`HeldLock`], which describes the locks, and releases them when it is dropped, also
/// if a clone of that remains.
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
        self.held.run_while_held(work).await
    }

    /// Releases the locks and waits for the reply.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](polylock_core::ErrorKind::Unavailable) if the service did not confirm it; it is
    /// repeated in the background.
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background.
    pub async fn release(self) -> Result<Released, Error> {
        self.held.release().await
    }

    /// Waits for the release, but not for long: it goes on in the background, and so does making
    /// good for an error, which has been logged.
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
