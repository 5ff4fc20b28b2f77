//! What processes and the store say to each other.

use std::fmt;
use std::time::Duration;

use polylock_core::engine::LeaseId;
use polylock_core::{LockKey, Mode};

/// What an acquisition asks for.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) key: LockKey,
    pub(crate) id: LeaseId,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) process: usize,
    /// The number of this sign of life of a waiter; `None` if the claim does not wait.
    pub(crate) beat: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) enum Request {
    Acquire(Claim),
    Release(LockKey, LeaseId),
    Renew(Vec<(LockKey, LeaseId, Duration)>),
}

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Granted(Granted),
    /// By others, until then at most, by the leases as they are.
    Held {
        free_in: Option<Duration>,
    },
    /// Whether the lock was held until now.
    Released(bool),
    /// For each lease whether it is held.
    Renewed(Vec<bool>),
}

/// What the store tells of a grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) token: u64,
    /// The last token that is reserved for hand-overs.
    pub(crate) block_end: u64,
    /// The last beat of the waiter that the store had seen; the lease is younger than that.
    pub(crate) beat: u32,
}

/// A waiter that got the lock by the request of somebody else.
#[derive(Debug)]
pub(crate) struct Push {
    pub(crate) process: usize,
    pub(crate) id: LeaseId,
    pub(crate) grant: Granted,
}

/// What a store has at the end: a holder, or a waiter without tokens.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub(crate) key: LockKey,
    pub(crate) tokens: Option<(u64, u64)>,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tokens {
            Some((token, _)) => write!(f, "a holder of {} with token {token}", self.key),
            None => write!(f, "a waiter for {}", self.key),
        }
    }
}
