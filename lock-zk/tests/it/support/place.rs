use std::sync::Arc;

use lock_core::{DistributedLock, Released, Wait};
use lock_testkit::proxy::{Command, Proxy};
use lock_testkit::servers::ZooKeeperServer;
use lock_zk::{ZooKeeper, ZooKeeperConfig};

use super::store::{port, root};
use super::{SESSION, SOON, Tree, config, open, request, take, until};

/// A directory of its own at one server, with a proxy before it.
#[derive(Debug)]
pub(crate) struct Place {
    proxy: Proxy,
    tree: Tree,
    root: String,
    port: u16,
}

impl Place {
    /// At the server that the test run shares.
    pub(crate) async fn new() -> Self {
        Self::at(port(&ZooKeeperServer::shared().address())).await
    }

    pub(crate) async fn at(port: u16) -> Self {
        let root = root();
        let tree = Tree::open(&format!("127.0.0.1:{port}"), &root).await;
        Self {
            proxy: Proxy::zookeeper(port),
            tree,
            root,
            port,
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

    /// The port of the server itself.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Leads through the proxy.
    pub(crate) fn config(&self) -> ZooKeeperConfig {
        config(&[self.proxy.port()], &self.root)
    }

    /// A client behind the proxy.
    pub(crate) async fn client(&self) -> Arc<ZooKeeper> {
        open(self.config()).await
    }

    /// A client behind the proxy whose session survives that a silent connection is given up.
    pub(crate) async fn patient(&self) -> Arc<ZooKeeper> {
        let config = self.config().with_session_timeout(SESSION * 2);
        open(config.expect("it is in range")).await
    }

    /// A client whose network never fails, and whose session outlasts whatever the machine is busy
    /// with.
    pub(crate) async fn elsewhere(&self) -> Arc<ZooKeeper> {
        let config = config(&[self.port], &self.root).with_session_timeout(SOON * 2);
        open(config.expect("it is in range")).await
    }

    /// Waits until so many nodes stand in line.
    pub(crate) async fn contenders_in_order(&self, name: &str, nodes: usize) {
        let is_so = async || self.tree.nodes(name).await.len() == nodes;
        until(&format!("{nodes} in line"), is_so).await;
    }

    /// The session that a node of a lock belongs to.
    pub(crate) async fn owner(&self, name: &str, node: &str) -> i64 {
        let path = format!("{}/{node}", self.tree.directory(name));
        let stat = self.tree.client().check_stat(&path).await;
        let stat = stat.expect("it answers").expect("the node is there");
        stat.ephemeral_owner
    }

    /// Once nothing is under way any more, no node of the lock is there.
    pub(crate) async fn assert_nothing_left(&self, clients: &[&Arc<ZooKeeper>], name: &str) {
        for client in clients {
            assert!(client.shutdown(SOON).await, "background work does not end");
        }
        assert_eq!(self.tree.nodes(name).await, Vec::<String>::new());
    }

    /// Another client gets the lock.
    pub(crate) async fn assert_free(&self, name: &str) {
        let other = self.elsewhere().await;
        let guard = take(&other, name).await;
        let released = guard.release().await;
        assert_eq!(released.expect("it is released"), Released::Clean);
    }

    /// Another client does not get the lock.
    pub(crate) async fn assert_taken(&self, name: &str) {
        let one = request(name).with_wait(Wait::Never);
        let refused = self.elsewhere().await.acquire(&one).await;
        let error = refused.expect_err("two hold the lock");
        assert_eq!(error.kind(), lock_core::ErrorKind::Contended, "{error}");
    }
}

/// The request by which a contender goes into line.
pub(crate) fn is_entry(command: &Command) -> bool {
    command.is("CREATE") && command.arg(2) == "3"
}
