//! Locks with several holders: limits are compared, and nothing piles up.

use std::num::NonZeroU32;

use polylock_core::{AcquireRequest, DistributedLock, Mode};

use crate::support::{Place, SOON, acquire, granted, key, lease, request, take, waiting, within};

fn shared(name: &str) -> AcquireRequest {
    request(name).with_mode(Mode::Shared)
}

fn permit(name: &str, limit: u32) -> AcquireRequest {
    let limit = NonZeroU32::new(limit).expect("it is not zero");
    request(name).with_mode(Mode::Permit { limit })
}

#[tokio::test]
async fn permits_of_several_limits_are_granted_in_order() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.elsewhere().await);
    let held = take(&locks, "a").await;
    let mut waiters = Vec::new();
    for (limit, count) in [(2, 1), (1, 2), (3, 3)] {
        waiters.push(waiting(&other, within(permit("a", limit), SOON)));
        place.queued("a", count).await;
    }
    let [two, one, three] = waiters.try_into().expect("three wait");
    held.release().await.expect("it is released");
    let two = granted(two).await;
    // Room for the third, which does not overtake the second.
    place.queued("a", 2).await;
    assert!(!one.is_finished() && !three.is_finished());
    two.release().await.expect("it is released");
    for waiter in [one, three] {
        let guard = granted(waiter).await;
        assert!(guard.is_held());
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
    let guard = acquire(&locks, &shared("a")).await;
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
        let guard = acquire(&locks, &lease("a")).await;
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
