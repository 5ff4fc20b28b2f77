use std::sync::Arc;
use std::time::Duration;

use lock_testkit::proxy::{Command, Proxy, Push, PushWatch, Watch};
use lock_testkit::servers::{Reply, ZooKeeperOptions, ZooKeeperServer};
use polylock_zk::{ZooKeeper, ZooKeeperConfig};

use super::store::{self, root};
use super::{config, open};

/// A server of the test, and a proxy that counts what goes to it and comes from it.
///
/// Sessions last for 30 s, so that heartbeats are rare; they are told apart and not counted.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) server: ZooKeeperServer,
    proxy: Proxy,
    root: String,
    requests: Watch,
    beats: Watch,
    watches: Watch,
    events: PushWatch,
}

/// What was sent and came in a while.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Count {
    /// Requests without heartbeats, those that put a watch on a node included.
    pub(crate) requests: usize,
    /// Heartbeats, which no acquisition causes.
    pub(crate) beats: usize,
    /// Watches that were put on nodes, on those of the waiters' predecessors or on own ones.
    pub(crate) watches: usize,
    pub(crate) events: usize,
}

impl Counted {
    pub(crate) fn start() -> Self {
        let options = ZooKeeperOptions::new().with_config("maxSessionTimeout", "60000");
        let server = ZooKeeperServer::start(options);
        let proxy = Proxy::zookeeper(server.port());
        let root = root();
        let top = root.clone();
        Self {
            requests: proxy.watch(|_| true),
            beats: proxy.watch(move |command| is_beat(command, &top)),
            watches: proxy.watch(|command| command.arg(2) == "watch"),
            events: proxy.watch_pushes(|_| true),
            server,
            proxy,
            root,
        }
    }

    /// A client behind the proxy.
    pub(crate) async fn client(&self) -> Arc<ZooKeeper> {
        open(self.config(self.proxy.port())).await
    }

    /// A client past the proxy, which only the server counts.
    pub(crate) async fn uncounted(&self) -> Arc<ZooKeeper> {
        open(self.config(self.server.port())).await
    }

    fn config(&self, port: u16) -> ZooKeeperConfig {
        let config = config(&[port], &self.root);
        let config = config.with_session_timeout(Duration::from_secs(30));
        config.expect("it is in range")
    }

    /// The counts so far.
    pub(crate) fn count(&self) -> Count {
        Count {
            requests: self.requests.count() - self.beats.count(),
            beats: self.beats.count(),
            watches: self.watches.count(),
            events: self.events.count(),
        }
    }

    /// How many requests so far have this name.
    pub(crate) fn named(&self, name: &str) -> usize {
        let requests = self.requests.seen();
        requests.iter().filter(|request| request.is(name)).count()
    }

    /// How many requests so far were to bring a server up to date, heartbeats apart.
    pub(crate) fn syncs(&self) -> usize {
        let requests = self.requests.seen();
        let is_sync = |request: &&Command| request.is("SYNC") && !is_beat(request, &self.root);
        requests.iter().filter(is_sync).count()
    }

    /// How many events so far tell the end of the very node that is watched.
    pub(crate) fn deletions(&self) -> usize {
        let is_deletion = |event: &Push| event.get(1) == Some(&Reply::Integer(2));
        self.events
            .seen()
            .iter()
            .filter(|event| is_deletion(event))
            .count()
    }

    /// The server's own count, including this request.
    pub(crate) fn received(&self) -> i64 {
        let received = self.server.mntr("zk_packets_received");
        received.expect("a server counts that")
    }
}

impl std::ops::Sub for Count {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            beats: self.beats - before.beats,
            watches: self.watches - before.watches,
            events: self.events - before.events,
        }
    }
}

fn is_beat(command: &Command, root: &str) -> bool {
    command.is("PING") || store::is_beat(command, root)
}
