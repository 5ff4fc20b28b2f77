//! What the ways to the servers have in common, and what is asked of them.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use super::unanswered::Unanswered;
use crate::error::Failure;
use crate::script::Script;

/// One run of a script, or a plain command. All keys lie in one slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) script: &'static Script,
    pub(crate) keys: &'a [&'a [u8]],
    pub(crate) args: &'a [&'a [u8]],
    /// Where the connection is kept if there is no answer.
    pub(crate) unanswered: Option<&'a Unanswered>,
}

/// An exclusive lock that is to be taken by plain commands. Both keys lie in one slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Take<'a> {
    pub(crate) lock: &'a [u8],
    pub(crate) tokens: &'a [u8],
    /// `<id>|<label>`.
    pub(crate) holder: &'a [u8],
    pub(crate) ttl: Duration,
    /// Where the connection is kept if there is no answer.
    pub(crate) unanswered: &'a Unanswered,
}

/// What the answers to these commands say.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Taken {
    /// With this token.
    Granted(u64),
    /// By another client.
    Held,
    /// Under this id, and without a token: a script has to draw one.
    WithoutToken,
    /// Nothing that can be relied on: a script has to find out.
    Unknown,
}

/// What came of a call, and where.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) value: redis::Value,
    /// How many replicas have what the call wrote, if they were waited for.
    pub(crate) acked: u32,
    pub(crate) server: Arc<str>,
}

impl Done {
    /// Nothing was done.
    pub(super) fn nowhere() -> Self {
        Self {
            value: redis::Value::Nil,
            acked: 0,
            server: "".into(),
        }
    }
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
    /// Runs a script on the server that has the keys. With `wait`, waits until that many replicas have
    /// its writes, for that long at most.
    async fn call_with(
        &self,
        call: Call<'_>,
        wait: Option<(u32, Duration)>,
    ) -> Result<Done, Failure>;

    /// Takes a lock that is free, and draws its token, in one round trip; the value of what is done is
    /// nothing. Waits for replicas as [`call_with`](Self::call_with) does.
    async fn take(
        &self,
        take: Take<'_>,
        wait: Option<(u32, Duration)>,
    ) -> Result<(Taken, Done), Failure>;

    /// Makes sure that what `done` granted or extended stands: that its server was not replaced
    /// before it answered, as far as anybody can know by questions that are no older than `age`.
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

    /// Whether there is anybody to confirm what a server says.
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

    /// Runs a plain command on every master.
    async fn broadcast(&self, command: &redis::Cmd) -> Result<Vec<NodeReply>, Failure>;

    /// All keys of all masters that match a pattern, each once. A key that comes or goes meanwhile
    /// is in the list or not.
    async fn scan(&self, pattern: &[u8]) -> Result<Vec<Vec<u8>>, Failure>;
}

impl dyn Topology {
    /// Runs a script and waits for no replica.
    pub(crate) async fn call(&self, call: Call<'_>) -> Result<redis::Value, Failure> {
        Ok(self.call_with(call, None).await?.value)
    }
}

/// What happens on the connections. Called on the thread of a connection: never blocks.
pub(crate) trait ConnectionEvents: fmt::Debug + Send + Sync + 'static {
    /// A message came on one of our channels.
    fn on_message(&self, payload: &[u8]);

    /// A subscription was interrupted: messages may be lost.
    fn on_disconnect(&self);

    /// The master changed: what it did not pass on is lost.
    fn on_failover(&self);
}

/// Ignores all events.
#[derive(Debug)]
pub(crate) struct NoEvents;

impl ConnectionEvents for NoEvents {
    fn on_message(&self, _payload: &[u8]) {}

    fn on_disconnect(&self) {}

    fn on_failover(&self) {}
}
