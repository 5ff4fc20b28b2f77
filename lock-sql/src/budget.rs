use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylock_core::engine::{Mutex, REPLY_GRACE, WaitDeadline, before};
use polylock_core::{AcquireRequest, Error, ErrorKind, Result};
use tokio::time::Instant;

use crate::error::SqlFailure;

/// The wait of one request: its deadline, and the last known state of the lock and the server.
pub(crate) struct SqlBudget {
    deadline: WaitDeadline,
    was_held: AtomicBool,
    /// Whether a request is in flight whose reply will say whether the lock is still held.
    is_unanswered: AtomicBool,
    /// Whether the request waits for a free connection.
    is_full: AtomicBool,
    /// The failure of the last attempt, while another one follows.
    outage: Mutex<Option<SqlFailure>>,
}

impl SqlBudget {
    pub(crate) fn of(request: &AcquireRequest) -> Self {
        Self {
            deadline: WaitDeadline::of(request),
            was_held: AtomicBool::default(),
            is_unanswered: AtomicBool::default(),
            is_full: AtomicBool::default(),
            outage: Mutex::default(),
        }
    }

    /// Whether the request waits for another holder, and has time left.
    pub(crate) fn waits(&self) -> bool {
        self.deadline.waits() && !self.deadline.is_over()
    }

    /// The earlier one of this moment and of the deadline.
    pub(crate) fn at_most(&self, moment: Instant) -> Instant {
        let end = self.deadline.end();
        end.map_or(moment, |end| end.min(moment))
    }

    /// The moment after which replies are ignored: `grace` after the end of the wait. A request that
    /// does not wait has no such limit here.
    pub(crate) fn limit(&self, grace: Duration) -> Option<Instant> {
        self.deadline.of_attempt(grace)
    }

    /// The server says that another client holds the lock.
    pub(crate) fn mark_contended(&self, request: &AcquireRequest) {
        self.was_held.store(true, Ordering::Relaxed);
        *self.outage.lock() = None;
        request.mark_contended();
    }

    /// Whether an attempt has found the lock held.
    pub(crate) fn was_held(&self) -> bool {
        self.was_held.load(Ordering::Relaxed)
    }

    /// The request waits for a free connection, or does so no longer.
    pub(crate) fn mark_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    /// Whether the request waits for a free connection.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// The server is old enough to grant locks; it may still be unreachable.
    pub(crate) fn note_old_enough(&self) {
        self.outage.lock().take_if(|failure| failure.is_restart());
    }

    /// The server is unreachable, or grants nothing yet.
    pub(crate) fn note_outage(&self, request: &AcquireRequest, failure: SqlFailure) {
        match failure.is_restart() {
            // It replies, and says until when it grants nothing.
            true => request.mark_unavailable(&failure.cause.to_string()),
            false => request.mark_unresponsive(),
        }
        *self.outage.lock() = Some(failure);
    }

    /// Sends a request for the lock. Until its reply, the lock does not count as held by another client.
    pub(crate) async fn asking<T>(&self, question: impl Future<Output = T>) -> T {
        self.is_unanswered.store(true, Ordering::Relaxed);
        let answer = question.await;
        self.is_unanswered.store(false, Ordering::Relaxed);
        answer
    }

    /// Polls for the lock as [`asking`](Self::asking) does. A server that is silent for long has not
    /// confirmed that the lock is held, neither to this request nor to those that wait for this attempt.
    pub(crate) async fn polling<T>(
        &self,
        request: &AcquireRequest,
        poll: impl Future<Output = T>,
    ) -> T {
        let mut poll = pin!(poll);
        let answer = async {
            match before(Instant::now() + POLL_TIMEOUT, poll.as_mut()).await {
                Some(answer) => answer,
                None => {
                    request.mark_unresponsive();
                    poll.await
                }
            }
        };
        self.asking(answer).await
    }

    /// Runs the attempts of a request until `limit`, and for [`REPLY_GRACE`] longer while a request of a
    /// waiter is in flight: a slow reply still tells contention from an outage. `otherwise` is the error if
    /// nothing is known of the lock.
    pub(crate) async fn bound<T>(
        &self,
        limit: Instant,
        attempts: impl Future<Output = Result<T>>,
        otherwise: impl FnOnce() -> Error,
    ) -> Result<T> {
        let mut attempts = pin!(attempts);
        let mut acquired = before(limit, attempts.as_mut()).await;
        let is_unanswered = self.is_unanswered.load(Ordering::Relaxed);
        if acquired.is_none() && self.was_held() && is_unanswered {
            acquired = before(limit + REPLY_GRACE, attempts).await;
        }
        acquired.unwrap_or_else(|| Err(self.timed_out(otherwise)))
    }

