use std::sync::Arc;

use lock_testkit::proxy::Proxy;
use polylock_core::memory::Request;
use polylock_core::{AcquireRequest, DistributedLock, LockGuard, Result};
use polylock_etcd::{Etcd, EtcdConfig};
use tokio::task::JoinHandle;

use super::grpc_proxy::GrpcProxy;
use super::store::prefix;
use super::tree::Tree;
use super::{EtcdServer, SOON, acquire, config, open, release, until, waiting};

/// A server, a prefix of its own and proxies before it: one that counts, and one that fails.
#[derive(Debug)]
pub(crate) struct Place {
    prefix: String,
    ports: Vec<u16>,
    counter: GrpcProxy,
    proxy: Proxy,
    tree: Tree,
}

impl Place {
    /// At the server that the test run shares.
    pub(crate) async fn new() -> Self {
        Self::at(EtcdServer::shared()).await
    }

    /// At a server of the test.
    pub(crate) async fn of(server: &EtcdServer) -> Self {
        Self::at(vec![server.port()]).await
    }

    /// At a cluster of the test.
    pub(crate) async fn of_all(servers: &[EtcdServer]) -> Self {
        Self::at(servers.iter().map(|server| server.port()).collect()).await
    }

    async fn at(ports: Vec<u16>) -> Self {
        let prefix = prefix();
        let counter = GrpcProxy::start(ports[0], &Arc::default());
        Self {
            tree: Tree::open(&ports, &prefix).await,
            proxy: Proxy::of_bytes(ports[0]),
            prefix,
            ports,
            counter,
        }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Leads to the servers themselves.
    pub(crate) fn config(&self) -> EtcdConfig {
        config(&self.ports, &self.prefix)
    }

    /// A client whose network never fails.
    pub(crate) async fn client(&self) -> Arc<Etcd> {
        open(self.config()).await
    }

    /// A client behind the proxy that fails.
    pub(crate) async fn behind_proxy(&self) -> Arc<Etcd> {
        open(config(&[self.proxy.port()], &self.prefix)).await
    }

    /// A client whose transactions are counted.
    pub(crate) async fn counted(&self) -> Arc<Etcd> {
        open(config(&[self.counter.port()], &self.prefix)).await
    }

    /// The port of the first server itself.
    pub(crate) fn port(&self) -> u16 {
        self.ports[0]
    }

    /// The proxy that counts.
    pub(crate) fn counter(&self) -> &GrpcProxy {
        &self.counter
    }

    /// Waits until the proxy that counts holds a call.
    pub(crate) async fn held(&self) {
        until("a call is held", async || self.counter.is_holding()).await;
    }

    /// How many transactions of a kind have come from counted clients.
    pub(crate) fn count(&self, request: Request) -> usize {
        self.counter.seen(|_, kind| kind == Some(request))
    }

    /// Lets a task wait for a lock, and returns it once it is in the queue.
    pub(crate) async fn waiter(
        &self,
        locks: &Arc<Etcd>,
        request: AcquireRequest,
    ) -> JoinHandle<Result<LockGuard>> {
        let key = request.key().clone();
        let before = self.tree.line(key.as_str()).await.len();
        let waiter = waiting(locks, request);
        self.contenders(key.as_str(), before + 1).await;
        waiter
    }

    /// Waits until a lock has so many contenders, its holder included.
    pub(crate) async fn contenders(&self, name: &str, count: usize) {
        let what = format!("{name} has {count} contenders");
        until(&what, async || self.tree.line(name).await.len() == count).await;
    }

    /// Waits until a lock is attached to other leases of etcd than these.
    pub(crate) async fn moved(&self, name: &str, former: &[i64]) {
        let is_moved = async || self.tree.leases(name).await != former;
        until(&format!("{name} is moved"), is_moved).await;
    }

    /// Once all requests are done, the lock has no key.
    pub(crate) async fn assert_nothing_left(&self, clients: &[&Arc<Etcd>], name: &str) {
        for client in clients {
            assert!(client.shutdown(SOON).await, "background work does not end");
        }
        assert_eq!(self.tree.line(name).await, [""; 0]);
        release(acquire(&*self.client().await, name).await).await;
    }
}
