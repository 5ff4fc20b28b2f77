use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::error::{Error, ErrorKind};
use crate::mode::Wait;
use crate::request::AcquireRequest;

/// The wait of one request as a deadline. For implementors.
#[derive(Clone, Copy, Debug)]
pub struct WaitDeadline {
    wait: Wait,
    at: Option<Instant>,
}

impl WaitDeadline {
    /// The wait of a request, from now on.
    #[must_use]
    pub fn of(request: &AcquireRequest) -> Self {
        let wait = request.wait();
        let at = wait.deadline();
        Self { wait, at }
    }

    /// Whether the request waits at all.
    #[must_use]
    pub fn waits(self) -> bool {
        self.wait.waits()
    }

    /// Whether the wait had a limit and has ended.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.at.is_some_and(|at| at <= Instant::now())
    }

    /// The end of the wait; `None` without a limit, and for a request that does not wait.
    #[must_use]
    pub fn end(self) -> Option<Instant> {
        self.at.filter(|_| self.waits())
    }

    /// `time`, or what is left of the wait if that is less.
    #[must_use]
    pub fn left(self, time: Duration) -> Duration {
        let left = self
            .at
            .map(|at| at.saturating_duration_since(Instant::now()));
        left.map_or(time, |left| left.min(time))
    }

    /// Until when an attempt that begins now may take: `grace` after the end of the wait, and at least
    /// [`MIN_ATTEMPT`]. `None` without a limit, and for a request that does not wait.
    #[must_use]
    pub fn of_attempt(self, grace: Duration) -> Option<Instant> {
        let least = Instant::now() + MIN_ATTEMPT;
        Some(self.end()?.checked_add(grace)?.max(least))
    }

    /// The deadline of a caller that knows the lock to be held: it waits [`REPLY_GRACE`] longer for a reply that is
    /// due, which tells contention from an outage.
    #[must_use]
    pub fn with_grace(self) -> Self {
        let at = self.at.and_then(|at| at.checked_add(REPLY_GRACE));
        Self { at, ..self }
    }

    /// Bounds an attempt of at most `longest`; `None` if it is not done in time.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with a timer, if the wait may end first.
    ///
    /// # Cancel safety
    ///
    /// That of `attempt`.
    pub async fn bound<T>(self, longest: Duration, attempt: impl Future<Output = T>) -> Option<T> {
        let now = Instant::now();
        match self.end() {
            // Most attempts need no extra timer.
            Some(end) if end.saturating_duration_since(now) < longest => {
                let end = end.max(now + MIN_ATTEMPT);
                timeout_at(end, attempt).await.ok()
            }
            _ => Some(attempt.await),
        }
    }

    /// The error of a wait that has timed out while the lock was held.
    pub fn contended(self) -> Error {
        Error::contended(self.wait)
    }
}

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
    deadline: WaitDeadline,
    begun: Instant,
    step: Duration,
    silent: &'static str,
    was_held: AtomicBool,
}

impl TimeBudget {
    /// The wait of a request, from now on. One step takes up to `step`; `silent` is the message of the error
    /// where no server answers in time.
    #[must_use]
    pub fn new(request: &AcquireRequest, step: Duration, silent: &'static str) -> Self {
        Self {
            deadline: WaitDeadline::of(request),
            begun: Instant::now(),
            step,
            silent,
            was_held: AtomicBool::new(false),
        }
    }

    /// Whether the caller waits for another holder, and has time left.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.deadline.waits() && !self.deadline.is_over()
    }

    /// Whether a failed attempt is the last one. A request that does not wait is retried for one step: an
    /// entry of the queue that is gone does not mean that the lock is held.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        match self.deadline.waits() {
            true => self.deadline.is_over(),
            false => self.begun + self.step <= Instant::now(),
        }
    }

    /// Until when a step that begins now may take.
    #[must_use]
    pub fn step(&self) -> Instant {
        let step = Instant::now() + self.step;
        let end = self.deadline.of_attempt(Duration::ZERO);
        end.map_or(step, |end| end.min(step))
    }

    /// Until when to wait for another holder; `None` forever.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.end()
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
        if self.was_held() && self.deadline.is_over() {
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
        self.deadline.contended()
    }
}

/// Min time of an attempt, even if the wait ends earlier: 100 ms.
pub const MIN_ATTEMPT: Duration = Duration::from_millis(100);

/// How long after the end of a wait a reply that is due may still arrive: 1 s.
pub const REPLY_GRACE: Duration = Duration::from_secs(1);

/// A queue entry that blocks others is removed in one round trip, or in the background.
const MAX_UNDO: Duration = Duration::from_secs(1);

#[cfg(all(test, not(polylock_loom)))]
mod tests {
    use std::future::pending;

    use tokio::time::sleep;

    use super::*;
    use crate::key::LockKey;

    const WAIT: Duration = Duration::from_secs(3);

    /// An attempt that begins in the middle of a wait and gets its reply so long after it, and when that ends.
    async fn replied(has_grace: bool, after: Option<Duration>) -> (bool, Duration) {
        let key = LockKey::new("a").expect("it is a key");
        let request = AcquireRequest::new(key).with_wait(Wait::AtMost(WAIT));
        let (deadline, began) = (WaitDeadline::of(&request), Instant::now());
        sleep(WAIT / 2).await;
        let deadline = match has_grace {
            true => deadline.with_grace(),
            false => deadline,
        };
        let reply = async {
            match after {
                Some(after) => sleep(WAIT / 2 + after).await,
                None => pending().await,
            }
        };
        let is_replied = deadline.bound(WAIT * 2, reply).await.is_some();
        (is_replied, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_that_is_due_is_waited_for_a_second_longer() {
        let soon = REPLY_GRACE / 2;
        assert_eq!(replied(false, Some(soon)).await, (false, WAIT));
        assert_eq!(replied(true, Some(soon)).await, (true, WAIT + soon));
        assert_eq!(replied(true, None).await, (false, WAIT + REPLY_GRACE));
    }
}
