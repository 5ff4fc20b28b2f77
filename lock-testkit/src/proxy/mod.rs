//! A proxy between the clients and one server that makes the network fail as planned.

mod connection;
mod faults;
mod jute;
mod lane;
mod listener;
mod mysql;
mod plan;
mod postgres;
mod protocol;
mod relay;
mod resp;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use polylock_core::memory::Reachable;

use crate::lock;
use crate::network::NetworkHost;
use crate::servers::{Reply, RespClient};

pub use self::faults::{Across, FaultPlan};
pub use self::lane::Direction;
use self::lane::Flows;
use self::listener::{ProxyListener, ProxyOrder};
use self::plan::Plans;
pub use self::plan::{Command, Fate, Planned, Push, PushFate, PushWatch, ReplyOrder, Then, Watch};
pub use self::protocol::Wire;

/// A proxy in front of one port of 127.0.0.1, on a thread of its own.
///
/// It understands RESP2 and RESP3, or the protocol of `ZooKeeper`, PostgreSQL, or MySQL and MariaDB,
/// so that a fault meets a chosen command or push message: see [`plan`](Self::plan). What it does not
/// understand, such as TLS or the four-letter words of `ZooKeeper`, it passes on as bytes, and only
/// the faults of bytes apply.
///
/// Replies stay in order: one that is late delays those behind it on its connection. Push messages
/// of Redis pass them. Those of the others do not, for their clients count on the order: there a
/// late reply delays the events, pings and notifications behind it, and a late event the replies. Of
/// what a SQL server sends the proxy knows the beginning only: until the next request, all of it is the
/// reply to the last one.
pub struct Proxy {
    address: Ipv4Addr,
    target: SocketAddrV4,
    wire: Wire,
    plans: Arc<Plans>,
    flows: Arc<Flows>,
    listener: ProxyListener,
}

impl Proxy {
    /// Starts one in front of a Redis server on this port of 127.0.0.1.
    #[must_use]
    pub fn start(target: u16) -> Self {
        Self::of(Wire::Resp, target)
    }

    /// Starts one in front of a `ZooKeeper` server on this port of 127.0.0.1.
    ///
    /// A session outlives the connections that are cut here, until its time-out. Once the server has
    /// it on another connection, it drops what comes late on the former one.
    #[must_use]
    pub fn zookeeper(target: u16) -> Self {
        Self::of(Wire::ZooKeeper, target)
    }

    /// Starts one in front of a PostgreSQL server, or a pooler before one, on this port of 127.0.0.1.
    #[must_use]
    pub fn postgres(target: u16) -> Self {
        Self::of(Wire::Postgres, target)
    }

    /// Starts one in front of a MySQL or MariaDB server on this port of 127.0.0.1.
    #[must_use]
    pub fn mysql(target: u16) -> Self {
        Self::of(Wire::MySql, target)
    }

    /// Starts one in front of any server on this port of 127.0.0.1. It does not parse requests, so only
    /// the faults of bytes and connections apply.
    #[must_use]
    pub fn of_bytes(target: u16) -> Self {
        Self::of(Wire::Bytes, target)
    }

    /// Starts one on a host, in front of a server anywhere on the network.
    #[must_use]
    pub fn on_host(host: &NetworkHost, target: SocketAddrV4, wire: Wire) -> Self {
        host.enter(|| Self::between(host.address(), target, wire))
    }

    fn of(wire: Wire, target: u16) -> Self {
        let local = Ipv4Addr::LOCALHOST;
        Self::between(local, SocketAddrV4::new(local, target), wire)
    }

    fn between(address: Ipv4Addr, target: SocketAddrV4, wire: Wire) -> Self {
        let (plans, flows) = (Arc::<Plans>::default(), Arc::<Flows>::default());
        let listener = ProxyListener::start(address, target, wire, &plans, &flows);
        Self {
            address,
            target,
            wire,
            plans,
            flows,
            listener: listener.expect("a port and a thread"),
        }
    }

