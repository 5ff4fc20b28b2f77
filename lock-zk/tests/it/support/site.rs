use std::sync::Arc;
use std::time::Duration;

use lock_testkit::servers::{ZooKeeperEnsemble, ZooKeeperServer};
use polylock_core::{AcquireRequest, LockGuard, Result};
use polylock_zk::{ZooKeeper, ZooKeeperConfig};
use tokio::task::JoinHandle;

use super::store::{port, root};
use super::{Tree, config, open, until, waiting};

/// A directory of its own at some servers, with no proxy between.
#[derive(Debug)]
pub(crate) struct Site {
    root: String,
    tree: Tree,
    ports: Vec<u16>,
}

impl Site {
    /// At the server that the whole test run shares.
    pub(crate) async fn shared() -> Self {
        Self::at(&ZooKeeperServer::shared().addresses()).await
    }

    /// At a server of the test.
    pub(crate) async fn of(server: &ZooKeeperServer) -> Self {
        Self::at(&[server.address()]).await
    }

    /// At an ensemble of the test.
    pub(crate) async fn of_all(ensemble: &ZooKeeperEnsemble) -> Self {
        Self::at(&ensemble.addresses()).await
    }

    pub(crate) async fn at(addresses: &[String]) -> Self {
        let root = root();
        Self {
            tree: Tree::open(&addresses.join(","), &root).await,
            ports: addresses.iter().map(|address| port(address)).collect(),
            root,
        }
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

    /// Sessions last for so long that none ends because the machine is busy.
    pub(crate) fn config(&self) -> ZooKeeperConfig {
        let config = config(&self.ports, &self.root).with_session_timeout(super::SOON * 2);
        config.expect("it is in range")
    }

    /// A client with a session of its own.
    pub(crate) async fn client(&self) -> Arc<ZooKeeper> {
        open(self.config()).await
    }

    /// The session that a node of a lock belongs to.
    pub(crate) async fn owner(&self, name: &str, node: &str) -> i64 {
        let path = format!("{}/{node}", self.tree.directory(name));
        let stat = self.tree.client().check_stat(&path).await;
        let stat = stat.expect("it answers").expect("the node is there");
        stat.ephemeral_owner
    }

    /// Lets a task wait for a lock, and gives it once it stands in line.
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

    pub(crate) fn addresses(&self) -> String {
        let address = |port: &u16| format!("127.0.0.1:{port}");
        self.ports.iter().map(address).collect::<Vec<_>>().join(",")
    }
}

/// Waits for something that needs a few requests at most, and returns how long it took.
pub(crate) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let began = tokio::time::Instant::now();
    let done = tokio::time::timeout(super::SOON * 2, work).await;
    (done.expect("it happens"), began.elapsed())
}
