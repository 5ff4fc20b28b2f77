//! Holders are told at once of what an administrator does.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{DistributedLock, LockGuard, LostReason, Mode};
use lock_redis::{Redis, RedisConfig};
use lock_testkit::servers::{RedisCluster, RedisOptions, RedisSentinels, RedisServer};
use tokio::time::Instant;

use crate::support::{SOON, key, ms, open, request, take, until, within};

/// The first renewal is due after 40 s.
const LONG: Duration = Duration::from_secs(120);

async fn held(locks: &Redis, name: &str, mode: Mode) -> LockGuard {
    let request = within(request(name), SOON).with_mode(mode).with_ttl(LONG);
    locks.acquire(&request).await.expect("it is granted")
}

/// Breaks the lock, and gives the time until all holders knew.
async fn broken(by: &Redis, name: &str, guards: &[&LockGuard]) -> Duration {
    let began = Instant::now();
    let admin = by.admin().expect("it has an administration");
    let broken = admin.break_lock(&key(name), "test").await;
    broken.expect("it is broken").expect("it was held");
    for guard in guards {
        let lost = tokio::time::timeout(SOON, guard.lost().into_future()).await;
        assert_eq!(lost.expect("it is told"), LostReason::Broken);
    }
    began.elapsed()
}

/// Any of a few attempts is quick, on a machine that is busy with other tests.
async fn assert_told(locks: &Arc<Redis>, by: &Arc<Redis>, hears: impl Fn() -> bool) {
    // The first lock has the connection listen.
    let first = held(locks, "first", Mode::Exclusive).await;
    until("the client listens", hears).await;
    drop(first);
    let mut took = Vec::new();
    for attempt in 0..10 {
        let name = format!("a{attempt}");
        let guard = held(locks, &name, Mode::Exclusive).await;
        took.push(broken(by, &name, &[&guard]).await);
        if took.iter().any(|took| *took < ms(50)) {
            return;
        }
    }
    panic!("told late: {took:?}");
}

fn hears(server: &RedisServer) -> bool {
    let count = server.command(&["PUBSUB", "NUMSUB", "polylock:broken"]);
    count
        .items()
        .get(1)
        .and_then(lock_testkit::servers::Reply::integer)
        == Some(1)
}

#[tokio::test]
async fn a_break_reaches_the_holder_at_once() {
    let server = RedisServer::start(RedisOptions::new());
    let config = RedisConfig::new("127.0.0.1", server.port());
    let (locks, other) = (open(config.clone()).await, open(config).await);
    assert_told(&locks, &other, || hears(&server)).await;
}

#[tokio::test]
async fn a_break_reaches_each_of_several_holders() {
    let server = RedisServer::start(RedisOptions::new());
    let config = RedisConfig::new("127.0.0.1", server.port());
    let (locks, other) = (open(config.clone()).await, open(config).await);
    let two = Mode::Permit {
        limit: NonZeroU32::MIN.saturating_add(1),
    };
    for mode in [Mode::Shared, two] {
        let name = format!("{mode:?}");
        let first = held(&locks, &name, mode).await;
        until("the client listens", || hears(&server)).await;
        let second = held(&locks, &name, mode).await;
        broken(&other, &name, &[&first, &second]).await;
    }
}

#[tokio::test]
async fn a_break_reaches_the_holder_behind_sentinels() {
    let servers = RedisSentinels::start_light();
    let ports = servers.ports().into_iter().map(|port| ("127.0.0.1", port));
    let config = RedisConfig::sentinel(ports, RedisSentinels::MASTER);
    let (locks, other) = (open(config.clone()).await, open(config).await);
    assert_told(&locks, &other, || hears(servers.master())).await;
}

#[tokio::test]
async fn a_break_reaches_the_holder_in_a_cluster() {
    let cluster = RedisCluster::start(3, 0);
    let ports = cluster.ports().iter().map(|port| ("127.0.0.1", *port));
    let config = RedisConfig::cluster(ports);
    let (locks, other) = (open(config.clone()).await, open(config).await);
    assert_told(&locks, &other, || cluster.iter().any(hears)).await;
}

#[tokio::test]
async fn a_message_without_the_id_of_a_lease_ends_nothing() {
    let server = RedisServer::start(RedisOptions::new());
    let locks = open(RedisConfig::new("127.0.0.1", server.port())).await;
    let guard = held(&locks, "a", Mode::Exclusive).await;
    until("the client listens", || hears(&server)).await;
    for message in [
        "broken|",
        "broken|a",
        "broken|000102030405060708090a0b0c0d0e0f",
    ] {
        server.command(&["PUBLISH", "polylock:broken", message]);
    }
    // Comes after them on the same connection.
    take(&locks, "b").await.release().await.expect("no error");
    assert!(guard.is_held());
    guard.release().await.expect("it is released");
}
