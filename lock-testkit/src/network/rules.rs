use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;

use super::namespace::Namespace;
use super::tools::tool;

/// What the bridge drops.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// Sender and receiver.
    pub(super) pairs: BTreeSet<(Ipv4Addr, Ipv4Addr)>,
    pub(super) isolated: BTreeSet<Ipv4Addr>,
}

impl Rules {
    /// No rules, in a namespace that has a bridge.
    pub(super) fn new(switch: &Namespace) -> io::Result<Self> {
        let rules = Self::default();
        tool(Some(switch), &NFT, TABLE)?;
        Ok(rules)
    }

    /// Replaces all rules atomically.
    pub(super) fn apply(&self, switch: &Namespace) -> io::Result<()> {
        tool(Some(switch), &NFT, &self.commands()).map(drop)
    }

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

pub(super) const NFT: [&str; 3] = ["nft", "-f", "-"];

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
