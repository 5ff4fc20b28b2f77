//! Servers of an ensemble that are killed and come back.

use std::sync::Arc;
use std::time::Duration;

use lock_testkit::servers::{ZooKeeperEnsemble, ZooKeeperOptions};
use polylock_core::{AcquireRequest, DistributedLock, ErrorKind, LostReason};
use polylock_zk::ZooKeeper;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    Place, SESSION, SOON, assert_error, granted, lasting, loss, ms, open, release_clean, take,
    token, until, waiting, within,
};

/// Longer than it takes to elect a leader on a busy machine.
const LONG: Duration = Duration::from_secs(10);

fn start() -> ZooKeeperEnsemble {
    let options = ZooKeeperOptions::new().with_config("maxSessionTimeout", "60000");
    ZooKeeperEnsemble::start(3, &options)
}

/// A client whose session and requests outlast several elections, where servers disagree.
async fn patient(place: &Place) -> Arc<ZooKeeper> {
    let config = lasting(place.config(), LONG * 4).with_timeout(LONG * 4);
    open(config.expect("it is in range")).await
}

fn long(name: &str) -> AcquireRequest {
    within(name, LONG * 6)
}

/// The watches that all servers have.
fn watches(ensemble: &ZooKeeperEnsemble) -> i64 {
    let servers = ensemble.servers().iter();
    servers
        .filter_map(|server| server.mntr("zk_watch_count"))
        .sum()
}

async fn assert_nothing_left(place: &Place, clients: &[&Arc<ZooKeeper>], name: &str) {
    for client in clients {
        assert!(client.shutdown(LONG).await, "background work does not end");
    }
    let tree = crate::support::Tree::open(&place.addresses(), place.root()).await;
    assert_eq!(tree.nodes(name).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_waiters_keep_their_order_when_the_leader_is_killed() {
    let ensemble = start();
    let place = Place::of_all(&ensemble).await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(patient(&place).await);
    }
    let owner = patient(&place).await;
    let holder = take(&owner, "a").await;
    let mut waiters = JoinSet::new();
    for n in 0..50 {
        let locks = Arc::clone(&clients[n % 5]);
        waiters.spawn(async move {
            let guard = locks.acquire(&long("a")).await.expect("it is granted");
            let token = token(&guard);
            assert!(guard.is_held());
            release_clean(guard).await;
            (n, token)
        });
        place.contenders("a", n + 2).await;
    }
    let leader = ensemble.leader();
    ensemble.servers()[leader].kill();
    assert_ne!(ensemble.leader(), leader);
    sleep(ms(2_000)).await;
    assert!(holder.is_held(), "{:?}", holder.lost().reason());
    assert!(waiters.try_join_next().is_none(), "two holders");
    let mut last = token(&holder);
    release_clean(holder).await;
    let mut order = waiters.join_all().await;
    order.sort_by_key(|(_, token)| *token);
    for (place, (n, token)) in order.iter().enumerate() {
        assert_eq!(place, *n, "{order:?}");
        assert!(*token > last, "{order:?}");
        last = *token;
    }
    let mut all: Vec<_> = clients.iter().collect();
    all.push(&owner);
    assert_nothing_left(&place, &all, "a").await;
}

#[tokio::test]
async fn a_lock_outlives_the_server_that_its_holder_is_connected_to() {
    let ensemble = start();
    let place = Place::of_all(&ensemble).await;
    let (locks, other) = (patient(&place).await, patient(&place).await);
    let guard = take(&locks, "a").await;
    let session = format!("sid=0x{:x}", place.tree().session("a", 0).await);
    let servers = ensemble.servers();
    let has_it = servers
        .iter()
        .position(|server| server.four_letter("cons").contains(&session));
    let at = has_it.expect("it is connected to one of them");
    servers[at].kill();
    // It waits on another server.
    let waiter = waiting(&other, long("a"));
    sleep(LONG / 2).await;
    assert!(guard.is_held(), "{:?}", guard.lost().reason());
    assert!(!waiter.is_finished(), "two holders");
    let before = token(&guard);
    release_clean(guard).await;
    let next = granted(waiter).await;
    assert!(token(&next) > before);
    servers[at].restart();
    ensemble.settle();
    assert!(next.is_held());
    release_clean(next).await;
    assert_nothing_left(&place, &[&locks, &other], "a").await;
}

#[tokio::test]
async fn without_a_quorum_no_client_holds_or_is_granted_a_lock() {
    let ensemble = start();
    let place = Place::of_all(&ensemble).await;
    // A slow server that has just started must not cost a lock.
    let session = SESSION * 2;
    let locks = open(lasting(place.config(), session)).await;
    let other = open(lasting(place.config(), SESSION * 10)).await;
    let guard = take(&locks, "a").await;
    let waiter = place.waiter(&other, long("a")).await;
    // The holder watches its own node, and the waiter that of the holder.
    until("both watch", async || watches(&ensemble) == 2).await;
    let servers = ensemble.servers();
    servers[0].kill();
    let began = Instant::now();
    servers[1].kill();
    assert_eq!(loss(&guard).await, LostReason::Unreachable);
    let lost = began.elapsed();
    assert!(lost < session, "lost after {lost:?}");
    sleep(session).await;
    assert!(!guard.is_held() && !waiter.is_finished());
    let asked = Instant::now();
    let error = assert_error(&locks, &within("a", ms(500)), ErrorKind::Unavailable).await;
    assert!(error.is_retryable(), "{error:?}");
    let took = asked.elapsed();
    assert!(took < session, "a wait of 500 ms took {took:?}");
    servers[0].restart();
    servers[1].restart();
    ensemble.settle();
    let next = timeout(LONG * 3, waiter).await.expect("it is served");
    let next = next.expect("no panic").expect("it is granted");
    assert!(next.is_held(), "{:?}", next.lost().reason());
    let (before, after) = (token(&guard), token(&next));
    assert!(after > before, "{after} after {before}");
    drop(guard);
    release_clean(next).await;
    let again = locks.acquire(&long("a")).await.expect("it is granted");
    assert!(token(&again) > after, "{} after {after}", token(&again));
    release_clean(again).await;
    assert_nothing_left(&place, &[&locks, &other], "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_held_over_a_restart_of_all_servers_is_held_or_lost_and_never_twice() {
    let ensemble = start();
    let place = Place::of_all(&ensemble).await;
    let (locks, other) = (patient(&place).await, patient(&place).await);
    let guard = Arc::new(take(&locks, "a").await);
    let waiter = place.waiter(&other, long("a")).await;
    let first = Arc::downgrade(&guard);
    let mut next = tokio::spawn(async move {
        let next = granted(waiter).await;
        let is_held = first.upgrade().is_some_and(|guard| guard.is_held());
        assert!(!is_held, "two holders");
        next
    });
    for server in ensemble.servers() {
        server.kill();
    }
    for server in ensemble.servers() {
        server.restart();
    }
    ensemble.settle();
    let early = timeout(SOON, &mut next).await;
    let before = token(&guard);
    drop(guard);
    let next = match early {
        Ok(next) => next,
        // The first holder has kept the lock.
        Err(_) => next.await,
    };
    let next = next.expect("it is granted, and not to two");
    assert!(token(&next) > before);
    release_clean(next).await;
    assert_nothing_left(&place, &[&locks, &other], "a").await;
}
