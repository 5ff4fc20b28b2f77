use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use super::port::{BUS, free_port};
use super::server_process::{address, at_once, deref_to, started};
use super::{RedisOptions, RedisServer, Reply};
use crate::network::NetworkHost;
use crate::proxy::Proxy;
use crate::wait;

/// A Redis Cluster: its masters, and after them its replicas, in the order of their masters.
///
/// A master that is [restarted](super::ServerProcess::restart) refuses writes for 2 s, as Redis does.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    /// Where clients connect to.
    ports: Vec<u16>,
}

impl RedisCluster {
    /// Starts one and waits until it serves writes and each replica has the data of its master.
    ///
    /// Takes 0.2 s without replicas; with them up to 1 s more, because of their own timer. A node
    /// counts as failed after 1 s with replicas, and after 15 s without, because no node could replace
    /// it.
    #[must_use]
    pub fn start(masters: usize, replicas: usize) -> Self {
        let hosts = vec![None; masters + replicas];
        Self::launch(masters, &hosts, false, &RedisOptions::new()).0
    }

    /// The same with one master or replica on each of these hosts, and these options. With
    /// `cluster-node-timeout` among them a node counts as failed after that.
    #[must_use]
    pub fn start_on(
        masters: &[&NetworkHost],
        replicas: &[&NetworkHost],
        options: &RedisOptions,
    ) -> Self {
        let hosts = masters.iter().chain(replicas).copied();
        let hosts: Vec<_> = hosts.map(Some).collect();
        Self::launch(masters.len(), &hosts, false, options).0
    }

    /// The same with a proxy in front of each node, to which nodes refer clients.
    pub fn start_behind_proxies(masters: usize, replicas: usize) -> (Self, Vec<Proxy>) {
        let hosts = vec![None; masters + replicas];
        Self::launch(masters, &hosts, true, &RedisOptions::new())
    }

    /// The ports that clients connect to: those of the proxies, if there are any.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// `redis-cluster://127.0.0.1:PORT,127.0.0.1:PORT,...`.
    pub fn url(&self) -> String {
        let nodes = self.nodes.iter().zip(&self.ports);
        let nodes = nodes.map(|(node, port)| format!("{}:{port}", address(node.host())));
        format!("redis-cluster://{}", nodes.collect::<Vec<_>>().join(","))
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        let slot = self.alive().command(&["CLUSTER", "KEYSLOT", key]).integer();
        slot.and_then(|slot| u16::try_from(slot).ok())
            .expect("a slot")
    }

    /// The place of the master that has this slot, as all nodes that run see it.
    pub fn owner_of(&self, slot: u16) -> usize {
        let owner = owner_seen_by(self.alive(), slot).expect("a slot has an owner");
        self.place(&owner).expect("the owner is a node")
    }

