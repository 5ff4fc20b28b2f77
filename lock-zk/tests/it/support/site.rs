use std::sync::Arc;
use std::time::Duration;

use lock_testkit::servers::{ZooKeeperEnsemble, ZooKeeperServer};
use lock_zk::{ZooKeeper, ZooKeeperConfig};

use super::store::root;
use super::{Tree, config, open, until};

/// A directory of its own at some servers, with no proxy between.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) root: String,
    pub(crate) tree: Tree,
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

    async fn at(addresses: &[String]) -> Self {
        let port = |address: &String| address.rsplit_once(':')?.1.parse().ok();
        let ports = addresses
            .iter()
            .map(|address| port(address).expect("a port"));
        let root = root();
        Self {
            tree: Tree::open(&addresses.join(","), &root).await,
            ports: ports.collect(),
            root,
        }
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

    /// Waits until a lock has so many contenders, whoever holds it included.
    pub(crate) async fn contenders(&self, name: &str, count: usize) {
        let what = format!("{name} has {count} contenders");
        until(&what, async || self.tree.nodes(name).await.len() == count).await;
    }

    pub(crate) fn addresses(&self) -> String {
        let address = |port: &u16| format!("127.0.0.1:{port}");
        self.ports.iter().map(address).collect::<Vec<_>>().join(",")
    }
}

/// Waits until something has happened that needs no more than a few requests, and says how long that
/// took.
pub(crate) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let began = tokio::time::Instant::now();
    let done = tokio::time::timeout(super::SOON * 2, work).await;
    (done.expect("it happens"), began.elapsed())
}
