use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::Instant;

use super::held_lease::HeldLease;
use crate::lost_reason::LostReason;

/// Tells when and why a lock is lost; clonable, and independent of the guard.
///
/// Await it, alone or in `select!`, or check [`reason`](LostSignal::reason). The signal of a lock
/// that is released in time never fires.
///
/// # When it fires
///
/// | what ends the lock | the signal fires |
/// |---|---|
/// | time: renewals fail, or renewal is manual and late | at [`valid_until`](LostSignal::valid_until), before the server may grant the lock to another client: a tenth of the ttl, at least 50 ms, is reserved for clocks that run at different rates. The documentation of each backend without leases states its own margin |
/// | `max_hold` | when it is over; a lock of a session or a connection is released in the same moment, so that a task in the middle of a poll may run beside the next holder until that poll ends |
/// | the server refuses a renewal | when its reply arrives |
/// | the backend is notified of the end of its session or connection, or of the lock's node | at once |
///
/// A lock that is **taken away** may have another holder before the signal fires: an administrator
/// breaks it, its key or row is deleted, the server loses its data, a failover loses the grant, the
/// server's clock jumps, a session is ended on the server. The signal fires when the backend is
/// notified; otherwise it fires with the reply to the next renewal:
///
/// | the lock is bound to | what is noticed late, and how late at most |
/// |---|---|
/// | a lease ([`LockLifetime::Lease`](crate::LockLifetime): Redis, quorum, etcd, `mode=lease`, SQLite, memory) | each of these waits for the next renewal, unless the page of the backend says that it is pushed: a third of the ttl plus the timeout of one attempt |
/// | a session ([`LockLifetime::Session`](crate::LockLifetime): ZooKeeper) | a change reaches the client by a watch, and beyond about 500 held locks by the next heartbeat. A client without a connection waits for the end of `valid_until` |
/// | a connection ([`LockLifetime::Connection`](crate::LockLifetime): `mode=row`, `mode=advisory`) | an end that the socket does not show waits for the next probe of the connection; a broken record waits for its next check |
///
/// With [`Renewal::Manual`](crate::Renewal) only the caller renews: without a renewal, a lease that was
/// taken away is lost at its end. [Fencing tokens](crate::FencingToken) keep late writes out meanwhile.
///
/// The signal fires only while the process runs. After a stop of the process or a suspension of the
/// machine beyond the end of the lock, it fires within a second of the resumption;
/// [`LockGuard::is_held`](crate::LockGuard::is_held) is false at once.
///
/// # Cancel safety
///
/// Dropping the future loses nothing; the loss is final, and the next await sees it at once.
///
/// # Examples
///
/// ```
/// use polylock_core::LostReason;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = polylock_core::memory::Memory::new();
/// let guard = locks.lock("orders/42").await?;
/// let lost = guard.lost();
/// let worker = tokio::spawn(async move {
///     tokio::select! {
///         reason = lost.into_future() => Err(reason),
///         () = std::future::pending() => Ok(()), // the work, which never ends here
///     }
/// });
///
/// let admin = locks.admin().ok_or("the backend has no administration")?;
/// admin.break_lock(guard.key(), "the worker hangs").await?;
/// assert_eq!(worker.await?, Err(LostReason::Broken));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LostSignal {
    hold: Arc<HeldLease>,
}

impl LostSignal {
    pub(super) fn new(hold: Arc<HeldLease>) -> Self {
        Self { hold }
    }

    /// Why the lock was lost, `None` if it is held or was released.
    #[must_use]
    pub fn reason(&self) -> Option<LostReason> {
        self.hold.lost_reason()
    }

    /// The deadline of the lock, as [`LockGuard::valid_until`](crate::LockGuard::valid_until) returns it;
    /// the current time if it was released. Compute it again instead of storing it: the machine may be suspended.
    #[must_use]
    pub fn valid_until(&self) -> Option<Instant> {
        self.hold.valid_until()
    }
}

impl IntoFuture for LostSignal {
    type Output = LostReason;
    type IntoFuture = Pin<Box<dyn Future<Output = LostReason> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.hold.lost().await })
    }
}

impl fmt::Debug for LostSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LostSignal")
            .field("key", self.hold.named())
            .field("reason", &self.reason())
            .finish()
    }
}
