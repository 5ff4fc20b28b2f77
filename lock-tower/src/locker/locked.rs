use std::ops::Deref;

use lock_core::{Error, Released};

use super::Claim;
use crate::held::{HeldLock, NotHeld, Ward};

/// Locks that a [`Locker`](super::Locker) has acquired, until they are released or dropped.
///
/// Dereferences to [`HeldLock`], which describes the locks.
#[must_use = "dropping it gives the lock back"]
#[derive(Debug)]
pub struct Locked {
    ward: Ward,
}

impl Locked {
    pub(super) fn new(claim: Claim) -> Self {
        Self {
            ward: Ward::new(HeldLock::new(claim)),
        }
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
        self.ward.held().run(work).await
    }

    /// Gives the locks back and waits for the answer.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](lock_core::ErrorKind::Unavailable) if the service did not confirm it; it is
    /// repeated in the background.
    ///
    /// # Cancel safety
    ///
    /// The release goes on in the background.
    pub async fn release(self) -> Result<Released, Error> {
        self.ward.held().release().await
    }
}

impl Deref for Locked {
    type Target = HeldLock;

    fn deref(&self) -> &HeldLock {
        self.ward.held()
    }
}
