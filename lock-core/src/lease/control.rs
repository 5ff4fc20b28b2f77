use std::fmt;
use std::sync::{Arc, Weak};

use crate::engine::Moment;
use crate::lost_reason::LostReason;

/// How a lease reports what the server pushes.
///
/// Clonable. Reports about a lock that was given up are ignored. No call waits, so a callback of a
/// client may make them. A call may drop the last reference to the lease: do not hold a mutex that
/// its destructor takes.
#[derive(Clone)]
pub struct LeaseControl {
    hold: Weak<dyn Controlled>,
}

/// The receiver of the reports, with the same method names as [`LeaseControl`].
pub(crate) trait Controlled: Send + Sync {
    fn lose(&self, reason: LostReason);
    fn limit(self: Arc<Self>, deadline: Moment);
    fn confirm(self: Arc<Self>);
    fn is_over(&self) -> bool;
    fn check(self: Arc<Self>);
}

impl LeaseControl {
    pub(crate) fn new(hold: Weak<dyn Controlled>) -> Self {
        Self { hold }
    }

    /// The lock is lost, for certain.
    pub fn lose(&self, reason: LostReason) {
        if let Some(hold) = self.hold.upgrade() {
            hold.lose(reason);
        }
    }

    /// The lock is in doubt: it is lost as unreachable at `deadline` unless
    /// [`confirm`](LeaseControl::confirm) comes first. For sessions that are disconnected.
    pub fn limit(&self, deadline: Moment) {
        if let Some(hold) = self.hold.upgrade() {
            hold.limit(deadline);
        }
    }

    /// The lock is held beyond doubt, and has no time limit. Ends a [`limit`](LeaseControl::limit);
    /// a loss stays a loss.
    pub fn confirm(&self) {
        if let Some(hold) = self.hold.upgrade() {
            hold.confirm();
        }
    }

    /// Whether the lock has ended and needs no more reports. For a session that sweeps its leases.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.hold.upgrade().is_none_or(|hold| hold.is_over())
    }

    /// Renews now instead of when it is due. For signs of trouble, such as a change of the master.
    pub fn check(&self) {
        if let Some(hold) = self.hold.upgrade() {
            hold.check();
        }
    }
}

impl fmt::Debug for LeaseControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseControl").finish_non_exhaustive()
    }
}
