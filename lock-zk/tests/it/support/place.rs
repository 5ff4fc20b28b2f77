use std::sync::Arc;
use std::time::Duration;

use lock_testkit::proxy::{Command, Proxy};
use lock_testkit::servers::{ZooKeeperEnsemble, ZooKeeperServer};
use polylock_core::{AcquireRequest, DistributedLock, ErrorKind, LockGuard, Result};
use polylock_zk::{ZooKeeper, ZooKeeperConfig};
use tokio::task::JoinHandle;

use super::store::{port, root};
use super::{
    SESSION, SOON, Tree, assert_error, attempt, config, lasting, open, release_clean, take, until,
    waiting,
};

/// A directory of its own at some servers, and a proxy before the first of them.
#[derive(Debug)]
pub(crate) struct Place {
    root: String,
    tree: Tree,
    ports: Vec<u16>,
    proxy: Proxy,
}

impl Place {
    /// At the server that the test run shares.
    pub(crate) async fn new() -> Self {
        Self::at(&ZooKeeperServer::shared().addresses()).await
    }

    /// The same with a client behind the proxy, and one past it.
    pub(crate) async fn with_clients() -> (Self, Arc<ZooKeeper>, Arc<ZooKeeper>) {
        let place = Self::new().await;
        let (patient, client) = (place.patient().await, place.client().await);
        (place, patient, client)
    }

    /// At a server of the test.
    pub(crate) async fn of(server: &ZooKeeperServer) -> Self {
        Self::at(&[server.address()]).await
    }

    /// At an ensemble of the test.
    pub(crate) async fn of_all(ensemble: &ZooKeeperEnsemble) -> Self {
        Self::at(&ensemble.addresses()).await
    }

    async fn at(addresses: &[String]) -> Self {
        let root = root();
        let ports: Vec<_> = addresses.iter().map(|address| port(address)).collect();
        Self {
            tree: Tree::open(&addresses.join(","), &root).await,
            proxy: Proxy::zookeeper(ports[0]),
            ports,
            root,
        }
    }

    pub(crate) fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The port of the first server itself.
    pub(crate) fn port(&self) -> u16 {
        self.ports[0]
    }

    pub(crate) fn addresses(&self) -> String {
        let address = |port: &u16| format!("127.0.0.1:{port}");
        self.ports.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// A configuration for the servers, past the proxy. Sessions last for so long that none ends because
    /// the machine is busy.
    pub(crate) fn config(&self) -> ZooKeeperConfig {
        lasting(config(&self.ports, &self.root), SOON * 2)
    }

    /// A client with a session of its own, whose network never fails.
    pub(crate) async fn client(&self) -> Arc<ZooKeeper> {
        open(self.config()).await
    }

    /// A configuration behind the proxy.
    fn config_behind_proxy(&self) -> ZooKeeperConfig {
        config(&[self.proxy.port()], &self.root)
    }

    /// A client behind the proxy.
    pub(crate) async fn behind_proxy(&self) -> Arc<ZooKeeper> {
        self.with_session(SESSION).await
    }

    /// A client behind the proxy whose session survives that a silent connection is given up.
    pub(crate) async fn patient(&self) -> Arc<ZooKeeper> {
        self.with_session(SESSION * 2).await
    }

    /// A client behind the proxy with sessions of this length.
    pub(crate) async fn with_session(&self, timeout: Duration) -> Arc<ZooKeeper> {
        open(lasting(self.config_behind_proxy(), timeout)).await
    }

    /// A client behind the proxy with long sessions and this timeout of a request.
    pub(crate) async fn with_timeout(&self, timeout: Duration) -> Arc<ZooKeeper> {
        let config = lasting(self.config_behind_proxy(), SOON * 2).with_timeout(timeout);
        open(config.expect("it is in range")).await
    }

    /// Cuts all connections of the proxy, and refuses others.
    pub(crate) fn disconnect(&self) {
        self.proxy.refuse();
        self.proxy.cut();
    }

    /// Lets a task wait for a lock, and returns it once it is in the queue.
    pub(crate) async fn waiter(
        &self,
        locks: &Arc<ZooKeeper>,
        request: AcquireRequest,
    ) -> JoinHandle<Result<LockGuard>> {
        let key = request.key().clone();
        let before = self.tree.nodes(key.as_str()).await.len();
        let waiter = waiting(locks, request);
        self.contenders(key.as_str(), before + 1).await;
        waiter
    }

    /// Waits until a lock has this many contenders, its holder included.
    pub(crate) async fn contenders(&self, name: &str, count: usize) {
        let what = format!("{name} has {count} contenders");
        until(&what, async || self.tree.nodes(name).await.len() == count).await;
    }

    /// Once all requests are done, the lock has no node.
    pub(crate) async fn assert_nothing_left(&self, clients: &[&Arc<ZooKeeper>], name: &str) {
        for client in clients {
            assert!(client.shutdown(SOON).await, "background work does not end");
        }
        assert_eq!(self.tree.nodes(name).await, [""; 0]);
    }

    /// Another client gets the lock.
    pub(crate) async fn assert_free(&self, name: &str) {
        release_clean(take(&*self.client().await, name).await).await;
    }

    /// Another client does not get the lock.
    pub(crate) async fn assert_taken(&self, name: &str) {
        let other = self.client().await;
        assert_error(&other, &attempt(name), ErrorKind::Contended).await;
    }
}

/// The request by which a contender goes into line.
pub(crate) fn is_entry(command: &Command) -> bool {
    command.is("CREATE") && command.arg(2) == "3"
}

/// The request by which a contender goes, or an operator deletes its node.
pub(crate) fn is_end(command: &Command) -> bool {
    command.is("DELETE")
}

/// A write that changes nothing.
pub(crate) fn is_check(command: &Command) -> bool {
    command.is("MULTI") && command.arg(2) == "CHECK"
}

/// The transaction of a downgrade.
pub(crate) fn is_exchange(command: &Command) -> bool {
    command.is("MULTI") && command.arg(2) == "CREATE"
}