    /// Begins to move a slot: from here on keys that are not at its owner are asked for with ASK.
    pub fn begin_move(&self, slot: u16, to: usize) {
        let (slot, from) = (slot.to_string(), self.owner_of(slot));
        let source = self.nodes[from].command(&["CLUSTER", "MYID"]);
        let target = self.nodes[to].command(&["CLUSTER", "MYID"]);
        let (source, target) = (text(&source), text(&target));
        done(&self.nodes[to].command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]));
        done(&self.nodes[from].command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]));
    }

    /// Moves one key of a slot that is moving.
    pub fn move_key(&self, key: impl AsRef<[u8]>, from: usize, to: usize) {
        let to = &self.nodes[to];
        let (address, port) = (address(to.host()).to_string(), to.port().to_string());
        let words: [&[u8]; 6] = [
            b"MIGRATE",
            address.as_bytes(),
            port.as_bytes(),
            key.as_ref(),
            b"0",
            b"5000",
        ];
        done(&self.nodes[from].command(&words));
    }

    /// Ends the move of a slot: moves the keys that are left, and tells all nodes its owner.
    pub fn end_move(&self, slot: u16, to: usize) {
        let target = text(&self.nodes[to].command(&["CLUSTER", "MYID"]));
        let (number, from) = (slot.to_string(), self.owner_of(slot));
        // The first node that runs may know the new owner already.
        if from != to {
            self.move_keys(&number, from, to);
        }
        let owner = ["CLUSTER", "SETSLOT", &number, "NODE", &target];
        // The target first: otherwise the slot has no owner once the source has given it up.
        done(&self.nodes[to].command(&owner));
        done(&self.nodes[from].command(&owner));
        for node in self.nodes.iter().filter(|node| answers(node)) {
            // Replicas refuse, and learn it from their master.
            node.command(&owner);
        }
        self.wait("the slot has moved", |node| {
            owner_seen_by(node, slot).as_deref() == Some(&*target)
        });
    }

    fn move_keys(&self, slot: &str, from: usize, to: usize) {
        loop {
            let keys = self.nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", slot, "100"]);
            if keys.items().is_empty() {
                return;
            }
            for key in keys.items() {
                let Reply::Bulk(key) = key else {
                    panic!("{key:?} is no key");
                };
                self.move_key(key, from, to);
            }
        }
    }

    /// Moves a slot with its keys.
    pub fn move_slot(&self, slot: u16, to: usize) {
        self.begin_move(slot, to);
        self.end_move(slot, to);
    }

    /// Gives all slots of a master, which have no keys, to a later one. The first is left without slots.
    pub fn give_slots(&self, from: usize, to: usize) {
        assert!(from < to, "nodes believe the master of the later epoch");
        let (giver, taker) = (&self.nodes[from], &self.nodes[to]);
        let rows = giver.command(&["CLUSTER", "SLOTS"]);
        let is_given = |row: &&Reply| {
            let name = row
                .items()
                .get(2)
                .and_then(|master| master.items().get(2)?.text());
            name.as_deref() == Some(&*id(from))
        };
        for row in rows.items().iter().filter(is_given) {
            let bound = |at: usize| row.items().get(at).and_then(Reply::integer);
            let [first, last] = [0, 1].map(|at| bound(at).expect("a slot").to_string());
            wait("the slots are taken", || {
                for node in [giver, taker] {
                    node.command(&["CLUSTER", "DELSLOTSRANGE", &first, &last]);
                }
                !taker
                    .command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])
                    .is_error()
            });
        }
        self.wait("the node has no slots", |node| {
            let slots = node.command(&["CLUSTER", "SLOTS"]);
            !slots.items().iter().any(|row| is_given(&row)) && serves(node)
        });
    }

    /// Makes all other nodes forget one, which stays as it is.
    pub fn forget(&self, gone: usize) {
        let others = self.nodes.iter().enumerate().filter(|(at, _)| *at != gone);
        for (_, node) in others {
            done(&node.command(&["CLUSTER", "FORGET", &id(gone)]));
        }
    }

    /// Makes a replica take the place of its master, with or without that, and waits until all nodes
    /// that run know. Writes that have not reached the replica are lost.
    pub fn take_over(&self, replica: usize) {
        let taker = &self.nodes[replica];
        done(&taker.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]));
        let name = text(&taker.command(&["CLUSTER", "MYID"]));
        self.wait("the node is a master", |node| is_master(node, &name));
        self.wait("the cluster serves", serves);
    }

    fn launch(
        masters: usize,
        hosts: &[Option<&NetworkHost>],
        proxied: bool,
        options: &RedisOptions,
    ) -> (Self, Vec<Proxy>) {
        assert!(masters > 0, "a cluster has a master");
        started("a node", || {
            Self::try_launch(masters, hosts, proxied, options)
        })
    }

    fn try_launch(
        masters: usize,
        hosts: &[Option<&NetworkHost>],
        proxied: bool,
        own: &RedisOptions,
    ) -> io::Result<(Self, Vec<Proxy>)> {
        let count = hosts.len();
        let ports = (0..count).map(|_| free_port());
        let ports = ports.collect::<io::Result<Vec<_>>>()?;
        let targets = ports.iter().filter(|_| proxied);
        let proxies: Vec<_> = targets.map(|port| Proxy::start(*port)).collect();
        let announced = |node: usize| proxies.get(node).map_or(ports[node], Proxy::port);
        let addresses = (0..count).map(|node| Addresses {
            address: address(hosts[node]),
            port: ports[node],
            announced: announced(node),
        });
        let addresses: Vec<_> = addresses.collect();
        let nodes = addresses.clone();
        let config = ClusterConfig { masters, nodes };
        let patience = if count == masters { 15_000 } else { 1_000 };
        let start = |node: usize| {
            let options = options(own.clone(), addresses[node], patience);
            let options = options.with_file("nodes.conf", config.of(node));
            let server = RedisServer::start_at(ports[node], options.with_host(hosts[node]))?;
            if node < masters {
                wait("the replica of a ghost serves", || {
                    text(&server.command(&["CLUSTER", "INFO"])).contains("cluster_state:ok")
                });
                done(&server.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]));
            }
            Ok(server)
        };
        // A replica that finds no master tries again after a second.
        let mut nodes = at_once(0..masters, start);
        nodes.append(&mut at_once(masters..count, start));
        let nodes = nodes.into_iter().collect::<io::Result<Vec<_>>>()?;
        let ports = addresses.iter().map(|node| node.announced).collect();
        let cluster = Self { nodes, ports };
        cluster.settle(&config, masters);
        Ok((cluster, proxies))
    }

    fn settle(&self, config: &ClusterConfig, masters: usize) {
        let mut last = Instant::now();
        let has_replicas = self.nodes.len() > masters;
        wait("the nodes know each other", || {
            // A node may know a replica of a ghost, but not yet its takeover. It would learn of that
            // within a second.
            if last.elapsed() > Duration::from_millis(120) {
                last = Instant::now();
                self.meet(masters);
            }
            let known = |node: &RedisServer| knows(node, config, masters);
            self.nodes.iter().all(known) && (!has_replicas || self.have_own_epochs(masters))
        });
        // A node may learn of a ghost again from another that has not forgotten it yet.
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        self.wait("the ghosts are forgotten", |node| {
            for master in 0..masters {
                node.command(&["CLUSTER", "FORGET", &ghost(master)]);
            }
            text(&node.command(&["CLUSTER", "INFO"])).contains(&known)
        });
        for node in &self.nodes {
            done(&node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "yes"]));
        }
        self.wait("the cluster serves", serves);
        for replica in &self.nodes[masters..] {
            wait("the replica has the data", || {
                text(&replica.command(&["INFO", "replication"])).contains("master_link_status:up")
            });
        }
    }

    /// Whether all nodes see a different epoch for each master. One of two that took over in the same
    /// epoch takes another when it hears of it; after a failover it would win its slots back by that.
    fn have_own_epochs(&self, masters: usize) -> bool {
        self.nodes.iter().all(|node| {
            let nodes = text(&node.command(&["CLUSTER", "NODES"]));
            let epoch = |master: usize| {
                let line = nodes.lines().find(|line| line.starts_with(&id(master)))?;
                line.split(' ').nth(6)
            };
            let epochs: BTreeSet<_> = (0..masters).filter_map(epoch).collect();
            epochs.len() == masters && !epochs.contains("0")
        })
    }

    /// Makes each master tell all other nodes about itself.
    fn meet(&self, masters: usize) {
        for master in &self.nodes[..masters] {
            let is_other = |node: &&RedisServer| node.port() != master.port();
            for other in self.nodes.iter().filter(is_other) {
                let address = address(other.host()).to_string();
                let (port, bus) = (other.port(), other.port() + BUS);
                let (port, bus) = (port.to_string(), bus.to_string());
                done(&master.command(&["CLUSTER", "MEET", &address, &port, &bus]));
            }
        }
    }

    /// Waits for something that all nodes that run see.
    fn wait(&self, what: &str, seen: impl Fn(&RedisServer) -> bool) {
        for node in self.nodes.iter().filter(|node| answers(node)) {
            wait(what, || seen(node));
        }
    }

    fn alive(&self) -> &RedisServer {
        let alive = self.nodes.iter().find(|node| answers(node));
        alive.expect("a node answers")
    }

    fn place(&self, name: &str) -> Option<usize> {
        (0..self.nodes.len()).find(|node| id(*node) == name)
    }
}

