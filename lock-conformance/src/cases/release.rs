//! A lock is released once, by its holder, and stays released.

use std::time::Duration;

use polylock_core::memory::{Fault, Request};
use polylock_core::{DistributedLock, DistributedLockExt, LeaseState, Released};
use tokio::time::Instant;

use super::Case;
use super::case::SOON;
use super::need::admin;
use super::support::{granted, joined, released};

/// A release says that the lock was held, and frees it at once.
pub async fn release_frees_the_lock_at_once(case: Case) {
    let (client, key) = (case.client().await, case.key());
    for _ in 0..5 {
        let guard = case.lock(&client, &key).await;
        assert_eq!(released(guard).await, Released::Clean);
        case.assert_free(&key).await;
    }
}

/// After a shutdown has drained the background, the locks of dropped guards are free.
pub async fn shutdown_waits_for_dropped_guards(case: Case) {
    let (client, key) = (case.client().await, case.key());
    for _ in 0..5 {
        drop(case.lock(&client, &key).await);
        case.assert_nothing_left(&client, &key).await;
    }
}

/// A shutdown leaves guards that live alone.
pub async fn shutdown_does_not_touch_live_guards(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    assert!(client.shutdown(SOON).await, "background work does not end");
    assert!(guard.is_held());
    case.assert_taken(&key).await;
    guard.release().await.expect("a held lock is released");
    case.assert_free(&key).await;
}

/// The release of a former holder says so, and leaves its successor alone.
pub async fn old_guard_released_after_its_lease_affects_no_other_holder(case: Case) {
    let (holder, other, key) = (case.client().await, case.client().await, case.key());
    let old = case.lease(&holder, &key).await;
    let next = granted(&other, &case.request(&key)).await;
    assert_eq!(released(old).await, Released::AlreadyLost);
    assert!(holder.shutdown(SOON).await, "background work does not end");
    case.assert_taken(&key).await;
    assert_eq!(released(next).await, Released::Clean);
}

/// The guard of a former holder that is dropped leaves its successor alone, of the same client too.
pub async fn old_guard_dropped_after_its_lease_affects_no_other_holder(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let old = case.lease(&client, &key).await;
    let next = granted(&client, &case.request(&key)).await;
    drop(old);
    assert!(client.shutdown(SOON).await, "background work does not end");
    case.assert_taken(&key).await;
    assert!(next.is_held());
    assert_eq!(released(next).await, Released::Clean);
}

/// A lock that is abandoned stays taken until its lease is over, and no longer.
pub async fn abandoned_lock_stays_taken_until_its_lease_is_over(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let since = Instant::now();
    guard.abandon();
    assert!(client.shutdown(SOON).await, "background work does not end");
    case.assert_taken(&key).await;
    case.assert_free_within(&key, case.after_death()).await;
    let elapsed = since.elapsed();
    assert!(elapsed >= case.ttl().mul_f64(0.5), "free after {elapsed:?}");
}

/// A release within the min hold leaves the lock held until that is over.
pub async fn the_min_hold_outlasts_the_release(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let least = case.ttl().mul_f64(1.4);
    let began = Instant::now();
    let request = case.request(&key).with_min_hold(least);
    let guard = granted(&client, &request).await;
    assert_eq!(released(guard).await, Released::Clean);
    assert!(began.elapsed() < least, "the release waited");
    case.assert_taken(&key).await;
    case.assert_free_within(&key, least + SOON).await;
    let elapsed = began.elapsed();
    assert!(elapsed >= least.mul_f64(0.95), "free after {elapsed:?}");
}

/// A release after the min hold frees the lock at once.
pub async fn a_release_after_the_min_hold_is_a_release(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let request = case.request(&key).with_min_hold(Duration::from_millis(50));
    let guard = granted(&client, &request).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    guard.release().await.expect("a held lock is released");
    case.assert_free(&key).await;
}

/// A release that overtakes a renewal ends the lock for good.
pub async fn a_released_lock_is_not_renewed(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    case.faults()
        .plan(Request::Renew, Fault::LateReply(Duration::from_millis(150)));
    // The renewal is due at a third of the ttl, and under way by now.
    tokio::time::sleep(case.ttl().mul_f64(0.38)).await;
    case.assert_disturbed().await;
    guard.release().await.expect("a held lock is released");
    case.assert_free(&key).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    case.assert_free(&key).await;
}

/// A release whose answer is lost is repeated until the lock is free.
pub async fn a_release_without_an_answer_frees_the_lock(case: Case) {
    let (client, key) = (case.client().await, case.key());
    for fault in [Fault::LostReply, Fault::LostRequest] {
        let guard = client.lock(&key).await.expect("a free lock is granted");
        case.faults().plan(Request::Release, fault);
        if let Err(error) = guard.release().await {
            let is_open = error.is_retryable() || error.is_outcome_unknown();
            assert!(is_open, "{error:?}");
        }
        case.assert_disturbed().await;
        case.assert_nothing_left(&client, &key).await;
    }
}

/// A release that arrives twice does not affect the next holder.
pub async fn a_release_that_arrives_twice_is_one(case: Case) {
    let (holder, key) = (case.client().await, case.key());
    let guard = case.lock(&holder, &key).await;
    let waiting = case.waiting(&case.request(&key)).await;
    case.faults().plan(Request::Release, Fault::Duplicated);
    guard.release().await.expect("a held lock is released");
    case.assert_disturbed().await;
    let next = joined(waiting).await;
    case.assert_taken(&key).await;
    assert_eq!(released(next).await, Released::Clean);
}

/// An abandoned lease can be extended and released by its id, once.
pub async fn a_lease_is_kept_and_released_by_its_id(case: Case) {
    let (client, other, key) = (case.client().await, case.client().await, case.key());
    let admin = admin(&*other);
    let guard = case.lock(&client, &key).await;
    let id = guard.lease_id().expect("a lease has an id");
    guard.abandon();
    let longer = case.ttl() * 3;
    let renew = async || admin.renew_lease(&key, id, longer).await;
    let state = renew().await.expect("the server answers");
    assert_eq!(state, LeaseState::Held);
    tokio::time::sleep(case.ttl().mul_f64(1.2)).await;
    case.assert_taken(&key).await;
    for expected in [Released::Clean, Released::AlreadyLost] {
        let released = admin.release_lease(&key, id).await;
        assert_eq!(released.expect("the server answers"), expected);
        case.assert_free(&key).await;
    }
    let state = renew().await.expect("the server answers");
    let is_lost = matches!(state, LeaseState::Lost(_));
    assert!(is_lost, "a released lease came back");
    case.assert_free(&key).await;
}
