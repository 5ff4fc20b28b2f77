//! Holders are notified at once when an administrator breaks their lock.

use std::time::Duration;

use futures_util::future::join_all;
use lock_testkit::proxy::{Command, Fate};
use lock_testkit::servers::{RedisCluster, RedisOptions, RedisSentinels, RedisServer, Reply};
use polylock_core::{DistributedLock, LockGuard, LostReason, Mode};
use tokio::time::Instant;

use crate::support::{
    Place, SOON, acquire, break_lock, loss, ms, of, of_cluster, of_sentinels, open, pass, permits,
    release, request, stays_held, until, with_acks, within,
};

/// The first renewal is due after 40 s.
const LONG: Duration = Duration::from_secs(120);

pub(crate) async fn held(locks: &dyn DistributedLock, name: &str, mode: Mode) -> LockGuard {
    let request = within(request(name), SOON).with_mode(mode).with_ttl(LONG);
    locks.acquire(&request).await.expect("it is granted")
}

/// Breaks the lock, and gives the time until all holders knew. A break waits for all nodes.
async fn broken(by: &dyn DistributedLock, name: &str, guards: &[&LockGuard]) -> Duration {
    let began = Instant::now();
    let ((), (reasons, took)) = tokio::join!(break_lock(by, name), async {
        let reasons = join_all(guards.iter().map(|guard| loss(guard))).await;
        (reasons, began.elapsed())
    });
    assert!(reasons.iter().all(|reason| *reason == LostReason::Broken));
    took
}

/// Any of a few attempts is quick, on a machine that is busy with other tests.
pub(crate) async fn assert_told(
    [locks, by]: [&dyn DistributedLock; 2],
    hears: impl Fn() -> bool,
    trouble: impl FnOnce(),
) {
    // The first lock makes the connection subscribe.
    let first = held(locks, "first", Mode::Exclusive).await;
    until("the client listens", hears).await;
    drop(first);
    trouble();
    let mut took = Vec::new();
    for attempt in 0..10 {
        let name = format!("a{attempt}");
        let guard = held(locks, &name, Mode::Exclusive).await;
        took.push(broken(by, &name, &[&guard]).await);
        if took.last() < Some(&ms(50)) {
            return;
        }
    }
    panic!("told late: {took:?}");
}

pub(crate) fn hears(server: &RedisServer) -> bool {
    let count = server.command(&["PUBSUB", "NUMSUB", "polylock:broken"]);
    count.items().get(1).and_then(Reply::integer) == Some(1)
}

/// Its messages would come twice, and its end would interrupt all waiters.
#[tokio::test]
async fn a_connection_that_waits_for_replicas_does_not_subscribe() {
    let (servers, locks) = with_acks().await;
    let lasting = request("a").with_ttl(ms(6_000));
    let guard = acquire(&*locks, &within(lasting, SOON * 2)).await;
    // It is renewed on such a connection.
    stays_held(&guard, ms(3_000)).await;
    let is_one = hears(&servers.servers()[0]);
    assert!(is_one, "not exactly one connection subscribes");
    release(guard).await;
}

#[tokio::test]
async fn a_break_reaches_the_holder_at_once() {
    let server = RedisServer::start(RedisOptions::new());
    let sentinels = RedisSentinels::start_light();
    let cluster = RedisCluster::start(3, 0);
    let all: [(_, &dyn Fn() -> bool); 3] = [
        (of(&server), &|| hears(&server)),
        (of_sentinels(&sentinels), &|| hears(sentinels.master())),
        (of_cluster(&cluster), &|| cluster.iter().any(hears)),
    ];
    for (config, hears) in all {
        let (locks, other) = (open(config.clone()).await, open(config).await);
        assert_told([&*locks, &*other], hears, || ()).await;
    }
}

#[tokio::test]
async fn a_break_reaches_each_of_several_holders() {
    let server = RedisServer::start(RedisOptions::new());
    let (locks, other) = (open(of(&server)).await, open(of(&server)).await);
    for mode in [Mode::Shared, permits(2)] {
        let name = format!("{mode:?}");
        let first = held(&*locks, &name, mode).await;
        until("the client listens", || hears(&server)).await;
        let second = held(&*locks, &name, mode).await;
        broken(&*other, &name, &[&first, &second]).await;
    }
}

