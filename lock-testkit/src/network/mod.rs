//! Hosts with addresses of their own, and a network between them that fails.
//!
//! Each host is a network namespace behind a bridge that drops packets on request. From outside, only
//! one interface of the test process is visible. The network and all processes of its hosts end with
//! the test process, even if that is killed.

mod host;
mod namespace;
mod subnet;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

pub use self::host::NetworkHost;
use self::host::Parts;
use self::namespace::{NetworkNamespace, ip, tool};
use self::subnet::Subnet;
use crate::lock;

/// Hosts that reach each other, unless a fault of this value is between them.
///
/// Faults drop IP packets silently in the bridge, as a real network does.
/// Packets of a host to itself always pass. A test process has an address in the network too, that
/// of [`outside`](Self::outside).
#[derive(Clone, Debug)]
pub struct Network {
    inner: Arc<NetworkInner>,
}

impl Network {
    /// Makes a network without hosts: 50 ms.
    ///
    /// # Errors
    ///
    /// If this process is not root's, if `ip`, `nft`, `nsenter` or `unshare` is missing, or if the
    /// kernel refuses. The error says which.
    pub fn new() -> io::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "a network of hosts needs root",
            ));
        }
        let switch = NetworkNamespace::new()?;
        let setup =
            format!("link set lo up\nlink add {BRIDGE} type bridge\nlink set {BRIDGE} up\n");
        ip(Some(&switch), &setup)?;
        tool(Some(&switch), &NFT, TABLE)?;
        let subnet = Subnet::reserve()?;
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let interface = format!("pl{}x{count}", process::id());
        let inner = NetworkInner {
            hosts: Mutex::new(Vec::new()),
            interface: interface.clone(),
            rules: Mutex::default(),
            subnet,
            switch,
        };
        // From here on, dropping the value removes the namespace.
        let outside = inner.subnet.outside();
        let setup = format!(
            "link add {interface} type veth peer name outside netns {}\n\
             link set {interface} up\n\
             addr add {outside}/24 dev {interface}\n",
            inner.switch.path().display()
        );
        ip(None, &setup)?;
        let setup = format!("link set outside master {BRIDGE}\nlink set outside up\n");
        ip(Some(&inner.switch), &setup)?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The host of this name, made at the first call: 30 ms. It lives as long as the network.
    pub fn host(&self, name: &str) -> NetworkHost {
        let mut hosts = lock(&self.inner.hosts);
        let known = hosts.iter().find(|host| host.name == name);
        let parts = known.map(Arc::clone).unwrap_or_else(|| {
            let made = self.inner.make_host(name, hosts.len());
            let made = Arc::new(made.unwrap_or_else(|error| panic!("host {name}: {error}")));
            hosts.push(Arc::clone(&made));
            made
        });
        NetworkHost::new(Arc::clone(&self.inner), parts)
    }

    /// The address of the test process in the network.
    pub fn outside(&self) -> Ipv4Addr {
        self.inner.subnet.outside()
    }

    /// Drops what `from` sends to `to`, and lets answers pass: connections are half open.
    pub fn block(&self, from: &NetworkHost, to: &NetworkHost) {
        self.inner.change(|rules| {
            rules.pairs.insert((from.address(), to.address()));
        });
    }

    /// Drops whatever the hosts of one side send to those of the other, in both directions.
    pub fn partition(&self, one: &[&NetworkHost], other: &[&NetworkHost]) {
        self.inner.change(|rules| {
            for a in one.iter().map(|host| host.address()) {
                for b in other.iter().map(|host| host.address()) {
                    rules.pairs.extend([(a, b), (b, a)]);
                }
            }
        });
    }

    /// Partitions two hosts and aborts all TCP connections with `peer` on the side of `at`, whose
    /// programs see `ECONNABORTED` at once. The side of `peer` hears nothing: its connections are half
    /// open. Returns when the connections are gone.
    pub fn reset(&self, at: &NetworkHost, peer: &NetworkHost) {
        self.partition(&[at], &[peer]);
        at.end_connections(&["dst", &peer.address().to_string()]);
    }

    /// Ends [`power_off`](Self::power_off).
    pub fn rejoin(&self, host: &NetworkHost) {
        self.inner.change(|rules| {
            rules.isolated.remove(&host.address());
        });
    }

    /// Takes the power of a host away: nothing that it sent or would send gets out, all its
    /// processes are killed, and its kernel forgets every connection. Peers hear nothing, neither
    /// FIN nor RST. After [`rejoin`](Self::rejoin) the host answers on old connections with RST, as
    /// a machine does that has booted; restart its servers then, or before.
    pub fn power_off(&self, host: &NetworkHost) {
        self.inner.change(|rules| {
            rules.isolated.insert(host.address());
        });
        host.kill_all();
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.inner.change(|rules| {
            rules.pairs.clear();
            rules.isolated.clear();
        });
    }
}