    /// `127.0.0.1:PORT`, or with the address of its host.
    pub fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.address, self.port())
    }

    /// The port of 127.0.0.1 that clients connect to.
    pub fn port(&self) -> u16 {
        self.listener.port()
    }

    /// `redis://127.0.0.1:PORT`, `zk:`, `postgres:`, `mysql:` or `tcp:`.
    pub fn url(&self) -> String {
        let scheme = match self.wire {
            Wire::Resp => "redis",
            Wire::ZooKeeper => "zk",
            Wire::Postgres => "postgres",
            Wire::MySql => "mysql",
            Wire::Bytes => "tcp",
        };
        format!("{scheme}://127.0.0.1:{}", self.port())
    }

    /// Plans a fate for the next command that matches and has none yet, on any connection.
    pub fn plan(
        &self,
        matches: impl Fn(&Command) -> bool + Send + Sync + 'static,
        fate: Fate,
    ) -> Planned {
        let planned = Planned::once(matches, fate);
        self.add(&planned);
        planned
    }

    /// Plans a fate for every command that matches, until [`clear`](Self::clear).
    pub fn plan_each(
        &self,
        matches: impl Fn(&Command) -> bool + Send + Sync + 'static,
        fate: Fate,
    ) -> Planned {
        let planned = Planned::each(matches, fate);
        self.add(&planned);
        planned
    }

    /// Adds a plan, also one that other proxies have: the first of them that it meets takes it.
    pub fn add(&self, planned: &Planned) {
        let duplicated = matches!(planned.fate(), Fate::Duplicated { .. });
        assert!(
            !duplicated || matches!(self.wire, Wire::Bytes | Wire::Resp),
            "a request to {:?} cannot be duplicated: a connection takes each once",
            self.wire
        );
        lock(&self.plans.planned).push(planned.clone());
    }

    /// Plans a fate for the next push message that matches and has none yet. The items of a message
    /// are those of [`Push`]; answers to `SUBSCRIBE` are none.
    pub fn plan_push(
        &self,
        matches: impl Fn(&[Reply]) -> bool + Send + Sync + 'static,
        fate: PushFate,
    ) {
        let matches = Box::new(move |push: &Push| matches(push));
        lock(&self.plans.pushes).push((matches, fate));
    }

    /// Remembers the commands that match from here on, as they come from the clients.
    pub fn watch(&self, matches: impl Fn(&Command) -> bool + Send + Sync + 'static) -> Watch {
        let watch = Watch::new(Box::new(matches));
        lock(&self.plans.watches).push(watch.clone());
        watch
    }

    /// Remembers the push messages that match from here on, as they come from the server, also those
    /// that have a fate.
    pub fn watch_pushes(
        &self,
        matches: impl Fn(&[Reply]) -> bool + Send + Sync + 'static,
    ) -> PushWatch {
        let watch = Watch::new(Box::new(move |push: &Push| matches(push)));
        lock(&self.plans.push_watches).push(watch.clone());
        watch
    }

    /// How many connections came from the clients.
    pub fn connections(&self) -> usize {
        self.listener.connections()
    }

    /// Sends a command to the server once more, on a connection without a name or a password, and
    /// returns its answer: what a client does that repeats a request long after it was served.
    ///
    /// # Errors
    ///
    /// If the server does not answer within 5 s.
    pub fn replay(&self, command: &Command) -> io::Result<Reply> {
        assert!(
            self.wire == Wire::Resp && self.target.ip().is_loopback(),
            "only a command of Redis is replayed"
        );
        RespClient::connect(self.target.port(), Duration::from_secs(5))?.command(&command.args)
    }

    /// Cuts all connections that there are.
    pub fn cut(&self) {
        self.listener.order(ProxyOrder::Cut);
    }

    /// Resets all connections for the clients. The server keeps them open, and nothing arrives on
    /// them any more: half-open connections, as after a firewall dropped them for one side.
    pub fn half_open(&self) {
        self.listener.order(ProxyOrder::HalfOpen);
    }

    /// Refuses further connections; those that there are stay.
    pub fn refuse(&self) {
        self.listener.order(ProxyOrder::Refuse);
    }

    /// Accepts connections again.
    pub fn accept(&self) {
        self.listener.order(ProxyOrder::Accept);
    }

    /// Refuses and cuts all connections, or accepts them again.
    pub fn set_reachable(&self, reachable: Reachable) {
        if reachable == Reachable::Connected {
            self.accept();
        } else {
            self.refuse();
            self.cut();
        }
    }

    /// Holds the bytes of this direction back, as a network does that loses all packets:
    /// connections stay, and [`resume`](Self::resume) delivers what was held.
    pub fn hold(&self, direction: Direction) {
        self.flows.change(direction, |flow| flow.held = true);
    }

    /// Delivers what was held, and what follows.
    pub fn resume(&self, direction: Direction) {
        self.flows.change(direction, |flow| flow.held = false);
    }

    /// Delays all bytes of this direction.
    pub fn set_latency(&self, direction: Direction, latency: Duration) {
        self.flows.change(direction, |flow| flow.latency = latency);
    }

    /// Delivers so many bytes at once and pauses in between. Pieces of 0 bytes end that.
    pub fn set_drip(&self, direction: Direction, piece: usize, pause: Duration) {
        let drip = (piece > 0).then_some((piece, pause));
        self.flows.change(direction, |flow| flow.drip = drip);
    }

    /// Drops what is planned and held back, and what slows bytes down.
    pub fn clear(&self) {
        lock(&self.plans.planned).clear();
        lock(&self.plans.pushes).clear();
        self.flows.clear();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("port", &self.port())
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}
