//! 10,000 held locks, renewed.

use std::time::{Duration, Instant};

use lock_core::DistributedLockExt;

use crate::{calls, connect, processor_time, row, runtime, server};

const HELD: usize = 10_000;
const TTL: Duration = Duration::from_secs(6);

pub(crate) fn run() {
    let server = server();
    runtime().block_on(async {
        let locks = connect(&server, "").await;
        let mut guards = Vec::with_capacity(HELD);
        for n in 0..HELD {
            let request = locks.request(format!("held:{n}")).ttl(TTL);
            guards.push(request.acquire().await.unwrap());
        }
        // The first periods bring locks together that were taken apart.
        tokio::time::sleep(TTL).await;
        let (before, cpu, began) = (
            calls(&server),
            processor_time(std::process::id()),
            Instant::now(),
        );
        tokio::time::sleep(2 * TTL).await;
        let (used, cpu, took) = (
            calls(&server) - before,
            processor_time(std::process::id()) - cpu,
            began.elapsed(),
        );
        let periods = took.as_secs_f64() / (TTL.as_secs_f64() / 3.0);
        assert!(guards.iter().all(lock_core::LockGuard::is_held));
        row(
            "10,000 locks held, ttl 6 s: script calls per renewal period",
            &format!("{:.1}", used as f64 / periods),
        );
        row(
            "processor of the client for all of them",
            &format!(
                "{:.2} % of one",
                100.0 * cpu.as_secs_f64() / took.as_secs_f64()
            ),
        );
        for guard in guards {
            guard.abandon();
        }
    });
}
