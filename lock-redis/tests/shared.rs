//! Locks with several holders: limits are compared, and old entries are removed.

use std::time::Duration;

use lock_testkit::servers::{RedisCluster, RedisOptions, RedisServer};
use polylock_core::{AcquireRequest, DistributedLock, ErrorKind, LeaseState, Mode};

use crate::support::{
    Place, SOON, acquire, assert_error, attempt, granted, inspect, key, lease, of, of_cluster,
    open, permits, release, request, take, take_long, until, waiting, within,
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

/// As after a day: the notes are to end, and the last renewal was in another hour.
#[tokio::test]
async fn a_reader_is_shown_with_its_token_for_as_long_as_it_renews() {
    const HOUR: i64 = 3_600_000;
    const NOTES: &str = "{a}:notes";
    let server = RedisServer::start(RedisOptions::new());
    let cluster = RedisCluster::start(3, 0);
    let owner = &cluster[cluster.owner_of(cluster.slot_of("a"))];
    for (config, server) in [(of(&server), &server), (of_cluster(&cluster), owner)] {
        let locks = open(config).await;
        let ttl = Duration::from_secs(2 * 3_600);
        let reader = lease("a").with_mode(Mode::Shared).with_ttl(ttl);
        let guard = acquire(&locks, &within(reader, SOON)).await;
        let left = || server.command(&["PTTL", NOTES]).integer();
        let shorten = || server.command(&["PEXPIRE", NOTES, &(6 * HOUR).to_string()]);
        // Only the first renewal in an hour costs more, and at most one hour begins here.
        let mut kept = 0;
        for _ in 0..3 {
            shorten();
            guard.renew().await.expect("it is held");
            kept += usize::from(left() > Some(6 * HOUR));
        }
        assert!(kept <= 1, "{kept} of 3 renewals have kept the notes");
        shorten();
        let first = server.command(&["ZRANGE", "a", "0", "0", "WITHSCORES"]);
        let [id, ends] = first.items() else {
            panic!("it is not held: {first:?}");
        };
        let (id, ends) = (id.text().expect("a text"), ends.integer());
        let ends = ends.expect("a number") - 3 * HOUR / 2;
        server.command(&["ZADD", "a", "XX", &ends.to_string(), &id]);
        guard.renew().await.expect("it is held");
        until("the notes are kept", || left() > Some(24 * HOUR)).await;
        let holder = &inspect(&locks, "a").await.holders[0];
        assert_eq!(holder.token, guard.fencing_token());
        release(guard).await;
    }
}

/// The script deletes the lock before it creates it as a shared one.
#[tokio::test]
async fn a_downgrade_that_is_denied_keeps_the_lock() {
    let rules = "on >secret ~* &* +@all -zadd";
    let place = Place::with(RedisOptions::new().with_user("locks", rules));
    let locks = open(place.direct().with_login("locks", "secret")).await;
    let mut guard = take_long(&locks, "a").await;
    let error = guard.downgrade().await.expect_err("it is denied");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    guard.renew().await.expect("it is held");
    release(guard).await;
}
