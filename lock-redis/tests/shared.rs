//! Locks with several holders: limits are compared, and old entries are removed.

use std::time::Duration;

use polylock_core::{AcquireRequest, DistributedLock, ErrorKind, LeaseState, Mode};

use crate::support::{
    Place, SOON, acquire, assert_error, attempt, granted, key, lease, permits, release, request,
    take, waiting, within,
};

fn shared(name: &str) -> AcquireRequest {
    request(name).with_mode(Mode::Shared)
}

#[tokio::test]
async fn permits_of_several_limits_are_granted_in_order() {
    let (place, locks, other) = Place::with_clients().await;
    let held = take(&locks, "a").await;
    let mut waiters = Vec::new();
    for (limit, count) in [(2, 1), (1, 2), (3, 3)] {
        let permit = request("a").with_mode(permits(limit));
        waiters.push(waiting(&other, within(permit, SOON)));
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

/// An administrator sends one, of the lease of one reader.
#[tokio::test]
async fn a_renewal_for_no_time_ends_no_lease_of_another_reader() {
    let (place, locks, other) = Place::with_clients().await;
    let reader = lease("a").with_mode(Mode::Shared).with_ttl(SOON * 6);
    let first = acquire(&locks, &reader).await;
    let second = acquire(&other, &reader).await;
    let id = first.lease_id().expect("a lease");
    let admin = other.admin().expect("it has an administration");
    let renewed = admin.renew_lease(&key("a"), id, Duration::ZERO).await;
    assert_eq!(renewed.expect("it is answered"), LeaseState::Held);
    second.renew().await.expect("it is held");
    let _error = assert_error(&other, &attempt("a"), ErrorKind::Contended).await;
    release(first).await;
    release(second).await;
    place.assert_nothing_left(&[&locks, &other], "a").await;
}
