use std::io;
use std::time::Duration;

use super::port::free_port;
use super::server_process::{address, at_once, started};
use super::{RedisOptions, RedisServer, Reply};
use crate::network::NetworkHost;
use crate::proxy::Proxy;
use crate::wait;

/// A master, its replica if there is one, and three Sentinels of which two decide.
#[derive(Debug)]
pub struct RedisSentinels {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
    /// Where Sentinels and clients find the first server.
    entrance: u16,
}

impl RedisSentinels {
    /// The name that the Sentinels have for the master.
    pub const MASTER: &str = "main";

    /// Starts them with one replica, and waits until it has the data of the master and all know
    /// each other: 0.2 to 1.2 s, in the rhythm of their own timer.
    ///
    /// A master counts as down after 0.5 s.
    #[must_use]
    pub fn start() -> Self {
        let servers = with_replica(options(RedisOptions::new()), options(RedisOptions::new()));
        let entrance = servers[0].port();
        Self::watching(servers, entrance, DOWN_AFTER, &[])
    }

    /// The same on hosts, those of the master and of the replica first. The `options` are those of
    /// the master and the replica.
    #[must_use]
    pub fn start_on(
        servers: [&NetworkHost; 2],
        sentinels: [&NetworkHost; 3],
        options: &RedisOptions,
    ) -> Self {
        let [master, replica] = servers.map(|host| self::options(options.clone()).with_host(host));
        let servers = with_replica(master, replica);
        let entrance = servers[0].port();
        Self::watching(servers, entrance, DOWN_AFTER, &sentinels)
    }

    /// Starts them without a replica, so that no failover is possible, and waits until all know each
    /// other: 0.2 s.
    #[must_use]
    pub fn start_light() -> Self {
        let master = RedisServer::start(options(RedisOptions::new()));
        let entrance = master.port();
        Self::watching(vec![master], entrance, NEVER, &[])
    }

    /// The same with a proxy in front of the master, to which the Sentinels refer clients and
    /// through which they watch it themselves.
    pub fn start_light_behind_proxy() -> (Self, Proxy) {
        let master = RedisServer::start(options(RedisOptions::new()));
        let proxy = Proxy::start(master.port());
        let watched = Self::watching(vec![master], proxy.port(), NEVER, &[]);
        (watched, proxy)
    }

    /// `redis-sentinel://127.0.0.1:PORT,127.0.0.1:PORT,127.0.0.1:PORT/main`.
    pub fn url(&self) -> String {
        let sentinels = self.sentinels.iter().map(|sentinel| sentinel.address());
        let sentinels = sentinels.collect::<Vec<_>>().join(",");
        format!("redis-sentinel://{sentinels}/{}", Self::MASTER)
    }

    /// The ports of the Sentinels.
    pub fn ports(&self) -> Vec<u16> {
        let sentinels = self.sentinels.iter();
        sentinels.map(|sentinel| sentinel.port()).collect()
    }

    /// The Sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The servers that they watch: the one that was the master first, then the other.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The server that the Sentinels take for the master.
    pub fn master(&self) -> &RedisServer {
        &self.servers[self.master_place()]
    }

    /// Waits until the replica has all that the master has at this moment.
    pub fn wait_for_replica(&self) {
        let place = self.master_place();
        let (master, replica) = (&self.servers[place], &self.servers[1 - place]);
        wait_until_in_sync(replica);
        let offset = |server| info(server, "master_repl_offset")?.parse::<u64>().ok();
        let goal = offset(master);
        wait("the replica has all", || offset(replica) >= goal);
    }

    /// Makes the Sentinels put the replica in the place of the master, and waits until all of them
    /// and both servers know: about 2 s.
    pub fn fail_over(&self) {
        let old = self.master_place();
        let order = self.sentinels[0].command(&["SENTINEL", "FAILOVER", Self::MASTER]);
        assert_eq!(order.text().as_deref(), Some("OK"));
        let has_another =
            |sentinel: &RedisServer| self.place_seen_by(sentinel).is_some_and(|new| new != old);
        wait("the Sentinels have another master", || {
            self.sentinels.iter().all(has_another)
        });
        wait("the master knows", || {
            self.master().role().as_deref() == Some("master")
        });
    }

    /// The place in [`servers`](Self::servers) of the one that this Sentinel takes for the master;
    /// none if it does not answer.
    pub fn master_seen_by(&self, sentinel: usize) -> Option<usize> {
        self.place_seen_by(&self.sentinels[sentinel])
    }

