//! The time that a caller gives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylock_core::{AcquireRequest, Error, ErrorKind, Wait};
use tokio::time::Instant;

/// The wait of one request, as a deadline, and whether it met another holder.
#[derive(Debug)]
pub(crate) struct Budget {
    wait: Wait,
    begun: Instant,
    deadline: Option<Instant>,
    /// What one step may take.
    step: Duration,
    was_held: AtomicBool,
}

impl Budget {
    pub(crate) fn of(request: &AcquireRequest, step: Duration) -> Self {
        let wait = request.wait();
        Self {
            wait,
            begun: Instant::now(),
            deadline: wait.deadline(),
            step,
            was_held: AtomicBool::new(false),
        }
    }

    /// Whether the caller waits for another holder, and has time left.
    pub(crate) fn waits(&self) -> bool {
        self.wait.waits() && !self.is_over()
    }

    fn is_over(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Whether a failed attempt is the last one. A request that does not wait is retried as long as one
    /// step may take: a key that is gone does not mean that the lock is held.
    pub(crate) fn is_spent(&self) -> bool {
        match self.wait.waits() {
            true => self.is_over(),
            false => self.begun + self.step <= Instant::now(),
        }
    }

    /// Until when a step that begins now may take.
    pub(crate) fn step(&self) -> Instant {
        let now = Instant::now();
        let deadline = self.deadline.filter(|_| self.wait.waits());
        // A short wait is an attempt as well.
        let deadline = deadline.map(|deadline| deadline.max(now + MIN_TIME));
        deadline.map_or(now + self.step, |deadline| deadline.min(now + self.step))
    }

    /// Until when to wait for another holder.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Until when an attempt that is refused waits for the end of its key.
    pub(crate) fn undo(&self) -> Instant {
        self.step().min(Instant::now() + MAX_UNDO)
    }

    /// Notes whether another holder is in the way.
    pub(crate) fn note_held(&self, is_held: bool) {
        self.was_held.store(is_held, Ordering::Relaxed);
    }

    /// The error of a caller whose time is over, or whose attempts come to nothing.
    pub(crate) fn timed_out(&self) -> Error {
        if self.was_held.load(Ordering::Relaxed) && self.is_over() {
            return self.contended();
        }
        let message = "etcd did not answer in time: too few of its servers are up, or none is within \
                       reach";
        Error::new(ErrorKind::Unavailable, message).with_unknown_outcome()
    }

    pub(crate) fn contended(&self) -> Error {
        Error::contended(self.wait)
    }
}

/// What an attempt gets at least before a wait ends.
const MIN_TIME: Duration = Duration::from_millis(100);

/// A key that is in others' way goes in one round trip, or in the background.
const MAX_UNDO: Duration = Duration::from_secs(1);
