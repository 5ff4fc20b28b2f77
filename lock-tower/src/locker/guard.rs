use std::ops::Deref;
use std::time::Duration;

use polylock_core::{Error, Released};
use tokio::time::timeout;

use crate::held::{HeldLock, NotHeld};

/// Locks that a [`Locker`](super::Locker) has acquired, until they are released or dropped.
///
/// Dereferences to [`HeldLock`], which describes the locks, and releases them when it is dropped, also
/// if a clone of that remains.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use polylock_core::Released;
/// use polylock_core::memory::Memory;
/// use polylock_tower::Locker;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let accounts = Locker::builder(Arc::new(Memory::new()), "accounts").build()?;
/// let both = accounts.lock_all(["42", "7"]).await?;
/// let sum = both.run(async { 40 + 2 }).await?; // stops if one of the locks is lost
/// assert_eq!(sum, 42);
/// assert!(both.fencing_token_of("7").is_some()); // a method of `HeldLock`
/// assert_eq!(both.release().await?, Released::Clean);
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
