use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lock_testkit::harness::{Faults, Harness, Look};
use lock_testkit::proxy::{Across, FaultPlan, Proxy};
use lock_testkit::servers::{RedisNodes, RedisOptions, RedisServer, Reply};
use lock_testkit::taker::Taker;
use polylock_core::memory::{Fault, Reachable, Request};
use polylock_core::{DistributedLock, LockKey};
use polylock_redis::{RedisConfig, Redlock};

use crate::support::{kind_of, load_scripts, look};

/// Independent servers, with a proxy before each.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) servers: RedisNodes,
    pub(crate) faults: FaultPlan,
}

impl Nodes {
    pub(crate) fn behind_proxies(count: usize) -> Self {
        let servers = RedisNodes::start(count, &RedisOptions::new());
        servers.iter().for_each(load_scripts);
        let proxies = servers.iter().map(|server| Proxy::start(server.port()));
        let faults = FaultPlan::new(proxies.collect(), Across::Each, kind_of);
        Self { servers, faults }
    }

    /// The same command at every node.
    pub(crate) fn each(&self, words: &[&str]) -> Vec<Reply> {
        self.servers
            .iter()
            .map(|server| server.command(words))
            .collect()
    }
}

#[async_trait]
impl Harness for Nodes {
    /// A client behind the proxies.
    async fn client(&self) -> Arc<dyn DistributedLock> {
        let ports = self.faults.proxies().iter().map(Proxy::port);
        open(config(ports, PATIENT)).await
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }

    fn taker(&self) -> Option<Taker> {
        let hosts = self.servers.iter();
        let hosts: Vec<_> = hosts.map(|s| format!("127.0.0.1:{}", s.port())).collect();
        let url = format!("redlock://{}?namespace=&rejoin-delay=0s", hosts.join(","));
        Some(Taker::example("redis-taker", url))
    }

    /// The most holders that any node has, once a minority has had the time to follow the others.
    async fn look(&self, key: &LockKey) -> Option<Look> {
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            let held = self.servers.iter().map(|s| holders(s, key.as_str()));
            let held: Vec<_> = held.collect();
            let with = held.iter().filter(|count| **count > 0).count();
            if with == 0 || with > held.len() / 2 || Instant::now() > deadline {
                let most = held.into_iter().max().expect("there are nodes");
                return Some(Look::new(most, 0));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[async_trait]
impl Faults for Nodes {
    fn plan(&self, request: Request, fault: Fault) {
        self.faults.plan(request, fault);
    }

    fn pending(&self) -> Option<usize> {
        Some(self.faults.pending())
    }

    fn set_reachable(&self, reachable: Reachable) {
        self.faults.set_reachable(reachable);
    }

    /// A vote on its way could restore the lock on a slow node, so it waits until those have caught up.
    async fn end(&self, key: &LockKey) {
        let (name, deadline) = (key.as_str(), Instant::now() + Duration::from_millis(500));
        while Instant::now() < deadline && self.servers.iter().any(|s| holders(s, name) == 0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.each(&["DEL", name]);
    }

    fn duplicates(&self) -> bool {
        true
    }
}

/// For longer than a busy machine makes it.
pub(crate) const PATIENT: Duration = Duration::from_secs(1);

/// Nodes that have just started and vote at once.
pub(crate) fn config(ports: impl IntoIterator<Item = u16>, node_timeout: Duration) -> RedisConfig {
    RedisConfig::quorum(ports.into_iter().map(|port| ("127.0.0.1", port)))
        .with_rejoin_delay(Duration::ZERO)
        .and_then(|config| config.with_node_timeout(node_timeout))
        .expect("it is in range")
}

pub(crate) async fn open(config: RedisConfig) -> Arc<Redlock> {
    let locks = Redlock::connect(config).await;
    Arc::new(locks.expect("it connects"))
}

/// A client that takes no votes of nodes that are younger than this.
pub(crate) async fn open_with_delay(config: RedisConfig, delay: Duration) -> Arc<Redlock> {
    open(config.with_rejoin_delay(delay).expect("it is in range")).await
}

/// How many holders a node has of a lock.
pub(crate) fn holders(server: &RedisServer, name: &str) -> usize {
    look(server, name).holders
}
