use std::sync::Arc;

/// Who asks for a lock, for re-entry.
///
/// A request that carries the owner of the current holder gets the same lock again, with the same
/// fencing token, and the lock is given back when the last of its guards is. Ownership is this
/// value and never a thread or a task: pass a clone to whoever may re-enter.
///
/// Re-entry works inside one process; the count is kept by
/// [`LocalQueue`](crate::layers::LocalQueue). A request without an owner never re-enters.
#[derive(Clone, Debug)]
pub struct Owner(Arc<Identity>);

impl Owner {
    /// Makes an owner that equals only its clones.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Identity(0)))
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

/// Has a size, so that every allocation has an address of its own.
#[derive(Debug)]
struct Identity(#[expect(dead_code, reason = "only its address matters")] u8);
