//! What the whole stack costs over a bare keyed mutex, on the memory backend.
//!
//! Both sides run in one process and one run, so that the difference is what counts. Pin it to one
//! processor (`taskset -c 1 cargo bench -p polylock --bench stack`): a wake-up across processors
//! costs more than all of this.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use polylock::prelude::*;
use tokio::runtime::{Builder, Runtime};

criterion_group!(benches, uncontended, hand_over);
criterion_main!(benches);

/// Acquires and releases a lock that nobody else wants.
fn uncontended(c: &mut Criterion) {
    let runtime = runtime();
    let mut group = c.benchmark_group("uncontended");
    let bare = Keyed::default();
    group.bench_function("keyed tokio mutex", |b| {
        b.iter(|| runtime.block_on(async { drop(bare.lock(black_box("orders/42")).await) }));
    });
    let memory = polylock::memory::Memory::new();
    group.bench_function("memory backend alone", |b| {
        b.iter(|| runtime.block_on(acquire_and_release(&memory)));
    });
    let stack = runtime
        .block_on(polylock::connect("memory:?namespace=shop"))
        .expect("connects");
    group.bench_function("stack built by connect", |b| {
        b.iter(|| runtime.block_on(acquire_and_release(&*stack)));
    });
    group.finish();
}

async fn acquire_and_release(locks: &dyn DistributedLock) {
    let guard = locks.lock(black_box("orders/42")).await.expect("is free");
    guard.release().await.expect("is held");
}

/// Passes one lock between two tasks that both always want it; time per acquisition.
fn hand_over(c: &mut Criterion) {
    let runtime = runtime();
    let mut group = c.benchmark_group("hand-over between two tasks");
    let bare = Arc::new(Keyed::default());
    group.bench_function("keyed tokio mutex", |b| {
        b.iter_custom(|n| {
            let turn = |bare: Arc<Keyed>| async move {
                drop(bare.lock("orders/42").await);
                tokio::task::yield_now().await;
            };
            runtime.block_on(two_tasks(n, Arc::clone(&bare), turn))
        });
    });
    let stack = runtime
        .block_on(polylock::connect("memory:?namespace=shop"))
        .expect("connects");
    group.bench_function("stack built by connect", |b| {
        b.iter_custom(|n| {
            let turn = |stack: Arc<dyn DistributedLock>| async move {
                acquire_and_release(&*stack).await;
                tokio::task::yield_now().await;
            };
            runtime.block_on(two_tasks(n, Arc::clone(&stack), turn))
        });
    });
    group.finish();
}

async fn two_tasks<L, F>(n: u64, lock: L, turn: impl Fn(L) -> F + Copy + Send + 'static) -> Duration
where
    L: Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let began = Instant::now();
    let tasks = [n / 2, n - n / 2].map(|turns| {
        let lock = lock.clone();
        tokio::spawn(async move {
            for _ in 0..turns {
                turn(lock.clone()).await;
            }
        })
    });
    for task in tasks {
        task.await.expect("does not panic");
    }
    began.elapsed()
}

/// What people write without a library: a map of mutexes.
#[derive(Default)]
struct Keyed(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Keyed {
    async fn lock(&self, key: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let mutex = {
            let mut map = self.0.lock().expect("is not poisoned");
            Arc::clone(map.entry(key.to_owned()).or_default())
        };
        mutex.lock_owned().await
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("starts")
}
