//! What the tests of this crate share.

mod place;
mod requests;
pub(crate) mod rights;
mod store;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use lock_testkit::history::{Recorded, Recorder};
pub(crate) use lock_testkit::locks::{
    acquire, admin, assert_error, granted, key, ms, permits, release, renewed, token, waiting,
};
use lock_testkit::servers::{RedisCluster, RedisSentinels, RedisServer};
use polylock_core::admin::LockInfo;
use polylock_core::engine::{LeaseId, OsEntropy};
use polylock_core::{
    AcquireRequest, DistributedLock, ErrorKind, LockGuard, LostReason, Released, Renewal, Wait,
};
use polylock_redis::{Redis, RedisConfig};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) use self::place::{Place, look};
pub(crate) use self::requests::{is_kind, kind_of, load_scripts};
pub(crate) use self::store::Store;

/// Enough time for a few requests on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// The shortest lease, which the tests use.
pub(crate) const TTL: Duration = Duration::from_secs(1);

/// A ttl that does not end in a test, also on a busy machine.
pub(crate) const LONG_TTL: Duration = Duration::from_secs(60);

/// How long a server takes a waiter for alive, as `queue.rs` has it.
pub(crate) const ALIVE: Duration = Duration::from_secs(3);

/// The id of an adopter.
pub(crate) fn any_id() -> LeaseId {
    LeaseId::random(&OsEntropy::default())
}

/// A request with the shortest lease, which is renewed.
pub(crate) fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(key(name)).with_ttl(TTL)
}

/// The same with a lease without renewals.
pub(crate) fn lease(name: &str) -> AcquireRequest {
    request(name).with_renewal(Renewal::Manual)
}

pub(crate) fn within(request: AcquireRequest, limit: Duration) -> AcquireRequest {
    request.with_wait(Wait::AtMost(limit))
}

/// The way to a server.
pub(crate) fn of(server: &RedisServer) -> RedisConfig {
    RedisConfig::new("127.0.0.1", server.port())
}

/// The way to the master of Sentinels.
pub(crate) fn of_sentinels(servers: &RedisSentinels) -> RedisConfig {
    let ports = servers.ports().into_iter().map(|port| ("127.0.0.1", port));
    RedisConfig::sentinel(ports, RedisSentinels::MASTER)
}

pub(crate) fn of_cluster(cluster: &RedisCluster) -> RedisConfig {
    RedisConfig::cluster(cluster.ports().iter().map(|port| ("127.0.0.1", *port)))
}

pub(crate) async fn open(config: RedisConfig) -> Arc<Redis> {
    let locks = Redis::connect(config).await;
    Arc::new(locks.expect("it connects"))
}

/// Sentinels of a master with a replica that acknowledges what the client writes.
pub(crate) async fn with_acks() -> (RedisSentinels, Arc<Redis>) {
    let servers = RedisSentinels::start();
    servers.wait_for_replica();
    let careful = of_sentinels(&servers).with_replica_acks(1, ms(200));
    let locks = open(careful.expect("it is in range")).await;
    (servers, locks)
}

/// A request that does not wait.
pub(crate) fn attempt(name: &str) -> AcquireRequest {
    request(name).with_wait(Wait::Never)
}

/// Takes a lock within a few seconds.
pub(crate) async fn take(locks: &Redis, name: &str) -> LockGuard {
    acquire(locks, &within(request(name), SOON * 2)).await
}

/// Takes a lock where the length of its lease does not matter.
pub(crate) async fn take_long(locks: &Redis, name: &str) -> LockGuard {
    acquire(locks, &within(request(name).with_ttl(LONG_TTL), SOON * 2)).await
}

/// Takes a free lock and releases it.
pub(crate) async fn pass(locks: &Redis, name: &str) {
    release(take_long(locks, name).await).await;
}

/// Releases a lock that was lost.
pub(crate) async fn release_lost(guard: LockGuard) {
    let released = guard.release().await.expect("no error");
    assert_eq!(released, Released::AlreadyLost);
}

