use std::io;
use std::ops::Deref;
use std::time::{Duration, Instant};

use super::host::address;
use super::nodes::at_once;
use super::port::free_port;
use super::server_process::started;
use super::{RedisOptions, RedisServer, Reply};
use crate::network::Host;
use crate::proxy::Proxy;

/// A Redis Cluster: its masters, and after them its replicas.
///
/// A master that is [restarted](super::ServerProcess::restart) refuses writes for 2 s, as Redis does.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    /// By which the nodes know each other.
    ids: Vec<String>,
    /// Where clients connect to.
    ports: Vec<u16>,
}

impl RedisCluster {
    /// Starts one and waits until it serves writes and each replica has the data of its master.
    ///
    /// Takes 2.5 s, for most of which Redis refuses writes after a start. A node counts as failed
    /// after 1 s with replicas, and after 15 s without, where nobody could take its place.
    #[must_use]
    pub fn start(masters: usize, replicas: usize) -> Self {
        let hosts = vec![None; masters + replicas];
        Self::launch(masters, &hosts, false, &RedisOptions::new()).0
    }

    /// The same with one master or replica on each of these hosts, and these options. With
    /// `cluster-node-timeout` among them a node counts as failed after that.
    #[must_use]
    pub fn start_on(masters: &[&Host], replicas: &[&Host], options: &RedisOptions) -> Self {
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
        let nodes: Vec<_> = self
            .nodes
            .iter()
            .zip(&self.ports)
            .map(|(node, port)| format!("{}:{port}", address(node.host())))
            .collect();
        format!("redis-cluster://{}", nodes.join(","))
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
        let (source, target) = (&self.ids[from], &self.ids[to]);
        done(&self.nodes[to].command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", source]));
        done(&self.nodes[from].command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", target]));
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

    /// Ends the move of a slot: tells all nodes its owner. Its keys must have been moved.
    pub fn end_move(&self, slot: u16, to: usize) {
        let target = &self.ids[to];
        let (number, from) = (slot.to_string(), self.owner_of(slot));
        let owner = ["CLUSTER", "SETSLOT", &number, "NODE", target];
        // The target first: else nobody has the slot when the source has given it away.
        done(&self.nodes[to].command(&owner));
        done(&self.nodes[from].command(&owner));
        for node in self.nodes.iter().filter(|node| answers(node)) {
            // Replicas refuse, and learn it from their master.
            node.command(&owner);
        }
        self.wait("the slot has moved", |node| {
            owner_seen_by(node, slot).as_ref() == Some(target)
        });
    }

    /// Moves a slot with its keys.
    pub fn move_slot(&self, slot: u16, to: usize) {
        let from = self.owner_of(slot);
        self.begin_move(slot, to);
        loop {
            let number = slot.to_string();
            let keys = self.nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &number, "100"]);
            if keys.items().is_empty() {
                break self.end_move(slot, to);
            }
            for key in keys.items() {
                let Reply::Bulk(key) = key else {
                    panic!("{key:?} is no key");
                };
                self.move_key(key, from, to);
            }
        }
    }

    /// Makes a replica take the place of its master, with or without that, and waits until all nodes
    /// that run know. Writes that have not reached the replica are lost.
    pub fn take_over(&self, replica: usize) {
        done(&self.nodes[replica].command(&["CLUSTER", "FAILOVER", "TAKEOVER"]));
        let id = &self.ids[replica];
        self.wait("the node is a master", |node| is_master(node, id));
        self.wait("the cluster serves", serves);
    }

    fn launch(
        masters: usize,
        hosts: &[Option<&Host>],
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
        hosts: &[Option<&Host>],
        proxied: bool,
        own: &RedisOptions,
    ) -> io::Result<(Self, Vec<Proxy>)> {
        let count = hosts.len();
        let own_ports = (0..count)
            .map(|_| free_port())
            .collect::<io::Result<Vec<_>>>()?;
        let proxies: Vec<_> = own_ports
            .iter()
            .filter(|_| proxied)
            .map(|port| Proxy::start(*port))
            .collect();
        let ports = match proxied {
            true => proxies.iter().map(Proxy::port).collect(),
            false => own_ports.clone(),
        };
        let node_timeout = if count == masters { 15_000 } else { 1_000 };
        let nodes = at_once(0..count, |node| {
            let mut options = options(own.clone(), own_ports[node], ports[node], node_timeout)
                .with_config("cluster-announce-ip", &address(hosts[node]).to_string());
            if let Some(host) = hosts[node] {
                options = options.with_host(host);
            }
            RedisServer::start_at(own_ports[node], options)
        });
        let nodes = nodes.into_iter().collect::<io::Result<Vec<_>>>()?;
        let ids = nodes
            .iter()
            .map(|node| text(&node.command(&["CLUSTER", "MYID"])))
            .collect();
        let cluster = Self { nodes, ids, ports };
        cluster.form(masters);
        Ok((cluster, proxies))
    }

    /// Makes the nodes a cluster: the masters get their slots, all meet, and the rest replicate.
    fn form(&self, masters: usize) {
        let (leading, following) = self.nodes.split_at(masters);
        for (place, master) in leading.iter().enumerate() {
            let bound = |at: usize| at * SLOTS / masters;
            let (first, last) = (bound(place), bound(place + 1) - 1);
            let slots = [first.to_string(), last.to_string()];
            done(&master.command(&["CLUSTER", "ADDSLOTSRANGE", &slots[0], &slots[1]]));
            // One of two masters of the same epoch would take another when they meet.
            let epoch = (place + 1).to_string();
            done(&master.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]));
        }
        for node in &self.nodes {
            let address = address(node.host()).to_string();
            let (port, bus) = (node.port().to_string(), (node.port() + BUS).to_string());
            for other in self
                .nodes
                .iter()
                .filter(|other| other.port() != node.port())
            {
                done(&other.command(&["CLUSTER", "MEET", &address, &port, &bus]));
            }
        }
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        self.wait("the nodes know each other", |node| {
            let nodes = text(&node.command(&["CLUSTER", "NODES"]));
            text(&node.command(&["CLUSTER", "INFO"])).contains(&known)
                && self.ids.iter().all(|id| nodes.contains(id))
        });
        for (place, replica) in following.iter().enumerate() {
            let master = &self.ids[place % masters];
            done(&replica.command(&["CLUSTER", "REPLICATE", master]));
        }
        self.wait("the cluster serves", serves);
        for replica in following {
            wait("the replica has the data", || {
                text(&replica.command(&["INFO", "replication"])).contains("master_link_status:up")
            });
        }
        self.wait("the replicas are known", |node| {
            let nodes = text(&node.command(&["CLUSTER", "NODES"]));
            nodes.matches("slave ").count() == following.len()
        });
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

