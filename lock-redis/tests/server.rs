//! Faults of the server: no two holders, no leftover locks, and every waiter is served in the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_testkit::history::{Checker, Counter, Recorder};
use polylock_core::layers::LocalQueue;
use polylock_core::{ErrorKind, LostReason};
use polylock_redis::Redis;
use tokio::task::JoinSet;

use crate::support::{
    Place, SOON, TTL, acquire, assert_error, assert_replaced, attempt, break_lock, count, granted,
    idle, key, lease, loss_by_renewal, ms, noted, noted_waiters, release, request, take, take_long,
    until, waiting, within,
};

const KEYS: usize = 5;
const WAITERS: usize = 50;

fn name(n: usize) -> String {
    format!("key/{}", n % KEYS)
}

/// Fifty waiters on five keys of five clients, while something is done to the server.
async fn with_fifty_waiters(place: &Place, trouble: impl AsyncFnOnce()) {
    let recorder = Recorder::new();
    let mut clients: Vec<Arc<Redis>> = Vec::new();
    for _ in 0..5 {
        clients.push(place.client().await);
    }
    let mut held = Vec::new();
    for (n, client) in clients.iter().enumerate() {
        held.push(noted(&recorder, client, &request(&name(n))).await);
    }
    let requests = (0..WAITERS).map(|n| within(request(&name(n)), Duration::from_secs(40)));
    let tasks = noted_waiters(&clients, &recorder, requests);
    for n in 0..KEYS {
        place.queued(&name(n), WAITERS / KEYS).await;
    }
    trouble().await;
    for guard in held {
        guard.look();
        drop(guard.release().await);
    }
    tasks.join_all().await;
    for client in &clients {
        idle(client).await;
    }
    for n in 0..KEYS {
        until("nothing is left", || place.remains(&name(n)).is_empty()).await;
        let look = place.look(&key(&name(n)));
        recorder.left(&key(&name(n)), look.holders as u64, look.waiters as u64);
    }
    let summary = Checker::new()
        .with_max_idle(Duration::from_secs(30))
        .check(&recorder.events())
        .assert_clean();
    assert!(summary.grants >= WAITERS + KEYS, "{summary:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_for_longer_than_a_lease_serves_its_waiters() {
    let place = Place::new();
    with_fifty_waiters(&place, async || {
        place.server.stop();
        tokio::time::sleep(TTL.mul_f64(1.5)).await;
        place.server.resume();
    })
    .await;
}

#[tokio::test]
async fn a_server_that_stops_is_not_taken_for_a_holder_by_local_waiters() {
    let place = Place::new();
    let other = place.client().await;
    let held = take(&other, "a").await;
    let queue = Arc::new(LocalQueue::new(place.client().await));
    let waiter = waiting(&queue, within(request("a"), TTL * 3));
    place.queued("a", 1).await;
    place.server.stop();
    let error = waiter.await.expect("no panic");
    let error = error.expect_err("the server does not answer");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    place.server.resume();
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgets_everything_serves_its_waiters_when_the_leases_are_over() {
    let place = Place::new();
    with_fifty_waiters(&place, async || {
        place.server.kill();
        tokio::time::sleep(TTL).await;
        place.server.restart();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgets_its_scripts_loses_no_increment() {
    let place = Place::new();
    let (counter, over) = (Arc::<Counter>::default(), Arc::<AtomicBool>::default());
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let client = place.patient_client().await;
        for _ in 0..4 {
            let (client, counter) = (Arc::clone(&client), Arc::clone(&counter));
            tasks.spawn(async move {
                for _ in 0..20 {
                    let one = within(request("key/0").with_ttl(TTL * 10), SOON * 4);
                    let guard = acquire(&client, &one).await;
                    counter.increment().await;
                    release(guard).await;
                }
            });
        }
    }
    let flushing = async {
        while !over.load(Ordering::SeqCst) {
            place.command(&["SCRIPT", "FLUSH"]);
            tokio::time::sleep(ms(3)).await;
        }
    };
    let working = async {
        tasks.join_all().await;
        over.store(true, Ordering::SeqCst);
    };
    tokio::join!(flushing, working);
    assert_eq!(counter.value(), 3 * 4 * 20);
    until("nothing is left", || place.remains("key/0").is_empty()).await;
}

/// An administrator, an eviction or a clock jump removes a lock.
async fn taken_away(place: &Place, how: impl FnOnce()) {
    let (locks, other) = (place.client().await, place.elsewhere().await);
    let guard = take_long(&locks, "a").await;
    how();
    let next = take_long(&other, "a").await;
    // Documented as unsafe: for a while there are two holders.
    assert!(guard.is_held(), "not shown to be unsafe");
    assert_eq!(loss_by_renewal(&guard).await, LostReason::Stolen);
    assert_replaced(guard, next).await;
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

#[tokio::test]
async fn a_lock_that_is_deleted_or_whose_clock_jumps_is_lost_and_the_token_grows() {
    let place = Place::new();
    taken_away(&place, || drop(place.command(&["DEL", "a"]))).await;
    taken_away(&place, || drop(place.command(&["DEL", "a", "{}:tokens"]))).await;
    taken_away(&place, || drop(place.command(&["FLUSHALL"]))).await;
    // As by a clock that jumps forward.
    taken_away(&place, || {
        place.command(&["PEXPIRE", "a", "1"]);
        std::thread::sleep(ms(5));
    })
    .await;
}

#[tokio::test]
async fn a_lock_that_is_evicted_is_lost_and_the_token_grows() {
    let place = Place::new();
    taken_away(&place, || {
        place.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
        let used = count(&place.server, "used_memory");
        place.command(&["CONFIG", "SET", "maxmemory", &(used + 200_000).to_string()]);
        let long = "x".repeat(10_000);
        for n in 0..200 {
            if place.number(&["EXISTS", "a"]) == 0 {
                break;
            }
            place.command(&["SET", &format!("filler/{n}"), &long]);
        }
        assert_eq!(place.number(&["EXISTS", "a"]), 0, "it is not evicted");
        place.command(&["CONFIG", "SET", "maxmemory", "0"]);
    })
    .await;
}

#[tokio::test]
async fn a_lock_that_lost_its_expiry_gets_it_back_by_the_next_renewal() {
    let place = Place::new();
    let locks = place.client().await;
    let guard = take(&locks, "a").await;
    place.command(&["PERSIST", "a"]);
    until("it expires", || place.number(&["PTTL", "a"]) > 0).await;
    guard.release().await.expect("it is released");
    // Without renewals this one stays until it is broken.
    let guard = acquire(&locks, &lease("a")).await;
    place.command(&["PERSIST", "a"]);
    guard.abandon();
    tokio::time::sleep(TTL.mul_f64(1.1)).await;
    let other = place.elsewhere().await;
    assert_error(&other, &attempt("a"), ErrorKind::Contended).await;
    let next = place.waiter(&other, within(request("a"), SOON)).await;
    break_lock(&locks, "a").await;
    release(granted(next).await).await;
    place.assert_nothing_left(&[&locks, &other], "a").await;
}