    /// The error after the deadline; `otherwise` if nothing is known of the lock.
    pub(crate) fn timed_out(&self, otherwise: impl FnOnce() -> Error) -> Error {
        let is_unanswered = self.is_unanswered.load(Ordering::Relaxed);
        if let Some(mut failure) = self.outage.lock().take() {
            // The next attempt may be under way.
            failure.outcome_unknown |= is_unanswered;
            return failure.into();
        }
        match self.was_held() {
            true if is_unanswered => silent(),
            true => self.deadline.contended(),
            false => otherwise(),
        }
    }
}

/// No server has answered within the wait.
pub(crate) fn silent() -> Error {
    let message = "the wait timed out without a reply of the database";
    Error::new(ErrorKind::Unavailable, message).with_unknown_outcome()
}

/// Backoff of a waiter after an attempt that found the server unreachable.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// A poll without a reply for this long marks the server as silent.
const POLL_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::future::pending;

    use polylock_core::{LockKey, Wait};
    use tokio::time::sleep;

    use super::*;
    use crate::error::SqlCause;

    const WAIT: Duration = Duration::from_secs(3);

    /// What becomes of a waiter whose last request was sent before the end of its wait and gets this
    /// reply so long after it, and how late that is.
    async fn waits(reply: Option<(Duration, Result<()>)>) -> (Result<()>, Duration) {
        let key = LockKey::new("job").expect("it is a key");
        let request = AcquireRequest::new(key).with_wait(Wait::AtMost(WAIT));
        let (budget, began) = (SqlBudget::of(&request), Instant::now());
        let attempts = async {
            budget.mark_contended(&request);
            sleep(WAIT / 2).await;
            let answer = async {
                match reply {
                    Some((after, reply)) => {
                        sleep(WAIT / 2 + after).await;
                        reply
                    }
                    None => pending().await,
                }
            };
            budget.asking(answer).await
        };
        let limit = budget.limit(Duration::ZERO).expect("it waits");
        let acquired = budget.bound(limit, attempts, silent).await;
        (acquired, began.elapsed() - WAIT)
    }

    fn kind(acquired: &Result<()>) -> Option<ErrorKind> {
        acquired.as_ref().err().map(Error::kind)
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_that_is_due_is_waited_for_a_second_longer() {
        let (silence, late) = waits(None).await;
        assert_eq!(kind(&silence), Some(ErrorKind::Unavailable));
        assert_eq!(late, REPLY_GRACE);
        let soon = REPLY_GRACE / 2;
        let held = waits(Some((soon, Err(Error::contended(Wait::AtMost(WAIT)))))).await;
        assert_eq!((kind(&held.0), held.1), (Some(ErrorKind::Contended), soon));
        let granted = waits(Some((soon, Ok(())))).await;
        assert_eq!((kind(&granted.0), granted.1), (None, soon));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_does_not_hide_that_a_later_request_may_take_effect() {
        let key = LockKey::new("job").expect("it is a key");
        let request = AcquireRequest::new(key).with_wait(Wait::AtMost(WAIT));
        for is_in_flight in [false, true] {
            let budget = SqlBudget::of(&request);
            budget.note_outage(&request, SqlCause::SessionOver.into());
            let attempts = async {
                match is_in_flight {
                    true => budget.asking(pending::<Result<()>>()).await,
                    false => pending().await,
                }
            };
            let limit = budget.limit(Duration::ZERO).expect("it waits");
            let error = budget
                .bound(limit, attempts, silent)
                .await
                .expect_err("it is over");
            assert_eq!(error.is_outcome_unknown(), is_in_flight, "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_without_a_request_in_flight_ends_in_time() {
        let key = LockKey::new("job").expect("it is a key");
        let request = AcquireRequest::new(key).with_wait(Wait::AtMost(WAIT));
        let (budget, began) = (SqlBudget::of(&request), Instant::now());
        budget.mark_contended(&request);
        let limit = budget.limit(Duration::ZERO).expect("it waits");
        let acquired = budget.bound(limit, pending::<Result<()>>(), silent).await;
        assert_eq!(kind(&acquired), Some(ErrorKind::Contended));
        assert_eq!(began.elapsed(), WAIT, "until the wait timed out");
    }
}
