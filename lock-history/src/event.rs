use std::num::NonZeroU32;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

/// Something that happened to one acquisition, or to a key from outside.
///
/// A client writes [`Requested`](What::Requested) before it sends a request,
/// [`Granted`](What::Granted) after it has the lock, [`Held`](What::Held) after it has checked that
/// it still has it, and [`Releasing`](What::Releasing) before it sends the release.
///
/// Times are nanoseconds of a clock that all processes share, such as the one since the boot of a
/// machine. The order within a recorder is that of `seq`.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
pub struct HistoryEvent {
    /// When it happened.
    pub at: u64,
    /// Place among the events of its recorder.
    pub seq: u64,
    /// The process that it happened in.
    pub process: u32,
    /// The key of the lock.
    pub key: String,
    /// The acquisition, unique over processes; 0 for what happens to a key from outside.
    pub attempt: u64,
    /// What happened.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub what: What,
}

impl HistoryEvent {
    /// An event of this process, the first of its recorder.
    #[must_use]
    pub fn new(at: u64, key: impl Into<String>, attempt: u64, what: What) -> Self {
        Self {
            at,
            seq: 0,
            process: std::process::id(),
            key: key.into(),
            attempt,
            what,
        }
    }
}

/// What happened.
///
/// With the feature `serde`, the tag of a variant is called `op`.
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "op", rename_all = "snake_case"))]
pub enum What {
    /// The future of the request was dropped before it was answered.
    Cancelled,
    /// The request was granted.
    Granted {
        /// The token of the holder, if the backend has any.
        token: Option<u64>,
        /// Until when it is valid unless it is renewed; `None` without a time limit.
        until: Option<u64>,
    },
    /// The holder checked, and held the lock.
    Held {
        /// Until when it is valid unless it is renewed; `None` without a time limit.
        until: Option<u64>,
    },
    /// An administrator or a fault took locks from their holders.
    Interfered {
        /// By what means.
        how: String,
    },
    /// What the store had of a key at the end, when nothing should be left.
    Left {
        /// Holders.
        holders: u64,
        /// Entries in the queue.
        waiters: u64,
    },
    /// The loss was signaled.
    Lost {
        /// One word. `broken`, `session_ended` and `stolen` mean that the server ended the hold
        /// before its deadline, which takes an [`Interfered`](Self::Interfered).
        reason: String,
    },
    /// The request was refused or failed.
    Refused {
        /// The kind of the error.
        error: String,
    },
    /// The release was answered.
    Released {
        /// Whether the lock was held until then; `None` if that is unknown.
        clean: Option<bool>,
    },
    /// The holder is about to release the lock.
    Releasing {
        /// Whether it held the lock at that moment.
        held: bool,
    },
    /// The request is about to be made.
    Requested {
        /// How the lock is to be held.
        access: Access,
        /// Whether `until` moves only with an event: the request leaves renewal to the caller.
        exact: bool,
    },
    /// The fenced register was written, or refused the token.
    Wrote {
        /// The token that came with the write.
        token: u64,
        /// Whether the register took it.
        accepted: bool,
    },
}

impl What {
    /// A request for an exclusive lock, whose holder renews it by itself.
    #[must_use]
    pub fn exclusive() -> Self {
        Self::Requested {
            access: Access::Exclusive,
            exact: false,
        }
    }
}

/// How a lock is held.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(Deserialize, Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Access {
    /// By one holder.
    Exclusive,
    /// By at most this many holders.
    Permit(NonZeroU32),
    /// By any number of holders.
    Shared,
}
