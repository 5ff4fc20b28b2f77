//! Messages between clients and the store.

use std::time::Duration;

use polylock_core::engine::LeaseId;
use polylock_core::{LockKey, Mode, RenewalRequest};
use tokio::sync::mpsc::UnboundedSender;

/// What an acquisition requests.
#[derive(Clone, Debug)]
pub(crate) struct SimClaim {
    pub(crate) key: LockKey,
    pub(crate) id: LeaseId,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) process: usize,
    /// The number of this request among those of the acquisition.
    pub(crate) beat: usize,
    /// Whether it takes a place in the queue, where each request is a heartbeat.
    pub(crate) queues: bool,
    /// Where a grant arrives that the request of another client leads to.
    pub(crate) waiter: UnboundedSender<SimGrant>,
}

#[derive(Clone, Debug)]
pub(crate) enum SimRequest {
    Acquire(SimClaim),
    Release(LockKey, LeaseId),
    Renew(Vec<RenewalRequest>),
}

#[derive(Clone, Debug)]
pub(crate) enum SimReply {
    Granted(SimGrant),
    /// By others, until then at most, by the leases as they are.
    Held {
        free_in: Option<Duration>,
    },
    /// Whether the lock was held until now.
    Released(bool),
    /// For each lease whether it is held.
    Renewed(Vec<bool>),
}

/// A grant as the store reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimGrant {
    /// The token, and the last one that is reserved for hand-overs.
    pub(crate) tokens: (u64, u64),
    /// The last request of the waiter that the store had seen; the lease is younger than that.
    pub(crate) beat: usize,
}

/// A grant that the request of another client led to.
#[derive(Debug)]
pub(crate) struct SimPush {
    pub(crate) process: usize,
    pub(crate) id: LeaseId,
    pub(crate) waiter: UnboundedSender<SimGrant>,
    pub(crate) grant: SimGrant,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NoAnswer {
    /// Nothing listens; the request was not done.
    Refused,
    /// The connection broke.
    Reset,
    /// It takes too long.
    TimedOut,
}

impl NoAnswer {
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Refused => "connection refused",
            Self::Reset => "connection reset",
            Self::TimedOut => "no answer in time",
        }
    }
}
