//! How long a request waits, and what ends it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::{DistributedLock, DistributedLockExt, ErrorKind, Label, LockGuard, Wait};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::Case;
use super::case::{LATE, SOON};
use super::support::{contended, granted, joined, served, timed_out};

/// One attempt ends long before the holder does.
pub async fn try_lock_never_waits(case: Case) {
    let (holder, other, key) = (case.client().await, case.client().await, case.key());
    let guard = holder.lock(&key).await.expect("a free lock is granted");
    let began = Instant::now();
    let attempt = other.try_lock(&key).await.expect("contention is no error");
    assert!(attempt.is_none());
    assert!(began.elapsed() < LATE, "waited {:?}", began.elapsed());
    guard.release().await.expect("a held lock is released");
}

/// A wait of zero is one attempt, which gets a free lock.
pub async fn a_wait_of_zero_is_one_attempt(case: Case) {
    let (holder, other, key) = (case.client().await, case.client().await, case.key());
    let request = case.request_within(&key, Duration::ZERO);
    let guard = granted(&holder, &request).await;
    contended(&other, &request).await;
    guard.release().await.expect("a held lock is released");
}

/// A wait that is over reports contention: not before its time, and soon after.
pub async fn a_wait_ends_at_its_limit_with_contention(case: Case) {
    let (holder, other, key) = (case.client().await, case.client().await, case.key());
    let guard = holder.lock(&key).await.expect("a free lock is granted");
    let limit = Duration::from_millis(400);
    let wait = async || other.lock_within(&key, limit).await;
    let (error, waited) = timed_out(&other, wait).await;
    assert!(
        error.is_retryable() && !error.is_outcome_unknown(),
        "{error:?}"
    );
    assert_eq!(error.key(), Some(&key));
    assert!(error.backend().is_some(), "{error:?}");
    assert!(waited >= limit, "gave up after {waited:?}");
    assert!(waited < limit + LATE, "waited {waited:?}");
    guard.release().await.expect("a held lock is released");
}

/// The error of a timed-out wait names the holder, at the latest soon after its grant.
pub async fn a_timeout_names_the_holder(case: Case) {
    let (holder, other, key) = (case.client().await, case.client().await, case.key());
    let label = Label::of_this_process().with_note("nightly report");
    let guard = holder.request(&key).label(label.clone()).acquire().await;
    let guard = guard.expect("a free lock is granted");
    let began = Instant::now();
    let named = loop {
        let error = other.lock_within(&key, Duration::from_millis(50)).await;
        let error = error.expect_err("two hold the lock");
        // A server that is busy may not have answered within so short a wait.
        if error.kind() != ErrorKind::Unavailable {
            assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
        }
        match error.holder() {
            Some(holder) => break holder.clone(),
            None => assert!(began.elapsed() < SOON, "no holder in {error:?}"),
        }
    };
    assert_eq!(named.label, label);
    guard.release().await.expect("a held lock is released");
}

/// A waiter gets the lock when its holder releases it.
pub async fn waiter_gets_lock_after_release(case: Case) {
    pass_on(case, |guard| async {
        guard.release().await.expect("a held lock is released");
    })
    .await;
}

/// A waiter gets the lock when its holder drops the guard.
pub async fn waiter_gets_lock_after_holder_is_dropped(case: Case) {
    pass_on(case, |guard| async { drop(guard) }).await;
}

async fn pass_on<F>(case: Case, end: impl FnOnce(LockGuard) -> F)
where
    F: Future<Output = ()>,
{
    let (holder, key) = (case.client().await, case.key());
    // A holder whose lease does not expire during the test.
    let guard = holder.lock(&key).await.expect("a free lock is granted");
    let request = case.request_within(&key, SOON);
    let waiting = case.waiting(&request).await;
    assert!(!waiting.is_finished());
    end(guard).await;
    let next = joined(waiting).await;
    assert!(next.is_held());
    next.release().await.expect("a held lock is released");
}

async fn gave_up(waiting: JoinHandle<polylock_core::Result<LockGuard>>) {
    waiting
        .await
        .expect("no panic")
        .expect_err("two hold the lock");
}

/// A waiter gets the lock when the lease of its holder expires.
pub async fn waiter_gets_lock_after_lease_of_holder_expired(case: Case) {
    let (holder, waiter, key) = (case.client().await, case.client().await, case.key());
    let began = Instant::now();
    let guard = case.lease(&holder, &key).await;
    let request = case.patient(&key);
    let next = granted(&waiter, &request).await;
    assert!(!guard.is_held(), "two hold the lock");
    let elapsed = began.elapsed();
    assert!(elapsed >= case.ttl().mul_f64(0.9), "after {elapsed:?}");
    next.release().await.expect("a held lock is released");
}

/// A request that waits without limit outlives several leases of the holder.
pub async fn a_wait_without_limit_lasts(case: Case) {
    let (holder, waiter, key) = (case.client().await, case.client().await, case.key());
    let guard = case.lock(&holder, &key).await;
    let request = case.request(&key).with_wait(Wait::Forever);
    let mut waiting = tokio::spawn(async move { waiter.acquire(&request).await });
    let early = tokio::time::timeout(case.ttl().mul_f64(1.5), &mut waiting).await;
    assert!(early.is_err(), "ended while the lock was held: {early:?}");
    guard.release().await.expect("a held lock is released");
    drop(served(waiting).await);
}

/// First come, first served.
pub async fn waiters_are_served_in_the_order_of_their_arrival(case: Case) {
    let (holder, key) = (case.client().await, case.key());
    let guard = case.lock(&holder, &key).await;
    let (served, mut order) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for n in 1..=6 {
        let (client, served) = (case.client().await, served.clone());
        let request = case.request(&key);
        tasks.spawn(async move {
            let guard = granted(&client, &request).await;
            served.send(n).expect("the test listens");
            guard.release().await.expect("a held lock is released");
        });
        case.queued(&key, n).await;
    }
    guard.release().await.expect("a held lock is released");
    tasks.join_all().await;
    drop(served);
    let mut seen = Vec::new();
    while let Some(n) = order.recv().await {
        seen.push(n);
    }
    assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
}

/// A waiter whose wait is over is passed over by the next grant.
pub async fn a_waiter_that_gave_up_is_passed_over(case: Case) {
    let (holder, key) = (case.client().await, case.key());
    let (hurried, patient) = (case.client().await, case.client().await);
    let guard = case.lock(&holder, &key).await;
    let request = case.request(&key);
    // A slow machine may need longer to queue the first waiter than that one waits.
    let mut limit = Duration::from_millis(200);
    let gone = loop {
        let short = request.clone().with_wait(Wait::AtMost(limit));
        let hurried = Arc::clone(&hurried);
        let gone = tokio::spawn(async move { hurried.acquire(&short).await });
        tokio::select! {
            () = case.queued(&key, 1) => break gone,
            () = tokio::time::sleep(limit) => {}
        }
        gave_up(gone).await;
        limit *= 2;
    };
    let waiting = tokio::spawn(async move { patient.acquire(&request).await });
    gave_up(gone).await;
    guard.release().await.expect("a held lock is released");
    let next = served(waiting).await;
    next.release().await.expect("a held lock is released");
}
