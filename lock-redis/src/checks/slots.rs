//! The slots of a cluster that have a master.

use lock_core::HealthCheck;
use redis::{Value, cmd};

use crate::error::Failure;
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
pub(super) fn missing(layout: &Layout) -> Option<HealthCheck> {
    let served: u32 = layout
        .iter()
        .map(|(first, last, _)| u32::from(last.saturating_sub(*first)) + 1)
        .sum();
    let count = SLOTS.saturating_sub(served);
    (count > 0).then(|| {
        HealthCheck::error(
            "cluster",
            format!("{count} of the {SLOTS} slots have no master"),
            "the locks there cannot be acquired, nor any lock unless cluster-require-full-coverage \
             is no",
            "see CLUSTER NODES, and give the slots to a master",
        )
    })
}

const SLOTS: u32 = 16_384;

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
        assert_eq!(missing(&whole), None);
        let torn = layout([(0, 4_999, "a"), (5_001, 10_000, "b"), (10_002, 16_383, "c")]);
        let found = missing(&torn).expect("two are missing");
        assert!(found.summary.starts_with("2 of the 16384"), "{found}");
    }

    #[test]
    fn junk_is_no_layout() {
        assert_eq!(read(&Value::Okay), None);
        assert_eq!(read(&Value::Array(vec![Value::Int(1)])), None);
    }
}
