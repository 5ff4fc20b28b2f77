//! Locks with several holders: limits are compared, and old entries are removed.

use std::num::NonZeroU32;

use polylock_core::{AcquireRequest, DistributedLock, Mode};

use crate::support::{Place, SOON, acquire, granted, lease, request, take, waiting, within};

fn shared(name: &str) -> AcquireRequest {
    request(name).with_mode(Mode::Shared)
}

fn permit(name: &str, limit: u32) -> AcquireRequest {
    let limit = NonZeroU32::new(limit).expect("it is not zero");
    request(name).with_mode(Mode::Permit { limit })
}

#[tokio::test]
async fn permits_of_several_limits_are_granted_in_order() {
    let (place, locks, other) = Place::with_clients().await;
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
    let place = Place::new();
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
