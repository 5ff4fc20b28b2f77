//! What the ways to the servers have in common, and what is asked of them.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use super::node::Node;
use super::unanswered::Unanswered;
use crate::error::Failure;
use crate::script::Script;

/// One request to the server that has its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) kind: CallKind<'a>,
    /// The replicas that have to have what it writes.
    pub(crate) wait: Option<ReplicaWait>,
    /// Where the connection is kept if there is no answer.
    pub(crate) unanswered: Option<&'a Unanswered>,
}

/// How many replicas are waited for, and for how long.
pub(crate) type ReplicaWait = (u32, Duration);

/// What a server is asked to do. All keys of a call lie in one slot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallKind<'a> {
    /// Reads a text, by one plain command.
    Get { key: &'a [u8] },
    /// Joins a queue that exists, by one plain command.
    Join { queue: &'a [u8], entry: &'a [u8] },
    Script {
        script: &'static Script,
        keys: &'a [&'a [u8]],
        args: &'a [&'a [u8]],
    },
    /// Takes an exclusive lock that is free and draws its token, by plain commands in one round trip.
    /// Gives the list of their answers; a redirection among them is left to a script.
    Take {
        lock: &'a [u8],
        tokens: &'a [u8],
        /// `<id>|<label>`.
        holder: &'a [u8],
        ttl: Duration,
    },
}

impl CallKind<'_> {
    /// The key that decides which server has all of them.
    pub(super) fn key(&self) -> &[u8] {
        match self {
            Self::Get { key } | Self::Join { queue: key, .. } | Self::Take { lock: key, .. } => key,
            Self::Script { keys, .. } => keys.first().copied().unwrap_or_default(),
        }
    }
}

impl<'a> Call<'a> {
    /// Runs a script, and waits for no replica.
    pub(crate) fn script(
        script: &'static Script,
        keys: &'a [&'a [u8]],
        args: &'a [&'a [u8]],
    ) -> Self {
        Self {
            kind: CallKind::Script { script, keys, args },
            wait: None,
            unanswered: None,
        }
    }
}

/// What came of a call, and where.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) value: redis::Value,
    /// How many replicas have what the call wrote, if they were waited for.
    pub(crate) acked: u32,
    pub(crate) server: Arc<str>,
}

/// What one server answered to a plain command.
#[derive(Clone, Debug)]
pub(crate) struct NodeReply {
    pub(crate) server: Arc<str>,
    pub(crate) value: redis::Value,
    /// When the command left, by the wall clock of this machine.
    pub(crate) asked: SystemTime,
    /// From then on until the answer came.
    pub(crate) round: Duration,
}

/// The way to the servers.
///
/// Every method ends within the time-out of the configuration, connecting included, and may be
/// dropped at any point: the request is then done or not, and the connection goes on.
#[async_trait]
pub(crate) trait Topology: fmt::Debug + Send + Sync + 'static {
    /// Connects, unless there is a connection.
    async fn open(&self) -> Result<(), Failure>;

    /// Runs a call on the server that has its keys.
    async fn call(&self, call: Call<'_>) -> Result<Done, Failure>;

    /// Makes sure that what `done` granted or extended stands: that its server was not replaced
    /// before it answered, as far as can be known by questions that are no older than `age`.
    /// Waits for answers `within` a time.
    async fn confirm(
        &self,
        _done: &Done,
        _age: Duration,
        _within: Duration,
    ) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether the server that is used is confirmed by questions that are no older than `age`.
    fn is_confirmed(&self, _age: Duration) -> bool {
        true
    }

    /// Whether there is a server to confirm what another says.
    fn confirms(&self) -> bool {
        false
    }

    /// The subscribed channel; `None` where a subscription is impossible. Called by tasks of the
    /// engine.
    async fn channel(&self) -> Result<Option<Arc<str>>, Failure>;

    /// The same channel if it is subscribed to already, without a request.
    fn subscribed(&self) -> Option<Arc<str>>;

    /// Whether keys of different slots may be in one call.
    fn one_slot(&self) -> bool;

    /// The servers that have keys.
    async fn masters(&self) -> Result<Vec<Arc<Node>>, Failure>;

    /// Takes note of a master that failed.
    fn learn(&self, _node: &Arc<Node>, _failure: &Failure) {}
}

impl dyn Topology {
    /// Runs a plain command on every master.
    pub(crate) async fn broadcast(&self, command: &redis::Cmd) -> Result<Vec<NodeReply>, Failure> {
        let mut replies = Vec::new();
        for node in self.masters().await? {
            let reply = node.ask(command).await;
            replies.push(reply.inspect_err(|failure| self.learn(&node, failure))?);
        }
        Ok(replies)
    }

    /// All keys of all masters that match a pattern, each once. A key that comes or goes meanwhile
    /// is in the list or not.
    pub(crate) async fn scan(&self, pattern: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let mut keys = HashSet::new();
        for node in self.masters().await? {
            let found = node.scan(pattern, &mut keys).await;
            found.inspect_err(|failure| self.learn(&node, failure))?;
        }
        Ok(keys.into_iter().collect())
    }
}

/// What happens on the connections. Called on the thread of a connection: never blocks.
pub(crate) trait ConnectionEvents: fmt::Debug + Send + Sync + 'static {
    /// A message came on one of our channels.
    fn on_message(&self, payload: &[u8]);

    /// A subscription was interrupted: messages may be lost.
    fn on_disconnect(&self) {}

    /// The master changed: what it did not pass on is lost.
    fn on_failover(&self) {}
}

/// Ignores all events.
#[derive(Debug)]
pub(crate) struct NoEvents;

impl ConnectionEvents for NoEvents {
    fn on_message(&self, _payload: &[u8]) {}
}
