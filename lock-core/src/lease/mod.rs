//! The leases of a backend, and the scheduler that renews them all.

mod renewal_scheduler;
mod renewer;
mod timing;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;

use crate::engine::{LeaseId, Moment};
use crate::error::Result;
use crate::guard::HeldLease;
use crate::lost_reason::LostReason;
use crate::token::FencingToken;

pub(crate) use self::renewal_scheduler::{RenewalScheduler, Slot, TICK};
pub(crate) use self::renewer::renew;
pub use self::renewer::{LeaseState, RenewalRequest, Renewer, TtlRule};
pub(crate) use self::timing::LeaseTiming;
pub use self::timing::{renewal_interval, renewal_timeout};

/// One acquisition, seen from the server.
///
/// A backend makes the value with its [`LeaseId`] *before* it sends the acquire request, and arms a
/// [`PendingRelease`](crate::PendingRelease) with it. After the grant, that makes the guard. Data of the
/// grant, such as a block of tokens, goes into the lease by interior mutability. From then on the core
/// decides when to renew, when the lock is lost and when to release; the lease only sends requests.
#[async_trait]
pub trait Lease: fmt::Debug + Send + Sync + 'static {
    /// How the lease is kept alive.
    fn liveness(&self) -> Liveness;

    /// Receives the handle by which the lease reports what the server pushes.
    ///
    /// Called before the guard is handed out, and again with another handle when the lease passes
    /// to the next holder in this process; the latest one counts.
    ///
    /// # For implementors
    ///
    /// Report here what happened between the grant and this call.
    fn attach(&self, control: LeaseControl);

    /// Issues the fencing token of the next holder in this process, larger than every earlier one
    /// of the key. `None` refuses, and the lease is released instead.
    ///
    /// # Errors
    ///
    /// Any; the lease is then released. Tokens issued after an error must still be larger.
    ///
    /// # Cancel safety
    ///
    /// Dropped after a third of the ttl, or 5 s, without an answer; the lease is then released.
    async fn hand_over(&self) -> Result<Option<FencingToken>>;

    /// Makes a held exclusive lock a shared one without a gap, with the same id and token.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where the backend cannot.
    ///
    /// # Cancel safety
    ///
    /// The core runs the future to its end.
    async fn downgrade(&self) -> Result<()>;

    /// Releases the lock if this acquisition still holds it; never affects another holder.
    ///
    /// Idempotent: it is called again after an unknown outcome, and for acquisitions that may
    /// never have been granted.
    ///
    /// # Errors
    ///
    /// [`is_outcome_unknown`](crate::Error::is_outcome_unknown) if the server may have acted.
    ///
    /// # Cancel safety
    ///
    /// Dropped after a third of the ttl, or 5 s, without an answer, or when the runtime that it
    /// began on ends, and called again.
    async fn release(&self) -> Result<Released>;
}

/// How a lease reports what the server pushes.
///
/// Clonable. Reports about a lock that was given up are ignored. No call waits, so a callback of a
/// client may make them. A call may drop the last reference to the lease: do not hold a mutex that
/// its destructor takes.
#[derive(Clone, Debug)]
pub struct LeaseControl {
    hold: Weak<HeldLease>,
}

impl LeaseControl {
    pub(crate) fn new(hold: Weak<HeldLease>) -> Self {
        Self { hold }
    }

    /// The lock is lost, for certain.
    pub fn lose(&self, reason: LostReason) {
        self.report(|hold| hold.lose(reason));
    }

    /// The lock is held until `deadline`, earlier or later than before, unless another report comes first.
    /// For sessions, which report how long the server keeps them.
    ///
    /// At the deadline it is lost as [`Unreachable`](LostReason::Unreachable), or as
    /// [`Expired`](LostReason::Expired) if the process was paused and notices it late.
    pub fn limit(&self, deadline: Moment) {
        self.report(|hold| hold.limit(deadline));
    }

    /// Whether the lock has ended and needs no more reports. For a session that sweeps its leases.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.hold.upgrade().is_none_or(|hold| hold.is_over())
    }

    /// Whether the lock was lost, or its holder has left it without a release, so that the lease has to expire. For
    /// a backend whose leases are kept alive together.
    ///
    /// False while the lock is released or handed over: for a third of the ttl, or 5 s, at most.
    #[must_use]
    pub fn is_lost_or_abandoned(&self) -> bool {
        let hold = self.hold.upgrade();
        hold.is_none_or(|hold| hold.is_lost_or_abandoned())
    }

    /// Renews now instead of when it is due. For signs of trouble, such as a change of the master.
    pub fn check(&self) {
        self.report(HeldLease::check);
    }

    fn report(&self, report: impl FnOnce(&Arc<HeldLease>)) {
        if let Some(hold) = self.hold.upgrade() {
            report(&hold);
        }
    }
}

/// How a lease is kept alive.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum Liveness {
    /// It has no time limit of its own: it lives with a session or a connection, and the backend
    /// reports the end through [`LeaseControl`].
    Reported,
    /// It ends after its ttl unless it is renewed.
    Renewed {
        /// The acquisition to renew.
        id: LeaseId,
        /// The server that renews it.
        renewer: Arc<dyn Renewer>,
    },
}

/// What a release found.
///
/// The example of [`LockGuard`](crate::LockGuard) releases a lock.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Released {
    /// The lock had ended before.
    AlreadyLost,
    /// The lock was held until the release.
    Clean,
}

/// What the server granted.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// Moment before the request of the successful attempt left; the lease counts from here.
    pub sent: Moment,
    /// The token of this acquisition, if the backend has any.
    pub token: Option<FencingToken>,
    /// Length of this first lease, if it is not the ttl of the request.
    pub(crate) lasts: Option<Duration>,
}

impl Grant {
    /// A grant whose request left at `sent`, for the ttl of the request.
    #[must_use]
    pub fn new(sent: Moment, token: Option<FencingToken>) -> Self {
        Self {
            sent,
            token,
            lasts: None,
        }
    }

    /// Limits the first lease to `lasts`, counted like a ttl; the first renewal gives it the ttl of the
    /// request.
    ///
    /// For grants to a waiter that may be gone. The core sends that renewal in time, also with
    /// [`Renewal::Manual`](crate::Renewal::Manual), unless the lock is released soon. A time beyond the
    /// ttl counts as the ttl; a lock that lives with a session or a connection has no such lease.
    #[must_use]
    pub fn lasting(self, lasts: Duration) -> Self {
        Self {
            lasts: Some(lasts),
            ..self
        }
    }
}
