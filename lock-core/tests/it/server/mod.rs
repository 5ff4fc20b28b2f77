//! Reports and missing replies of a service, with a test double.

pub(crate) mod fake;
mod panics;
mod provisional;
mod release;
mod renew_for;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use polylock_core::engine::{Moment, VirtualClock};
use polylock_core::layers::{EventKind, LocalQueue, Observe};
use polylock_core::prelude::*;
use polylock_core::{AcquireRequest, LeaseControl, LostReason, LostSignal, Owner};
use tokio::time::Instant;

use self::fake::{Call, Fake};
use super::support::{
    RealDeadline, drop_after_a_poll, in_time, key, left, memory, millis, on_event, secs, settle,
    start, suspendable,
};

/// A service whose locks live with a session.
fn session() -> Fake {
    let fake = Fake::new();
    fake.state().session = true;
    fake
}

pub(crate) async fn lost(signal: LostSignal, within: Duration) -> Option<LostReason> {
    let _real = RealDeadline::start();
    tokio::time::timeout(within, signal.into_future())
        .await
        .ok()
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_a_session_has_no_time_limit() {
    let locks = session();
    let guard = locks.request("k").max_hold(None).acquire().await.unwrap();
    assert_eq!(guard.valid_until(), None);
    assert_eq!(lost(guard.lost(), secs(100_000)).await, None);
    assert_eq!(locks.state().renewals, 0);
    assert_eq!(guard.release().await.unwrap(), Released::Clean);
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_valid_no_longer_than_its_max_hold() {
    for locks in [Fake::new(), session()] {
        let request = locks.request("k").max_hold(secs(10));
        let guard = request.acquire().await.unwrap();
        if locks.state().session {
            assert_eq!(guard.valid_until(), None, "the session sets no deadline");
            locks.control().limit(locks.now() + secs(20));
        }
        assert_eq!(left(&guard), secs(10), "the lease is valid for");
        guard.renew().await.unwrap();
        assert_eq!(left(&guard), secs(10), "the renewed lease is valid for");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_not_held_once_the_clock_has_passed_its_max_hold() {
    let (engine, clock) = suspendable();
    let locks = LocalQueue::new(Arc::new(Fake::with_engine(engine)));
    let owner = Owner::new();
    let request = locks.request("k").owner(&owner).max_hold(secs(10));
    let guard = request.acquire().await.unwrap();
    // No task has run in between.
    clock.suspend(secs(10));
    let again = locks.request("k").owner(&owner).try_acquire().await;
    assert!(
        !matches!(again, Ok(Some(again)) if !again.is_held()),
        "a guard that is lost"
    );
    assert!(!guard.is_held());
    assert_eq!(guard.lost().reason(), Some(LostReason::MaxHold));
}

#[tokio::test(start_paused = true)]
async fn a_session_in_doubt_costs_its_locks_at_the_deadline() {
    let locks = session();
    let guard = locks.lock("k").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    locks.control().limit(locks.now() + secs(5));
    assert!(guard.is_held());
    let reason = lost(guard.lost(), secs(60)).await;
    assert_eq!(reason, Some(LostReason::Unreachable));
    let after = began.elapsed();
    assert!(
        (secs(5)..millis(5_010)).contains(&after),
        "the session was in doubt for 5 s, and the lock was lost after {after:?}"
    );
    locks.control().limit(Moment::NEVER);
    assert!(!guard.is_held(), "a loss stays a loss");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_proven_in_time_keeps_its_locks() {
    let locks = session();
    let guard = locks.lock("k").await.unwrap();
    for _ in 0..10 {
        locks.control().limit(locks.now() + secs(5));
        tokio::time::sleep(secs(4)).await;
    }
    assert!(guard.is_held());
    let left = left(&guard);
    assert!(left <= secs(1), "the latest proof counts: {left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_while_the_machine_is_suspended_has_expired() {
    let (engine, clock) = suspendable();
    let locks = Fake::with_engine(engine);
    locks.state().session = true;
    let guard = locks.lock("k").await.unwrap();
    for left in [5, 6] {
        locks.control().limit(locks.now() + secs(left));
    }
    clock.suspend(secs(600));
    assert!(!guard.is_held());
    assert_eq!(guard.lost().reason(), Some(LostReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_report_fires_at_once_and_lets_the_next_in() {
    let (server, locks) = session().queued();
    let guard = locks.lock("k").await.unwrap();
    let next = start(&locks, AcquireRequest::new(key()));
    let signal = tokio::spawn(guard.lost().into_future());
    settle().await;
    server.control().lose(LostReason::SessionEnded);
    assert_eq!(signal.await.unwrap(), LostReason::SessionEnded);
    // The session that ended has freed the lock.
    server.state().free();
    assert!(next.await.unwrap().is_held());
}

/// A release or a hand-over under way leaves no lease that has to expire.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_released_or_handed_over_is_not_abandoned() {
    let (server, locks) = Fake::new().queued();
    let first = locks.lock("k").await.unwrap();
    let next = start(&locks, AcquireRequest::new(key()));
    settle().await;
    server.state().delay = secs(1);
    let end = async |guard: LockGuard| {
        assert!(!server.control().is_lost_or_abandoned());
        drop(guard);
        settle().await;
        assert!(server.control().is_over(), "its request is under way");
        assert!(!server.control().is_lost_or_abandoned());
    };
    end(first).await;
    end(next.await.unwrap()).await;
    assert_eq!(server.releases(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_left_is_abandoned_at_once() {
    let ways: [fn(LockGuard); 2] = [LockGuard::abandon, |guard| {
        drop(guard.into_ticket().unwrap());
    }];
    for leave in ways {
        let locks = Fake::new();
        locks.state().adopts = true;
        let guard = locks.lock("k").await.unwrap();
        let _signal = guard.lost();
        leave(guard);
        assert!(locks.control().is_lost_or_abandoned());
    }
    let locks = Fake::new();
    let _guard = locks.lock("k").await.unwrap();
    locks.control().lose(LostReason::Broken);
    assert!(locks.control().is_lost_or_abandoned());
}

#[tokio::test(start_paused = true)]
async fn a_check_renews_now() {
    let locks = Fake::new();
    let guard = locks.lock("k").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    locks.control().check();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(locks.state().renewals, 1, "and not at a third of 30 s");
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_check_while_the_lease_is_attached_renews_now() {
    let server = Fake::new();
    server.state().reports_in_attach = Some(LeaseControl::check);
    let locks = LocalQueue::new(Arc::new(server.clone()));
    let first = locks.lock("k").await.unwrap();
    tokio::time::sleep(millis(1)).await;
    assert_eq!(server.state().renewals, 1, "and not at a third of 30 s");
    let next = start(&locks, AcquireRequest::new(key()));
    settle().await;
    drop(first);
    let next = next.await.unwrap();
    assert!(server.state().sent.contains(&Call::HandOver));
    tokio::time::sleep(millis(1)).await;
    assert_eq!(server.state().renewals, 2, "after a hand-over too");
    assert!(next.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_while_it_is_attached_is_refused_with_the_reason() {
    let locks = Fake::new();
    locks.state().reports_in_attach = Some(|control| control.lose(LostReason::Broken));
    let error = locks.lock("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let reason = LostReason::Broken.to_string();
    assert!(error.message().contains(&reason), "{error}");
}

/// Locks whose holder is told to check its lease once it learns of a renewal, so long after that.
fn checked_once(service: &Fake, clock: Arc<VirtualClock>, later: Duration) -> Observe {
    let (checked, is_due) = (service.clone(), AtomicBool::new(true));
    let checks = on_event(move |event| {
        if let EventKind::Renewed { .. } | EventKind::RenewalFailed { .. } = event.kind
            && is_due.swap(false, Ordering::SeqCst)
        {
            clock.suspend(later);
            checked.control().check();
        }
    });
    Observe::new(Arc::new(service.clone())).with_observer(checks)
}

#[tokio::test(start_paused = true)]
async fn a_check_before_the_next_renewal_is_planned_renews_once_more() {
    for later in [Duration::ZERO, millis(1)] {
        let (engine, clock) = suspendable();
        let service = Fake::with_engine(engine);
        let locks = checked_once(&service, clock, later);
        let guard = locks.lock("k").await.unwrap();
        // The first renewal is due at a third of 30 s.
        tokio::time::sleep(secs(11)).await;
        assert_eq!(service.state().renewals, 2, "a check {later:?} later");
        assert!(guard.is_held());
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_before_a_failed_renewal_is_planned_again_renews_at_once() {
    let (engine, clock) = suspendable();
    let service = Fake::with_engine(engine);
    service.state().laconic = true;
    let locks = checked_once(&service, clock, Duration::ZERO);
    let guard = locks.lock("k").await.unwrap();
    service.control().check();
    tokio::time::sleep(millis(1)).await;
    assert_eq!(service.state().renewals, 2, "and not a second later");
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_an_answer_is_unknown_and_tried_again() {
    let locks = Fake::new();
    let guard = locks.request("k").ttl(secs(10)).acquire().await.unwrap();
    locks.state().laconic = true;
    tokio::time::sleep(secs(8)).await;
    assert!(guard.is_held() && locks.state().renewals > 2);
    locks.state().laconic = false;
    assert_eq!(lost(guard.lost(), secs(60)).await, None);
}

#[tokio::test(start_paused = true)]
async fn nothing_keeps_a_lease_alive_after_its_release() {
    let locks = Fake::new();
    let guard = locks.lock("k").await.unwrap();
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    assert!(!locks.is_lease_alive(), "it may hold a connection");
}

#[tokio::test(start_paused = true)]
async fn a_release_stops_renewal_before_it_is_sent() {
    let locks = Fake::new();
    let guard = locks.lock("k").await.unwrap();
    // A renewal is due before the release has arrived.
    tokio::time::sleep(millis(8_900)).await;
    locks.state().delay = millis(1_200);
    let release = tokio::spawn(guard.release());
    settle().await;
    assert_eq!(locks.state().sent, [Call::Acquire, Call::Release]);
    // And the backend asks for one as well.
    locks.control().check();
    assert_eq!(release.await.unwrap().unwrap(), Released::Clean);
    tokio::time::sleep(secs(30)).await;
    assert_eq!(
        locks.state().sent,
        [Call::Acquire, Call::Release],
        "a renewal was sent after the release: renewal has to stop first"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_ends_although_the_release_is_not_polled() {
    for panics_in in [None, Some(Call::HandOver)] {
        let (server, locks) = Fake::new().queued();
        let first = locks.lock("k").await.unwrap();
        let next = start(&locks, AcquireRequest::new(key()));
        settle().await;
        server.state().delay = millis(20);
        server.state().panics_in = panics_in;
        let mut release = Box::pin(first.release());
        drop_after_a_poll(&mut release).await;
        let next = in_time("the grant to the waiter", next).await.unwrap();
        assert!(next.is_held());
        assert_eq!(server.state().panics_in, None, "it has panicked");
        assert_eq!(release.await.unwrap(), Released::Clean);
    }
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_ends_although_its_caller_has_dropped_it_and_can_be_repeated() {
    let locks = Fake::new();
    let mut guard = locks.lock("k").await.unwrap();
    locks.state().downgrades_locks = true;
    locks.state().delay = millis(20);
    drop_after_a_poll(guard.downgrade()).await;
    tokio::time::sleep(secs(1)).await;
    assert_eq!(locks.state().downgrades, 1, "it has ended");
    guard.downgrade().await.unwrap();
    assert_eq!(locks.state().downgrades, 1, "it is done");
    let error = guard.downgrade().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "and known to be");
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_without_an_answer_can_be_repeated() {
    let locks = Fake::new();
    let mut guard = locks.lock("k").await.unwrap();
    locks.state().unanswered_downgrades = 2;
    for sent in 1..=2 {
        let error = guard.downgrade().await.unwrap_err();
        assert!(error.is_outcome_unknown(), "{error:?}");
        assert_eq!(locks.state().downgrades, sent);
    }
    let error = guard.downgrade().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(locks.state().downgrades, 3, "the answer is the server's");
    assert!(guard.is_held());

    let locks = memory();
    let mut guard = locks.lock("k").await.unwrap();
    guard.downgrade().await.unwrap();
    let error = guard.downgrade().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "it is confirmed");
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_that_finds_another_holder_loses_the_lock() {
    let store = memory();
    let mut guard = store.lock("k").await.unwrap();
    store.expire(&key());
    let error = guard.downgrade().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(!guard.is_held());
    assert_eq!(guard.lost().reason(), Some(LostReason::Stolen));
}

#[tokio::test(start_paused = true)]
async fn a_release_is_not_sent_while_a_downgrade_is_under_way() {
    let locks = Fake::new();
    let mut guard = locks.lock("k").await.unwrap();
    locks.state().delay = millis(20);
    drop_after_a_poll(guard.downgrade()).await;
    let release = tokio::spawn(guard.release());
    settle().await;
    assert_eq!(locks.releases(), 0);
    assert_eq!(release.await.unwrap().unwrap(), Released::Clean);
    assert_eq!(locks.releases(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_is_notified_of_a_loss_sees_it() {
    let (locks, signal) = (session(), Arc::new(OnceLock::<LostSignal>::new()));
    let (tell, told) = mpsc::channel();
    let observer = on_event({
        let signal = Arc::clone(&signal);
        move |event| {
            if let EventKind::Lost { .. } = event.kind {
                let reason = signal.get().and_then(LostSignal::reason);
                tell.send(reason).expect("the test listens");
            }
        }
    });
    let observed = Observe::new(Arc::new(locks.clone())).with_observer(observer);
    let guard = observed.lock("k").await.unwrap();
    signal.set(guard.lost()).expect("it is set once");
    locks.control().lose(LostReason::SessionEnded);
    let reasons: Vec<_> = told.try_iter().collect();
    assert_eq!(reasons, [Some(LostReason::SessionEnded)]);
}
