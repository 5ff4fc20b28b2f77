use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lock_testkit::proxy::{Command, Proxy};
use polylock_core::{DistributedLock, ErrorKind};
use polylock_zk::{ZooKeeper, ZooKeeperConfig};

use super::{SESSION, SOON, Site, assert_error, attempt, config, open, release_clean, take};

/// A directory of its own at one server, with a proxy before it.
#[derive(Debug)]
pub(crate) struct Place {
    proxy: Proxy,
    site: Site,
}

impl Deref for Place {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

impl Place {
    /// At the server that the test run shares.
    pub(crate) async fn new() -> Self {
        Self::before(Site::shared().await)
    }

    /// With a client behind the proxy, and one past it.
    pub(crate) async fn with_clients() -> (Self, Arc<ZooKeeper>, Arc<ZooKeeper>) {
        let place = Self::new().await;
        let (client, elsewhere) = (place.client().await, place.elsewhere().await);
        (place, client, elsewhere)
    }

    pub(crate) async fn at(port: u16) -> Self {
        Self::before(Site::at(&[format!("127.0.0.1:{port}")]).await)
    }

    fn before(site: Site) -> Self {
        let proxy = Proxy::zookeeper(site.port());
        Self { proxy, site }
    }

    pub(crate) fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Cuts all connections, and refuses others.
    pub(crate) fn disconnect(&self) {
        self.proxy.refuse();
        self.proxy.cut();
    }

    /// Leads through the proxy.
    pub(crate) fn config(&self) -> ZooKeeperConfig {
        config(&[self.proxy.port()], self.root())
    }

    /// A client behind the proxy.
    pub(crate) async fn client(&self) -> Arc<ZooKeeper> {
        open(self.config()).await
    }

    /// A client behind the proxy whose session survives that a silent connection is given up.
    pub(crate) async fn patient(&self) -> Arc<ZooKeeper> {
        self.with_session(SESSION * 2).await
    }

    /// A client behind the proxy with sessions of this length.
    pub(crate) async fn with_session(&self, timeout: Duration) -> Arc<ZooKeeper> {
        let config = self.config().with_session_timeout(timeout);
        open(config.expect("it is in range")).await
    }

    /// A client whose network never fails, and whose session outlasts whatever the machine is busy
    /// with.
    pub(crate) async fn elsewhere(&self) -> Arc<ZooKeeper> {
        self.site.client().await
    }

    /// Once all requests are done, the lock has no node.
    pub(crate) async fn assert_nothing_left(&self, clients: &[&Arc<ZooKeeper>], name: &str) {
        for client in clients {
            assert!(client.shutdown(SOON).await, "background work does not end");
        }
        assert_eq!(self.tree().nodes(name).await, [""; 0]);
    }

    /// Another client gets the lock.
    pub(crate) async fn assert_free(&self, name: &str) {
        let other = self.elsewhere().await;
        release_clean(take(&other, name).await).await;
    }

    /// Another client does not get the lock.
    pub(crate) async fn assert_taken(&self, name: &str) {
        let other = self.elsewhere().await;
        assert_error(&other, &attempt(name), ErrorKind::Contended).await;
    }
}

/// The request by which a contender goes into line.
pub(crate) fn is_entry(command: &Command) -> bool {
    command.is("CREATE") && command.arg(2) == "3"
}

/// The transaction of a downgrade.
pub(crate) fn is_exchange(command: &Command) -> bool {
    command.is("MULTI") && command.arg(2) == "CREATE"
}
