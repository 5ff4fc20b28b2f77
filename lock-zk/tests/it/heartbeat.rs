//! The life of a session: heartbeats, watches, and servers with outdated data.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use lock_testkit::proxy::{Command, Direction, Fate, Proxy, Then};
use lock_testkit::servers::{ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer};
use polylock_core::{DistributedLock, LockGuard, LostReason, Result};
use polylock_zk::ZooKeeper;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Client, Error};

use crate::support::exchange::Exchange;
use crate::support::{
    Place, SOON, config, granted, is_exchange, lasting, loss, ms, open, release, release_clean,
    request, take, until, waiting, within,
};

/// A follower that has lost its leader answers reads for many ticks, long after the leader has granted
/// its client's lock to another.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_lost_before_a_leader_that_its_server_has_lost_gives_it_away() {
    let options = ZooKeeperOptions::new().with_config("tickTime", "1000");
    let options = options.with_config("syncLimit", "8");
    let (ensemble, link) = ZooKeeperEnsemble::start_with_far_follower(&options);
    let port = |place: usize| ensemble.servers()[place].port();
    let near = open(lasting(config(&[port(1)], "/locks"), SOON * 4)).await;
    let pairs = [2, 4].map(|seconds| pair(port(0), seconds, &near, SOON * 4));
    let pairs = join_all(pairs).await;
    // No fault during several heartbeats.
    sleep(ms(2_500)).await;
    link.hold(Direction::Both);
    assert_all_lost_before_granted(pairs).await;
}

/// A steady stream of acquisitions and releases does not hide the replies to heartbeats.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_client_on_a_slow_network_keeps_its_locks() {
    let place = Place::new().await;
    let locks = place.patient().await;
    let long = take(&locks, "long").await;
    place.proxy().set_latency(Direction::Both, ms(70));
    let is_over = Arc::new(AtomicBool::new(false));
    let busy = (0..6).map(|n| {
        let (locks, is_over) = (Arc::clone(&locks), Arc::clone(&is_over));
        tokio::spawn(async move { come_and_go(&locks, n, &is_over).await })
    });
    let busy: Vec<_> = busy.collect();
    sleep(SOON).await;
    assert!(long.is_held(), "{long:?}");
    is_over.store(true, Ordering::Relaxed);
    for task in busy {
        assert!(task.await.expect("no panic") > 5);
    }
}

async fn come_and_go(locks: &ZooKeeper, n: usize, is_over: &AtomicBool) -> usize {
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        let guard = take(locks, &format!("k{n}")).await;
        sleep(ms(30)).await;
        drop(guard);
        count += 1;
    }
    count
}

/// The client cannot say what it watches, where that is more than 128 KiB.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_many_locks_of_long_names_survives_a_broken_connection() {
    let place = Place::new().await;
    let locks = place.with_session(SOON * 6).await;
    let names: Vec<_> = (0..700).map(long_name).collect();
    let requests: Vec<_> = names.iter().map(|name| request(name)).collect();
    let guards = try_join_all(requests.iter().map(|one| locks.acquire(one))).await;
    let guards = guards.expect("they are free");
    // From here on no more nodes get a watch.
    sleep(ms(1_000)).await;
    place.proxy().cut();
    sleep(SOON).await;
    assert_eq!(guards.iter().filter(|guard| guard.is_held()).count(), 700);
    // A node without a watch is checked with each heartbeat.
    let ended = guards.iter().zip(&names).map(async |(guard, name)| {
        place.tree().end(name).await;
        assert_eq!(loss(guard).await, LostReason::Broken);
    });
    join_all(ended).await;
}

/// A list that is sent before the heartbeat could be older than it.
#[tokio::test]
async fn the_nodes_are_listed_behind_the_heartbeat_after_a_reconnect() {
    let place = Place::new().await;
    let locks = place.patient().await;
    let guard = take(&locks, "a").await;
    let requests = place.proxy().watch(|_| true);
    place.proxy().cut();
    // The operation lists the nodes of a session.
    let is_list = |request: &Command| request.is("OP103");
    let is_listed = async || requests.seen().iter().any(is_list);
    until("the nodes are listed", is_listed).await;
    let requests = requests.seen();
    let list = requests.iter().position(is_list).expect("it is there");
    let connection = requests[list].connection;
    let is_beat = |request: &Command| {
        request.connection == connection && (request.is("MULTI") || request.is("SYNC"))
    };
    assert!(requests[..list].iter().any(is_beat), "{requests:?}");
    release_clean(guard).await;
}

/// A client with sessions of 4 s that are exchanged, before the proxy of the place.
async fn behind_exchange() -> (Place, Exchange, Arc<ZooKeeper>) {
    let place = Place::new().await;
    let exchange = Exchange::before(place.proxy().port()).await;
    let config = lasting(config(&[exchange.port()], place.root()), ms(4_000));
    let locks = open(config).await;
    (place, exchange, locks)
}

