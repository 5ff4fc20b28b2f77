//! One extension of a lease, beside the renewals that go on.

use std::sync::Arc;

use polylock_core::blocking::{BlockingLock, block_on};
use polylock_core::engine::{Spawn as _, VirtualClock};
use polylock_core::memory::{Fault, Memory, Request};
use polylock_core::prelude::*;
use polylock_core::{AcquireRequest, LostReason, RenewalRequest};
use tokio::time::Instant;

use super::fake::{Call, Fake};
use super::{lost, session};
use crate::support::{
    ProcessRuntime, drop_after_a_poll, engine_on, in_time, key, left, manual, memory, millis,
    plan_all, secs, settle, start,
};

#[tokio::test(start_paused = true)]
async fn an_extension_counts_from_before_its_request() {
    let locks = Fake::new();
    let guard = manual(&locks, secs(30)).await;
    locks.state().delay = millis(500);
    let before = Instant::now();
    guard.renew_for(secs(600)).await.expect("it is held");
    // Less the tenth that is not relied on.
    assert_eq!(guard.valid_until(), Some(before + secs(540)));
}

#[tokio::test(start_paused = true)]
async fn less_than_the_ttl_is_the_ttl() {
    let locks = Fake::new();
    let guard = manual(&locks, secs(30)).await;
    tokio::time::sleep(secs(10)).await;
    guard.renew_for(secs(1)).await.expect("it is held");
    assert_eq!(guard.valid_until(), Some(Instant::now() + secs(27)));
}

