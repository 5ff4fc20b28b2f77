//! The requests to servers, and their results.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use super::unanswered::Unanswered;
use super::wait_batch::WaitBatch;
use crate::script::Script;

/// One request to the server that has its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) kind: CallKind<'a>,
    /// The replicas that must have the writes of this call.
    pub(crate) wait: Option<ReplicaWait>,
    /// Whether it extends leases.
    pub(crate) is_renewal: bool,
    /// The calls that wait for replicas with this one. Their connection is not kept in `unanswered`.
    pub(crate) batch: Option<&'a WaitBatch>,
    /// Where the connection is kept if no reply comes.
    pub(crate) unanswered: Option<&'a Unanswered>,
}

/// How many replicas are waited for, and for how long.
pub(crate) type ReplicaWait = (u32, Duration);

/// A request. All keys of a call lie in one slot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallKind<'a> {
    /// One plain command, with its key.
    Plain { key: &'a [u8], command: &'a Cmd },
    Script {
        script: &'static Script,
        keys: &'a [&'a [u8]],
        args: &'a [&'a [u8]],
    },
    /// Acquires a free exclusive lock and draws its token, by plain commands in one round trip. Returns
    /// the list of their replies; a redirection among them is left to a script. A `SET` that is denied to
    /// the user, or refused by a replica or by a cluster that is down, is an error.
    Take {
        lock: &'a [u8],
        tokens: &'a [u8],
        /// Whether the draw deletes what earlier ones have left in the counter.
        clears: bool,
        /// `<id>|<label>`.
        holder: &'a [u8],
        ttl: Duration,
    },
}

impl CallKind<'_> {
    /// The key that selects the server.
    pub(super) fn key(&self) -> &[u8] {
        match self {
            Self::Plain { key, .. } | Self::Take { lock: key, .. } => key,
            Self::Script { keys, .. } => keys.first().copied().unwrap_or_default(),
        }
    }
}

impl<'a> Call<'a> {
    /// Waits for no replica.
    pub(crate) fn of(kind: CallKind<'a>) -> Self {
        Self {
            kind,
            wait: None,
            is_renewal: false,
            batch: None,
            unanswered: None,
        }
    }

    /// Sends a plain command, and waits for no replica.
    pub(crate) fn plain(key: &'a [u8], command: &'a Cmd) -> Self {
        Self::of(CallKind::Plain { key, command })
    }

    /// Runs a script, and waits for no replica.
    pub(crate) fn script(
        script: &'static Script,
        keys: &'a [&'a [u8]],
        args: &'a [&'a [u8]],
    ) -> Self {
        Self::of(CallKind::Script { script, keys, args })
    }
}

/// The result of a call, and the server that returned it.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) value: redis::Value,
    /// How many replicas have the writes of the call, if it waited for replicas.
    pub(crate) acked: u32,
    pub(crate) server: Arc<str>,
}
