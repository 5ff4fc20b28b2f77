//! Lockers that let a number of requests with one key in.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_testkit::servers::{RedisOptions, RedisServer};
use polylock_core::memory::Memory;
use polylock_core::{DistributedLock, ErrorKind, Mode};
use polylock_tower::idempotency::{IdempotencyLayer, KeyScope, MemoryResponses};
use polylock_tower::{HeldLock, Locker, LockerBuilder, Reason, SafeMethods};
use tokio::sync::Semaphore;
use tower::Layer as _;

use crate::support::{
    Broken, Event, Scene, Sent, Stage, by_path, connect, handler, patient, post, request, send,
    settle, spawn, until,
};

const LIMIT: NonZeroU32 = NonZeroU32::new(3).unwrap();
const PERMITS: usize = 3;
/// Of each of two instances.
const REQUESTS: usize = 8;

/// Another instance of the service has a locker of its own.
fn instance(locks: Arc<dyn DistributedLock>) -> Locker {
    let locker = Locker::builder(locks, "test").permits(LIMIT);
    let locker = locker.wait(Duration::from_secs(60)).build();
    locker.expect("the backend has permits")
}

fn with_permits(locker: LockerBuilder) -> LockerBuilder {
    locker.permits(LIMIT)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_run_at_once_as_there_are_permits_over_two_instances_on_redis() {
    let redis = RedisServer::start(RedisOptions::new());
    let url = patient(&redis);
    assert_permits([connect(&url).await, connect(&url).await]).await;
}

/// Shows that the test above can fail.
#[tokio::test]
#[should_panic(expected = "more run at once than there are permits")]
async fn instances_whose_permits_are_not_the_same_are_caught() {
    assert_permits([connect("memory:").await, connect("memory:").await]).await;
}

/// Sends requests for one key to two instances, and lets them end one by one: each end lets the next
/// one in, and no more.
async fn assert_permits(locks: [Arc<dyn DistributedLock>; 2]) {
    let (lockers, stage) = (locks.map(instance), Stage::new());
    let mut sent = Vec::new();
    for locker in &lockers {
        let service = by_path(locker.clone()).layer(stage.handler());
        sent.extend((0..REQUESTS).map(|_| spawn(&service, post("/hot"))));
    }
    until("all ask for a permit", || {
        let waiters = lockers.iter().map(Locker::waiters).sum::<usize>();
        waiters == 2 * (REQUESTS - PERMITS)
    })
    .await;
    for ended in 0..=sent.len() {
        let entered = sent.len().min(PERMITS + ended);
        let events = stage.happened(ended + entered).await;
        assert!(
            most_at_once(&events) <= PERMITS,
            "more run at once than there are permits: {events:?}"
        );
        assert_eq!(events.len(), ended + entered, "{events:?}");
        stage.let_go(1);
    }
    for request in sent {
        assert_eq!(request.said().await.status, 200);
    }
    assert_eq!(most_at_once(&stage.events()), PERMITS);
    for locker in &lockers {
        assert_eq!((locker.waiters(), locker.live_keys()), (0, 0));
    }
}

/// How many were inside at the same time, in the order in which things happened.
fn most_at_once(events: &[Event]) -> usize {
    let inside = events.iter().scan(0, |inside, event| {
        match event {
            Event::Entered(_) => *inside += 1,
            Event::Dropped(_) | Event::Finished(_) => *inside -= 1,
        }
        Some(*inside)
    });
    inside.max().unwrap_or(0)
}

/// Memory is fair.
#[tokio::test(start_paused = true)]
async fn requests_are_served_in_the_order_of_their_arrival() {
    let scene = Scene::new();
    let lockers = [(); 2].map(|()| scene.locker_with(with_permits));
    let (served, gate) = (Arc::<Mutex<Vec<usize>>>::default(), Semaphore::new(0));
    let gate = Arc::new(gate);
    let mut sent = Vec::new();
    for number in 0..12 {
        let (served, gate) = (Arc::clone(&served), Arc::clone(&gate));
        let service = by_path(lockers[number % 2].clone()).layer(handler(move |_| {
            let (served, gate) = (Arc::clone(&served), Arc::clone(&gate));
            async move {
                served.lock().unwrap().push(number);
                gate.acquire().await.unwrap().forget();
                "done"
            }
        }));
        sent.push(spawn(&service, post("/a")));
        settle().await;
    }
    for ended in 0..=9 {
        let expected: Vec<_> = (0..PERMITS + ended).collect();
        assert_eq!(
            *served.lock().unwrap(),
            expected,
            "after {ended} have ended"
        );
        gate.add_permits(1);
        settle().await;
    }
    gate.add_permits(2);
    for request in sent {
        assert_eq!(request.said().await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_goes_away_frees_its_permit_or_its_place() {
    let (locker, stage) = (Scene::new().locker_with(with_permits), Stage::new());
    let service = by_path(locker.clone()).layer(stage.handler());
    let mut sent = Vec::new();
    for _ in 0..PERMITS + 3 {
        sent.push(spawn(&service, post("/a")));
        settle().await;
    }
    assert_eq!((stage.events().len(), locker.waiters()), (PERMITS, 3));
    // The first of those that wait goes, then one that runs: the second waiter enters.
    sent[PERMITS].abort();
    settle().await;
    assert_eq!((stage.events().len(), locker.waiters()), (PERMITS, 2));
    sent[0].abort();
    settle().await;
    let events = stage.events();
    let [.., Event::Dropped(_), Event::Entered(_)] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(locker.waiters(), 1);
    sent.iter().for_each(Sent::abort);
    settle().await;
    assert_eq!((locker.waiters(), locker.live_keys()), (0, 0));
    let all = [(); PERMITS].map(|()| locker.lock("/a"));
    let all = futures_util::future::join_all(all).await;
    assert!(
        all.iter().all(Result::is_ok),
        "all permits are free: {all:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn several_keys_have_a_permit_each() {
    let set = |locker: LockerBuilder| with_permits(locker).try_only();
    let locker = Scene::new().locker_with(set);
    let mut held = Vec::new();
    for _ in 0..PERMITS {
        held.push(locker.lock_all(["a", "b"]).await.unwrap());
    }
    let refused = locker.lock_all(["b", "c"]).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::Busy);
    let free = locker.lock_all(["c", "d"]).await.unwrap();
    assert_eq!(free.fencing_tokens().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn requests_with_a_safe_method_take_a_permit_if_they_do_not_pass() {
    let set = |locker: LockerBuilder| with_permits(locker).try_only();
    let locker = Scene::new().locker_with(set);
    let layer = by_path(locker.clone()).with_safe_methods(SafeMethods::Exclusive);
    let service = layer.unwrap().layer(handler(async |held: HeldLock| {
        held.ensure_held().unwrap();
        "done"
    }));
    let get = || request(http::Method::GET, "/a");
    let mut held = Vec::new();
    for _ in 0..PERMITS {
        assert_eq!(send(&service, get()).await.status, 200);
        held.push(locker.lock("/a").await.unwrap());
    }
    assert_eq!(send(&service, get()).await.status, 409);
}

#[test]
fn permits_are_refused_where_they_make_no_sense() {
    let builder = |locks: Arc<dyn DistributedLock>| Locker::builder(locks, "test");
    let error = builder(Arc::new(Broken(ErrorKind::Unavailable)))
        .permits(LIMIT)
        .build();
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.backend(), Some("broken"));
    assert_eq!(error.message(), "permits are not supported by this backend");

    let memory = Arc::new(Memory::new());
    let shared =
        builder(Arc::<Memory>::clone(&memory)).request(|request| request.with_mode(Mode::Shared));
    let locker = builder(memory).permits(LIMIT).build().unwrap();
    let readers = by_path(locker.clone()).with_safe_methods(SafeMethods::Shared);
    let responses = Arc::new(MemoryResponses::new());
    let idempotent = IdempotencyLayer::new(locker, responses, KeyScope::shared());
    for (error, says) in [
        (shared.build().err(), "SafeMethods::Shared"),
        (readers.err(), "build a locker without permits"),
        (idempotent.err(), "build a locker without permits"),
    ] {
        let error = error.unwrap_or_else(|| panic!("not refused: {says}"));
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.message().contains(says), "{error}");
    }
}