/// A holder whose client was given another session loses its locks before the old one ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_exchanged_without_a_word_takes_its_locks_with_it() {
    let (_place, exchange, locks) = behind_exchange().await;
    let guard = take(&locks, "a").await;
    exchange.cut().await;
    assert_eq!(loss(&guard).await, LostReason::SessionEnded);
    // The node of the old session is in the way for as long as that lasts.
    let again = within("a", SOON * 4);
    let again = locks.acquire(&again).await.expect("the old session ends");
    assert!(again.fencing_token() > guard.fencing_token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_in_an_exchanged_session_is_deleted() {
    let (place, exchange, locks) = behind_exchange().await;
    // A lock keeps its session, and the client of it, for as long as its guard is there.
    let pinned = take(&locks, "pinned").await;
    exchange.cut().await;
    let one = within("a", SOON * 2);
    let guard = locks.acquire(&one).await.expect("it is granted");
    assert_eq!(place.tree().nodes("a").await.len(), 1);
    release(guard).await;
    sleep(ms(200)).await;
    place.assert_nothing_left(&[&locks], "a").await;
    drop(pinned);
}

/// The exchange of its node was made in the old session, and the node ends with that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_downgraded_while_its_session_is_exchanged_is_lost() {
    let (place, _exchange, locks) = behind_exchange().await;
    let other = place.client().await;
    let mut guard = take(&locks, "a").await;
    let writer = place.waiter(&other, within("a", SOON * 4)).await;
    let lost = Fate::LostReply(Then::Cut);
    place.proxy().plan(is_exchange, lost);
    // The client is connected again before the second request has a reply.
    let late = place.proxy().plan(is_exchange, Fate::LateRequest(ms(500)));
    // The lock may be lost by then.
    drop(guard.downgrade().await);
    assert_eq!(late.struck(), 1);
    let reason = reason_lost_before_granted(&guard, writer).await;
    assert_ne!(reason, LostReason::Broken, "lost by the end of its node");
}

/// A leader that has lost its followers without noticing answers `sync` on its own for longer than
/// their new leader keeps the sessions of its clients.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_lost_before_the_next_leader_gives_it_away() {
    let options = ZooKeeperOptions::new()
        .with_config("tickTime", "2000")
        .with_config("minSessionTimeout", "4000")
        .with_config("maxSessionTimeout", "120000")
        .with_config("initLimit", "5")
        .with_config("syncLimit", "5");
    let (ensemble, link) = ZooKeeperEnsemble::start_with_far_leader(&options);
    let port = |place: usize| ensemble.servers()[place].port();
    // The followers elect a leader in seconds, and try again for 10 s whenever they disagree about it.
    let near = lasting(config(&[port(0), port(1)], "/locks"), SOON * 24).with_timeout(SOON * 12);
    let near = open(near.expect("it is in range")).await;
    let door = Proxy::zookeeper(port(2));
    let pairs = [4, 10].map(|seconds| pair(door.port(), seconds, &near, SOON * 24));
    let pairs = join_all(pairs).await;
    // No fault during several heartbeats.
    sleep(ms(3_000)).await;
    // Once it has noticed, its clients do not find another server.
    door.refuse();
    link.refuse();
    link.half_open();
    assert_all_lost_before_granted(pairs).await;
}

/// The session timeout that the server grants counts, not the requested one.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_shorter_than_asked_for_ends_after_its_locks_are_lost() {
    const GRANTED: Duration = Duration::from_secs(4);
    let options = ZooKeeperOptions::new();
    let options = options.with_config("maxSessionTimeout", &GRANTED.as_millis().to_string());
    let server = ZooKeeperServer::start(options);
    let place = Place::of(&server).await;
    let locks = place.with_session(GRANTED * 5).await;
    let other = place.client().await;
    let guard = take(&locks, "a").await;
    let next = place.waiter(&other, within("a", SOON * 24)).await;
    place.proxy().refuse();
    place.proxy().hold(Direction::Both);
    assert_lost_before_granted(&guard, next).await;
}

/// A client with a lock, and another one that waits for it.
type Pair = (Arc<ZooKeeper>, LockGuard, JoinHandle<Result<LockGuard>>);

/// A client at `port` that holds a lock in a session of so many seconds, and a waiter of `near`.
async fn pair(port: u16, seconds: u64, near: &Arc<ZooKeeper>, wait: Duration) -> Pair {
    let session = Duration::from_secs(seconds);
    let far = open(lasting(config(&[port], "/locks"), session)).await;
    let name = format!("session-of-{seconds}");
    let guard = take(&far, &name).await;
    let next = waiting(near, within(&name, wait));
    (far, guard, next)
}

