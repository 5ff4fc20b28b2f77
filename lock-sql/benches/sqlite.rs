//! What a lock in a SQLite file costs, on the disk of the target directory.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use lock_core::prelude::*;
use lock_sql::Sqlite;
use tokio::runtime::Runtime;

fn uncontended(c: &mut Criterion) {
    let (runtime, directory) = set_up();
    let locks = runtime
        .block_on(Sqlite::open(directory.path().join("locks.db")))
        .unwrap();
    c.bench_function("acquire and release", |b| {
        b.iter(|| runtime.block_on(cycle(&locks, "key")));
    });
    c.bench_function("a refused attempt", |b| {
        let _held = runtime.block_on(locks.lock("held")).unwrap();
        b.iter(|| assert!(runtime.block_on(locks.try_lock("held")).unwrap().is_none()));
    });
}

fn together(c: &mut Criterion) {
    let (runtime, directory) = set_up();
    let locks = runtime
        .block_on(Sqlite::open(directory.path().join("locks.db")))
        .unwrap();
    let locks = Arc::new(locks);
    c.bench_function("acquire and release, each of 64 tasks on 64 keys", |b| {
        b.iter_custom(|rounds| {
            let begin = Instant::now();
            runtime.block_on(async {
                let tasks: Vec<_> = (0..64)
                    .map(|n| tokio::spawn(rounds_of(&locks, n, rounds)))
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
            begin.elapsed()
        });
    });
}

fn rounds_of(locks: &Arc<Sqlite>, n: u32, rounds: u64) -> impl Future<Output = ()> + use<> {
    let (locks, key) = (Arc::clone(locks), format!("key {n}"));
    async move {
        for _ in 0..rounds {
            cycle(&locks, &key).await;
        }
    }
}

/// From the call of `release` on one connection to the guard on another one, which polls as another
/// process does.
fn hand_off(c: &mut Criterion) {
    let (runtime, directory) = set_up();
    let path = directory.path().join("locks.db");
    let (here, there) = runtime.block_on(async { (open(&path).await, open(&path).await) });
    c.bench_function("hand-off to another process", |b| {
        b.iter_custom(|rounds| {
            let mut total = Duration::ZERO;
            for round in 0..rounds {
                total += runtime.block_on(one_hand_off(&here, &there, round));
            }
            total
        });
    });
}

async fn one_hand_off(here: &Arc<Sqlite>, there: &Arc<Sqlite>, round: u64) -> Duration {
    let guard = here.lock("key").await.unwrap();
    let there = Arc::clone(there);
    let waiter = tokio::spawn(async move {
        let guard = there.lock("key").await.unwrap();
        (Instant::now(), guard)
    });
    // Long enough for the longest pause between two looks, and in no step with them.
    tokio::time::sleep(Duration::from_millis(60 + round % 23)).await;
    let begin = Instant::now();
    guard.release().await.unwrap();
    let (end, guard) = waiter.await.unwrap();
    guard.release().await.unwrap();
    end - begin
}

async fn cycle(locks: &Sqlite, key: &str) {
    let guard = locks.lock(key).await.unwrap();
    black_box(guard.fencing_token());
    guard.release().await.unwrap();
}

async fn open(path: &Path) -> Arc<Sqlite> {
    Arc::new(Sqlite::open(path).await.unwrap())
}

fn set_up() -> (Runtime, tempfile::TempDir) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    (Runtime::new().unwrap(), directory)
}

criterion_group! {
    name = sqlite;
    config = Criterion::default().sample_size(20);
    targets = uncontended, together, hand_off
}
criterion_main!(sqlite);
