use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_testkit::harness::{Faults, Harness, Look};
use lock_testkit::proxy::{Across, Command, FaultPlan, Proxy, Then};
use lock_testkit::servers::{SharedZooKeeper, ZooKeeperEnsemble, ZooKeeperServer, unique};
use lock_testkit::taker::Taker;
use polylock_core::memory::{Fault, Reachable, Request};
use polylock_core::{DistributedLock, LockKey};
use polylock_zk::{ZooKeeper, ZooKeeperConfig};

use super::{Tree, config, is_check, lasting, ms};

/// A directory of its own at servers that the whole test run shares, behind proxies.
#[derive(Debug)]
pub(crate) struct Store {
    config: ZooKeeperConfig,
    /// Leads a lock-taker to the same directory.
    url: String,
    faults: FaultPlan,
    tree: Tree,
}

impl Store {
    /// At one server.
    pub(crate) async fn single() -> Self {
        Self::at(&ZooKeeperServer::shared()).await
    }

    /// At an ensemble of three.
    pub(crate) async fn ensemble() -> Self {
        Self::at(&ZooKeeperEnsemble::shared()).await
    }

    async fn at(servers: &SharedZooKeeper) -> Self {
        let root = root();
        let ports = servers
            .addresses()
            .into_iter()
            .map(|address| port(&address));
        let proxies: Vec<_> = ports.map(Proxy::zookeeper).collect();
        let behind: Vec<_> = proxies.iter().map(Proxy::port).collect();
        let millis = SESSION.as_millis();
        let url = format!("{}{root}?session-timeout={millis}ms", servers.url());
        let directory = root.clone();
        let faults = FaultPlan::new(proxies, Across::Any, move |command| of(command, &directory));
        Self {
            config: lasting(config(&behind, &root), SESSION),
            url,
            faults: faults.with_silence(Then::CutAfter(ms(700))),
            tree: Tree::open(&servers.address(), &root).await,
        }
    }
}

/// The session timeout of its clients. Half of it without a connection costs their locks, which is longer than a
/// short outage and a stall of the machine together.
const SESSION: Duration = Duration::from_secs(4);

pub(super) fn port(address: &str) -> u16 {
    let (_, port) = address.rsplit_once(':').expect("a host and a port");
    port.parse().expect("a port")
}

/// A directory that no other test has.
pub(crate) fn root() -> String {
    unique("/test")
}

/// Which request a command is: the first of those that are pipelined, and the heartbeats.
pub(crate) fn of(command: &Command, root: &str) -> Option<Request> {
    if command.is("CREATE") && command.arg(2) == "3" {
        Some(Request::Acquire)
    } else if command.is("DELETE") {
        Some(Request::Release)
    } else if is_beat(command, root) {
        Some(Request::Renew)
    } else {
        None
    }
}

/// A question for the leader, or a write that changes nothing.
pub(crate) fn is_beat(command: &Command, root: &str) -> bool {
    (command.is("SYNC") || is_check(command)) && command.arg(1) == root
}

#[async_trait]
impl Harness for Store {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        let locks = ZooKeeper::connect(self.config.clone()).await;
        Arc::new(locks.expect("it connects"))
    }

    fn shortest_ttl(&self) -> Duration {
        // The server looks at its sessions once in a tick.
        SESSION + ms(500)
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }

    fn taker(&self) -> Option<Taker> {
        Some(Taker::example("zk-taker", self.url.clone()))
    }

    async fn look(&self, key: &LockKey) -> Option<Look> {
        Some(self.tree.look(key.as_str()).await)
    }
}

#[async_trait]
impl Faults for Store {
    fn plan(&self, request: Request, fault: Fault) {
        self.faults.plan(request, fault);
    }

    fn pending(&self) -> Option<usize> {
        Some(self.faults.pending())
    }

    fn set_reachable(&self, reachable: Reachable) {
        self.faults.set_reachable(reachable);
    }

    async fn end(&self, key: &LockKey) {
        self.tree.end(key.as_str()).await;
    }

    fn duplicates(&self) -> bool {
        false
    }
}
