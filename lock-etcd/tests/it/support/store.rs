use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_testkit::harness::{Faults, Harness, Look};
use lock_testkit::servers::{EtcdServer, unique};
use lock_testkit::taker::Taker;
use polylock_core::memory::{Fault, Reachable, Request};
use polylock_core::{DistributedLock, LockKey};
use polylock_etcd::{Etcd, EtcdConfig};

use super::grpc_proxy::{GrpcProxy, Plans};
use super::tree::Tree;

/// A prefix of its own at servers that the whole test run shares, behind proxies.
#[derive(Debug)]
pub(crate) struct Store {
    config: EtcdConfig,
    /// Leads a lock-taker to the same prefix.
    url: String,
    plans: Plans,
    proxies: Vec<GrpcProxy>,
    tree: Tree,
}

impl Store {
    /// At one server.
    pub(crate) async fn single() -> Self {
        Self::at(&EtcdServer::shared()).await
    }

    /// At a cluster of three.
    pub(crate) async fn cluster() -> Self {
        Self::at(&EtcdServer::shared_cluster()).await
    }

    async fn at(ports: &[u16]) -> Self {
        let prefix = prefix();
        let hosts: Vec<_> = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        let plans = Plans::default();
        let proxies = ports.iter().map(|port| GrpcProxy::start(*port, &plans));
        let proxies: Vec<_> = proxies.collect();
        let behind: Vec<_> = proxies.iter().map(GrpcProxy::port).collect();
        Self {
            config: config(&behind, &prefix),
            url: format!("etcd://{}/{prefix}", hosts.join(",")),
            plans,
            proxies,
            tree: Tree::open(ports, &prefix).await,
        }
    }
}

/// A prefix that no other test has.
pub(crate) fn prefix() -> String {
    unique("test")
}

/// Servers at these ports of 127.0.0.1, and a prefix of them.
pub(crate) fn config(ports: &[u16], prefix: &str) -> EtcdConfig {
    let hosts = ports.iter().map(|port| ("127.0.0.1", *port));
    EtcdConfig::new(hosts)
        .with_prefix(prefix)
        .expect("it is a prefix")
}

#[async_trait]
impl Harness for Store {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        let locks = Etcd::connect(self.config.clone()).await;
        Arc::new(locks.expect("it connects"))
    }

    fn shortest_ttl(&self) -> Duration {
        // A renewal may take a fifth of it, on a busy machine.
        Duration::from_secs(3)
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }

    fn taker(&self) -> Option<Taker> {
        Some(Taker::example("etcd-taker", self.url.clone()))
    }

    async fn look(&self, key: &LockKey) -> Option<Look> {
        Some(self.tree.look(key.as_str()).await)
    }
}

#[async_trait]
impl Faults for Store {
    fn plan(&self, request: Request, fault: Fault) {
        self.plans
            .lock()
            .expect("no panic")
            .push_back((request, fault));
    }

    fn pending(&self) -> Option<usize> {
        Some(self.plans.lock().expect("no panic").len())
    }

    fn set_reachable(&self, reachable: Reachable) {
        self.proxies
            .iter()
            .for_each(|proxy| proxy.set_reachable(reachable));
    }

    async fn end(&self, key: &LockKey) {
        self.tree.end(key.as_str()).await;
    }

    fn duplicates(&self) -> bool {
        true
    }
}
