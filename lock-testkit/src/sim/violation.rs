//! Violations in a history.

use std::fmt;
use std::time::Duration;

/// Something that must not happen.
#[derive(Clone, Debug)]
pub struct SimViolation {
    /// What is wrong.
    pub kind: ViolationKind,
    pub(super) at: Duration,
    what: String,
}

/// What is wrong.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ViolationKind {
    /// A guard was valid although the store had granted the lock to another client, or could have.
    BeyondExpiry,
    /// Contention was reported although the lock had no other holder.
    FalseContention,
    /// An error was reported although nothing was wrong.
    FalseError,
    /// A release took the lock of another holder.
    ForeignRelease,
    /// The store had a lock after its release was confirmed.
    HeldAfterRelease,
    /// A loss was signaled after the lease had expired, or not at all.
    LateSignal,
    /// Something was on the store or in a process long after all work was done.
    LeftBehind,
    /// A lock was gone before its time.
    LostWithoutCause,
    /// A lease expired although there was time to renew it.
    NotRenewed,
    /// A lease or a place in the queue was not released when all work was done.
    Orphan,
    /// Two guards that exclude each other were valid at once.
    Overlap,
    /// A waiter waited although the lock was free.
    PassedOver,
    /// An operation did not end.
    Stuck,
    /// A later holder had no larger token.
    TokenOrder,
    /// A lock was held again after it was lost.
    Unlost,
}

impl SimViolation {
    pub(crate) fn new(kind: ViolationKind, at: Duration, what: String) -> Self {
        Self { kind, at, what }
    }
}

impl fmt::Display for SimViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?}: {}", self.kind, self.at, self.what)
    }
}
