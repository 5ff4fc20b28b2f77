//! The time that a caller gives.

use std::time::Duration;

use lock_core::{AcquireRequest, Error, ErrorKind, Wait};
use tokio::time::Instant;

/// The wait of one request, as a deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    wait: Wait,
    deadline: Option<Instant>,
    /// What one step may take.
    step: Duration,
}

impl Budget {
    pub(crate) fn of(request: &AcquireRequest, step: Duration) -> Self {
        let wait = request.wait();
        let deadline = match wait {
            Wait::AtMost(limit) => Instant::now().checked_add(limit),
            _ => None,
        };
        Self {
            wait,
            deadline,
            step,
        }
    }

    /// Whether the caller waits at all.
    pub(crate) fn waits(&self) -> bool {
        match self.wait {
            Wait::Never => false,
            Wait::AtMost(limit) => !limit.is_zero(),
            _ => true,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Until when a step that begins now may take.
    pub(crate) fn step(&self) -> Instant {
        let now = Instant::now();
        let deadline = self.deadline.filter(|_| self.waits());
        // A short wait is an attempt as well.
        let deadline = deadline.map(|deadline| deadline.max(now + LEAST_TIME));
        deadline.map_or(now + self.step, |deadline| deadline.min(now + self.step))
    }

    /// Until when to wait for somebody else.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(crate) fn contended(&self) -> Error {
        let message = match self.wait {
            Wait::AtMost(limit) => format!("the lock is held, waited {limit:?}"),
            _ => "the lock is held".to_owned(),
        };
        Error::new(ErrorKind::Contended, message)
    }
}

/// What an attempt gets at least before a wait ends.
const LEAST_TIME: Duration = Duration::from_millis(100);
