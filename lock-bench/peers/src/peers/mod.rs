//! One file for each library.

pub(crate) mod advisory;
pub(crate) mod distributed_postgres;
pub(crate) mod distributed_redis;
pub(crate) mod etcd;
pub(crate) mod rslock;
pub(crate) mod zookeeper;

use std::error::Error;
use std::time::Duration;

use polylock_bench::subject::Failure;
use tokio::time::{Instant, sleep};

/// Attempts every `pause` until it succeeds or the time is over, for a library that does not wait.
async fn poll<T, F>(
    pause: Duration,
    wait: Duration,
    attempt: impl Fn() -> F,
) -> Result<Option<T>, Failure>
where
    F: Future<Output = Result<Option<T>, Failure>>,
{
    let deadline = Instant::now() + wait;
    loop {
        if let Some(held) = attempt().await? {
            return Ok(Some(held));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        sleep(pause).await;
    }
}

fn failed(error: impl Error + 'static) -> Failure {
    Failure::of("failed", &error)
}