    fn watching(
        servers: Vec<RedisServer>,
        entrance: u16,
        down_after: Duration,
        hosts: &[&NetworkHost],
    ) -> Self {
        let sentinels = started("a Sentinel", || {
            launch(&servers, entrance, down_after, hosts)
        });
        let all = Self {
            servers,
            sentinels,
            entrance,
        };
        all.settle();
        all
    }

    fn settle(&self) {
        for sentinel in &self.sentinels {
            wait("the Sentinels watch", || {
                let quorum = sentinel.command(&["SENTINEL", "CKQUORUM", Self::MASTER]);
                let replicas = sentinel.command(&["SENTINEL", "REPLICAS", Self::MASTER]);
                let replicas = replicas.items().iter();
                quorum.text().is_some_and(|text| text.starts_with("OK 3"))
                    && flags(&sentinel.command(&["SENTINEL", "MASTER", Self::MASTER])) == "master"
                    && replicas.map(flags).all(|flags| flags == "slave")
            });
        }
    }

    fn master_place(&self) -> usize {
        let mut sentinels = self.sentinels.iter();
        let seen = sentinels.find_map(|sentinel| self.place_seen_by(sentinel));
        seen.expect("a Sentinel knows the master")
    }

    fn place_seen_by(&self, sentinel: &RedisServer) -> Option<usize> {
        let name = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::MASTER];
        let address = sentinel.try_command(&name).ok()?;
        let port = address.items().get(1)?.integer()?;
        let is_at = |at: u16| port == i64::from(at);
        if is_at(self.entrance) {
            return Some(0);
        }
        self.servers.iter().position(|server| is_at(server.port()))
    }
}

/// One for each of the hosts, or three on none.
fn launch(
    servers: &[RedisServer],
    entrance: u16,
    down_after: Duration,
    hosts: &[&NetworkHost],
) -> io::Result<Vec<RedisServer>> {
    let mut sentinels = Vec::new();
    for place in 0..3 {
        sentinels.push((free_port()?, hosts.get(place).copied()));
    }
    let (name, down_after) = (RedisSentinels::MASTER, down_after.as_millis());
    let (master, replicas) = (address(servers[0].host()), &servers[1..]);
    let started = at_once(&sentinels, |(own, host)| {
        // They find each other within 2 s, or know from the start.
        let mut lines = vec![
            format!("myid {}", id(*own)),
            format!("monitor {name} {master} {entrance} 2"),
            format!("down-after-milliseconds {name} {down_after}"),
            format!("failover-timeout {name} 2000"),
        ];
        for replica in replicas {
            let (address, port) = (address(replica.host()), replica.port());
            lines.push(format!("known-replica {name} {address} {port}"));
        }
        for (other, host) in sentinels.iter().filter(|(other, _)| other != own) {
            let (address, id) = (address(*host), id(*other));
            lines.push(format!("known-sentinel {name} {address} {other} {id}"));
        }
        let mut options = RedisOptions::sentinel().with_host(*host);
        for line in &lines {
            options = options.with_config("sentinel", line);
        }
        RedisServer::start_at(*own, options)
    });
    started.into_iter().collect()
}

/// A master, and a replica that has its data.
fn with_replica(master: RedisOptions, replica: RedisOptions) -> Vec<RedisServer> {
    let master = RedisServer::start(master);
    let of = format!("{} {}", address(master.host()), master.port());
    let replica = RedisServer::start(replica.with_config("replicaof", &of));
    wait_until_in_sync(&replica);
    vec![master, replica]
}

fn options(options: RedisOptions) -> RedisOptions {
    options
        .with_default("repl-diskless-sync-delay", "0")
        .with_default("repl-ping-replica-period", "1")
}

/// 40 hexadecimal digits.
fn id(port: u16) -> String {
    format!("{port:040x}")
}

fn wait_until_in_sync(replica: &RedisServer) {
    wait("the replica has the data", || {
        info(replica, "master_link_status").as_deref() == Some("up")
    });
}

/// A field of the section on replication.
fn info(server: &RedisServer, field: &str) -> Option<String> {
    let info = server.command(&["INFO", "replication"]).text()?;
    let value = |line: &str| Some(line.strip_prefix(field)?.strip_prefix(':')?.to_owned());
    info.lines().find_map(value)
}

/// The flags among the names and values that a Sentinel tells of a server.
fn flags(told: &Reply) -> String {
    let mut words = told.items().iter().map(Reply::text);
    let found = words.any(|word| word.as_deref() == Some("flags"));
    let flags = if found { words.next().flatten() } else { None };
    flags.unwrap_or_default()
}

const DOWN_AFTER: Duration = Duration::from_millis(500);

/// Longer than a test takes: without a replica, a failover is impossible.
const NEVER: Duration = Duration::from_secs(600);
