//! The time that a caller gives.

use std::time::Duration;

use polylock_core::{AcquireRequest, Error, Wait};
use tokio::time::Instant;

/// The wait of one request, as a deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    wait: Wait,
    deadline: Option<Instant>,
    request: Duration,
}

impl Budget {
    /// `longest` is what one request takes at most by itself.
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

    /// As much of `pause` as is left.
    pub(crate) fn left(&self, pause: Duration) -> Duration {
        self.deadline.map_or(pause, |deadline| {
            pause.min(deadline.saturating_duration_since(Instant::now()))
        })
    }

    /// Bounds one request; `None` if the time was over first. A single attempt is bounded by the
    /// connection alone.
    pub(crate) async fn bound<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        let now = Instant::now();
        match self.deadline.filter(|_| self.waits()) {
            // Most requests do without a timer more.
            Some(deadline) if deadline.saturating_duration_since(now) < self.request => {
                // A short wait is an attempt as well.
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

/// What an attempt gets at least before a wait ends.
const MIN_ATTEMPT: Duration = Duration::from_millis(100);
