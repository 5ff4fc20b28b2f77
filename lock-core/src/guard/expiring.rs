use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::held_lease::HeldLease;

/// A warning before the lock is lost; see [`LockGuard::expiring`](crate::LockGuard::expiring).
///
/// # Cancel safety
///
/// Dropping the future stops the waiting and nothing else.
///
/// # Examples
///
/// A worker that stops 1.5 s before the lock is lost:
///
/// ```
/// use std::pin::pin;
/// use std::time::Duration;
///
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let locks = polylock_core::memory::Memory::new();
/// let request = locks.request("export").ttl(Duration::from_secs(2)).manual_renewal();
/// let guard = request.acquire().await?;
/// let mut expiring = pin!(guard.expiring(Duration::from_millis(1500)));
/// let mut done = 0;
/// loop {
///     tokio::select! {
///         () = &mut expiring => break,
///         () = tokio::time::sleep(Duration::from_millis(20)) => done += 1, // one item
///     }
/// }
/// assert!(done > 0 && guard.is_held()); // time to store how far it came
/// # Ok(()) }
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Expiring {
    wait: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Expiring {
    pub(super) fn new(hold: Arc<HeldLease>, ahead: Duration) -> Self {
        Self {
            wait: Box::pin(wait(hold, ahead)),
        }
    }
}

async fn wait(hold: Arc<HeldLease>, ahead: Duration) {
    while let Some(warning) = hold.warning_at(ahead) {
        let left = warning.since(hold.engine.now());
        if left.is_zero() {
            return;
        }
        // Renewals move the deadline on, so it is looked at again when the old one is near. A lock
        // without a deadline can still be lost or get one.
        tokio::select! {
            _ = hold.lost() => return,
            () = tokio::time::sleep(left.min(RECHECK_INTERVAL)) => {}
        }
    }
}

/// Timers stand still on a suspended machine, so the clock is looked at this often.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Future for Expiring {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.wait.as_mut().poll(cx)
    }
}

impl fmt::Debug for Expiring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expiring").finish_non_exhaustive()
    }
}
