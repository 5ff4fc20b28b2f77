use std::sync::Arc;
use std::time::Duration;

use lock_redis::{RedisConfig, Redlock};
use lock_testkit::proxy::{Across, FaultPlan, Proxy};
use lock_testkit::servers::{RedisNodes, RedisOptions, RedisServer, Reply};

use super::kinds::Kinds;

/// Independent servers, with a proxy before each.
#[derive(Debug)]
pub(crate) struct Nodes {
    servers: RedisNodes,
    faults: FaultPlan,
}

impl Nodes {
    pub(crate) async fn behind_proxies(count: usize) -> Self {
        let servers = RedisNodes::start(count, &RedisOptions::new());
        let proxies: Vec<_> = servers.iter().map(|s| Proxy::start(s.port())).collect();
        let kinds = Kinds::learn(&proxies, config(proxies.iter().map(Proxy::port))).await;
        let faults = FaultPlan::new(proxies, Across::Each, move |command| kinds.of(command));
        Self { servers, faults }
    }

    pub(crate) fn faults(&self) -> &FaultPlan {
        &self.faults
    }

    /// A client behind the proxies.
    pub(crate) async fn client(&self) -> Arc<Redlock> {
        let ports = self.faults.proxies().iter().map(Proxy::port);
        open(config(ports)).await
    }

    /// The way past the proxies.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<_> = self
            .servers
            .iter()
            .map(|s| format!("127.0.0.1:{}", s.port()))
            .collect();
        format!("redlock://{}?namespace=&rejoin-delay=0s", hosts.join(","))
    }

    /// The same command at every node.
    pub(crate) fn each(&self, words: &[&str]) -> Vec<Reply> {
        self.servers
            .iter()
            .map(|server| server.command(words))
            .collect()
    }

    /// The most holders that any node has.
    pub(crate) fn most_holders(&self, name: &str) -> usize {
        let holders = self.servers.iter().map(|server| holders(server, name));
        holders.max().expect("there are nodes")
    }
}

/// Nodes that have just started and vote at once, and may be slow for a third of a lease.
pub(crate) fn config(ports: impl IntoIterator<Item = u16>) -> RedisConfig {
    RedisConfig::quorum(ports.into_iter().map(|port| ("127.0.0.1", port)))
        .with_rejoin_delay(Duration::ZERO)
        .and_then(|config| config.with_node_timeout(Duration::from_millis(350)))
        .expect("it is in range")
}

pub(crate) async fn open(config: RedisConfig) -> Arc<Redlock> {
    let locks = Redlock::connect(config).await;
    Arc::new(locks.expect("it connects"))
}

/// How many holders a node has of a lock.
pub(crate) fn holders(server: &RedisServer, name: &str) -> usize {
    let count = |words: &[&str]| match server.command(words) {
        Reply::Integer(count) => usize::try_from(count).expect("a number"),
        reply => panic!("{words:?}: {reply:?}"),
    };
    match server.command(&["TYPE", name]).text().as_deref() {
        // Without the mark of the mode.
        Some("zset") => count(&["ZCARD", name]).saturating_sub(1),
        _ => count(&["EXISTS", name]),
    }
}