#[tokio::test]
async fn a_break_while_the_subscription_is_down_reaches_the_holder() {
    let cluster = RedisCluster::start(3, 0);
    let server = RedisServer::start(RedisOptions::new());
    let user = "on >secret ~* &* +@all -publish";
    let silent = RedisServer::start(RedisOptions::new().with_user("locks", user));
    for (config, by, servers) in [
        (of(&server), of(&server), vec![&server]),
        (
            of(&silent).with_login("locks", "secret"),
            of(&silent),
            vec![&silent],
        ),
        (
            of_cluster(&cluster),
            of_cluster(&cluster),
            cluster.iter().collect(),
        ),
    ] {
        let (locks, by) = (open(config).await, open(by).await);
        let guard = held(&*locks, "a", Mode::Exclusive).await;
        let is_heard = || servers.iter().any(|server| hears(server));
        until("the client listens", is_heard).await;
        for server in &servers {
            server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        }
        let took = broken(&*by, "a", &[&guard]).await;
        assert!(took < ms(3_000), "told after {took:?}");
    }
}

/// Without messages, the first renewal would tell, far too late for this test.
#[tokio::test]
async fn a_subscription_that_broke_while_nothing_was_held_is_made_again_with_the_next_lock() {
    let server = RedisServer::start(RedisOptions::new());
    let sentinels = RedisSentinels::start_light();
    for (config, server) in [
        (of(&server), &server),
        (of_sentinels(&sentinels), sentinels.master()),
    ] {
        let (locks, by) = (open(config.clone()).await, open(config).await);
        // Several rounds: a client that notices the end of its subscription only after the next grant checks
        // that lock anyway.
        for round in 0..3 {
            let first = held(&*locks, "first", Mode::Exclusive).await;
            until("the client listens", || hears(server)).await;
            first.release().await.expect("it is released");
            server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            let name = format!("a{round}");
            let guard = held(&*locks, &name, Mode::Exclusive).await;
            broken(&*by, &name, &[&guard]).await;
        }
    }
}

#[tokio::test]
async fn a_break_before_a_failed_subscription_is_made_again_reaches_the_holder() {
    let (place, locks, other) = Place::with_clients().await;
    let is_subscription = |command: &Command| command.is("SUBSCRIBE");
    let cut = place.proxy().plan(is_subscription, Fate::CutRequest(0));
    let guard = held(&*locks, "a", Mode::Exclusive).await;
    until("the subscription fails", || cut.struck() == 1).await;
    broken(&*other, "a", &[&guard]).await;
}

/// The client reads the reply and the end of the connection at once.
#[tokio::test]
async fn a_subscription_that_ends_with_its_last_reply_is_made_again() {
    let (place, locks, other) = Place::with_clients().await;
    let is_last = |command: &Command| command.is("PUBLISH");
    let cut = place.proxy().plan(is_last, Fate::CutReply(":0\r\n".len()));
    let guard = held(&*locks, "a", Mode::Exclusive).await;
    until("the subscription ends", || cut.struck() == 1).await;
    broken(&*other, "a", &[&guard]).await;
}

#[tokio::test]
async fn a_subscription_that_failed_is_requested_again() {
    let place = Place::new();
    let is_subscription = |command: &Command| command.is("SUBSCRIBE");
    let cut = place.proxy().plan(is_subscription, Fate::CutRequest(0));
    let locks = place.client().await;
    let guard = held(&*locks, "a", Mode::Exclusive).await;
    until("the client listens", || hears(&place.server)).await;
    assert_eq!(cut.struck(), 1);
    guard.release().await.expect("it is released");
}

#[tokio::test]
async fn a_message_without_the_id_of_a_lease_ends_nothing() {
    let server = RedisServer::start(RedisOptions::new());
    let locks = open(of(&server)).await;
    let guard = held(&*locks, "a", Mode::Exclusive).await;
    until("the client listens", || hears(&server)).await;
    for message in [
        "broken|",
        "broken|a",
        "broken|000102030405060708090a0b0c0d0e0f",
    ] {
        server.command(&["PUBLISH", "polylock:broken", message]);
    }
    // Comes after them on the same connection.
    pass(&locks, "b").await;
    assert!(guard.is_held());
    guard.release().await.expect("it is released");
}
