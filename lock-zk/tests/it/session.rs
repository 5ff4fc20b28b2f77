//! Sessions that end, nodes that are deleted, and servers out of reach.

use std::time::Duration;

use lock_testkit::proxy::{Direction, Fate, Then};
use polylock_core::{DistributedLock, ErrorKind, LostReason, Released};
use tokio::time::{Instant, sleep};
use zookeeper_client::Permission;

use crate::support::{
    Place, SESSION, SOON, admin, end_session, granted, in_time, is_check, is_end, key, loss, ms,
    release, release_clean, request, take, token, until, waiting, within,
};

#[tokio::test]
async fn a_holder_whose_session_is_ended_loses_its_lock_at_once() {
    let (place, locks, other) = Place::with_clients().await;
    let guard = take(&locks, "a").await;
    let (besides, kept) = (take(&locks, "b").await, take(&other, "kept").await);
    let waiter = place.waiter(&other, request("a")).await;
    let ended = place.tree().session("a", 0).await;
    let began = Instant::now();
    end_session(place.port(), ended);
    assert_eq!(loss(&guard).await, LostReason::SessionEnded);
    assert_eq!(loss(&besides).await, LostReason::SessionEnded);
    assert!(
        began.elapsed() < ms(1_000),
        "lost after {:?}",
        began.elapsed()
    );
    assert!(kept.is_held(), "it is in another session");
    let next = granted(waiter).await;
    assert!(token(&next) > token(&guard));
    let error = guard.release().await;
    assert_eq!(error.expect("it is known"), Released::AlreadyLost);
    assert!(next.is_held());
    release(next).await;
    // The client has a session again.
    let again = take(&locks, "a").await;
    assert_ne!(place.tree().session("a", 0).await, ended);
    release(again).await;
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

#[tokio::test]
async fn a_waiter_whose_session_is_ended_goes_to_the_end_of_the_line() {
    let (place, locks, other) = Place::with_clients().await;
    let holder = take(&other, "a").await;
    let waiter = place.waiter(&locks, request("a")).await;
    let behind = place.waiter(&other, request("a")).await;
    let ended = place.tree().session("a", 1).await;
    end_session(place.port(), ended);
    // It stands in line again.
    place.contenders("a", 3).await;
    let again = place.tree().session("a", 2).await;
    assert!(again != place.tree().session("a", 0).await && again != ended);
    assert!(!waiter.is_finished() && holder.is_held());
    release(holder).await;
    let behind = granted(behind).await;
    assert!(!waiter.is_finished());
    release(behind).await;
    let guard = granted(waiter).await;
    assert!(guard.is_held());
    assert_ne!(place.tree().session("a", 0).await, ended);
    release(guard).await;
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

#[tokio::test]
async fn a_waiter_is_never_granted_the_lock_in_a_session_that_has_ended() {
    let (place, locks, other) = Place::with_clients().await;
    for _ in 0..3 {
        let holder = take(&other, "a").await;
        let waiter = place.waiter(&locks, request("a")).await;
        let ended = place.tree().session("a", 1).await;
        // It is to learn of both ends at the same time.
        place.disconnect();
        end_session(place.port(), ended);
        let between = place.waiter(&other, request("a")).await;
        release(holder).await;
        let between = granted(between).await;
        place.proxy().accept();
        sleep(ms(400)).await;
        assert!(!waiter.is_finished(), "two holders");
        release(between).await;
        let guard = granted(waiter).await;
        assert!(guard.is_held());
        assert_ne!(place.tree().session("a", 0).await, ended);
        release(guard).await;
        place.assert_nothing_left(&[&locks, &other], "a").await;
    }
}

/// The deletion or a `break` before it may have removed the node. A request that was lost is repeated.
#[tokio::test]
async fn a_release_without_an_answer_that_finds_nothing_has_an_unknown_outcome() {
    let place = Place::new().await;
    let locks = place.patient().await;
    for fate in [Fate::LostReply(Then::Cut), Fate::LostRequest(Then::Cut)] {
        let guard = take(&locks, "a").await;
        let planned = place.proxy().plan(is_end, fate);
        let released = guard.release().await;
        assert_eq!(planned.struck(), 1, "{fate:?}");
        if fate == Fate::LostReply(Then::Cut) {
            let error = released.expect_err("nothing was answered");
            assert!(error.message().contains("did not reply"), "{error}");
            assert!(error.is_outcome_unknown(), "{error}");
        } else {
            assert_eq!(released.expect("it is repeated"), Released::Clean);
        }
        // The release in the background ends as well.
        place.assert_nothing_left(&[&locks], "a").await;
    }
}

/// The server may have deleted the node before the session ended, or not.
#[tokio::test]
async fn a_release_without_an_answer_whose_session_ends_has_an_unknown_outcome() {
    let place = Place::new().await;
    let locks = place.patient().await;
    for fate in [Fate::LostReply(Then::Cut), Fate::LostRequest(Then::Cut)] {
        let guard = take(&locks, "a").await;
        let ended = place.tree().session("a", 0).await;
        let planned = place.proxy().plan(is_end, fate);
        // The repeated request waits for another connection.
        place.proxy().refuse();
        let released = tokio::spawn(guard.release());
        planned.met(SOON).await;
        if fate == Fate::LostReply(Then::Cut) {
            place.contenders("a", 0).await;
        }
        end_session(place.port(), ended);
        place.contenders("a", 0).await;
        place.proxy().accept();
        let released = released.await.expect("no panic");
        let error = released.expect_err("nothing was answered");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{fate:?}: {error}");
        assert!(error.is_outcome_unknown(), "{fate:?}: {error}");
        assert!(
            error
                .message()
                .contains("the node or the session of the lock is gone"),
            "{error}"
        );
        // The release in the background ends as well.
        place.assert_nothing_left(&[&locks], "a").await;
    }
    place.assert_free("a").await;
}

/// The first deletion was executed, and the next one fails for another reason.
#[tokio::test]
async fn a_break_without_an_answer_whose_session_ends_has_an_unknown_outcome() {
    let place = Place::new().await;
    let (holder, locks) = (place.client().await, place.patient().await);
    let broken = take(&holder, "a").await;
    let _shows_its_session = take(&locks, "b").await;
    let ended = place.tree().session("b", 0).await;
    let lost = Fate::LostReply(Then::Cut);
    let planned = place.proxy().plan(is_end, lost);
    // The repeated request waits for another connection.
    place.proxy().refuse();
    let breaking = tokio::spawn(async move { admin(&*locks).break_lock(&key("a"), "test").await });
    planned.met(SOON).await;
    place.contenders("a", 0).await;
    end_session(place.port(), ended);
    place.contenders("b", 0).await;
    place.proxy().accept();
    let error = breaking.await.expect("no panic");
    let error = error.expect_err("nothing was answered");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    assert_eq!(loss(&broken).await, LostReason::Broken);
}

/// The first deletion may have been executed. The release in the background is refused as well, and ends.
#[tokio::test]
async fn a_release_whose_retry_is_refused_has_an_unknown_outcome() {
    let place = Place::new().await;
    let locks = place.patient().await;
    let guard = take(&locks, "a").await;
    place.proxy().refuse();
    let lost = Fate::LostRequest(Then::Cut);
    let planned = place.proxy().plan(is_end, lost);
    let released = tokio::spawn(guard.release());
    planned.met(SOON).await;
    let directory = place.tree().directory("a");
    let no_deletion = Permission::READ | Permission::CREATE | Permission::ADMIN;
    place.tree().set_access(&directory, no_deletion).await;
    place.proxy().accept();
    let released = released.await.expect("no panic");
    let error = released.expect_err("the retry is refused");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    assert!(locks.shutdown(SOON).await, "the retries do not end");
}

/// A heartbeat checks the root. A refused check is stored by a majority as well.
#[tokio::test]
async fn a_root_that_may_no_longer_be_read_costs_no_lock() {
    let place = Place::new().await;
    let locks = place.with_session(SESSION).await;
    let guard = take(&locks, "a").await;
    let no_read = Permission::CREATE | Permission::DELETE | Permission::WRITE | Permission::ADMIN;
    place.tree().set_access(place.root(), no_read).await;
    let checks = place.proxy().watch(is_check);
    sleep(SESSION * 2).await;
    assert!(!checks.seen().is_empty(), "no heartbeat is a write");
    assert!(guard.is_held(), "{:?}", guard.lost().reason());
    release_clean(guard).await;
    release_clean(take(&locks, "a").await).await;
}

#[tokio::test]
async fn a_holder_whose_node_is_deleted_is_told_within_300_ms() {
    let place = Place::new().await;
    let locks = place.patient().await;
    let mut delays = Vec::new();
    for turn in 0..14 {
        let guard = take(&locks, "a").await;
        // Most are watched by then; the last ones have their nodes deleted before.
        sleep(ms(if turn < 9 { 250 } else { 0 })).await;
        let node = place.tree().nodes("a").await.remove(0);
        let began = Instant::now();
        place.tree().delete("a", &node).await;
        assert_eq!(loss(&guard).await, LostReason::Broken);
        delays.push(began.elapsed());
    }
    let early = delays.split_off(9);
    assert!(
        early.iter().all(|delay| *delay < ms(1_000)),
        "lost after {early:?}"
    );
    delays.sort();
    // The machine may be busy for a moment, but not most of the time.
    assert!(
        delays[4] < ms(300) && delays[8] < ms(2_000),
        "lost after {delays:?}"
    );
}

/// How long after the network has failed the holder lost its lock, and the next one got it.
async fn outage(fail: impl FnOnce(&Place)) -> (Duration, Duration) {
    let place = Place::new().await;
    let (locks, other) = (place.behind_proxy().await, place.client().await);
    let guard = take(&locks, "a").await;
    let waiter = place.waiter(&other, within("a", SOON * 4)).await;
    sleep(ms(300)).await;
    // A stall before the outage would end the lock earlier.
    let mut began = Instant::now();
    let is_recent = async || {
        began = Instant::now();
        guard.valid_until() > Some(began + SESSION / 2)
    };
    until("the last heartbeats had replies", is_recent).await;
    fail(&place);
    let next = tokio::spawn(async move {
        let next = granted(waiter).await;
        (next, Instant::now())
    });
    assert_eq!(loss(&guard).await, LostReason::Unreachable);
    let lost = began.elapsed();
    assert!(!guard.is_held() && !next.is_finished());
    let (next, at) = next.await.expect("no panic");
    // The lost lock is released as well once the network works again.
    drop(guard);
    place.proxy().clear();
    place.proxy().accept();
    assert!(next.is_held());
    release(next).await;
    drop(take(&locks, "a").await);
    place.assert_nothing_left(&[&locks, &other], "a").await;
    (lost, at - began)
}

#[tokio::test]
async fn a_holder_without_a_connection_loses_its_lock_at_half_the_session() {
    let limit = SESSION / 2 + ms(300);
    let (lost, next) = in_time(limit, async || outage(Place::disconnect).await).await;
    assert!(lost > SESSION / 2 - ms(50), "lost after {lost:?}");
    assert!(lost < limit, "lost after {lost:?}");
    assert!(
        next > lost && next > SESSION - ms(600),
        "granted after {next:?}"
    );
}

#[tokio::test]
async fn a_black_hole_costs_the_lock_before_the_next_one_has_it() {
    for direction in [Direction::Both, Direction::Requests] {
        let limit = SESSION * 3 / 4 + ms(300);
        let fail = |place: &Place| place.proxy().hold(direction);
        let (lost, next) = in_time(limit, async || outage(fail).await).await;
        assert!(
            lost < limit,
            "{direction:?}: lost after {lost:?} of a session of {SESSION:?}"
        );
        assert!(
            next > lost,
            "{direction:?}: granted after {next:?}, lost after {lost:?}"
        );
    }
}

#[tokio::test]
async fn a_short_outage_costs_neither_lock_nor_place_in_line() {
    let (place, locks, other) = Place::with_clients().await;
    let guard = take(&locks, "a").await;
    let held = take(&other, "b").await;
    let waiter = place.waiter(&locks, request("b")).await;
    let before = (place.tree().nodes("a").await, place.tree().nodes("b").await);
    for _ in 0..3 {
        place.disconnect();
        sleep(ms(300)).await;
        place.proxy().accept();
        sleep(ms(400)).await;
    }
    // For as long as the session lasts without heartbeats.
    sleep(SESSION * 2).await;
    assert!(guard.is_held(), "{:?}", guard.lost().reason());
    let after = (place.tree().nodes("a").await, place.tree().nodes("b").await);
    assert_eq!(before, after);
    release(held).await;
    let next = granted(waiter).await;
    for guard in [guard, next] {
        release_clean(guard).await;
    }
}

#[tokio::test]
async fn a_node_that_was_deleted_in_an_outage_is_missed_after_it() {
    let (place, locks, other) = Place::with_clients().await;
    for watched in [true, false] {
        let guard = take(&locks, "a").await;
        if watched {
            sleep(ms(250)).await;
        }
        place.disconnect();
        place.tree().end("a").await;
        let next = take(&other, "a").await;
        place.proxy().accept();
        assert_eq!(loss(&guard).await, LostReason::Broken, "{watched}");
        assert!(!guard.is_held());
        drop(guard);
        assert!(next.is_held());
        release(next).await;
        place.assert_nothing_left(&[&locks, &other], "a").await;
    }
}

#[tokio::test]
async fn an_outage_that_costs_the_locks_and_not_the_session_costs_no_further_lock() {
    let (place, locks, other) = Place::with_clients().await;
    let timeout = SESSION * 2;
    for round in 0..3 {
        let guard = take(&locks, "a").await;
        let held = take(&other, "b").await;
        let waiter = place.waiter(&locks, request("b")).await;
        place.disconnect();
        let early = waiting(&locks, request("c"));
        assert_eq!(loss(&guard).await, LostReason::Unreachable);
        release(held).await;
        sleep(timeout / 8).await;
        place.proxy().accept();
        let late = waiting(&locks, request("d"));
        for (name, waiter) in [("b", waiter), ("c", early), ("d", late)] {
            let guard = granted(waiter).await;
            assert!(guard.is_held(), "{name} in round {round}");
            release(guard).await;
        }
        drop(guard);
        for name in ["a", "b", "c", "d"] {
            place.assert_nothing_left(&[&locks, &other], name).await;
        }
    }
}

#[tokio::test]
async fn a_shutdown_without_a_server_ends_in_time() {
    let place = Place::new().await;
    let locks = place.patient().await;
    let guard = take(&locks, "a").await;
    place.disconnect();
    drop(guard);
    let began = Instant::now();
    assert!(!locks.shutdown(ms(300)).await, "no server has answered");
    assert!(
        began.elapsed() < ms(1_000),
        "shut down after {:?}",
        began.elapsed()
    );
    place.proxy().accept();
    place.assert_nothing_left(&[&locks], "a").await;
}
