//! What the tests of this crate share.

mod grpc_proxy;
mod place;
mod store;
mod tree;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use lock_testkit::servers::{EtcdOptions, EtcdServer};
use polylock_core::admin::LockAdmin;
use polylock_core::{
    AcquireRequest, DistributedLock, Error, ErrorKind, LockGuard, LockKey, LostReason, Released,
    Result, Wait,
};
use polylock_etcd::{Etcd, EtcdConfig};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use self::place::Place;
pub(crate) use self::store::{Store, config};

/// Enough time for a few requests on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The ttl of the locks of the tests.
pub(crate) const TTL: Duration = Duration::from_secs(3);

pub(crate) fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("it is a key")
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn request(name: &str) -> AcquireRequest {
    let request = AcquireRequest::new(key(name)).with_ttl(TTL);
    request.with_wait(Wait::AtMost(SOON * 2))
}

pub(crate) async fn open(config: EtcdConfig) -> Arc<Etcd> {
    let locks = Etcd::connect(config).await;
    Arc::new(locks.expect("it connects"))
}

pub(crate) async fn acquire(locks: &Etcd, name: &str) -> LockGuard {
    let acquired = locks.acquire(&request(name)).await;
    acquired.expect("a free lock is granted")
}

/// Asserts what an acquisition fails with.
pub(crate) async fn assert_error(locks: &Etcd, request: &AcquireRequest, kind: ErrorKind) -> Error {
    let acquired = locks.acquire(request).await;
    let error = acquired.expect_err("it is granted");
    assert_eq!(error.kind(), kind, "{error}");
    error
}

/// Lets a task wait for a lock.
pub(crate) fn waiting(locks: &Arc<Etcd>, request: AcquireRequest) -> JoinHandle<Result<LockGuard>> {
    let locks = Arc::clone(locks);
    tokio::spawn(async move { locks.acquire(&request).await })
}

pub(crate) async fn granted(waiter: JoinHandle<Result<LockGuard>>) -> LockGuard {
    let granted = waiter.await.expect("no panic");
    granted.expect("it is granted")
}

/// Releases a lock that is held.
pub(crate) async fn release(guard: LockGuard) {
    let signal = guard.lost();
    let released = guard.release().await.expect("it is released");
    assert_eq!(released, Released::Clean, "lost by {:?}", signal.reason());
}

pub(crate) fn token(guard: &LockGuard) -> u64 {
    u64::from(guard.fencing_token().expect("it has a token"))
}

pub(crate) fn admin(locks: &Etcd) -> &dyn LockAdmin {
    locks.admin().expect("it has an administration")
}

/// How the holder loses the lock.
pub(crate) async fn loss(guard: &LockGuard) -> LostReason {
    let lost = tokio::time::timeout(SOON * 2, guard.lost().into_future()).await;
    lost.expect("the loss is signaled")
}

/// Waits until something is true.
pub(crate) async fn until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + SOON * 2;
    while !is_true().await {
        assert!(Instant::now() < deadline, "it does not come true: {what}");
        tokio::time::sleep(ms(5)).await;
    }
}
