//! A loss is signaled in time, with its reason, once and for all.

use std::sync::Arc;
use std::time::Duration;

use polylock_core::memory::Reachable;
use polylock_core::{DistributedLock, ErrorKind, LockGuard, LostReason, LostSignal, Released};

use super::Case;
use super::case::SOON;
use super::support::{granted, noted, released};
use crate::history::{Checker, Recorder};

/// The loss of a lease is signaled when it expires, and before another client gets the lock.
pub async fn loss_is_signaled_before_another_client_gets_the_lock(case: Case) {
    let (holder, other, key) = (case.client().await, case.client().await, case.key());
    let recorder = Recorder::new();
    let lease = case.unrenewed(&key);
    let held = noted(&recorder, &holder, &lease).await;
    let request = case.request(&key);
    let (reason, next) = tokio::join!(held.lost(), recorder.acquire(&other, &request));
    assert_eq!(reason, LostReason::Expired);
    let next = next.expect("a lock that expired is granted");
    assert!(!held.look(), "two hold the lock");
    next.release().await.expect("a held lock is released");
    drop(held);
    let summary = Checker::new().check(&recorder.events()).assert_clean();
    assert_eq!((summary.grants, summary.lost), (2, 1));
}

/// A lost lock stays lost, whatever the holder tries.
pub async fn lost_is_final(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lease(&client, &key).await;
    let reason = signaled(&guard, case.after_death()).await;
    assert_eq!(reason, LostReason::Expired);
    let errors = [
        guard.renew().await,
        guard.ensure_held(),
        guard.run(async {}).await,
    ];
    for error in errors.map(|result| result.expect_err("a lost lock came back")) {
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert_eq!(error.lost_reason(), Some(LostReason::Expired));
    }
    assert!(!guard.is_held());
    assert_eq!(guard.lost().reason(), Some(LostReason::Expired));
    case.assert_free_within(&key, SOON).await;
    assert_eq!(released(guard).await, Released::AlreadyLost);
}

/// Work under the lock is dropped when the lock is lost.
pub async fn run_drops_the_work_on_loss(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lease(&client, &key).await;
    let alive = Arc::new(());
    let inside = Arc::clone(&alive);
    let work = guard.run(async move {
        let _inside = inside;
        std::future::pending::<()>().await;
    });
    let result = tokio::time::timeout(case.after_death(), work).await;
    let result = result.expect("the work ends");
    let error = result.expect_err("the work never ends by itself");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(Arc::strong_count(&alive), 1, "the work lives on");
}

/// Work that ends in time returns its output, and the lock stays held.
pub async fn run_returns_what_the_work_returns(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let output = guard.run(async {
        tokio::task::yield_now().await;
        42
    });
    assert_eq!(output.await.expect("the lock is held"), 42);
    assert!(guard.is_held());
    guard.release().await.expect("a held lock is released");
}

/// The longest hold ends a lock that is renewed, and leaves it free after the guard.
pub async fn the_longest_hold_ends_a_lock(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let request = case.request(&key).with_max_hold(Duration::from_millis(300));
    let guard = granted(&client, &request).await;
    assert_eq!(signaled(&guard, SOON).await, LostReason::MaxHold);
    assert!(!guard.is_held());
    drop(guard);
    case.assert_free_within(&key, SOON).await;
}

/// The signal outlives the guard, and tells of a loss that came before its end.
pub async fn the_signal_outlives_the_guard(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let request = case.request(&key).with_max_hold(Duration::from_millis(200));
    let guard = granted(&client, &request).await;
    let (awaited, asked) = (guard.lost(), guard.lost());
    let reason = tokio::time::timeout(SOON, awaited.into_future()).await;
    drop(guard);
    assert_eq!(reason.expect("the loss is signaled"), LostReason::MaxHold);
    assert_eq!(asked.reason(), Some(LostReason::MaxHold));
}

