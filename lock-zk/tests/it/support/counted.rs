use std::sync::Arc;
use std::time::Duration;

use lock_testkit::proxy::{Command, Proxy, Push, PushWatch, Watch};
use lock_testkit::servers::{Reply, ZooKeeperOptions, ZooKeeperServer};
use polylock_zk::{ZooKeeper, ZooKeeperConfig};

use super::store::{self, root};
use super::{config, is_entry, lasting, open};

/// A server of the test, and a proxy that counts what goes to it and comes from it.
///
/// Sessions last for 30 s, so that heartbeats are rare; they are told apart and not counted.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) server: ZooKeeperServer,
    proxy: Proxy,
    root: String,
    requests: Watch,
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
    /// Those of them that holders put on their own nodes, after a hold of 0.1 s.
    pub(crate) own_watches: usize,
    /// Events for all but the owners of the nodes.
    pub(crate) events: usize,
}

impl Counted {
    pub(crate) fn start() -> Self {
        let options = ZooKeeperOptions::new().with_config("maxSessionTimeout", "60000");
        let server = ZooKeeperServer::start(options);
        let proxy = Proxy::zookeeper(server.port());
        Self {
            requests: proxy.watch(|_| true),
            events: proxy.watch_pushes(|_| true),
            server,
            proxy,
            root: root(),
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
        lasting(config(&[port], &self.root), Duration::from_secs(30))
    }

    /// The counts so far.
    pub(crate) fn count(&self) -> Count {
        // A request that puts a watch on a node comes before its event.
        let (events, requests) = (self.events.seen(), self.requests.seen());
        let beats = requests.iter().filter(|one| is_beat(one, &self.root));
        let beats = beats.count();
        Count {
            requests: requests.len() - beats,
            beats,
            watches: requests.iter().filter(is_watch).count(),
            own_watches: own_watches(&requests).count(),
            events: events.len() - own_events(&events, &requests),
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

    /// How many events so far tell something else than the end of the very node that is watched.
    pub(crate) fn changes(&self) -> usize {
        let is_change = |event: &&Push| event.get(1) != Some(&Reply::Integer(2));
        self.events.seen().iter().filter(is_change).count()
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
            own_watches: self.own_watches - before.own_watches,
            events: self.events - before.events,
        }
    }
}

fn is_beat(command: &Command, root: &str) -> bool {
    command.is("PING") || store::is_beat(command, root)
}

fn is_watch(command: &&Command) -> bool {
    command.arg(2) == "watch"
}

/// The watches that clients put on nodes of their own. No client that is counted waits behind itself.
fn own_watches(requests: &[Command]) -> impl Iterator<Item = &Command> {
    let is_own = move |watch: &&Command| {
        let is_creation = |made: &Command| {
            made.connection == watch.connection
                && is_entry(made)
                && watch.arg(1).starts_with(&*made.arg(1))
        };
        requests.iter().any(is_creation)
    };
    requests.iter().filter(is_watch).filter(is_own)
}

/// How many of the events tell holders of the end of their own nodes. A holder that is stalled for 0.1 s watches
/// its node, and gets an event beside the one for the waiter that watches it.
fn own_events(events: &[Push], requests: &[Command]) -> usize {
    let is_told = |own: &&Command| {
        let node = own.arg(1);
        let is_of_node =
            |event: &&Push| event.get(2).and_then(Reply::text).as_deref() == Some(&*node);
        let events = events.iter().filter(is_of_node).count();
        let watches = requests.iter().filter(is_watch);
        events > 0 && events >= watches.filter(|watch| watch.arg(1) == node).count()
    };
    own_watches(requests).filter(is_told).count()
}