#[tokio::test(start_paused = true)]
async fn renewals_go_on_and_cut_nothing() {
    let locks = Fake::new();
    let guard = locks.request("k").ttl(secs(30)).acquire().await.unwrap();
    guard.renew_for(secs(600)).await.expect("it is held");
    let until = guard.valid_until();
    tokio::time::sleep(secs(60)).await;
    assert!(locks.state().renewals > 5, "a loss would be noticed");
    assert_eq!(guard.valid_until(), until);
    // No renewal arrives from here on: what was granted lasts.
    locks.state().laconic = true;
    tokio::time::sleep(secs(300)).await;
    assert!(guard.is_held() && locks.is_taken());
    let reason = lost(guard.lost(), secs(600)).await;
    assert_eq!(reason, Some(LostReason::Unreachable));
    assert!(locks.is_taken(), "the server was faster than its client");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_late_cuts_no_extension() {
    let locks = Fake::new();
    let guard = manual(&locks, secs(30)).await;
    locks.state().delay = millis(800);
    let late = async { guard.renew().await };
    let extended = async {
        tokio::task::yield_now().await;
        locks.state().delay = millis(1);
        guard.renew_for(secs(600)).await
    };
    let (late, extended) = tokio::join!(late, extended);
    assert!(late.is_ok() && extended.is_ok());
    tokio::time::sleep(secs(400)).await;
    assert!(guard.is_held() && locks.is_taken());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_stays_lost() {
    for extends in [false, true] {
        let locks = Fake::new();
        let guard = manual(&locks, secs(10)).await;
        tokio::time::sleep(millis(8_900)).await;
        locks.state().delay = millis(200);
        let late = match extends {
            true => guard.renew_for(secs(60)).await,
            false => guard.renew().await,
        };
        assert_eq!(late.expect_err("it was late").kind(), ErrorKind::Lost);
        assert_eq!(guard.lost().reason(), Some(LostReason::Expired));
        tokio::time::sleep(secs(1)).await;
        assert!(!guard.is_held(), "extends: {extends}");
        let error = guard.renew_for(secs(60)).await.expect_err("it is lost");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }

    let locks = Fake::new();
    let guard = manual(&locks, secs(10)).await;
    locks.state().free();
    let error = guard.renew_for(secs(60)).await.expect_err("it is gone");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(guard.lost().reason(), Some(LostReason::Stolen));
}

#[tokio::test(start_paused = true)]
async fn an_extension_without_an_answer_extends_nothing_here() {
    let locks = Fake::new();
    let guard = manual(&locks, secs(10)).await;
    let until = guard.valid_until();
    locks.state().laconic = true;
    let error = guard.renew_for(secs(60)).await.expect_err("no answer");
    assert!(error.is_outcome_unknown(), "{error:?}");
    assert_eq!(guard.valid_until(), until);
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_fails_again_and_again_postpones_no_renewal() {
    let locks = Fake::new();
    let guard = locks.request("k").ttl(secs(30)).acquire().await.unwrap();
    locks.state().max_granted = Some(secs(30));
    for _ in 0..120 {
        let refused = guard.renew_for(secs(600)).await;
        let error = refused.expect_err("the server grants no such lease");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        tokio::time::sleep(millis(500)).await;
    }
    assert!(guard.is_held(), "a minute later");
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_was_dropped_extends_nothing_here() {
    let locks = Fake::new();
    let guard = manual(&locks, secs(10)).await;
    let until = guard.valid_until();
    locks.state().delay = millis(20);
    drop_after_a_poll(guard.renew_for(secs(60))).await;
    tokio::time::sleep(secs(1)).await;
    assert_eq!(guard.valid_until(), until);
    assert_eq!(guard.release().await.unwrap(), Released::Clean);
    assert!(!locks.is_taken());
}

#[tokio::test(start_paused = true)]
async fn nothing_lasts_beyond_its_longest_hold() {
    let locks = Fake::new();
    let guard = manual(&locks, secs(30)).await;
    let hour = secs(3_600);
    let error = guard.renew_for(hour + millis(1)).await;
    let error = error.expect_err("the hold ends before");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert!(error.message().contains("max_hold"), "{error}");
    let request = locks.state().sent.clone();
    assert_eq!(request, [Call::Acquire], "nothing was sent");
    guard.renew_for(hour).await.expect("it is held");
}

#[tokio::test(start_paused = true)]
async fn a_lock_without_a_lease_has_nothing_to_extend() {
    let locks = session();
    let guard = locks.lock("k").await.unwrap();
    let error = guard.renew_for(secs(60)).await.expect_err("no lease");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.message().contains("session"), "{error}");
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn an_extended_lease_is_not_handed_over_until_it_is_one_of_its_ttl_again() {
    for (waits, is_handed_over) in [(1, false), (580, true)] {
        let (server, locks) = Fake::new().queued();
        let first = locks.lock("k").await.unwrap();
        first.renew_for(secs(600)).await.expect("it is held");
        tokio::time::sleep(secs(waits)).await;
        let next = start(&locks, AcquireRequest::new(key()));
        settle().await;
        first.release().await.unwrap();
        let next = in_time("the grant to the waiter", next).await.unwrap();
        let left = left(&next);
        assert!(left <= secs(27), "{left:?} after {waits} s");
        let handed_over = server.state().sent.contains(&Call::HandOver);
        assert_eq!(handed_over, is_handed_over, "after {waits} s");
    }
}

#[tokio::test(start_paused = true)]
async fn an_extension_does_not_outlast_a_min_hold_that_no_renewal_confirms() {
    let store = memory();
    let request = store.request("k").ttl(secs(10)).min_hold(secs(5));
    let guard = request.acquire().await.expect("it is free");
    guard.renew_for(secs(600)).await.expect("it is held");
    plan_all(&store, Request::Renew, Fault::LostRequest);
    guard.release().await.expect_err("it has no answer");
    tokio::time::sleep(secs(4)).await;
    let other = store.client();
    assert!(other.try_lock("k").await.unwrap().is_none());
    tokio::time::sleep(secs(3)).await;
    assert!(other.try_lock("k").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_renewal_that_is_late_does_not_outlast_the_min_hold() {
    for (extends, ttl) in [(false, 60), (true, 10)] {
        let locks = Fake::new();
        let request = locks.request("k").ttl(secs(ttl)).min_hold(secs(5));
        let request = match extends {
            true => request,
            false => request.manual_renewal(),
        };
        let guard = request.acquire().await.expect("it is free");
        locks.state().held_back = Some(Vec::new());
        let renewal = async {
            match extends {
                true => guard.renew_for(secs(600)).await,
                false => guard.renew().await,
            }
        };
        tokio::select! {
            biased;
            _ = renewal => panic!("it takes a while"),
            () = settle() => {}
        }
        let late = locks.state().held_back.take();
        guard.release().await.expect("it is held");
        locks.let_arrive(&late.unwrap_or_default());
        tokio::time::sleep(secs(4)).await;
        assert!(locks.is_taken(), "extends: {extends}");
        tokio::time::sleep(secs(2)).await;
        assert!(!locks.is_taken(), "extends: {extends}");
    }
}

/// A lock with a min hold of 25 s whose scheduled renewal is on its way, at 20.1 s.
async fn with_late_renewal() -> (Fake, LockGuard, Vec<RenewalRequest>) {
    let locks = Fake::new();
    let request = locks.request("k").ttl(secs(60)).min_hold(secs(25));
    let guard = request.acquire().await.expect("it is free");
    locks.state().held_back = Some(Vec::new());
    // It is due after 18 s at the earliest, and has 2 s.
    tokio::time::sleep(millis(20_100)).await;
    let late = locks.state().held_back.take().unwrap_or_default();
    assert_eq!(late.len(), 1, "it is on its way");
    (locks, guard, late)
}

/// The reply to one by hand says nothing of the other one.
#[tokio::test(start_paused = true)]
async fn a_scheduled_renewal_that_is_late_does_not_outlast_the_min_hold() {
    for by_hand in [false, true] {
        let (locks, guard, late) = with_late_renewal().await;
        if by_hand {
            guard.renew().await.expect("it is held");
        }
        guard.release().await.expect("it is held");
        locks.let_arrive(&late);
        tokio::time::sleep(secs(4)).await;
        assert!(locks.is_taken(), "by hand: {by_hand}");
        tokio::time::sleep(secs(2)).await;
        assert!(!locks.is_taken(), "by hand: {by_hand}");
    }
}

/// A renewal of this ttl may take 2 s: that of the release has its answer after the other one is over.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_late_does_not_outlast_a_min_hold_whose_answer_is_late() {
    let (locks, guard, late) = with_late_renewal().await;
    locks.state().answer_delay = millis(1_950);
    let released = tokio::spawn(guard.release());
    tokio::time::sleep(secs(1)).await;
    locks.let_arrive(&late);
    released.await.unwrap().expect("it is held");
    tokio::time::sleep(millis(2_500)).await;
    assert!(locks.is_taken());
    tokio::time::sleep(secs(2)).await;
    assert!(!locks.is_taken());
}

#[tokio::test(start_paused = true)]
async fn no_renewal_is_sent_after_the_release() {
    // A renewal of this ttl may take 2 s.
    for late_by in [secs(0), secs(3)] {
        let (clock, process) = (Arc::new(VirtualClock::new()), ProcessRuntime::new());
        let locks = Fake::with_engine(engine_on(&clock, &process));
        let request = locks.request("k").ttl(secs(60)).min_hold(secs(10));
        let guard = request.acquire().await.expect("it is free");
        settle().await;
        process.hold_back();
        locks.control().check();
        settle().await;
        let late = process.take();
        assert_eq!(late.len(), 1, "the renewal that is due");
        guard.release().await.expect("it is held");
        tokio::time::sleep(late_by).await;
        late.into_iter().for_each(|task| process.spawn(task));
        tokio::time::sleep(secs(9) - late_by).await;
        assert!(locks.is_taken());
        tokio::time::sleep(secs(2)).await;
        assert!(!locks.is_taken(), "late by {late_by:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_first_lease_is_extended_as_well() {
    let locks = Fake::new();
    locks.state().first = Some(secs(3));
    let guard = manual(&locks, secs(30)).await;
    guard.renew_for(secs(600)).await.expect("it is held");
    assert_eq!(guard.valid_until(), Some(Instant::now() + secs(540)));
    tokio::time::sleep(secs(60)).await;
    assert_eq!(locks.state().renewals, 1, "it has more than its ttl");
}

#[test]
fn a_lease_is_extended_without_async() {
    let locks = BlockingLock::new(Memory::new());
    let guard = locks.lock("k").expect("it is free");
    guard.renew_for(secs(600)).expect("it is held");
    let left = guard
        .valid_until()
        .map(|until| until - std::time::Instant::now());
    assert!(left > Some(secs(500)), "valid for {left:?}");
    block_on(guard.into_async().release()).expect("it is held");
}
