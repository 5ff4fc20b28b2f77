//! 64 tasks of one process on one key, with and without hand-over inside the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lock_core::{DistributedLock, DistributedLockExt};

use crate::figures::{middle, row};
use crate::locks::{Mode, connect, runtime};
use crate::server::{Database, Server};

const ROUNDS: usize = 5;
const TASKS: usize = 64;
const FOR: Duration = Duration::from_millis(1_000);

pub(crate) fn run(database: Database) {
    for mode in Mode::ALL {
        let server = Arc::new(Server::start(database, false));
        runtime().block_on(measure(database, &server, mode));
    }
}

async fn measure(database: Database, server: &Arc<Server>, mode: Mode) {
    // Without hand-over each of them waits on a connection, where the mode has it wait there.
    let url = format!(
        "{}?mode={}&connections=70&timeout=30s",
        server.url(),
        mode.name()
    );
    let with = connect(&url).await;
    // Before there are others.
    let (connections, sessions) = used(server, contend(&with, "counted")).await;
    let without = connect(&format!("{url}&local-queue=off")).await;
    let (mut rates, mut slow_rates, mut fairness) = (vec![], vec![], vec![]);
    for round in 0..ROUNDS {
        let (rate, least) = contend(&with, &format!("with:{round}")).await;
        rates.push(rate);
        fairness.push(least);
        slow_rates.push(contend(&without, &format!("without:{round}")).await.0);
    }
    let (with, without) = (middle(rates), middle(slow_rates));
    let what = format!("{} {}, 64 tasks on one key", database.title(), mode.name());
    row(
        &format!("{what}, each its own waiter on the server"),
        &format!("{without:.0}/s"),
    );
    row(&format!("{what}, with hand-over"), &format!("{with:.0}/s"));
    row(&format!("{what}: ratio"), &format!("{:.1}", with / without));
    row(
        &format!("{what}: least served task, share of the mean"),
        &format!("{:.2}", middle(fairness)),
    );
    row(
        &format!("{what}, with hand-over: most connections, and sessions of locks among them"),
        &format!("{connections}, {sessions}"),
    );
}

/// The most connections, and sessions of locks, that the server had while something was done.
async fn used<T>(server: &Arc<Server>, work: impl Future<Output = T>) -> (u64, u64) {
    let is_over = Arc::new(AtomicBool::new(false));
    let (server, until) = (Arc::clone(server), Arc::clone(&is_over));
    // The clients of the testkit block.
    let asker = thread::spawn(move || {
        let mut most = (0, 0);
        while !until.load(Ordering::Relaxed) {
            most.0 = server.connections().max(most.0);
            most.1 = server.sessions().max(most.1);
        }
        most
    });
    work.await;
    is_over.store(true, Ordering::Relaxed);
    asker.join().unwrap()
}

/// Acquisitions per second, and the share of the mean that the least served task got.
async fn contend(locks: &Arc<dyn DistributedLock>, key: &str) -> (f64, f64) {
    let began = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (locks, key) = (Arc::clone(locks), key.to_owned());
            tokio::spawn(async move {
                let mut count = 0_u64;
                while began.elapsed() < FOR {
                    let guard = locks.lock(key.as_str()).await.unwrap();
                    count += 1;
                    guard.release().await.unwrap();
                }
                count
            })
        })
        .collect();
    let mut counts = Vec::new();
    for task in tasks {
        counts.push(task.await.unwrap() as f64);
    }
    let total: f64 = counts.iter().sum();
    let least = counts.iter().copied().fold(f64::INFINITY, f64::min);
    (
        total / began.elapsed().as_secs_f64(),
        least / (total / TASKS as f64),
    )
}
