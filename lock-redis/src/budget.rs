//! The deadline of a caller.

use std::time::Duration;

use polylock_core::{AcquireRequest, Error, Wait};
use tokio::time::Instant;

/// The wait of one request, as a deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RedisBudget {
    wait: Wait,
    deadline: Option<Instant>,
    request: Duration,
}

impl RedisBudget {
    /// `longest` is the max time of one request.
    pub(crate) fn of(request: &AcquireRequest, longest: Duration) -> Self {
        let wait = request.wait();
        let deadline = wait.deadline();
        Self {
            wait,
            deadline,
            request: longest,
        }
    }

    /// Whether the caller waits at all.
    pub(crate) fn waits(&self) -> bool {
        self.wait.waits()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
    }

    /// `pause`, cut to the remaining time.
    pub(crate) fn left(&self, pause: Duration) -> Duration {
        self.deadline.map_or(pause, |deadline| {
            pause.min(deadline.saturating_duration_since(Instant::now()))
        })
    }

    /// Bounds one request by the deadline; `None` if the deadline passed first. A single attempt has
    /// only the limit of the connection.
    pub(crate) async fn bound<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        let now = Instant::now();
        match self.deadline.filter(|_| self.waits()) {
            // Most requests need no extra timer.
            Some(deadline) if deadline.saturating_duration_since(now) < self.request => {
                // Even a short wait gets time for one attempt.
                let deadline = deadline.max(now + MIN_ATTEMPT);
                tokio::time::timeout_at(deadline, request).await.ok()
            }
            _ => Some(request.await),
        }
    }

    pub(crate) fn contended(&self) -> Error {
        Error::contended(self.wait)
    }
}

/// Min time of an attempt, even if the wait ends earlier.
const MIN_ATTEMPT: Duration = Duration::from_millis(100);
