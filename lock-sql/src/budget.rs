use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylock_core::engine::before;
use polylock_core::{AcquireRequest, Error, ErrorKind, Result, Wait};
use tokio::time::Instant;

use crate::error::Failure;
use crate::mutex::Mutex;

/// The wait of one request: its deadline, and what its attempts know of the lock and of the server.
#[derive(Debug)]
pub(crate) struct Budget {
    wait: Wait,
    deadline: Option<Instant>,
    was_held: AtomicBool,
    /// Whether the server owes an answer that says whether the lock is held still.
    is_unanswered: AtomicBool,
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
            is_unanswered: AtomicBool::new(false),
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

    /// Asks the server for the lock. Until it answers, nothing says that another client holds it.
    pub(crate) async fn asking<T>(&self, question: impl Future<Output = T>) -> T {
        self.is_unanswered.store(true, Ordering::Relaxed);
        let answer = question.await;
        self.is_unanswered.store(false, Ordering::Relaxed);
        answer
    }

    /// Runs the attempts of a request until `limit`, and for [`LATE`] longer while the server owes an
    /// answer: one that is slow still tells contention from an outage. `otherwise` is the error if nothing
    /// is known of the lock.
    pub(crate) async fn bound<T>(
        &self,
        limit: Instant,
        attempts: impl Future<Output = Result<T>>,
        otherwise: impl FnOnce() -> Error,
    ) -> Result<T> {
        let mut attempts = pin!(attempts);
        let mut acquired = before(limit, attempts.as_mut()).await;
        if acquired.is_none() && self.is_late() {
            acquired = before(limit + LATE, attempts).await;
        }
        acquired.unwrap_or_else(|| Err(self.timed_out(otherwise)))
    }

    /// Whether a waiter that has seen the lock held waits for an answer.
    fn is_late(&self) -> bool {
        self.was_held() && self.is_unanswered.load(Ordering::Relaxed)
    }

    /// The error of a caller whose time is over; `otherwise` if nothing is known of the lock.
    pub(crate) fn timed_out(&self, otherwise: impl FnOnce() -> Error) -> Error {
        if let Some(failure) = self.outage.lock().take() {
            return failure.into();
        }
        match self.was_held() {
            true if self.is_late() => silent(),
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

/// How late an answer may be that ends a wait.
const LATE: Duration = Duration::from_secs(1);

/// What an attempt gets at least before a wait ends.
const MIN_TIME: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::future::pending;

    use polylock_core::LockKey;
    use tokio::time::{advance, sleep};

    use super::*;

    const WAIT: Duration = Duration::from_secs(3);

    /// What becomes of a waiter that asks before the end of its wait and is answered after it, and when.
    async fn asks(answered_after: Option<Duration>) -> (ErrorKind, Duration) {
        let key = LockKey::new("job").expect("it is a key");
        let request = AcquireRequest::new(key).with_wait(Wait::AtMost(WAIT));
        let (budget, began) = (Budget::of(&request), Instant::now());
        let attempts = async {
            budget.mark_contended(&request);
            sleep(WAIT / 2).await;
            let answer = async {
                match answered_after {
                    Some(after) => sleep(WAIT / 2 + after).await,
                    None => pending().await,
                }
            };
            budget.asking(answer).await;
            // It asks no more.
            pending::<Result<()>>().await
        };
        let limit = budget.limit(Duration::ZERO).expect("it waits");
        let refused = budget.bound(limit, attempts, silent).await;
        let error = refused.expect_err("nobody grants it");
        (error.kind(), began.elapsed() - WAIT)
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_owes_an_answer_gets_a_second_more_to_say_that_the_lock_is_held() {
        let now = Duration::ZERO;
        advance(Duration::from_secs(1)).await;
        assert_eq!(asks(None).await, (ErrorKind::Unavailable, LATE));
        assert_eq!(asks(Some(LATE / 2)).await, (ErrorKind::Contended, LATE));
        assert_eq!(asks(Some(now)).await.0, ErrorKind::Contended);
    }
}
