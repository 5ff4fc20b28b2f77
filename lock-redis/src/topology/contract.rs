//! The interface to all kinds of servers.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::call::{Call, Done};
use super::node::RedisNode;
use crate::error::RedisFailure;

/// The connections to the servers.
///
/// A call ends within the timeout of the configuration, connecting included, plus the time that it waits
/// for replicas. `open` has the timeout for connecting in addition; `scan` has the timeout for each of its
/// requests. Each method may be dropped at any point: the request is then executed or
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
    /// All keys of all masters that match a pattern, without duplicates. Keys that are created, deleted or moved
    /// to another master meanwhile may be included or missing. Reads anew which masters there are, as one without
    /// slots finds nothing and reports no error. Waits at most `within` for the confirmation of each master: the
    /// successor of a former one may have other keys.
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
