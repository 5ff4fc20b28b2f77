use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::call::{Call, Done};
use super::connector::Connectors;
use super::context::ConnectionContext;
use super::contract::Topology;
use super::node::RedisNode;
use crate::config::{Endpoint, RedisConfig};
use crate::error::RedisFailure;
use crate::locked;

/// One server at a fixed address.
#[derive(Debug)]
pub(super) struct Standalone {
    node: Arc<RedisNode>,
    shared: Arc<ConnectionContext>,
    /// When its connections were closed last, because the server had been demoted.
    hung_up: Mutex<Option<Instant>>,
}

/// Min time between two such closings. Many requests in flight may report one demotion, and the address
/// may lead to the same server for a while.
const HANG_UP_INTERVAL: Duration = Duration::from_millis(200);

impl Standalone {
    pub(super) fn new(
        config: &RedisConfig,
        endpoint: &Endpoint,
        shared: Arc<ConnectionContext>,
    ) -> Result<Self, RedisFailure> {
        let connector = Connectors::new(config, &shared).to(endpoint)?;
        let node = Arc::new(RedisNode::new(connector, Arc::clone(&shared)));
        let hung_up = Mutex::default();
        Ok(Self {
            node,
            shared,
            hung_up,
        })
    }

    fn may_hang_up(&self, now: Instant) -> bool {
        let mut last = locked(&self.hung_up);
        let may = last.is_none_or(|last| now.duration_since(last) >= HANG_UP_INTERVAL);
        if may {
            *last = Some(now);
        }
        may
    }
}

#[async_trait]
impl Topology for Standalone {
    async fn open(&self) -> Result<(), RedisFailure> {
        self.node.open().await
    }

    async fn call(&self, call: Call<'_>) -> Result<Done, RedisFailure> {
        let deadline = self.shared.deadline();
        let done = self.node.call(call, false, deadline).await;
        done.inspect_err(|failure| self.learn(&self.node, failure))
    }

    async fn channel(&self) -> Result<Option<Arc<str>>, RedisFailure> {
        let channel = self.node.channel(self.shared.deadline()).await;
        channel.inspect_err(|failure| self.learn(&self.node, failure))
    }

    fn subscribed(&self) -> Option<Arc<str>> {
        self.node.subscribed()
    }

    async fn masters(&self) -> Result<Vec<Arc<RedisNode>>, RedisFailure> {
        Ok(vec![Arc::clone(&self.node)])
    }

    /// A demoted server keeps its connections. The next one may lead to another server: its host is
    /// resolved again.
    fn learn(&self, node: &Arc<RedisNode>, failure: &RedisFailure) {
        if failure.is_of_replica() && self.may_hang_up(Instant::now()) {
            node.hang_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use lock_testkit::servers::{RedisOptions, RedisServer};
    use polylock_core::engine::Engine;

    use super::super::connection_events::NoEvents;
    use super::super::tests::{Told, config, refused_with};
    use super::*;
    use crate::error::Refusal;

    #[test]
    fn one_demotion_closes_the_connections_once() {
        let config = RedisConfig::new("127.0.0.1", 1);
        let engine = Engine::of_this_process("redis");
        let shared = ConnectionContext::new(&config, Arc::new(NoEvents), &engine);
        let endpoint = Endpoint::tcp("127.0.0.1", 1);
        let standalone = Standalone::new(&config, &endpoint, Arc::new(shared));
        let standalone = standalone.expect("nothing is connected yet");
        let start = Instant::now();
        for (at, may) in [
            (0, true),
            (0, false),
            (199, false),
            (200, true),
            (399, false),
            (5_000, true),
        ] {
            let now = start + Duration::from_millis(at);
            assert_eq!(standalone.may_hang_up(now), may, "after {at} ms");
        }
    }

    #[tokio::test]
    async fn reports_of_one_demotion_do_not_close_the_next_connections() {
        let server = RedisServer::start(RedisOptions::new());
        let (config, told) = (config(&server), Arc::<Told>::default());
        let (events, engine) = (Arc::clone(&told), Engine::of_this_process("redis"));
        let shared = ConnectionContext::new(&config, events, &engine);
        let endpoint = Endpoint::tcp("127.0.0.1", server.port());
        let standalone = Standalone::new(&config, &endpoint, Arc::new(shared));
        let standalone = standalone.expect("nothing is connected yet");
        let closed = |refusal| {
            standalone.learn(&standalone.node, &refused_with(refusal));
            told.deaf.load(Ordering::SeqCst)
        };
        let set = |last| *standalone.hung_up.lock().unwrap() = last;

        standalone.channel().await.unwrap().expect("RESP3 pushes");
        assert_eq!(closed(Refusal::NoPerm), 0, "it may be a master");
        assert_eq!(closed(Refusal::ReadOnly), 1);
        standalone.channel().await.unwrap().expect("RESP3 pushes");
        // An interval that is not over before this test is, however slow the machine.
        set(Some(Instant::now() + Duration::from_secs(3_600)));
        assert_eq!(closed(Refusal::ReadOnly), 1);
        assert_eq!(closed(Refusal::MasterDown), 1);
        assert!(standalone.subscribed().is_some(), "it is closed");
        set(None);
        assert_eq!(closed(Refusal::MasterDown), 2);
        assert!(standalone.hung_up.lock().unwrap().is_some());
        assert_eq!(standalone.subscribed(), None);
    }
}