    fn place(&self, id: &str) -> Option<usize> {
        self.ids.iter().position(|other| other == id)
    }
}

impl Deref for RedisCluster {
    type Target = [RedisServer];

    fn deref(&self) -> &Self::Target {
        &self.nodes
    }
}

fn options(own: RedisOptions, port: u16, announced: u16, timeout: u32) -> RedisOptions {
    let bus = port + BUS;
    own.with_default("cluster-node-timeout", &timeout.to_string())
        .with_config("cluster-enabled", "yes")
        .with_config("cluster-announce-port", &announced.to_string())
        .with_config("cluster-announce-bus-port", &bus.to_string())
        .with_config("cluster-allow-replica-migration", "no")
        .with_config("repl-diskless-sync-delay", "0")
}

/// Whether a node takes the one of this id for a master with slots.
fn is_master(node: &RedisServer, id: &str) -> bool {
    let nodes = text(&node.command(&["CLUSTER", "NODES"]));
    nodes
        .lines()
        .filter(|line| line.starts_with(id))
        .any(|line| line.contains("master ") && line.split(' ').count() > 8)
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

pub(super) fn wait(what: &str, mut met: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !met() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What Redis adds to the port of a node for the bus.
const BUS: u16 = 10_000;
const SLOTS: usize = 16_384;
