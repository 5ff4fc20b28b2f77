//! What the tests of this crate share.

pub(crate) mod counted;
pub(crate) mod exchange;
mod foreign;
mod place;
mod rival;
pub(crate) mod snapshot;
mod store;
mod tree;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use lock_testkit::servers::ZooKeeperServer;
use polylock_core::admin::{LockAdmin, LockInfo};
use polylock_core::layers::LocalQueue;
use polylock_core::{
    AcquireRequest, DistributedLock, Error, ErrorKind, LockGuard, LockKey, LostReason, Mode,
    Released, Result, Wait,
};
use polylock_zk::{ZooKeeper, ZooKeeperConfig};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use self::{
    foreign::{Foreign, Recipe, THEIR_SESSION},
    place::{Place, is_entry, is_exchange},
    rival::end_session,
    store::Store,
    tree::Tree,
};

/// Enough time for a few requests on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// The time-out of the sessions of the tests.
pub(crate) const SESSION: Duration = Duration::from_secs(2);

pub(crate) fn key(name: &str) -> LockKey {
    LockKey::new(name).expect("it is a key")
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

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

pub(crate) fn permits(limit: u32) -> Mode {
    let limit = NonZeroU32::new(limit).expect("it is not zero");
    Mode::Permit { limit }
}

/// Asserts what an acquisition fails with.
pub(crate) async fn assert_error(
    locks: &ZooKeeper,
    request: &AcquireRequest,
    kind: ErrorKind,
) -> Error {
    let acquired = locks.acquire(request).await;
    let error = acquired.expect_err("it is granted");
    assert_eq!(error.kind(), kind, "{error}");
    error
}

/// Servers at these ports of 127.0.0.1, and a directory of them.
pub(crate) fn config(ports: &[u16], root: &str) -> ZooKeeperConfig {
    let hosts = ports.iter().map(|port| ("127.0.0.1", *port));
    let config = ZooKeeperConfig::new(hosts).with_root(root);
    let config = config.expect("it is a path").with_session_timeout(SESSION);
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

/// Asserts what a connection fails with.
pub(crate) async fn assert_refused(config: ZooKeeperConfig, kind: ErrorKind, says: &str) -> Error {
    let connected = ZooKeeper::connect(config).await;
    let error = connected.expect_err("it is refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.message().contains(says), "{error}");
    error
}

pub(crate) async fn take(locks: &ZooKeeper, name: &str) -> LockGuard {
    let taken = locks.acquire(&request(name)).await;
    taken.expect("a free lock is granted")
}

/// Lets a task wait for a lock.
pub(crate) fn waiting(
    locks: &Arc<ZooKeeper>,
    request: AcquireRequest,
) -> JoinHandle<Result<LockGuard>> {
    let locks = Arc::clone(locks);
    tokio::spawn(async move { locks.acquire(&request).await })
}

pub(crate) async fn granted(waiter: JoinHandle<Result<LockGuard>>) -> LockGuard {
    let granted = waiter.await.expect("no panic");
    granted.expect("it is granted")
}

pub(crate) async fn release(guard: LockGuard) {
    guard.release().await.expect("it is released");
}

/// Releases a lock that is held.
pub(crate) async fn release_clean(guard: LockGuard) {
    let (signal, held) = (guard.lost(), guard.is_held());
    let released = guard.release().await.expect("it is released");
    let lost = signal.reason();
    assert_eq!(
        released,
        Released::Clean,
        "held before: {held}, lost by {lost:?}"
    );
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

pub(crate) fn token(guard: &LockGuard) -> u64 {
    u64::from(guard.fencing_token().expect("it has a token"))
}

pub(crate) fn admin(locks: &ZooKeeper) -> &dyn LockAdmin {
    locks.admin().expect("it has an administration")
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

/// Waits for something that needs a few requests at most, and returns how long it took.
pub(crate) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    let done = tokio::time::timeout(SOON * 2, work).await;
    (done.expect("it happens"), began.elapsed())
}

/// Waits until something is true.
pub(crate) async fn until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + SOON * 2;
    while !is_true().await {
        assert!(Instant::now() < deadline, "it does not come true: {what}");
        tokio::time::sleep(ms(5)).await;
    }
}
