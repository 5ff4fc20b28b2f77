//! Waiting for something to come true.

use std::time::{Duration, Instant};

/// Waits until something is true.
pub(crate) async fn until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_true().await {
        let waited = begun.elapsed();
        assert!(waited < TIMEOUT, "it does not come true: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What takes no longer on a machine that is very busy.
const TIMEOUT: Duration = Duration::from_secs(20);
