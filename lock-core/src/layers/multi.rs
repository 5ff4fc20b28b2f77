use tokio::time::Instant;

use crate::error::Result;
use crate::guard::LockGuard;
use crate::lock::DistributedLock;
use crate::request::{AcquireRequest, Wait};

/// Acquires the requests one after the other, in their order, within one wait budget; on a failure
/// gives back those it has. For implementors of
/// [`acquire_all`](DistributedLock::acquire_all).
///
/// # Errors
///
/// That of the first request that fails.
///
/// # Cancel safety
///
/// The guards acquired so far are dropped, which releases them in the background.
pub async fn in_order<L: DistributedLock + ?Sized>(
    lock: &L,
    requests: &[AcquireRequest],
) -> Result<Vec<LockGuard>> {
    let wait = requests.first().map_or(Wait::Never, AcquireRequest::wait);
    let deadline = requests.first().and_then(AcquireRequest::deadline);
    let mut guards = Vec::with_capacity(requests.len());
    for request in requests {
        let left = match deadline {
            Some(deadline) => Wait::AtMost(deadline.saturating_duration_since(Instant::now())),
            None if wait == Wait::Never => Wait::Never,
            None => Wait::Forever,
        };
        guards.push(lock.acquire(&request.clone().with_wait(left)).await?);
    }
    // One that was lost while the others were waited for is not held together with them.
    guards.iter().try_for_each(LockGuard::ensure_held)?;
    Ok(guards)
}
