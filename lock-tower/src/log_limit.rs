//! Limits how often a cause that meets many requests is logged.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Min time between two log lines of one cause.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Causes, with the time when each was last logged.
#[derive(Debug)]
pub(crate) struct LogLimit(Mutex<BTreeMap<&'static str, Instant>>);

/// For causes that no locker knows of.
pub(crate) static PROCESS_LOG: LogLimit = LogLimit::new();

impl LogLimit {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Whether a cause may be logged again.
    pub(crate) fn is_due(&self, cause: &'static str) -> bool {
        let now = Instant::now();
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = logged.get(cause);
        let is_due = last.is_none_or(|last| now.duration_since(*last) >= LOG_INTERVAL);
        if is_due {
            logged.insert(cause, now);
        }
        is_due
    }
}