deref_to!(RedisCluster, nodes: [RedisServer]);

fn options(own: RedisOptions, node: Addresses, patience: u32) -> RedisOptions {
    let bus = node.port + BUS;
    own.with_default("cluster-node-timeout", &patience.to_string())
        .with_config("cluster-enabled", "yes")
        .with_config("cluster-announce-ip", &node.address.to_string())
        .with_config("cluster-announce-port", &node.announced.to_string())
        .with_config("cluster-announce-bus-port", &bus.to_string())
        .with_config("cluster-allow-replica-migration", "no")
        // Until each knows the slots of the others.
        .with_config("cluster-require-full-coverage", "no")
        .with_config("repl-diskless-sync-delay", "0")
}

fn knows(node: &RedisServer, config: &ClusterConfig, masters: usize) -> bool {
    (0..masters).all(|master| {
        let (slots, id) = (config.slots(master), id(master));
        let is_own = |slot: &u16| owner_seen_by(node, *slot).as_deref() == Some(&*id);
        is_own(slots.start()) && is_own(slots.end())
    })
}

/// Whether a node takes the one of this name for a master with slots.
fn is_master(node: &RedisServer, name: &str) -> bool {
    let nodes = text(&node.command(&["CLUSTER", "NODES"]));
    let mut lines = nodes.lines().filter(|line| line.starts_with(name));
    lines.any(|line| line.contains("master ") && line.split(' ').count() > 8)
}

