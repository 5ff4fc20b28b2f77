use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::mode::Wait;
use crate::request::AcquireRequest;

/// The deadline of one request's wait, and whether another holder was seen. For implementors whose waiters
/// queue at the server.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use polylock_core::engine::TimeBudget;
/// use polylock_core::{AcquireRequest, ErrorKind, LockKey, Wait};
///
/// # fn main() -> polylock_core::Result<()> {
/// let request = AcquireRequest::new(LockKey::new("a")?).with_wait(Wait::AtMost(Duration::ZERO));
/// let budget = TimeBudget::new(&request, Duration::from_secs(10), "no server answers");
/// assert!(!budget.waits());
/// assert_eq!(budget.timed_out().kind(), ErrorKind::Unavailable);
/// budget.mark_held();
/// assert_eq!(budget.timed_out().kind(), ErrorKind::Contended);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TimeBudget {
    wait: Wait,
    begun: Instant,
    deadline: Option<Instant>,
    step: Duration,
    silent: &'static str,
    was_held: AtomicBool,
}

impl TimeBudget {
    /// The wait of a request, from now on. One step takes up to `step`; `silent` is the message of the error
    /// where no server answers in time.
    #[must_use]
    pub fn new(request: &AcquireRequest, step: Duration, silent: &'static str) -> Self {
        let wait = request.wait();
        Self {
            wait,
            begun: Instant::now(),
            deadline: wait.deadline(),
            step,
            silent,
            was_held: AtomicBool::new(false),
        }
    }

    /// Whether the caller waits for another holder, and has time left.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.wait.waits() && !self.is_over()
    }

    fn is_over(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Whether a failed attempt is the last one. A request that does not wait is retried for one step: an
    /// entry of the queue that is gone does not mean that the lock is held.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        match self.wait.waits() {
            true => self.is_over(),
            false => self.begun + self.step <= Instant::now(),
        }
    }

    /// Until when a step that begins now may take.
    #[must_use]
    pub fn step(&self) -> Instant {
        let now = Instant::now();
        let deadline = self.deadline.filter(|_| self.wait.waits());
        // A short wait is an attempt as well.
        let deadline = deadline.map(|deadline| deadline.max(now + MIN_ATTEMPT));
        deadline.map_or(now + self.step, |deadline| deadline.min(now + self.step))
    }

    /// Until when to wait for another holder; `None` forever.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Until when an attempt that is refused waits for the end of its entry in the queue.
    #[must_use]
    pub fn undo(&self) -> Instant {
        self.step().min(Instant::now() + MAX_UNDO)
    }

    /// Notes that another holder was seen.
    pub fn mark_held(&self) {
        self.was_held.store(true, Ordering::Relaxed);
    }

    /// Notes that no other holder is in the way: what fails from here on is not contention.
    pub fn mark_free(&self) {
        self.was_held.store(false, Ordering::Relaxed);
    }

    /// The error of a caller that is out of time, for its wait or for one step.
    pub fn timed_out(&self) -> Error {
        if self.was_held() && self.is_over() {
            return self.contended();
        }
        Error::new(ErrorKind::Unavailable, self.silent).with_unknown_outcome()
    }

    /// The error of a caller whose attempts all fail: `message`, unless the lock was seen to be held.
    pub fn unserved(&self, message: &'static str) -> Error {
        match self.was_held() {
            true => self.contended(),
            false => Error::new(ErrorKind::Unavailable, message),
        }
    }

    fn was_held(&self) -> bool {
        self.was_held.load(Ordering::Relaxed)
    }

    /// The error of a caller that does not wait, or for longer.
    pub fn contended(&self) -> Error {
        Error::contended(self.wait)
    }
}

/// Min time of an attempt, even if the wait ends earlier: 100 ms.
pub const MIN_ATTEMPT: Duration = Duration::from_millis(100);

/// A queue entry that blocks others is removed in one round trip, or in the background.
const MAX_UNDO: Duration = Duration::from_secs(1);