/// What an administrator sees of a lock that is held.
pub(crate) async fn inspect(locks: &dyn DistributedLock, name: &str) -> LockInfo {
    let seen = admin(locks).inspect(&key(name)).await;
    seen.expect("it answers").expect("it is held")
}

/// Breaks a lock that is held.
pub(crate) async fn break_lock(by: &dyn DistributedLock, name: &str) {
    let broken = admin(by).break_lock(&key(name), "test").await;
    broken.expect("it is broken").expect("it was held");
}

/// The server granted the lock to a second holder, which keeps it; the first one learns of its loss.
pub(crate) async fn assert_replaced(first: LockGuard, second: LockGuard) {
    let tokens = (first.fencing_token(), second.fencing_token());
    assert!(tokens.1 > tokens.0, "the token does not grow: {tokens:?}");
    assert_eq!(loss(&first).await, LostReason::Stolen);
    release_lost(first).await;
    renewed(&second).await;
    release(second).await;
}

/// Waits until a client has nothing more to do.
pub(crate) async fn idle(locks: &Redis) {
    let is_idle = locks.shutdown(SOON * 2).await;
    assert!(is_idle, "background work does not end");
}

/// Takes a lock, and notes that.
pub(crate) async fn noted(
    recorder: &Recorder,
    locks: &Redis,
    request: &AcquireRequest,
) -> Recorded {
    let granted = recorder.acquire(locks, request).await;
    granted.expect("it is granted")
}

/// Waiters of several clients, with what each of them does noted.
pub(crate) fn noted_waiters(
    clients: &[Arc<Redis>],
    recorder: &Recorder,
    requests: impl IntoIterator<Item = AcquireRequest>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (n, request) in requests.into_iter().enumerate() {
        let (client, recorder) = (Arc::clone(&clients[n % clients.len()]), recorder.clone());
        tasks.spawn(async move {
            // A grant that came too late for a guard may be asked for again.
            let guard = loop {
                match recorder.acquire(&client, &request).await {
                    Ok(guard) => break guard,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                }
            };
            tokio::time::sleep(ms(2)).await;
            guard.look();
            drop(guard.release().await);
        });
    }
    tasks
}

/// Makes a server a replica of another one.
pub(crate) fn follow(server: &RedisServer, master: &RedisServer) {
    server.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
}

/// Waits until something is true.
pub(crate) async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    lock_testkit::locks::until(what, async || is_true()).await;
}

/// A field of what the server says about itself.
pub(crate) fn info(server: &RedisServer, field: &str) -> String {
    let info = server.command(&["INFO"]).text().expect("a text");
    let mut lines = info.lines();
    let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().to_owned()
}

/// The same, where it is a number.
pub(crate) fn count(server: &RedisServer, field: &str) -> u64 {
    info(server, field).parse().expect("a number")
}

/// How often the server has run each command since the last reset, in scripts as well.
pub(crate) fn commands(server: &RedisServer) -> BTreeMap<String, u64> {
    let stats = server.command(&["INFO", "commandstats"]).text();
    let stats = stats.expect("a text");
    let rows = stats.lines();
    rows.filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let (calls, _) = rest.split_once(',')?;
        Some((name.to_owned(), calls.parse().expect("a number")))
    })
    .collect()
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

/// How the holder learns of its loss by renewals, some of which may have no reply.
pub(crate) async fn loss_by_renewal(guard: &LockGuard) -> LostReason {
    let deadline = Instant::now() + SOON * 2;
    loop {
        let renewed = guard.renew().await;
        if let Some(reason) = renewed.err().and_then(|error| error.lost_reason()) {
            return reason;
        }
        assert!(Instant::now() < deadline, "no renewal shows the loss");
    }
}

/// Asserts that a lock stays held for a time.
pub(crate) async fn stays_held(guard: &LockGuard, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        assert!(guard.is_held(), "lost as {:?}", guard.lost().reason());
        tokio::time::sleep(ms(20)).await;
    }
}
