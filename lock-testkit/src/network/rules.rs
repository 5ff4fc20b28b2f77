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

    /// Puts these in the place of all former ones, at once.
    pub(super) fn apply(&self, switch: &Namespace) -> io::Result<()> {
        tool(Some(switch), &NFT, &self.commands()).map(drop)
    }

    /// How many packets have been dropped.
    pub(super) fn dropped(&self, switch: &Namespace) -> io::Result<u64> {
        let list = ["nft", "list", "counter", "bridge", "faults", "dropped"];
        let listed = tool(Some(switch), &list, "")?;
        let mut words = listed.split_whitespace();
        let found = words.any(|word| word == "packets");
        let count = words
            .next()
            .filter(|_| found)
            .and_then(|word| word.parse().ok());
        count.ok_or_else(|| io::Error::other(listed))
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
    counter dropped { }
    set pairs { type ipv4_addr . ipv4_addr; }
    set isolated { type ipv4_addr; }
    chain forward {
        type filter hook forward priority 0; policy accept;
        ip saddr . ip daddr @pairs counter name dropped drop
        ip saddr @isolated counter name dropped drop
        ip daddr @isolated counter name dropped drop
    }
}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rules_are_written_at_once() {
        let mut rules = Rules::default();
        assert_eq!(
            rules.commands(),
            "flush set bridge faults pairs\nflush set bridge faults isolated\n"
        );
        let (a, b) = (Ipv4Addr::new(198, 18, 0, 2), Ipv4Addr::new(198, 18, 0, 3));
        rules.pairs.extend([(a, b), (b, a)]);
        rules.isolated.insert(a);
        assert_eq!(
            rules.commands(),
            "flush set bridge faults pairs\n\
             add element bridge faults pairs { 198.18.0.2 . 198.18.0.3, 198.18.0.3 . 198.18.0.2 }\n\
             flush set bridge faults isolated\n\
             add element bridge faults isolated { 198.18.0.2 }\n"
        );
    }
}
