//! Locks with several holders: limits are compared, and nothing piles up.

use std::num::NonZeroU32;

use lock_core::{AcquireRequest, DistributedLock, ErrorKind, Mode};

use crate::support::{Place, SOON, key, lease, request, take, waiting, within};

fn shared(name: &str) -> AcquireRequest {
    request(name).with_mode(Mode::Shared)
}

fn permit(name: &str, limit: u32) -> AcquireRequest {
    let limit = NonZeroU32::new(limit).expect("it is not zero");
    request(name).with_mode(Mode::Permit { limit })
}

#[tokio::test]
async fn permits_with_another_limit_that_wait_are_refused() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.elsewhere().await);
    // While the lock is held in another way, all of them wait.
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
    assert!(error.to_string().contains("limit 2"), "{error}");
    assert!(!error.is_retryable(), "{error}");
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
