//! The deadline of a caller.

use std::time::Duration;

use polylock_core::engine::MIN_ATTEMPT;
use polylock_core::{AcquireRequest, Error, Wait};
use tokio::time::Instant;

/// The wait of one request, as a deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RedisBudget {
    wait: Wait,
    deadline: Option<Instant>,
    request: Duration,
}

impl RedisBudget {
    /// `longest` is the max time of one request.
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

    /// `pause`, cut to the remaining time.
    pub(crate) fn left(&self, pause: Duration) -> Duration {
        self.deadline.map_or(pause, |deadline| {
            pause.min(deadline.saturating_duration_since(Instant::now()))
        })
    }

    /// The budget of a request whose caller knows the lock to be held: it waits a little longer for a reply that is
    /// due at the deadline, which tells contention from an outage.
    pub(crate) fn with_grace(self) -> Self {
        let later = |deadline: Instant| deadline.checked_add(REPLY_GRACE);
        Self {
            deadline: self.deadline.and_then(later),
            ..self
        }
    }

    /// Max time for the confirmation of a reply that the lock is held, which a waiter asks for after its deadline.
    pub(crate) fn for_confirmation(&self, timeout: Duration) -> Duration {
        match self.waits() {
            true => self.with_grace().left(timeout),
            false => timeout,
        }
    }

    /// Bounds one request by the deadline; `None` if the deadline passed first. A single attempt has
    /// only the limit of the connection.
    pub(crate) async fn bound<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        let now = Instant::now();
        match self.deadline.filter(|_| self.waits()) {
            // Most requests need no extra timer.
            Some(deadline) if deadline.saturating_duration_since(now) < self.request => {
                // Even a short wait gets time for one attempt.
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

/// How long after the end of a wait a reply that is due, or a confirmation of the last one, may still arrive.
const REPLY_GRACE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::future::pending;

    use polylock_core::LockKey;
    use tokio::time::sleep;

    use super::*;

    const WAIT: Duration = Duration::from_secs(3);

    /// A request that is sent in the middle of a wait and gets its reply so long after it, and when that ends.
    async fn replied(has_grace: bool, after: Option<Duration>) -> (bool, Duration) {
        let key = LockKey::new("a").expect("it is a key");
        let request = AcquireRequest::new(key).with_wait(Wait::AtMost(WAIT));
        let (budget, began) = (RedisBudget::of(&request, WAIT * 2), Instant::now());
        sleep(WAIT / 2).await;
        let budget = if has_grace {
            budget.with_grace()
        } else {
            budget
        };
        let reply = async {
            match after {
                Some(after) => sleep(WAIT / 2 + after).await,
                None => pending().await,
            }
        };
        (budget.bound(reply).await.is_some(), began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_that_is_due_is_waited_for_a_second_longer() {
        let soon = REPLY_GRACE / 2;
        assert_eq!(replied(false, Some(soon)).await, (false, WAIT));
        assert_eq!(replied(true, Some(soon)).await, (true, WAIT + soon));
        assert_eq!(replied(true, None).await, (false, WAIT + REPLY_GRACE));
    }
}
