//! What the tests of this crate share.

mod place;
mod requests;
pub(crate) mod rights;
mod store;

use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{
    AcquireRequest, DistributedLock, LockGuard, LockKey, LostReason, Renewal, Result, Wait,
};
use lock_redis::{Redis, RedisConfig};
use tokio::time::Instant;

pub(crate) use self::place::{Place, look};
pub(crate) use self::requests::hash;
pub(crate) use self::store::Store;

/// Within this time happens what needs no more than a few requests, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// The shortest lease, which the tests use.
pub(crate) const TTL: Duration = AcquireRequest::MIN_TTL;

/// How long a server takes a waiter for alive, as `queue.rs` has it.
pub(crate) const ALIVE: Duration = Duration::from_secs(3);

pub(crate) fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("it is a key")
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A request with the shortest lease, which is renewed.
pub(crate) fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(key(name)).with_ttl(TTL)
}

/// The same with a lease that nobody renews.
pub(crate) fn lease(name: &str) -> AcquireRequest {
    request(name).with_renewal(Renewal::Manual)
}

pub(crate) fn within(request: AcquireRequest, limit: Duration) -> AcquireRequest {
    request.with_wait(Wait::AtMost(limit))
}

pub(crate) async fn open(config: RedisConfig) -> Arc<Redis> {
    let locks = Redis::connect(config).await;
    Arc::new(locks.expect("it connects"))
}

/// Takes a lock within a few seconds.
pub(crate) async fn take(locks: &Redis, name: &str) -> LockGuard {
    let taken = locks.acquire(&within(request(name), SOON * 2)).await;
    taken.expect("a free lock is granted")
}

/// Lets a task wait for a lock.
pub(crate) fn waiting(
    locks: &Arc<Redis>,
    request: AcquireRequest,
) -> tokio::task::JoinHandle<Result<LockGuard>> {
    let locks = Arc::clone(locks);
    tokio::spawn(async move { locks.acquire(&request).await })
}

/// Waits until something is true.
pub(crate) async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON * 2;
    while !is_true() {
        assert!(Instant::now() < deadline, "it does not come true: {what}");
        tokio::time::sleep(ms(2)).await;
    }
}

/// Asserts how long something took that began at a moment.
#[track_caller]
pub(crate) fn assert_took(
    what: &str,
    began: Instant,
    expected: impl RangeBounds<Duration> + Debug,
) {
    let took = began.elapsed();
    assert!(
        expected.contains(&took),
        "{what} took {took:?}, and not {expected:?}"
    );
}

/// How the holder loses the lock.
pub(crate) async fn loss(guard: &LockGuard) -> LostReason {
    let lost = tokio::time::timeout(TTL + SOON, guard.lost().into_future()).await;
    lost.expect("the loss is signaled")
}
