//! The interface to all kinds of servers, the requests to them, and what they report.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use redis::Cmd;

use super::node::RedisNode;
use super::unanswered::Unanswered;
use super::wait_batch::WaitBatch;
use crate::error::RedisFailure;
use crate::script::Script;

/// One request to the server that has its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) kind: CallKind<'a>,
    /// The replicas that must have the writes of this call.
    pub(crate) wait: Option<ReplicaWait>,
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
    /// the user, or refused by a replica, is an error.
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

impl Done {
    /// How many replicas have the writes of the call and how many must, if those are too few.
    pub(crate) fn lacks(&self, wait: Option<ReplicaWait>) -> Option<(u32, u32)> {
        let acks = wait.map(|(wanted, _)| (self.acked, wanted));
        acks.filter(|(acked, wanted)| acked < wanted)
    }
}

/// What one server answered to a plain command.
#[derive(Clone, Debug)]
pub(crate) struct NodeReply {
    pub(crate) value: redis::Value,
    /// When the command left, by the wall clock of this machine.
    pub(crate) asked: SystemTime,
    /// From then until the reply.
    pub(crate) round: Duration,
}

/// The connections to the servers.
///
/// A call ends within the timeout of the configuration, connecting included, plus the time that it waits
/// for replicas. `open` has the timeout for connecting in addition; `broadcast` and `scan` have the timeout
/// for each of their requests. Each method may be dropped at any point: the request is then executed or
/// not, and later requests are not affected.
#[async_trait]
pub(crate) trait Topology: fmt::Debug + Send + Sync + 'static {
    /// Connects, unless there is a connection.
    async fn open(&self) -> Result<(), RedisFailure>;

    /// Runs a call on the server that has its keys.
    async fn call(&self, call: Call<'_>) -> Result<Done, RedisFailure>;

    /// Confirms a grant or a renewal in `done`: its server was not replaced before it replied, as far as
    /// queries no older than `age` can show. Waits for replies at most `within`.
    async fn confirm(
        &self,
        _done: &Done,
        _age: Duration,
        _within: Duration,
    ) -> Result<(), RedisFailure> {
        Ok(())
    }

    /// Whether queries no older than `age` confirm the current server.
    fn is_confirmed(&self, _age: Duration) -> bool {
        true
    }

    /// Whether other servers can confirm the master.
    fn confirms(&self) -> bool {
        false
    }

    /// The subscribed channel; `None` if a subscription is impossible. Called by tasks of the engine.
    async fn channel(&self) -> Result<Option<Arc<str>>, RedisFailure>;

    /// The channel if it is already subscribed, without a request.
    fn subscribed(&self) -> Option<Arc<str>>;

    /// Finds out anew which servers have keys, where keys move from one to another.
    async fn refresh(&self) -> Result<(), RedisFailure> {
        Ok(())
    }

    /// The servers that have keys.
    async fn masters(&self) -> Result<Vec<Arc<RedisNode>>, RedisFailure>;

    /// Records the failure of a master, and closes the connections to a demoted one.
    fn learn(&self, _node: &Arc<RedisNode>, _failure: &RedisFailure) {}
}

impl dyn Topology {
    /// Runs a plain command on every master.
    pub(crate) async fn broadcast(&self, command: &Cmd) -> Result<Vec<NodeReply>, RedisFailure> {
        let mut replies = Vec::new();
        for node in self.masters().await? {
            let reply = node.ask(command).await;
            replies.push(reply.inspect_err(|failure| self.learn(&node, failure))?);
        }
        Ok(replies)
    }

    /// All keys of all masters that match a pattern, without duplicates. Keys that are created, deleted or moved
    /// to another master meanwhile may be included or missing. A master that has lost its slots finds nothing
    /// and does not say so: the masters are found out anew before. Waits at most `within` for the confirmation of each master:
    /// the successor of a former one may have other keys.
    pub(crate) async fn scan(
        &self,
        pattern: &[u8],
        within: Duration,
    ) -> Result<Vec<Vec<u8>>, RedisFailure> {
        let mut keys = HashSet::new();
        self.refresh().await?;
        for node in self.masters().await? {
            let found = node.scan(pattern, &mut keys).await;
            found.inspect_err(|failure| self.learn(&node, failure))?;
            let done = Done {
                value: redis::Value::Nil,
                acked: 0,
                server: Arc::clone(node.server()),
            };
            let confirmed = self.confirm(&done, MAX_AGE, within).await;
            // Nothing was changed, so that no outcome is unknown.
            confirmed.map_err(|failure| failure.cause)?;
        }
        Ok(keys.into_iter().collect())
    }
}

/// How recent the last confirmation of the master must be for a grant, or a lock that is held, so that
/// frequent acquisitions do not wait for one. Usually less than a failover takes; a forced one can be
/// faster.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(1);

/// Connection events. Called on the thread of a connection: never blocks.
pub(crate) trait ConnectionEvents: fmt::Debug + Send + Sync + 'static {
    /// A message came on one of our channels.
    fn on_message(&self, payload: &[u8]);

    /// A subscription was interrupted: messages may be lost.
    fn on_disconnect(&self) {}

    /// Messages about broken locks may have been lost. The next renewal shows such a break.
    fn on_gap(&self) {}

    /// The master changed: writes that it did not replicate are lost.
    fn on_failover(&self) {}
}

/// Ignores all events.
#[derive(Debug)]
pub(crate) struct NoEvents;

impl ConnectionEvents for NoEvents {
    fn on_message(&self, _payload: &[u8]) {}
}
