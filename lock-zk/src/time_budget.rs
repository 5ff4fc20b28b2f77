//! The time that a caller gives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylock_core::{AcquireRequest, Error, ErrorKind, Wait};
use tokio::time::Instant;

/// The wait of one request, as a deadline, and whether it met another holder.
#[derive(Debug)]
pub(crate) struct TimeBudget {
    wait: Wait,
    begun: Instant,
    deadline: Option<Instant>,
    /// What one step may take.
    step: Duration,
    was_held: AtomicBool,
}

impl TimeBudget {
    pub(crate) fn of(request: &AcquireRequest, step: Duration) -> Self {
        let wait = request.wait();
        let begun = Instant::now();
        let deadline = wait.deadline();
        Self {
            wait,
            begun,
            deadline,
            step,
            was_held: AtomicBool::new(false),
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

    /// Whether a failed attempt is the last one. A request that does not wait is retried as long as
    /// one step may take: deleted nodes do not mean that the lock is held.
    pub(crate) fn is_spent(&self) -> bool {
        if self.waits() {
            self.is_over()
        } else {
            self.begun + self.step <= Instant::now()
        }
    }

    /// Until when a step that begins now may take.
    pub(crate) fn step(&self) -> Instant {
        let now = Instant::now();
        let deadline = self.deadline.filter(|_| self.waits());
        // A short wait is an attempt as well.
        let deadline = deadline.map(|deadline| deadline.max(now + MIN_TIME));
        deadline.map_or(now + self.step, |deadline| deadline.min(now + self.step))
    }

    /// Until when to wait for another holder.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Until when an attempt that is refused waits for the end of its node.
    pub(crate) fn undo(&self) -> Instant {
        self.step().min(Instant::now() + MAX_UNDO)
    }

    /// Another holder was seen.
    pub(crate) fn mark_contended(&self) {
        self.was_held.store(true, Ordering::Relaxed);
    }

    /// No other holder is in the way: what fails from here on is not contention.
    pub(crate) fn note_free(&self) {
        self.was_held.store(false, Ordering::Relaxed);
    }

    /// The error of a caller whose time is over.
    pub(crate) fn timed_out(&self) -> Error {
        if self.was_held() && self.is_over() {
            return self.contended();
        }
        let message = "ZooKeeper did not answer in time: too few of its servers are up, or none is \
                       within reach";
        Error::new(ErrorKind::Unavailable, message).with_unknown_outcome()
    }

    /// The error of a caller whose attempts come to nothing.
    pub(crate) fn unserved(&self) -> Error {
        if self.was_held() {
            return self.contended();
        }
        let message = "the session with ZooKeeper ended, or the node of this contender was deleted, \
                       before it was seen who holds the lock";
        Error::new(ErrorKind::Unavailable, message)
    }

    fn was_held(&self) -> bool {
        self.was_held.load(Ordering::Relaxed)
    }

    pub(crate) fn contended(&self) -> Error {
        Error::contended(self.wait)
    }
}

/// What an attempt gets at least before a wait ends.
const MIN_TIME: Duration = Duration::from_millis(100);

/// A node that is in others' way goes in one round trip, or in the background.
const MAX_UNDO: Duration = Duration::from_secs(1);