async fn assert_all_lost_before_granted(pairs: Vec<Pair>) {
    let pairs = pairs.into_iter();
    let lost =
        pairs.map(async |(_far, guard, next)| assert_lost_before_granted(&guard, next).await);
    join_all(lost).await;
}

/// A holder that is cut off has lost its lock before the next one has it.
async fn assert_lost_before_granted(guard: &LockGuard, next: JoinHandle<Result<LockGuard>>) {
    let reason = reason_lost_before_granted(guard, next).await;
    assert_eq!(reason, LostReason::Unreachable, "{}", guard.key());
}

/// How a holder loses its lock, which is before the next one has it.
async fn reason_lost_before_granted(
    guard: &LockGuard,
    next: JoinHandle<Result<LockGuard>>,
) -> LostReason {
    let lost = async {
        let lost = timeout(SOON * 24, guard.lost().into_future()).await;
        lost.expect("the holder was not notified of its loss")
    };
    let granted = async {
        let next = granted(next).await;
        assert!(!guard.is_held(), "two held {}", guard.key());
        next
    };
    let (reason, _next) = tokio::join!(lost, granted);
    reason
}

/// Each connection has a session timeout of its own, and the smallest of them counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_with_shorter_sessions_ends_none_before_its_locks_are_lost() {
    const SHORTER: Duration = Duration::from_secs(12);
    let options = ZooKeeperOptions::new().with_config("maxSessionTimeout", "40000");
    let server = ZooKeeperServer::start(options);
    let place = Place::of(&server).await;
    let locks = place.with_session(SOON * 6).await;
    let other = place.client().await;
    let guard = take(&locks, "a").await;
    let next = place.waiter(&other, within("a", SOON * 24)).await;
    let config = OpenOptions::new()
        .append(true)
        .open(server.dir().join("zoo.cfg"));
    let line = format!("maxSessionTimeout={}\n", SHORTER.as_millis());
    let written = config.and_then(|mut config| config.write_all(line.as_bytes()));
    written.expect("the last line counts");
    let connections = place.proxy().connections();
    tokio::task::block_in_place(|| server.restart());
    until("it is connected again", async || {
        place.proxy().connections() > connections && place.tree().exists("a").await
    })
    .await;
    // The lock outlives the restart, for as long as heartbeats are answered.
    sleep(SHORTER).await;
    assert!(guard.is_held(), "{:?}", guard.lost().reason());
    place.proxy().refuse();
    place.proxy().hold(Direction::Both);
    assert_lost_before_granted(&guard, next).await;
}

/// A key of such a length that the paths of some 500 nodes fill a packet of 128 KiB.
fn long_name(n: usize) -> String {
    format!("{n:0>240}")
}

/// More than the budget of watches has room for: paths of about 310 bytes fill 96 KiB with some 300.
const WAITERS: usize = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_without_a_watch_outlast_an_outage_and_are_served() {
    let place = Place::new().await;
    let other = place.client().await;
    let locks = place.with_session(SOON * 2).await;
    let mut held = Vec::new();
    let mut waiters = Vec::new();
    for n in 0..WAITERS {
        held.push(take(&other, &long_name(n)).await);
        waiters.push(waiting(&locks, within(&long_name(n), SOON * 8)));
    }
    for n in 0..WAITERS {
        place.contenders(&long_name(n), 2).await;
    }
    let before = place.tree().session(&long_name(0), 1).await;
    place.proxy().cut();
    sleep(ms(1_000)).await;
    for guard in held {
        release_clean(guard).await;
    }
    let mut guards = Vec::new();
    for waiter in waiters {
        guards.push(granted(waiter).await);
    }
    let after = place.tree().session(&long_name(WAITERS - 1), 0).await;
    assert_eq!(after, before, "another session");
    drop(guards);
    assert!(locks.shutdown(SOON).await);
}

/// Why a session watches no more than its budget: when this fails, the client can do without it.
#[tokio::test]
async fn the_client_itself_ends_its_session_where_its_watches_take_two_packets() {
    let place = Place::new().await;
    let address = format!("127.0.0.1:{}", place.proxy().port());
    // A packet takes 128 KiB of paths.
    for (watches, is_kept) in [(400, true), (600, false)] {
        let client = Client::connector().with_session_timeout(ms(4_000));
        let client = client.connect(&address).await.expect("it connects");
        let paths: Vec<_> = (0..watches).map(|n| format!("/{}", long_name(n))).collect();
        let watchers = paths.iter().map(|path| client.check_and_watch_stat(path));
        let watchers = join_all(watchers).await;
        assert!(watchers.iter().all(Result::is_ok));
        place.proxy().cut();
        let answer = loop {
            match client.check_stat("/").await {
                Err(Error::ConnectionLoss | Error::Custom(_) | Error::UnexpectedError(_)) => {}
                answer => break answer,
            }
        };
        assert_eq!(answer.is_ok(), is_kept, "{watches} watches: {answer:?}");
    }
}
