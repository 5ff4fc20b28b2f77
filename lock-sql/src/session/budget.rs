use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylock_core::{AcquireRequest, Error, ErrorKind, Wait};
use tokio::time::Instant;

use crate::error::Failure;
use crate::mutex::Mutex;

/// The wait of one request, as a deadline, and whether it met another holder.
#[derive(Debug)]
pub(super) struct Budget {
    wait: Wait,
    deadline: Option<Instant>,
    /// What a request gets in any case.
    least: Duration,
    was_held: AtomicBool,
    /// What the last attempt failed for, as long as another one follows.
    restart: Mutex<Option<Failure>>,
    connections: usize,
}

impl Budget {
    pub(super) fn of(
        request: &AcquireRequest,
        request_timeout: Duration,
        connections: usize,
    ) -> Self {
        let wait = request.wait();
        let deadline = wait.deadline();
        Self {
            wait,
            deadline,
            least: request_timeout,
            was_held: AtomicBool::new(false),
            restart: Mutex::default(),
            connections,
        }
    }

    pub(super) fn waits(&self) -> bool {
        self.wait.waits()
    }

    pub(super) fn is_over(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Until when a session waits that begins to.
    pub(super) fn until(&self) -> Instant {
        let slice = Instant::now() + SLICE;
        self.deadline.map_or(slice, |deadline| deadline.min(slice))
    }

    /// When it is too late for any answer.
    pub(super) fn limit(&self) -> Option<Instant> {
        let now = Instant::now();
        match self.deadline.filter(|_| self.waits()) {
            // A short wait is an attempt as well, and a server has a moment to end its own.
            Some(deadline) => Some((deadline + GRACE).max(now + MIN_TIME)),
            None if self.waits() => None,
            None => Some(now + self.least),
        }
    }

    /// Another session was seen to hold the lock.
    pub(super) fn mark_contended(&self) {
        self.was_held.store(true, Ordering::Relaxed);
        self.note_place();
    }

    /// Whether the request waits for another holder.
    pub(super) fn was_held(&self) -> bool {
        self.was_held.load(Ordering::Relaxed)
    }

    /// The request has a reservation in a session: the server is old enough.
    pub(super) fn note_place(&self) {
        *self.restart.lock() = None;
    }

    /// The server has to get older before it grants a lock, or is away.
    pub(super) fn note_restart(&self, failure: Failure) {
        *self.restart.lock() = Some(failure);
    }

    /// The error of a caller whose time is over.
    pub(super) fn gives_up(&self, sessions: usize) -> Error {
        let mut restart = self.restart.lock();
        if let Some(failure) = restart.take() {
            return failure.into();
        }
        if self.was_held.load(Ordering::Relaxed) {
            return self.contended();
        }
        if sessions >= self.connections {
            let message = format!(
                "all {} connections are in use, each for a lock or a waiter; connections=N allows \
                 more",
                self.connections
            );
            return Error::new(ErrorKind::Unavailable, message);
        }
        let message = "the database did not answer before the wait was over";
        Error::new(ErrorKind::Unavailable, message).with_unknown_outcome()
    }

    pub(super) fn contended(&self) -> Error {
        Error::contended(self.wait)
    }
}

/// Longest wait in one message: a server that is gone without a word is noticed after it.
const SLICE: Duration = Duration::from_secs(60);

/// What an attempt gets at least before a wait ends.
const MIN_TIME: Duration = Duration::from_millis(100);

/// What a server gets to say that the time is over.
const GRACE: Duration = Duration::from_millis(100);
