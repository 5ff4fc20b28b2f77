use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::subject::Failure;

/// Attempts until it succeeds or the time to wait is over.
pub(super) async fn until<T, F>(
    wait: Option<Duration>,
    attempt: impl Fn() -> F + Send,
) -> Result<Option<T>, Failure>
where
    T: Send,
    F: Future<Output = Result<Option<T>, Failure>> + Send,
{
    // A time that no clock reaches is no end.
    let deadline = wait.and_then(|wait| Instant::now().checked_add(wait));
    loop {
        if let Some(taken) = attempt().await? {
            return Ok(Some(taken));
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match left {
            Some(Duration::ZERO) => return Ok(None),
            Some(left) => sleep(left.min(PAUSE)).await,
            None => sleep(PAUSE).await,
        }
    }
}

const PAUSE: Duration = Duration::from_millis(2);
