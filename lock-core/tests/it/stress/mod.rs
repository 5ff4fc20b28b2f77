//! Two clients of one store under load in real time, with futures dropped wherever chance has it.
//!
//! Prints its seed; `STRESS_SEED=n` starts with another one, `STRESS_OPERATIONS=n` does more. Threads
//! interleave as they like, so a seed makes a failure likely and not certain.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "all of it is one test"
)]

mod chance;
mod witness;
mod worker;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use polylock_core::layers::LocalQueue;
use polylock_core::memory::Memory;
use polylock_core::prelude::*;

use self::chance::Chance;
use self::witness::Witness;
use self::worker::Worker;

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const TASKS: u64 = 64;
const OPERATIONS: u64 = 300;

/// A wait takes this long only if a waiter was forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

#[test]
fn no_client_overlaps_overtakes_or_starves() {
    stress(Witness::default());
}

#[test]
fn broken_locks_strand_no_client() {
    stress(Witness::of_breaking());
}

fn stress(witness: Witness) {
    let seed = number("STRESS_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("STRESS_SEED={seed}");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let operations = number("STRESS_OPERATIONS").unwrap_or(OPERATIONS);
    runtime.block_on(run(seed, operations, Arc::new(witness)));
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {value}")),
    )
}

async fn run(seed: u64, operations: u64, witness: Arc<Witness>) {
    let store = Arc::new(Memory::new());
    // One client hands each lease over many times, the other releases it after every second holder.
    let clients = [LocalQueue::DEFAULT_MAX_HANDOVERS, 1].map(|handovers| {
        Arc::new(LocalQueue::new(Arc::new(store.client())).with_max_handovers(handovers))
    });
    let tasks: Vec<_> = (0..TASKS)
        .map(|n| {
            let worker = Worker {
                locks: Arc::clone(&clients[usize::from(n % 2 == 0)]),
                store: Arc::clone(&store),
                witness: Arc::clone(&witness),
                chance: Chance::new(seed ^ (n << 32)),
            };
            tokio::spawn(worker.work(operations))
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    store.faults().clear();
    for client in &clients {
        assert!(client.shutdown(FORGOTTEN).await, "releases are under way");
        assert_eq!(client.live_keys(), 0);
    }
    assert_eq!(store.live_keys(), 0);
    witness.assert_awake();
}
