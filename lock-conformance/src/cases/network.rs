//! Requests and replies that are lost, late or doubled.

use std::time::Duration;

use polylock_core::memory::{Fault, Reachable, Request};
use polylock_core::{DistributedLock, DistributedLockExt, ErrorKind, Released};
use tokio::time::Instant;

use super::Case;
use super::case::{LATE, SOON};
use super::support::{eventually, joined, released, unavailable};

/// A server that cannot be reached is an error, and not contention.
pub async fn an_unreachable_server_is_unavailable(case: Case) {
    let (client, key) = (case.client().await, case.key());
    case.faults().set_reachable(Reachable::Cut);
    let request = case.request_within(&key, Duration::from_millis(500));
    let error = unavailable(client.acquire(&request).await);
    assert!(error.is_retryable(), "{error:?}");
    unavailable(client.try_lock(&key).await);
    case.faults().set_reachable(Reachable::Connected);
    case.assert_nothing_left(&client, &key).await;
}

/// A readiness check succeeds while the server can be reached, and fails in time while it cannot.
pub async fn a_ping_is_answered_by_a_server_that_is_reached(case: Case) {
    let client = case.client().await;
    client.ping(SOON).await.expect("it is reached");
    case.faults().set_reachable(Reachable::Cut);
    let (begun, within) = (Instant::now(), Duration::from_millis(500));
    unavailable(client.ping(within).await);
    assert!(
        begun.elapsed() < within + SOON,
        "the ping failed after {:?}",
        begun.elapsed()
    );
    case.faults().set_reachable(Reachable::Connected);
    eventually("it is reached again", async || {
        client.ping(SOON).await.is_ok()
    })
    .await;
}

/// A grant whose answer is lost is an error or a guard, and leaves nothing behind.
pub async fn a_grant_without_an_answer_leaves_nothing(case: Case) {
    let (client, key) = (case.client().await, case.key());
    for fault in [Fault::LostReply, Fault::LostRequest] {
        case.faults().plan(Request::Acquire, fault);
        match client.acquire(&case.request(&key)).await {
            Ok(guard) => drop(guard),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
        case.assert_disturbed().await;
        case.assert_nothing_left(&client, &key).await;
    }
}

/// A place in the queue whose answer is lost does not stay there.
pub async fn a_place_in_the_queue_without_an_answer_leaves_nothing(case: Case) {
    let (holder, waiter, key) = (case.client().await, case.client().await, case.key());
    let guard = case.lock(&holder, &key).await;
    case.faults().plan(Request::Acquire, Fault::LostReply);
    let request = case.request_within(&key, Duration::from_millis(300));
    let answer = waiter.acquire(&request).await;
    let error = answer.expect_err("two hold the lock");
    let kinds = [ErrorKind::Contended, ErrorKind::Unavailable];
    assert!(kinds.contains(&error.kind()), "{error}");
    assert!(waiter.shutdown(SOON).await, "background work does not end");
    guard.release().await.expect("a held lock is released");
    case.assert_nothing_left(&waiter, &key).await;
}

/// A grant that is answered after its lease is over is never a guard.
pub async fn a_grant_that_comes_too_late_is_no_guard(case: Case) {
    let (client, key) = (case.client().await, case.key());
    case.faults()
        .plan(Request::Acquire, Fault::LateReply(case.ttl().mul_f64(1.1)));
    let request = case.unrenewed(&key);
    match client.acquire(&request).await {
        // A backend that asks again after a time-out of its own may have got a fresh lease.
        Ok(guard) => {
            assert!(guard.is_held(), "a guard without validity");
            case.assert_disturbed().await;
            case.assert_taken(&key).await;
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.is_outcome_unknown(), "it was granted: {error}");
        }
    }
    case.assert_nothing_left(&client, &key).await;
}

/// A lease counts from before the request, however late the answer is.
pub async fn a_late_grant_counts_from_its_request(case: Case) {
    let (client, key) = (case.client().await, case.key());
    // A client may connect first.
    let first = case.lock(&client, &key).await;
    assert_eq!(released(first).await, Released::Clean);
    case.faults()
        .plan(Request::Acquire, Fault::LateReply(case.ttl().mul_f64(0.3)));
    let before = Instant::now();
    let guard = case.lease(&client, &key).await;
    let until = guard.valid_until().expect("a lease has an end");
    case.assert_disturbed().await;
    let lasts = until.saturating_duration_since(before);
    assert!(lasts <= case.ttl().mul_f64(0.96), "valid for {lasts:?}");
    guard.release().await.expect("a held lock is released");
}

/// The wait of a request bounds a server that does not answer.
pub async fn the_wait_bounds_a_server_that_is_silent(case: Case) {
    let (client, key) = (case.client().await, case.key());
    case.faults().plan(Request::Acquire, Fault::Silence);
    let (limit, began) = (Duration::from_millis(400), Instant::now());
    let request = case.request_within(&key, limit);
    let answer = tokio::time::timeout(SOON, client.acquire(&request)).await;
    let waited = began.elapsed();
    match answer.expect("the wait has no effect") {
        // A backend that asks again after a time-out of its own may be granted the lock.
        Ok(guard) => {
            case.assert_disturbed().await;
            drop(guard);
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
    }
    assert!(waited < limit + LATE, "waited {waited:?}");
    case.assert_nothing_left(&client, &key).await;
}

/// A request that arrives twice gets one lock and one place in the queue.
pub async fn a_request_that_arrives_twice_is_one(case: Case) {
    let (holder, waiter, key) = (case.client().await, case.client().await, case.key());
    case.faults().plan(Request::Acquire, Fault::Duplicated);
    let guard = case.lock(&holder, &key).await;
    case.assert_disturbed().await;
    case.faults().plan(Request::Acquire, Fault::Duplicated);
    let request = case.request(&key);
    let waiting = tokio::spawn(async move { waiter.acquire(&request).await });
    case.queued(&key, 1).await;
    case.assert_disturbed().await;
    if let Some(look) = case.harness().look(&key).await {
        assert!(look.holders == 1 && look.waiters <= 1, "{look:?}");
    }
    guard.release().await.expect("a held lock is released");
    let next = joined(waiting).await;
    next.release().await.expect("a held lock is released");
    case.assert_nothing_left(&holder, &key).await;
}

/// One renewal that fails is tried again.
pub async fn a_renewal_that_fails_once_costs_no_lock(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    for fault in [Fault::LostRequest, Fault::LostReply, Fault::Silence] {
        case.faults().plan(Request::Renew, fault);
        tokio::time::sleep(case.ttl().mul_f64(0.6)).await;
        case.assert_disturbed().await;
    }
    case.assert_kept(&guard).await;
    guard.release().await.expect("a held lock is released");
}

/// Renewals that hang for good cost the lock at the end of its lease, and not later.
pub async fn renewals_that_hang_cost_the_lock_in_time(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    for _ in 0..30 {
        case.faults().plan(Request::Renew, Fault::Silence);
    }
    let began = Instant::now();
    let reason = super::lost::signaled(&guard, case.after_death()).await;
    assert_eq!(reason, polylock_core::LostReason::Unreachable);
    let elapsed = began.elapsed();
    assert!(
        elapsed < case.ttl() + Duration::from_millis(400),
        "lost after {elapsed:?}"
    );
    drop(guard);
    case.assert_free_within(&key, case.after_death()).await;
}
