//! What held locks and waiting tasks cost in memory and time; prints a table.
//!
//! `cargo bench -p polylock --bench footprint`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use polylock::layers::{Event, EventKind, LocalQueue, Observer};
use polylock::memory::Memory;
use polylock::prelude::*;

const HELD: usize = 10_000;
const WAITING: usize = 100_000;
const KEYS: usize = 100;

#[tokio::main(worker_threads = 2)]
async fn main() {
    bare_tasks().await;
    held_locks().await;
    waiting_tasks().await;
    million_keys().await;
}

async fn bare_tasks() {
    let before = resident();
    let tasks: Vec<_> = (0..WAITING)
        .map(|_| tokio::spawn(std::future::pending::<()>()))
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    row(
        "memory of a bare waiting task",
        &format!("{} B", per(before, WAITING)),
    );
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    tokio::time::sleep(Duration::from_secs(1)).await;
}

async fn held_locks() {
    let renewals = Arc::new(Renewals::default());
    let registry = polylock::compiled_in().with_observer(Arc::clone(&renewals) as _);
    let locks = registry
        .connect("memory:?namespace=shop")
        .await
        .expect("connects");
    let before = resident();
    let mut guards = Vec::with_capacity(HELD);
    for n in 0..HELD {
        let request = locks.request(format!("k{n}")).ttl(Duration::from_secs(6));
        guards.push(request.acquire().await.expect("is free"));
    }
    row("memory per held lock", &format!("{} B", per(before, HELD)));
    // The first period brings locks together that were taken apart.
    tokio::time::sleep(Duration::from_secs(4)).await;
    renewals.0.store(0, Ordering::Relaxed);
    let (cpu, began) = (processor_time(), Instant::now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let share = (processor_time() - cpu).as_secs_f64() / began.elapsed().as_secs_f64();
    row("locks held, ttl", &format!("{HELD}, 6 s"));
    row(
        "renewals per second",
        &format!("{}", renewals.0.load(Ordering::Relaxed) / 10),
    );
    row(
        "processor for all of them",
        &format!("{:.1} % of one", share * 100.0),
    );
    assert!(
        guards.iter().all(LockGuard::is_held),
        "all are renewed in time"
    );
}

async fn waiting_tasks() {
    let locks = polylock::connect("memory:?namespace=shop")
        .await
        .expect("connects");
    let mut guards = Vec::new();
    for n in 0..KEYS {
        guards.push(locks.lock(format!("w{n}")).await.expect("is free"));
    }
    let before = resident();
    let tasks: Vec<_> = (0..WAITING)
        .map(|n| {
            let locks = Arc::clone(&locks);
            tokio::spawn(async move {
                let wait = Wait::AtMost(Duration::from_secs(600));
                let guard = locks
                    .request(format!("w{}", n % KEYS))
                    .wait(wait)
                    .acquire()
                    .await?;
                guard.release().await.map(drop)
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    row(
        "memory per waiting task, task included",
        &format!("{} B", per(before, WAITING)),
    );
    let cpu = processor_time();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let idle = (processor_time() - cpu).as_secs_f64() / 5.0;
    row(
        "processor while 100,000 wait",
        &format!("{:.1} % of one", idle * 100.0),
    );
    let began = Instant::now();
    drop(guards);
    for task in tasks {
        task.await.expect("does not panic").expect("is served");
    }
    row("all of them served in", &format!("{:?}", began.elapsed()));
}

async fn million_keys() {
    let store = Memory::new();
    let locks = LocalQueue::new(Arc::new(store.client()));
    let cycle = |n: usize| {
        let locks = &locks;
        async move {
            for n in 0..n {
                drop(locks.lock(format!("m{n}")).await.expect("is free"));
            }
        }
    };
    cycle(10_000).await;
    let before = resident();
    cycle(1_000_000).await;
    let grown = resident().saturating_sub(before);
    row(
        "memory left by a million keys",
        &format!("{grown} B, {} keys", locks.live_keys()),
    );
}

#[derive(Debug, Default)]
struct Renewals(AtomicUsize);

impl Observer for Renewals {
    fn event(&self, event: &Event<'_>) {
        if matches!(event.kind, EventKind::Renewed { .. }) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[expect(clippy::print_stdout, reason = "the table is what it is for")]
fn row(what: &str, value: &str) {
    println!("{what:<42} {value}");
}

fn per(before: usize, count: usize) -> usize {
    resident().saturating_sub(before) / count
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("a number of pages") * 4096
}

/// Processor time of this process, all threads together, at 100 ticks a second.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields = stat.rsplit(')').next().expect("fields").split(' ');
    let ticks: u64 = fields
        .skip(12)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}
