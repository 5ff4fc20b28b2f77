use redis::Value;

use crate::config::Endpoint;

/// Which master has which slot.
#[derive(Debug)]
pub(super) struct Slots {
    masters: Vec<Endpoint>,
    replicas: Vec<Endpoint>,
    /// First and last slot, and the place of the master; ordered.
    ranges: Vec<(u16, u16, usize)>,
}

impl Slots {
    /// Reads the reply to `CLUSTER SLOTS`. `asked` is the server that sent it, and replaces a host that
    /// it does not know.
    pub(super) fn read(answer: Value, asked: &Endpoint) -> Option<Self> {
        let mut slots = Self {
            masters: Vec::new(),
            replicas: Vec::new(),
            ranges: Vec::new(),
        };
        let Value::Array(rows) = answer else {
            return None;
        };
        let asked = &*asked.to_string();
        for row in rows {
            let Value::Array(row) = row else { return None };
            let [
                Value::Int(first),
                Value::Int(last),
                Value::Array(master),
                replicas @ ..,
            ] = row.as_slice()
            else {
                return None;
            };
            let master = node(master, asked)?;
            let replicas = replicas.iter().filter_map(|replica| match replica {
                Value::Array(replica) => node(replica, asked),
                _ => None,
            });
            slots.replicas.extend(replicas);
            let known = slots.masters.iter().position(|known| *known == master);
            let at = known.unwrap_or_else(|| {
                slots.masters.push(master);
                slots.masters.len() - 1
            });
            let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
            slots.ranges.push((first, last, at));
        }
        slots.ranges.sort_unstable();
        Some(slots)
    }

    pub(super) fn master(&self, slot: u16) -> Option<&Endpoint> {
        let after = self.ranges.partition_point(|(first, ..)| *first <= slot);
        let (_, last, at) = self.ranges.get(after.checked_sub(1)?)?;
        (slot <= *last).then(|| &self.masters[*at])
    }

    pub(super) fn masters(&self) -> &[Endpoint] {
        &self.masters
    }

    /// Whether a node has slots, or is a replica of one that has.
    pub(super) fn lists(&self, node: &Endpoint) -> bool {
        self.masters.contains(node) || self.replicas.contains(node)
    }

    /// Whether this server is a master here, by its name in failures.
    pub(super) fn has_master(&self, server: &str) -> bool {
        self.masters.iter().any(|one| *server == one.to_string())
    }

    /// Whether a master of `old` is none here.
    pub(super) fn lacks_one_of(&self, old: &Self) -> bool {
        old.masters.iter().any(|old| !self.masters.contains(old))
    }
}

fn node(parts: &[Value], asked: &str) -> Option<Endpoint> {
    let [host, Value::Int(port), ..] = parts else {
        return None;
    };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::Nil => "",
        _ => return None,
    };
    endpoint(host, u16::try_from(*port).ok()?, asked)
}

/// The address of a node, as the server `asked` has it. A server that has not met others does not know its own host.
pub(super) fn endpoint(host: &str, port: u16, asked: &str) -> Option<Endpoint> {
    let host = match host {
        "" | "?" => asked.rsplit_once(':')?.0,
        host => host,
    };
    let host = host.trim_matches(['[', ']']);
    (!host.is_empty()).then(|| Endpoint::tcp(host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![
            host,
            Value::Int(port),
            Value::BulkString(b"id".to_vec()),
        ])
    }

    fn row(first: i64, last: i64, master: Value) -> Value {
        let replica = node(Value::BulkString(b"r".to_vec()), 1);
        Value::Array(vec![Value::Int(first), Value::Int(last), master, replica])
    }

    #[test]
    fn every_slot_has_its_master() {
        let asked = Endpoint::tcp("seed", 7);
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let answer = Value::Array(vec![
            row(101, 200, node(text("b"), 2)),
            row(0, 100, node(text(""), 1)),
            row(300, 300, node(text("b"), 2)),
            row(301, 16383, node(Value::Nil, 3)),
        ]);
        let slots = Slots::read(answer, &asked).unwrap();
        let own = Endpoint::tcp("seed", 1);
        let other = Endpoint::tcp("b", 2);
        assert_eq!(slots.masters().len(), 3);
        for (slot, master) in [
            (0, Some(&own)),
            (100, Some(&own)),
            (101, Some(&other)),
            (200, Some(&other)),
            (201, None),
            (299, None),
            (300, Some(&other)),
            (16383, Some(&Endpoint::tcp("seed", 3))),
        ] {
            assert_eq!(slots.master(slot), master, "slot {slot}");
        }
        let less = Value::Array(vec![row(0, 16383, node(text("b"), 2))]);
        let less = Slots::read(less, &asked).unwrap();
        assert!(less.lacks_one_of(&slots));
        assert!(!slots.lacks_one_of(&less));
        assert!(less.has_master("b:2"));
        assert!(!less.has_master("seed:1"), "it sent the map");
        let replica = Endpoint::tcp("r", 1);
        assert!(less.lists(&other) && less.lists(&replica));
        assert!(!less.lists(&own));
    }

    #[test]
    fn junk_is_no_map() {
        let asked = Endpoint::tcp("seed", 7);
        for junk in [
            Value::Okay,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![row(0, 70_000, node(Value::Nil, 1))]),
            Value::Array(vec![row(0, 1, node(Value::Nil, 70_000))]),
            Value::Array(vec![row(0, 1, Value::Nil)]),
        ] {
            assert!(Slots::read(junk, &asked).is_none());
        }
    }
}
