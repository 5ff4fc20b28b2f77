//! Which slots the masters of a cluster have, and keys that nobody uses on each of them.

use lock_core::{Finding, LockKey};
use redis::{Value, cmd};

use crate::error::{Cause, Failure};
use crate::keys::{Counter, Keys, slot};
use crate::topology::Topology;

/// The first and the last slot of each range, and its master.
pub(super) type Layout = Vec<(u16, u16, String)>;

/// Asks for the layout of a cluster.
pub(super) async fn ask(topology: &dyn Topology) -> Result<Option<Layout>, Failure> {
    let mut command = cmd("CLUSTER");
    command.arg("SLOTS");
    match topology.broadcast(&command).await {
        Ok(said) => Ok(said.into_iter().find_map(|said| read(&said.value))),
        Err(failure) if failure.refusal().is_some() => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn read(answer: &Value) -> Option<Layout> {
    let Value::Array(rows) = answer else {
        return None;
    };
    let range = |row: &Value| {
        let Value::Array(row) = row else { return None };
        let [
            Value::Int(first),
            Value::Int(last),
            Value::Array(master),
            ..,
        ] = row.as_slice()
        else {
            return None;
        };
        let bounds = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        // Host and port, as the node says them.
        let master = master.iter().take(2).map(|part| format!("{part:?}"));
        Some((bounds.0, bounds.1, master.collect::<String>()))
    };
    rows.iter().map(range).collect()
}

/// What is wrong with it, if anything is.
pub(super) fn finding(layout: &Layout) -> Option<Finding> {
    let served: u32 = layout
        .iter()
        .map(|(first, last, _)| u32::from(last.saturating_sub(*first)) + 1)
        .sum();
    let missing = SLOTS.saturating_sub(served);
    (missing > 0).then(|| {
        Finding::error(
            "cluster",
            format!("{missing} of the {SLOTS} slots have no master"),
            "the locks there cannot be acquired, nor any lock unless cluster-require-full-coverage \
             is no",
            "see CLUSTER NODES, and give the slots to a master",
        )
    })
}

const SLOTS: u32 = 16_384;

/// Whether the namespace leaves the locks where their own keys put them.
pub(super) fn hash_tag(namespace: &str) -> Finding {
    // Two keys that differ lie in one slot if the namespace says so, or by accident.
    let at = |key: &str| slot(stored(namespace, key).as_bytes());
    if !["1", "2", "3"].iter().all(|key| at(key) == at("0")) {
        return Finding::good("hash-tag", "the locks are spread over the masters");
    }
    Finding::warning(
        "hash-tag",
        format!("the namespace {namespace:?} has a hash tag"),
        "all locks are in one slot, and one master has the work of all",
        "leave the braces out of the namespace",
    )
}

/// One key of each master, or of the server, that no lock has.
pub(super) fn scratch(
    layout: Option<&Layout>,
    namespace: &str,
    counter: Counter,
) -> Result<Vec<Keys>, Failure> {
    let names = (0..).map(|number| stored(namespace, &format!("polylock-doctor-{number}")));
    let Some(layout) = layout else {
        return keys(names.take(1), counter);
    };
    let owner = |name: &str| {
        let slot = slot(name.as_bytes());
        let of = |(first, last, _): &&(u16, u16, String)| (*first..=*last).contains(&slot);
        layout.iter().find(of).map(|(.., master)| master.as_str())
    };
    let mut chosen: Vec<(&str, String)> = Vec::new();
    // A master with few slots may be missed; with a hash tag all but one are.
    for name in names.take(TRIES) {
        if let Some(owner) = owner(&name)
            && !chosen.iter().any(|(known, _)| *known == owner)
        {
            chosen.push((owner, name));
        }
    }
    keys(chosen.into_iter().map(|(_, name)| name), counter)
}

const TRIES: usize = 1_000;

fn stored(namespace: &str, key: &str) -> String {
    match namespace {
        "" => key.to_owned(),
        _ => format!("{namespace}:{key}"),
    }
}

fn keys(names: impl Iterator<Item = String>, counter: Counter) -> Result<Vec<Keys>, Failure> {
    let key = |name: String| {
        let key = LockKey::new(name).map_err(|error| Cause::Config(error.to_string()))?;
        Ok(Keys::of(&key, counter))
    };
    names.map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(bounds: [(u16, u16, &str); 3]) -> Layout {
        let own = |(first, last, master): (u16, u16, &str)| (first, last, master.to_owned());
        bounds.into_iter().map(own).collect()
    }

    #[test]
    fn a_slot_without_a_master_is_found() {
        let whole = layout([(0, 5_000, "a"), (5_001, 10_000, "b"), (10_001, 16_383, "c")]);
        assert_eq!(finding(&whole), None);
        let torn = layout([(0, 4_999, "a"), (5_001, 10_000, "b"), (10_002, 16_383, "c")]);
        let found = finding(&torn).expect("two are missing");
        assert!(found.what.starts_with("2 of the 16384"), "{found}");
    }

    #[test]
    fn each_master_has_a_key_of_its_own() {
        let layout = layout([(0, 5_000, "a"), (5_001, 16_000, "b"), (16_001, 16_383, "c")]);
        let keys = scratch(Some(&layout), "shop", Counter::Slot).expect("they are keys");
        assert_eq!(keys.len(), 3);
        for keys in &keys {
            assert!(keys.lock().starts_with(b"shop:polylock-doctor-"));
        }
        assert_eq!(
            scratch(Some(&layout), "{t}", Counter::Slot)
                .expect("a key")
                .len(),
            1
        );
        let one = scratch(None, "", Counter::Namespace).expect("it is a key");
        assert_eq!(one[0].lock(), b"polylock-doctor-0");
    }

    #[test]
    fn a_hash_tag_is_one_that_redis_knows() {
        for (namespace, is_fault) in [
            ("", false),
            ("lock", false),
            ("{shop}", true),
            ("a{b}c", true),
            ("{}", false),
            ("{a", false),
        ] {
            assert_eq!(hash_tag(namespace).is_fault(), is_fault, "{namespace}");
        }
    }

    #[test]
    fn junk_is_no_layout() {
        assert_eq!(read(&Value::Okay), None);
        assert_eq!(read(&Value::Array(vec![Value::Int(1)])), None);
    }
}