/// A lock that was released in time is not lost, whatever happens to its key later.
pub async fn a_released_lock_is_never_lost(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let signal = guard.lost();
    guard.release().await.expect("a held lock is released");
    case.assert_free(&key).await;
    let lost = tokio::time::timeout(case.ttl().mul_f64(1.2), signal.clone().into_future()).await;
    assert!(lost.is_err() && signal.reason().is_none(), "{signal:?}");
}

/// A holder whose lock the server took away is notified, and its release affects no other holder.
pub async fn a_holder_learns_that_the_server_ended_its_lock(case: Case) {
    let (holder, other, key) = (case.client().await, case.client().await, case.key());
    let guard = case.lock(&holder, &key).await;
    case.faults().end(&key).await;
    let next = granted(&other, &case.request(&key)).await;
    let reason = signaled(&guard, case.after_death()).await;
    assert!(
        matches!(
            reason,
            LostReason::SessionEnded | LostReason::Stolen | LostReason::Broken
        ),
        "{reason:?}"
    );
    assert_eq!(released(guard).await, Released::AlreadyLost);
    assert!(next.is_held());
    case.assert_taken(&key).await;
    next.release().await.expect("a held lock is released");
}

/// A holder whose lock is gone loses it, although no other client has it.
pub async fn a_holder_does_not_take_back_what_the_server_ended(case: Case) {
    let (holder, key) = (case.client().await, case.key());
    let guard = case.lock(&holder, &key).await;
    case.faults().end(&key).await;
    let reason = signaled(&guard, case.after_death()).await;
    assert_ne!(reason, LostReason::MaxHold);
    // Of a lock on two backends the part that is left is released after the signal.
    assert!(holder.shutdown(SOON).await, "background work does not end");
    case.assert_free(&key).await;
    drop(guard);
    case.assert_nothing_left(&holder, &key).await;
}

/// A holder that is cut off loses its lock by the end of its lease, as unreachable.
pub async fn a_holder_that_is_cut_off_loses_its_lock_in_time(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let began = tokio::time::Instant::now();
    case.faults().set_reachable(Reachable::Cut);
    let reason = signaled(&guard, case.after_death()).await;
    assert_eq!(reason, LostReason::Unreachable);
    let after = began.elapsed();
    assert!(
        after < case.ttl() + Duration::from_millis(400),
        "signaled after {after:?}"
    );
    case.faults().set_reachable(Reachable::Connected);
    drop(guard);
    case.assert_free_within(&key, case.after_death()).await;
}

/// A holder that was cut off for too long loses its lock before the next holder gets it, and does not get
/// it back.
pub async fn a_holder_that_was_cut_off_is_out_before_the_next_is_in(case: Case) {
    let (holder, other, key) = (case.client().await, case.client().await, case.key());
    let guard = case.lock(&holder, &key).await;
    case.faults().set_reachable(Reachable::Cut);
    tokio::time::sleep(case.ttl().mul_f64(1.1)).await;
    case.faults().set_reachable(Reachable::Connected);
    let next = granted(&other, &case.request(&key)).await;
    assert!(!guard.is_held(), "two hold the lock");
    drop(guard);
    assert!(holder.shutdown(SOON).await, "background work does not end");
    assert!(next.is_held());
    case.assert_taken(&key).await;
    next.release().await.expect("a held lock is released");
}

/// A holder that is reachable again before its lease is over keeps its lock.
pub async fn a_short_outage_costs_no_lock(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    for _ in 0..3 {
        case.faults().set_reachable(Reachable::Cut);
        tokio::time::sleep(case.ttl().mul_f64(0.15)).await;
        case.faults().set_reachable(Reachable::Connected);
        tokio::time::sleep(case.ttl().mul_f64(0.5)).await;
    }
    case.assert_kept(&guard).await;
    guard.release().await.expect("a held lock is released");
}

pub(super) async fn signaled(guard: &LockGuard, within: Duration) -> LostReason {
    let signal: LostSignal = guard.lost();
    let lost = tokio::time::timeout(within, signal.into_future()).await;
    lost.expect("the loss is signaled")
}
