use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The identity of a caller, for re-entry.
///
/// A request that carries the owner of the current holder gets the same lock again, with the same
/// fencing token; the lock is released with the last of its guards. Ownership is this value and
/// never a thread or a task: pass a clone to each task that may re-enter.
///
/// Re-entry works inside one process; the count is kept by
/// [`LocalQueue`](crate::layers::LocalQueue). A request without an owner never re-enters.
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
