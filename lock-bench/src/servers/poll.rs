//! How bare commands wait where the server has no queue.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::subject::Failure;

/// Polls until an attempt succeeds or the time to wait is over.
#[cfg_attr(
    not(any(feature = "mysql", feature = "postgres", feature = "redis")),
    expect(dead_code, reason = "bare commands that poll need it")
)]
pub(super) async fn poll<T, F>(
    wait: Duration,
    attempt: impl Fn() -> F + Send,
) -> Result<Option<T>, Failure>
where
    T: Send,
    F: Future<Output = Result<Option<T>, Failure>> + Send,
{
    const POLL_INTERVAL: Duration = Duration::from_millis(2);
    let deadline = Instant::now() + wait;
    loop {
        if let Some(taken) = attempt().await? {
            return Ok(Some(taken));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        sleep(left.min(POLL_INTERVAL)).await;
    }
}
