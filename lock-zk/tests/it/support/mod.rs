//! What the tests of this crate share.

pub(crate) mod counted;
pub(crate) mod exchange;
mod foreign;
mod place;
mod rival;
pub(crate) mod snapshot;
mod store;
mod tree;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use lock_testkit::locks::{
    admin, assert_error, granted, key, ms, permits, release as release_clean, token, until, waiting,
};
use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};
use polylock_core::admin::LockInfo;
use polylock_core::layers::LocalQueue;
use polylock_core::{
    AcquireRequest, DistributedLock as _, Error, ErrorKind, LockGuard, LostReason, Wait,
};
use polylock_zk::{ZooKeeper, ZooKeeperConfig};
use tokio::time::Instant;

pub(crate) use self::{
    foreign::{Foreign, Recipe},
    place::{Place, is_check, is_end, is_entry, is_exchange},
    rival::end_session,
    store::Store,
    tree::Tree,
};

/// Enough time for a few requests on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// The time-out of the sessions of the tests.
pub(crate) const SESSION: Duration = Duration::from_secs(2);

pub(crate) fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(key(name)).with_wait(Wait::AtMost(SOON * 2))
}

/// A request that waits no longer.
pub(crate) fn within(name: &str, limit: Duration) -> AcquireRequest {
    request(name).with_wait(Wait::AtMost(limit))
}

/// A request that does not wait.
pub(crate) fn attempt(name: &str) -> AcquireRequest {
    request(name).with_wait(Wait::Never)
}

/// Servers at these ports of 127.0.0.1, and a directory of them.
pub(crate) fn config(ports: &[u16], root: &str) -> ZooKeeperConfig {
    let hosts = ports.iter().map(|port| ("127.0.0.1", *port));
    let config = ZooKeeperConfig::new(hosts).with_root(root);
    lasting(config.expect("it is a path"), SESSION)
}

/// The same configuration with sessions of this length.
pub(crate) fn lasting(config: ZooKeeperConfig, session: Duration) -> ZooKeeperConfig {
    let config = config.with_session_timeout(session);
    config.expect("it is in range")
}

/// A new root on the shared server, not created yet, and a configuration for it.
pub(crate) fn without_root() -> (String, ZooKeeperConfig) {
    let (root, address) = (store::root(), ZooKeeperServer::shared().address());
    let config = config(&[store::port(&address)], &root);
    (root, config)
}

pub(crate) async fn open(config: ZooKeeperConfig) -> Arc<ZooKeeper> {
    let locks = ZooKeeper::connect(config).await;
    Arc::new(locks.expect("it connects"))
}

/// A server that removes a directory soon after its last contender has left, and in 20 ms at most.
pub(crate) fn quick_containers() -> ZooKeeperOptions {
    let often = ("znode.container.checkIntervalMs", "20");
    ZooKeeperOptions::new().with_property(often.0, often.1)
}

/// Asserts what a connection fails with.
pub(crate) async fn assert_refused(config: ZooKeeperConfig, kind: ErrorKind, says: &str) -> Error {
    let connected = ZooKeeper::connect(config).await;
    let error = connected.expect_err("it is refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.message().contains(says), "{error}");
    error
}

pub(crate) async fn take(locks: &ZooKeeper, name: &str) -> LockGuard {
    lock_testkit::locks::acquire(locks, &request(name)).await
}

pub(crate) async fn release(guard: LockGuard) {
    guard.release().await.expect("it is released");
}

/// Lets the next one of the process have the lock `a`.
pub(crate) async fn handed_over(queue: &LocalQueue, guard: LockGuard) -> LockGuard {
    let one = request("a");
    let mut next = queue.acquire(&one);
    // One poll puts it in line.
    tokio::select! {
        biased;
        _ = &mut next => panic!("two holders"),
        () = std::future::ready(()) => {}
    }
    release(guard).await;
    next.await.expect("it is granted")
}

/// What `inspect` shows of a lock.
pub(crate) async fn seen(locks: &ZooKeeper, name: &str) -> Option<LockInfo> {
    admin(locks).inspect(&key(name)).await.expect("it answers")
}

/// How the holder loses the lock.
pub(crate) async fn loss(guard: &LockGuard) -> LostReason {
    let lost = tokio::time::timeout(SESSION + SOON, guard.lost().into_future()).await;
    lost.expect("the loss is signaled")
}

/// Measures something that a busy machine may delay beyond a limit, but not each of three times. Returns how long
/// it took at last, and what came of it.
pub(crate) async fn in_time<T>(
    limit: Duration,
    measure: impl AsyncFn() -> (Duration, T),
) -> (Duration, T) {
    let mut measured = measure().await;
    for _ in 0..2 {
        if measured.0 >= limit {
            measured = measure().await;
        }
    }
    measured
}

/// Waits for something that needs a few requests at most, and returns how long it took.
pub(crate) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    let done = tokio::time::timeout(SOON * 2, work).await;
    (done.expect("it happens"), began.elapsed())
}
