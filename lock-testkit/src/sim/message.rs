//! What processes and the store say to each other.

use std::fmt;
use std::time::Duration;

use lock_core::engine::LeaseId;
use lock_core::{LockKey, Mode};

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
    /// Held by others until then at most, by the leases as they are.
    Busy { free_in: Option<Duration> },
    Granted {
        token: u64,
        block_end: u64,
        beat: Option<u32>,
    },
    /// In the queue.
    Queued { free_in: Option<Duration> },
    /// Whether the lock was held until now.
    Released(bool),
    /// For each lease whether it is held.
    Renewed(Vec<bool>),
}

/// A waiter that got the lock by the request of somebody else.
#[derive(Debug)]
pub(crate) struct Push {
    pub(crate) process: usize,
    pub(crate) id: LeaseId,
    pub(crate) token: u64,
    pub(crate) block_end: u64,
    pub(crate) beat: u32,
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
