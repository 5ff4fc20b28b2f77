//! Locks with several holders: none outlives its lease, none starves, nothing piles up.

mod support;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::{AcquireRequest, DistributedLock, ErrorKind, Mode, Wait};
use lock_testkit::history::{Checker, Recorder};
use tokio::task::JoinSet;
use tokio::time::Instant;

use support::{Place, SOON, TTL, key, lease, ms, request, take, waiting, within};

fn shared(name: &str) -> AcquireRequest {
    request(name).with_mode(Mode::Shared)
}

fn permit(name: &str, limit: u32) -> AcquireRequest {
    let limit = NonZeroU32::new(limit).expect("it is not zero");
    request(name).with_mode(Mode::Permit { limit })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_is_not_starved_by_readers_of_several_clients() {
    let place = Place::new().await;
    let (recorder, over) = (Recorder::new(), Arc::<AtomicBool>::default());
    let mut readers = JoinSet::new();
    for _ in 0..3 {
        let client = place.client().await;
        for _ in 0..4 {
            let (client, recorder, over) =
                (Arc::clone(&client), recorder.clone(), Arc::clone(&over));
            readers.spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    let one = within(shared("a"), SOON * 2);
                    let guard = recorder
                        .acquire(&client, &one)
                        .await
                        .expect("it is granted");
                    tokio::time::sleep(ms(3)).await;
                    guard.look();
                    guard.release().await.expect("it is released");
                }
            });
        }
    }
    let writer = place.client().await;
    for _ in 0..5 {
        tokio::time::sleep(ms(50)).await;
        let began = Instant::now();
        let one = within(request("a"), SOON * 2);
        let guard = recorder
            .acquire(&writer, &one)
            .await
            .expect("it is granted");
        assert!(began.elapsed() < SOON, "waited {:?}", began.elapsed());
        tokio::time::sleep(ms(3)).await;
        guard.release().await.expect("it is released");
    }
    over.store(true, Ordering::SeqCst);
    while let Some(done) = readers.join_next().await {
        done.expect("no panic");
    }
    place.assert_nothing_left(&[&writer], "a").await;
    Checker::new().check(&recorder.events()).assert_clean();
}

#[tokio::test]
async fn a_dead_reader_does_not_outlive_its_ttl_while_another_renews() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.elsewhere().await);
    let renewed = locks.acquire(&permit("a", 2)).await.expect("it is granted");
    let dead = permit("a", 2).with_renewal(lock_core::Renewal::Manual);
    let began = Instant::now();
    other.acquire(&dead).await.expect("it is granted").abandon();
    let refused = locks.acquire(&permit("a", 2).with_wait(Wait::Never)).await;
    assert_eq!(
        refused.expect_err("three hold two").kind(),
        ErrorKind::Contended
    );
    let next = locks
        .acquire(&within(permit("a", 2), SOON))
        .await
        .expect("it is granted");
    let waited = began.elapsed();
    assert!(
        waited >= TTL.mul_f64(0.98) && waited < TTL + ms(1_500),
        "{waited:?}"
    );
    assert!(renewed.is_held());
    renewed.release().await.expect("it is released");
    next.release().await.expect("it is released");
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

#[tokio::test]
async fn permits_with_another_limit_are_refused_held_or_waiting() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.elsewhere().await);
    let held = locks.acquire(&permit("a", 2)).await.expect("it is granted");
    for one in [permit("a", 3), permit("a", 1), within(permit("a", 3), SOON)] {
        let error = other
            .acquire(&one)
            .await
            .expect_err("another limit is in force");
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        assert!(error.to_string().contains("limit 2"), "{error}");
        assert!(!error.is_retryable());
    }
    held.release().await.expect("it is released");
    // In the queue of a lock that is held in another way, they are told later.
    let held = take(&locks, "a").await;
    let two = waiting(&locks, within(permit("a", 2), SOON));
    place.queued("a", 1).await;
    let three = waiting(&other, within(permit("a", 3), SOON));
    place.queued("a", 2).await;
    let last = waiting(&other, within(permit("a", 2), SOON));
    place.queued("a", 3).await;
    held.release().await.expect("it is released");
    let two = two.await.expect("no panic").expect("it is granted");
    let error = three
        .await
        .expect("no panic")
        .expect_err("another limit is in force");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    let last = last.await.expect("no panic").expect("it is granted");
    for guard in [two, last] {
        guard.release().await.expect("it is released");
    }
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

#[tokio::test]
async fn readers_that_die_leave_nothing_that_piles_up() {
    let place = Place::new().await;
    let locks = place.client().await;
    for round in 0..40 {
        let one = lease("a").with_mode(Mode::Shared);
        locks.acquire(&one).await.expect("it is granted").abandon();
        // As when the lease of the last one ends.
        if round % 2 == 0 {
            place.command(&["DEL", "a"]);
        }
    }
    place.command(&["DEL", "a"]);
    let guard = locks.acquire(&shared("a")).await.expect("it is granted");
    let notes = place.number(&["HLEN", "{a}:notes"]);
    assert!(
        notes <= 2,
        "{notes} notes: {:?}",
        place.command(&["HKEYS", "{a}:notes"])
    );
    guard.release().await.expect("it is released");
    place.assert_nothing_left(&[&locks], "a").await;
}

#[tokio::test]
async fn releases_that_come_too_late_leave_nothing_that_piles_up() {
    let place = Place::new().await;
    let locks = place.client().await;
    for _ in 0..300 {
        let guard = locks.acquire(&lease("a")).await.expect("it is granted");
        place.command(&["DEL", "a"]);
        drop(guard.release().await);
        // As if a minute had passed.
        place.command(&["EVAL", AGE, "1", "{a}:notes"]);
    }
    let notes = place.number(&["HLEN", "{a}:notes"]);
    assert!(notes <= 128, "{notes} notes of releases long ago");
    assert_eq!(place.look(&key("a")).holders, 0);
}

/// Makes the notes of releases a minute older.
const AGE: &str = "for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do \
    local at = tonumber(redis.call('HGET', KEYS[1], f)) \
    if at and at > 60000 then redis.call('HSET', KEYS[1], f, string.format('%.0f', at - 60000)) end end";