fn serves(node: &RedisServer) -> bool {
    let info = text(&node.command(&["CLUSTER", "INFO"]));
    info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
}

/// The id of the node that has this slot.
fn owner_seen_by(node: &RedisServer, slot: u16) -> Option<String> {
    let slot = i64::from(slot);
    let ranges = node.command(&["CLUSTER", "SLOTS"]);
    let range = ranges.items().iter().find(|range| {
        let bound = |at: usize| range.items().get(at).and_then(Reply::integer);
        bound(0) <= Some(slot) && Some(slot) <= bound(1)
    })?;
    range.items().get(2)?.items().get(2)?.text()
}

fn answers(node: &RedisServer) -> bool {
    node.try_command(&["PING"]).is_ok()
}

fn done(reply: &Reply) {
    assert_eq!(reply.text().as_deref(), Some("OK"));
}

fn text(reply: &Reply) -> String {
    reply.text().expect("text")
}

/// What the nodes of a cluster know of each other when they start.
///
/// A master that starts refuses writes for 2 s (`CLUSTER_WRITABLE_DELAY`), but a replica does not,
/// and stays writable when it becomes a master. So each master starts as the replica of a ghost, a
/// node that does not exist and owns its slots, and takes over from that.
struct ClusterConfig {
    masters: usize,
    nodes: Vec<Addresses>,
}

#[derive(Clone, Copy)]
struct Addresses {
    address: Ipv4Addr,
    /// For the testkit and for other nodes.
    port: u16,
    /// For clients: that of a proxy, if there is one.
    announced: u16,
}

impl ClusterConfig {
    /// The content of `nodes.conf`.
    fn of(&self, node: usize) -> String {
        let mut lines = Vec::new();
        for (other, addresses) in self.nodes.iter().enumerate() {
            let (name, address) = (id(other), addresses.address);
            let (port, bus) = (addresses.announced, addresses.port + BUS);
            let role = match (other == node, self.master_of(other)) {
                (true, Some(master)) => format!("myself,slave {}", id(master)),
                (true, None) => format!("myself,slave {}", ghost(other)),
                (false, Some(master)) => format!("slave {}", id(master)),
                (false, None) => "master -".to_owned(),
            };
            // Each learns the slots of the others from themselves.
            lines.push(format!(
                "{name} {address}:{port}@{bus} {role} 0 0 0 connected\n"
            ));
        }
        let epoch = self.epoch(node);
        if self.master_of(node).is_none() {
            let (name, address, slots) = (ghost(node), self.nodes[node].address, self.slots(node));
            let slots = format!("{}-{}", slots.start(), slots.end());
            lines.push(format!(
                "{name} {address}:1@2 master - 0 0 {epoch} connected {slots}\n"
            ));
        }
        // A takeover adds one, and two masters must not have the same epoch.
        lines.push(format!("vars currentEpoch {epoch} lastVoteEpoch 0\n"));
        lines.concat()
    }

    fn slots(&self, master: usize) -> RangeInclusive<u16> {
        let bound = |at: usize| u16::try_from(at * SLOTS / self.masters).expect("a slot");
        bound(master)..=bound(master + 1) - 1
    }

    fn master_of(&self, node: usize) -> Option<usize> {
        (node >= self.masters).then(|| (node - self.masters) % self.masters)
    }

    fn epoch(&self, node: usize) -> usize {
        if node < self.masters {
            10 * (node + 1)
        } else {
            0
        }
    }
}

/// The id of a node: 40 hexadecimal digits.
fn id(node: usize) -> String {
    format!("{}{node:04x}", "a".repeat(36))
}

fn ghost(master: usize) -> String {
    format!("{}{master:04x}", "e".repeat(36))
}

const SLOTS: usize = 16_384;
