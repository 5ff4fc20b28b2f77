//! Engines that are broken, made of parts that go behind the back of the real one.

use std::sync::Arc;

use lock_core::{LockGuard, Released, Result};
use tokio::time::sleep;

use crate::sim::Remote;

/// Says that the lock is released, and goes on renewing it for a while.
#[expect(clippy::unnecessary_wraps, reason = "takes the place of a release")]
pub(crate) fn renew_after_release(remote: Remote) -> Result<Released> {
    let process = Arc::clone(&remote.process);
    process.run(async move {
        for _ in 0..6 {
            sleep(remote.ttl / 3).await;
            remote.renew().await;
        }
        drop(remote.release().await);
    });
    Ok(Released::Clean)
}

/// A guard that is held again once somebody has seen that it is not.
pub(crate) fn unlosing_is_held(guard: &LockGuard, seen_lost: bool) -> bool {
    seen_lost || guard.is_held()
}
