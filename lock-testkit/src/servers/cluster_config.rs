use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// What the nodes of a cluster know of each other when they start.
///
/// A master that starts refuses writes for 2 s (`CLUSTER_WRITABLE_DELAY`), but a replica does not,
/// and stays writable when it becomes a master. So each master starts as the replica of a ghost, a
/// node that does not exist and owns its slots, and takes over from that.
pub(super) struct ClusterConfig {
    masters: usize,
    nodes: Vec<Addresses>,
}

/// Where a node listens.
#[derive(Clone, Copy)]
pub(super) struct Addresses {
    pub(super) address: Ipv4Addr,
    /// For the testkit and for other nodes.
    pub(super) port: u16,
    /// For clients: that of a proxy, if there is one.
    pub(super) announced: u16,
}

impl ClusterConfig {
    pub(super) fn new(masters: usize, nodes: Vec<Addresses>) -> Self {
        Self { masters, nodes }
    }

    /// The content of `nodes.conf`.
    pub(super) fn of(&self, node: usize) -> String {
        let mut config = String::new();
        for (other, addresses) in self.nodes.iter().enumerate() {
            let (id, address) = (id(other), addresses.address);
            let (port, bus) = (addresses.announced, addresses.port + BUS);
            let (myself, master) = match (other == node, self.master_of(other)) {
                (true, Some(master)) => ("myself,slave", id_of(Kind::Node, master)),
                (true, None) => ("myself,slave", id_of(Kind::Ghost, other)),
                (false, Some(master)) => ("slave", id_of(Kind::Node, master)),
                (false, None) => ("master", "-".to_owned()),
            };
            // Each learns the slots of the others from themselves.
            writeln!(
                config,
                "{id} {address}:{port}@{bus} {myself} {master} 0 0 0 connected"
            )
            .expect("memory");
        }
        if self.master_of(node).is_none() {
            let slots = self.slots(node);
            writeln!(
                config,
                "{} {}:1@2 master - 0 0 {} connected {}-{}",
                ghost(node),
                self.nodes[node].address,
                self.epoch(node),
                slots.start(),
                slots.end()
            )
            .expect("memory");
        }
        // A takeover adds one, and two masters must not have the same epoch.
        let epoch = self.epoch(node);
        writeln!(config, "vars currentEpoch {epoch} lastVoteEpoch 0").expect("memory");
        config
    }

    /// The slots of this master.
    pub(super) fn slots(&self, master: usize) -> RangeInclusive<u16> {
        let bound = |at: usize| u16::try_from(at * SLOTS / self.masters).expect("a slot");
        bound(master)..=bound(master + 1) - 1
    }

    /// The master of this node, if it is a replica.
    pub(super) fn master_of(&self, node: usize) -> Option<usize> {
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

/// The id of a node.
pub(super) fn id(node: usize) -> String {
    id_of(Kind::Node, node)
}

/// The id of a master's ghost.
pub(super) fn ghost(master: usize) -> String {
    id_of(Kind::Ghost, master)
}

#[derive(Clone, Copy)]
enum Kind {
    Ghost,
    Node,
}

/// 40 hexadecimal digits.
fn id_of(kind: Kind, node: usize) -> String {
    let digit = match kind {
        Kind::Ghost => 'e',
        Kind::Node => 'a',
    };
    format!("{}{node:04x}", String::from(digit).repeat(36))
}

/// What Redis adds to the port of a node for the bus.
pub(super) const BUS: u16 = 10_000;
const SLOTS: usize = 16_384;
