use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, ErrorKind, Result};
use crate::guard::{LockGuard, Undelivered, first};
use crate::lock::DistributedLock;
use crate::mode::Wait;
use crate::request::AcquireRequest;

/// Acquires the requests one after the other, in their order, within one wait budget; on a failure
/// releases those it has.
///
/// The requests have different keys and are sorted by them, as everywhere, which prevents
/// deadlocks; the wait of the first one is the budget for all. Users call
/// [`lock_all`](crate::DistributedLockExt::lock_all).
///
/// # Errors
///
/// [`InvalidConfig`](ErrorKind::InvalidConfig) at once for more requests than the
/// [connections](crate::Capabilities::max_locks) suffice for. [`Lost`](ErrorKind::Lost) if a lock is lost
/// while the next ones are waited for. Otherwise the error of the first
/// request that fails. It is [`Contended`](ErrorKind::Contended) if earlier keys used most of the
/// wait, and the server did not answer in the rest.
///
/// # Cancel safety
///
/// The guards acquired so far are dropped, which releases them in the background.
pub async fn acquire_all<L: DistributedLock + ?Sized>(
    lock: &L,
    requests: &[AcquireRequest],
) -> Result<Vec<LockGuard>> {
    let max = lock.capabilities().max_locks;
    if requests.len() > max {
        let count = requests.len();
        let message = format!(
            "{count} locks at once need a connection each, and there are {max}: set \
             connections={count} or more"
        );
        let backend = lock.capabilities().backend;
        return Err(Error::config(message).with_backend(backend));
    }
    let wait = requests.first().map_or(Wait::Never, AcquireRequest::wait);
    let deadline = wait.deadline();
    let began = Instant::now();
    let mut guards = Vec::with_capacity(requests.len());
    for request in requests {
        let left = left_of(wait, deadline);
        let used = began.elapsed();
        let request = request.clone().with_wait(left);
        let acquired = tokio::select! {
            acquired = lock.acquire(&request) => acquired,
            // The request under way is dropped, and may have been granted.
            error = loss(&guards) => Err(error.with_unknown_outcome()),
        };
        let acquired = acquired.map_err(|error| match guards.is_empty() || !wait.waits() {
            true => error,
            false => used_up(error, left, used, "the keys before this one"),
        });
        guards.push(Undelivered::new(acquired?));
    }
    // One that was lost while the others were waited for is not held together with them.
    guards.iter().try_for_each(|guard| guard.ensure_held())?;
    Ok(guards.into_iter().map(Undelivered::deliver).collect())
}

/// What is left of a wait. One that is over still waits: a request without a wait may take as long as its server.
pub(super) fn left_of(wait: Wait, deadline: Option<Instant>) -> Wait {
    match deadline {
        Some(deadline) if wait.waits() => {
            let left = deadline.saturating_duration_since(Instant::now());
            Wait::AtMost(left.max(Duration::from_nanos(1)))
        }
        _ => wait,
    }
}

/// The error of the first of the locks that is lost; never, if there are none.
async fn loss(guards: &[Undelivered<LockGuard>]) -> Error {
    let losses = guards.iter().map(|guard| {
        Box::pin(async move {
            let reason = guard.lost().await;
            guard.lost_error(reason)
        })
    });
    first(losses.collect()).await
}

/// In less, a server that is well may not have answered.
const MIN_LEFT: Duration = Duration::from_millis(500);

/// Replaces the error of a server that had little time `left` to answer, because locks before it have `used` the
/// better part of the wait: that says nothing about the server. For requests that wait: others make one attempt,
/// which takes what it takes.
pub(super) fn used_up(error: Error, left: Wait, used: Duration, by: &str) -> Error {
    let is_short = matches!(left, Wait::AtMost(left) if left < MIN_LEFT && left < used);
    match error.kind() {
        ErrorKind::Unavailable if is_short => {
            let message = format!("the wait was used up by {by}");
            let mut contended = Error::new(ErrorKind::Contended, message);
            if error.is_outcome_unknown() {
                contended = contended.with_unknown_outcome();
            }
            if let Some(key) = error.key() {
                contended = contended.with_key(key);
            }
            contended.with_source(error)
        }
        _ => error,
    }
}
