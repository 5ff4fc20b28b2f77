use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The identity of a caller, for re-entry.
///
/// A request that carries the owner of the current holder gets the same lock again, with the same
/// fencing token; the lock is released with the last of its guards. Ownership is this value and
/// never a thread or a task: pass a clone to each task that may re-enter.
///
/// Re-entry works inside one process; the count is kept by
/// [`LocalQueue`](crate::layers::LocalQueue). A request without an owner never re-enters. Only
/// exclusive requests may carry an owner; see
/// [`with_owner`](crate::AcquireRequest::with_owner).
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use polylock_core::Owner;
/// use polylock_core::layers::LocalQueue;
/// use polylock_core::memory::Memory;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let locks = LocalQueue::new(Arc::new(Memory::new()));
/// let owner = Owner::new();
/// let outer = locks.request("acct/1").owner(&owner).acquire().await?;
/// let inner = locks.request("acct/1").owner(&owner).acquire().await?; // does not wait for `outer`
/// assert_eq!(inner.fencing_token(), outer.fencing_token());
///
/// outer.release().await?;
/// assert!(locks.try_lock("acct/1").await?.is_none()); // `inner` holds it still
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Owner(Arc<Identity>);

impl Owner {
    /// Makes an owner that equals only its clones.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Identity(AtomicUsize::new(0))))
    }

    // --- For the local queue, which changes the count under the mutex of the line ---

    pub(crate) fn enter_queue(&self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave_queue(&self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether any request of the owner stands in a line.
    pub(crate) fn is_queued(&self) -> bool {
        self.0.0.load(Ordering::Relaxed) > 0
    }
}

impl Default for Owner {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Owner {}

/// An owner is the address of this. It counts the owner's queued requests, so that a long queue is
/// searched only if there are any.
#[derive(Debug)]
struct Identity(AtomicUsize);
