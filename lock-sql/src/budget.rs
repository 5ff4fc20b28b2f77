use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylock_core::{AcquireRequest, Error, ErrorKind, Wait};
use tokio::time::Instant;

use crate::error::Failure;
use crate::mutex::Mutex;

/// The wait of one request: its deadline, and what its attempts know of the lock and of the server.
#[derive(Debug)]
pub(crate) struct Budget {
    wait: Wait,
    deadline: Option<Instant>,
    was_held: AtomicBool,
    /// Why the last attempt had no answer, while another one follows.
    outage: Mutex<Option<Failure>>,
}

impl Budget {
    pub(crate) fn of(request: &AcquireRequest) -> Self {
        let wait = request.wait();
        Self {
            wait,
            deadline: wait.deadline(),
            was_held: AtomicBool::new(false),
            outage: Mutex::default(),
        }
    }

    /// Whether the request waits for another holder, and has time left.
    pub(crate) fn waits(&self) -> bool {
        self.wait.waits()
            && self
                .deadline
                .is_none_or(|deadline| Instant::now() < deadline)
    }

    /// The earlier one of this moment and of the deadline.
    pub(crate) fn at_most(&self, moment: Instant) -> Instant {
        self.deadline
            .map_or(moment, |deadline| deadline.min(moment))
    }

    /// When it is too late for any answer: `grace` after the end of the wait. A request that does not
    /// wait has no such limit here.
    pub(crate) fn limit(&self, grace: Duration) -> Option<Instant> {
        // A short wait is an attempt as well.
        let least = Instant::now() + MIN_TIME;
        let deadline = self.deadline.filter(|_| self.wait.waits());
        deadline.map(|deadline| (deadline + grace).max(least))
    }

    /// The server says that another client holds the lock.
    pub(crate) fn mark_contended(&self, request: &AcquireRequest) {
        self.was_held.store(true, Ordering::Relaxed);
        *self.outage.lock() = None;
        request.mark_contended();
    }

    /// Whether the lock was seen to be held.
    pub(crate) fn was_held(&self) -> bool {
        self.was_held.load(Ordering::Relaxed)
    }

    /// The server is old enough to grant locks, which says nothing of whether it is within reach now.
    #[cfg(feature = "_server")]
    pub(crate) fn note_old_enough(&self) {
        self.outage.lock().take_if(|failure| failure.is_restart());
    }

    /// The server is away, or grants nothing yet.
    pub(crate) fn note_outage(&self, request: &AcquireRequest, failure: Failure) {
        *self.outage.lock() = Some(failure);
        request.mark_unresponsive();
    }

    /// The error of a caller whose time is over; `otherwise` if nothing is known of the lock.
    pub(crate) fn timed_out(&self, otherwise: impl FnOnce() -> Error) -> Error {
        if let Some(failure) = self.outage.lock().take() {
            return failure.into();
        }
        match self.was_held() {
            true => self.contended(),
            false => otherwise(),
        }
    }

    pub(crate) fn contended(&self) -> Error {
        Error::contended(self.wait)
    }
}

/// No server has answered within the wait.
pub(crate) fn silent() -> Error {
    let message = "the database did not answer before the wait was over";
    Error::new(ErrorKind::Unavailable, message).with_unknown_outcome()
}

/// How long a waiter sleeps after an attempt that found the server away.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// What an attempt gets at least before a wait ends.
const MIN_TIME: Duration = Duration::from_millis(100);