/// What the bridge drops.
#[derive(Debug, Default)]
struct BridgeRules {
    /// Sender and receiver.
    pairs: BTreeSet<(Ipv4Addr, Ipv4Addr)>,
    isolated: BTreeSet<Ipv4Addr>,
}

impl BridgeRules {
    /// Replaces all rules, atomically.
    fn commands(&self) -> String {
        let mut commands = String::new();
        let pairs = self.pairs.iter().map(|(from, to)| format!("{from} . {to}"));
        let isolated = self.isolated.iter().map(Ipv4Addr::to_string);
        for (set, elements) in [
            ("pairs", pairs.collect::<Vec<_>>()),
            ("isolated", isolated.collect()),
        ] {
            writeln!(commands, "flush set bridge faults {set}").expect("memory");
            if !elements.is_empty() {
                let elements = elements.join(", ");
                writeln!(commands, "add element bridge faults {set} {{ {elements} }}")
                    .expect("memory");
            }
        }
        commands
    }
}

/// What lives as long as the network or one of its hosts.
#[derive(Debug)]
struct NetworkInner {
    hosts: Mutex<Vec<Arc<Parts>>>,
    /// The end of the test process.
    interface: String,
    rules: Mutex<BridgeRules>,
    subnet: Subnet,
    switch: NetworkNamespace,
}

impl NetworkInner {
    fn make_host(&self, name: &str, place: usize) -> io::Result<Parts> {
        let address = self.subnet.host(place)?;
        let namespace = NetworkNamespace::new()?;
        let [.., subnet, own] = address.octets();
        // One hardware address for each IP address, so that no ARP cache is stale.
        let setup = format!(
            "link add host{own} type veth peer name eth0 address 02:70:6c:00:{subnet:02x}:{own:02x} netns {}\n\
             link set host{own} master {BRIDGE}\n\
             link set host{own} up\n",
            namespace.path().display()
        );
        ip(Some(&self.switch), &setup)?;
        let setup = format!("link set lo up\naddr add {address}/24 dev eth0\nlink set eth0 up\n");
        ip(Some(&namespace), &setup)?;
        Ok(Parts {
            name: name.to_owned(),
            address,
            namespace,
        })
    }

    fn change(&self, change: impl FnOnce(&mut BridgeRules)) {
        let mut rules = lock(&self.rules);
        change(&mut rules);
        tool(Some(&self.switch), &NFT, &rules.commands()).expect("nft takes the rules");
    }
}

impl Drop for NetworkInner {
    fn drop(&mut self) {
        // It would also go with the other end, a moment after the address can be given again.
        drop(ip(None, &format!("link del {}\n", self.interface)));
    }
}

const BRIDGE: &str = "bridge0";

const NFT: [&str; 3] = ["nft", "-f", "-"];

/// Packets of other protocols pass, above all those that find hardware addresses: a host is cut off
/// as it is behind a router.
const TABLE: &str = "\
table bridge faults {
    set pairs { type ipv4_addr . ipv4_addr; }
    set isolated { type ipv4_addr; }
    chain forward {
        type filter hook forward priority 0; policy accept;
        ip saddr . ip daddr @pairs drop
        ip saddr @isolated drop
        ip daddr @isolated drop
    }
}
";
