//! Short forms for tests of locks. Each panics if the lock or its server answers otherwise.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::admin::LockAdmin;
use polylock_core::{
    AcquireRequest, DistributedLock, Error, ErrorKind, LockGuard, LockKey, Mode, Released, Result,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Longer than anything that a test waits for takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(40);

/// A number of milliseconds.
#[must_use]
pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The key of this name.
#[must_use]
pub fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("it is a key")
}

/// A permit with this limit.
#[must_use]
pub fn permits(limit: u32) -> Mode {
    let limit = NonZeroU32::new(limit).expect("it is not zero");
    Mode::Permit { limit }
}

/// The administration.
#[must_use]
pub fn admin(locks: &dyn DistributedLock) -> &dyn LockAdmin {
    locks.admin().expect("it has an administration")
}

/// The fencing token.
#[must_use]
pub fn token(guard: &LockGuard) -> u64 {
    u64::from(guard.fencing_token().expect("it has a token"))
}

/// Acquires a lock.
pub async fn acquire(locks: &dyn DistributedLock, request: &AcquireRequest) -> LockGuard {
    let acquired = locks.acquire(request).await;
    acquired.expect("it is granted")
}

/// Renews a held lock. On a busy machine a request may have no reply in its time: it is repeated while the
/// lock is held.
pub async fn renewed(guard: &LockGuard) {
    loop {
        match guard.renew().await {
            Err(error) if error.kind() == ErrorKind::Unavailable => sleep(ms(1)).await,
            renewed => return renewed.expect("it is renewed"),
        }
    }
}

/// Asserts what an acquisition fails with.
pub async fn assert_error(
    locks: &dyn DistributedLock,
    request: &AcquireRequest,
    kind: ErrorKind,
) -> Error {
    let acquired = locks.acquire(request).await;
    let error = acquired.expect_err("it is granted");
    assert_eq!(error.kind(), kind, "{error}");
    error
}

/// Lets a task wait for a lock.
pub fn waiting<L>(locks: &Arc<L>, request: AcquireRequest) -> JoinHandle<Result<LockGuard>>
where
    L: DistributedLock + ?Sized,
{
    let locks = Arc::clone(locks);
    tokio::spawn(async move { locks.acquire(&request).await })
}

/// The guard that a task waits for.
pub async fn granted<G>(waiter: JoinHandle<Result<G>>) -> G {
    waiter.await.expect("no panic").expect("it is granted")
}

/// Releases a lock that is held.
pub async fn release(guard: LockGuard) {
    let (signal, held) = (guard.lost(), guard.is_held());
    let released = guard.release().await.expect("it is released");
    let lost = signal.reason();
    assert_eq!(
        released,
        Released::Clean,
        "held before: {held}, lost by {lost:?}"
    );
}

/// Waits until a lease of this length is renewed by a request that was sent after a moment: an earlier one
/// cannot reach so far.
pub async fn renewed_after(guard: &LockGuard, moment: Instant, ttl: Duration) {
    while guard.valid_until().expect("it is a lease") < moment + ttl {
        guard.ensure_held().expect("it is renewed");
        let waited = moment.elapsed();
        assert!(waited < ttl * 5, "no renewal in {waited:?}");
        sleep(ms(10)).await;
    }
    guard.ensure_held().expect("it is renewed");
}

/// Waits until something is true.
pub async fn until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_true().await {
        assert!(Instant::now() < deadline, "it does not come true: {what}");
        sleep(ms(5)).await;
    }
}
