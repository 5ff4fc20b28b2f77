use std::io::BufRead;
use std::num::NonZeroU32;

use lock_core::Mode;
use serde::{Deserialize, Serialize};

/// Something that happened to one acquisition, or to a key from outside.
///
/// Times are nanoseconds since the boot of the machine, so that the events of its processes can be
/// compared. The order within a process is that of `seq`.
#[non_exhaustive]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Event {
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
    #[serde(flatten)]
    pub what: What,
}

impl Event {
    /// An event of one process.
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
#[non_exhaustive]
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
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
    /// The holder looked, and held the lock.
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
    /// The loss was signalled.
    Lost {
        /// One word, as of `LostReason::as_str`.
        reason: String,
    },
    /// The request was refused or failed.
    Refused {
        /// The kind of the error.
        error: String,
    },
    /// The release was answered.
    Released {
        /// Whether the lock was held until then; `None` if nobody knows.
        clean: Option<bool>,
    },
    /// The holder is about to give the lock back.
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

/// How a lock is held, for the judge.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// By one.
    Exclusive,
    /// By at most this many.
    Permit(NonZeroU32),
    /// By any number.
    Shared,
}

impl From<Mode> for Access {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Permit { limit } => Self::Permit(limit),
            Mode::Shared => Self::Shared,
            // A mode that the judge does not know is held to the strictest rule.
            _ => Self::Exclusive,
        }
    }
}

/// Reads a file of JSON lines; a last line without its end, of a process that was killed, is left
/// out.
///
/// # Errors
///
/// Those of reading, and [`InvalidData`](std::io::ErrorKind::InvalidData) for a line that is
/// complete and no event.
pub fn read_history(mut lines: impl BufRead) -> std::io::Result<Vec<Event>> {
    let mut events = Vec::new();
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        if let Some(complete) = line.strip_suffix('\n') {
            events.push(serde_json::from_str(complete)?);
        }
        line.clear();
    }
    Ok(events)
}
