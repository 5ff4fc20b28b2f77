//! 64 tasks of one process on one key, with and without hand-over inside the process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{DistributedLock, DistributedLockExt};

use crate::{connect, middle, row, runtime, server};

const ROUNDS: usize = 5;
const TASKS: usize = 64;
const FOR: Duration = Duration::from_millis(1_000);

pub(crate) fn run() {
    let server = server();
    runtime().block_on(async {
        let with = connect(&server, "").await;
        let without = connect(&server, "&local-queue=off").await;
        let (mut rates, mut bare_rates, mut fairness) = (vec![], vec![], vec![]);
        for round in 0..ROUNDS {
            let (rate, least) = contend(&with, &format!("with:{round}")).await;
            rates.push(rate);
            fairness.push(least);
            bare_rates.push(contend(&without, &format!("without:{round}")).await.0);
        }
        let (with, without) = (middle(rates), middle(bare_rates));
        row(
            "64 tasks on one key, each its own waiter on the server",
            &format!("{without:.0}/s"),
        );
        row(
            "64 tasks on one key, with hand-over",
            &format!("{with:.0}/s"),
        );
        row("ratio", &format!("{:.1}", with / without));
        row(
            "least served task, share of the mean",
            &format!("{:.2}", middle(fairness)),
        );
    });
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
