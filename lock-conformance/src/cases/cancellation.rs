//! Futures and guards that are dropped at any point.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use polylock_core::{DistributedLock, DistributedLockExt, ErrorKind, Wait};
use tokio::sync::oneshot;

use super::Case;
use super::case::SOON;
use super::support::{Polled, When, answered, on_a_thread, polled, released, served};

/// A request for a free lock that is dropped right after its k-th poll, for every k.
pub async fn acquire_dropped_after_each_poll_leaves_nothing(case: Case) {
    acquire_dropped(case, When::AtOnce).await;
}

/// A request for a free lock that is dropped when its answer has come, for every poll.
pub async fn acquire_dropped_before_it_reads_the_answer_leaves_nothing(case: Case) {
    acquire_dropped(case, When::Woken).await;
}

/// A request with a min hold that is dropped when its answer has come, for every poll: nobody held the lock.
pub async fn acquire_dropped_before_it_reads_the_answer_has_no_min_hold(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let request = case.request(&key).with_min_hold(SOON * 3);
    for polls in 1.. {
        match answered(polls, When::Woken, client.acquire(&request)).await {
            Some(Ok(guard)) => return guard.abandon(),
            // A backend may refuse a min hold that is longer than its longest lease.
            Some(Err(error)) if error.kind() == ErrorKind::InvalidRequest => return,
            Some(Err(error)) => panic!("it is not granted: {error}"),
            None => case.assert_nothing_left(&client, &key).await,
        }
    }
}

async fn acquire_dropped(case: Case, when: When) {
    let (client, key) = (case.client().await, case.key());
    for polls in 1.. {
        let request = case.request(&key);
        let Some(answer) = answered(polls, when, client.acquire(&request)).await else {
            case.assert_nothing_left(&client, &key).await;
            continue;
        };
        released(answer.expect("it is granted")).await;
        return case.assert_nothing_left(&client, &key).await;
    }
}

/// A request that waits and is dropped after its k-th poll leaves its place in the queue.
pub async fn acquire_dropped_while_it_waits_leaves_the_queue(case: Case) {
    let (holder, waiter, key) = (case.client().await, case.client().await, case.key());
    let guard = holder.lock(&key).await.expect("a free lock is granted");
    for polls in 1..=24 {
        let request = case.request(&key).with_wait(Wait::Forever);
        let when = [When::Woken, When::AtOnce][polls % 2];
        let patience = Duration::from_millis(100);
        let outcome = polled(polls, when, patience, waiter.acquire(&request)).await;
        assert!(waiter.shutdown(SOON).await, "background work does not end");
        if let Some(look) = case.harness().look(&key).await {
            assert_eq!(
                (look.holders, look.waiters),
                (1, 0),
                "dropped after {polls} polls"
            );
        }
        match outcome {
            Polled::Dropped => {}
            Polled::Ready(answer) => panic!("answered while the lock was held: {answer:?}"),
            Polled::Stuck => break,
        }
    }
    assert!(guard.is_held());
    guard.release().await.expect("a held lock is released");
    case.assert_nothing_left(&waiter, &key).await;
}

/// A waiter that is dropped about when the lock is released does not keep it from the next one.
pub async fn a_dropped_waiter_does_not_swallow_the_lock(case: Case) {
    let (holder, key) = (case.client().await, case.key());
    let (doomed, next) = (case.client().await, case.client().await);
    for round in 0..12 {
        let guard = case.lock(&holder, &key).await;
        let waiting = [Arc::clone(&doomed), Arc::clone(&next)].map(|client| {
            let request = case.request(&key);
            tokio::spawn(async move { client.acquire(&request).await })
        });
        let [first, second] = waiting;
        if round % 3 == 0 {
            case.queued(&key, 2).await;
        }
        let release = tokio::spawn(guard.release());
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        first.abort();
        // If it was granted the lock first, this drops the guard.
        drop(first);
        let answer = release.await.expect("no panic");
        answer.expect("a held lock is released");
        drop(served(second).await);
        assert!(next.shutdown(SOON).await && doomed.shutdown(SOON).await);
        case.assert_free_within(&key, SOON).await;
    }
}

/// A release that is dropped after its k-th poll goes on.
pub async fn release_dropped_after_each_poll_goes_on(case: Case) {
    let (client, key) = (case.client().await, case.key());
    for polls in 1.. {
        let guard = case.lock(&client, &key).await;
        let answer = answered(polls, When::AtOnce, guard.release()).await;
        case.assert_nothing_left(&client, &key).await;
        if let Some(released) = answer {
            released.expect("a held lock is released");
            return;
        }
    }
}

/// A guard that is dropped on a thread without a runtime releases the lock.
pub async fn guard_dropped_outside_a_runtime_is_released(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let dropped = std::thread::spawn(move || drop(guard)).join();
    assert!(dropped.is_ok(), "the drop panicked");
    case.assert_free_within(&key, SOON).await;
}

/// A guard that is dropped in another runtime releases the lock.
pub async fn guard_dropped_in_another_runtime_is_released(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    on_a_thread(move || async move { drop(guard) })
        .await
        .expect("the drop panicked");
    case.assert_free_within(&key, SOON).await;
}

/// A guard that a panic drops releases the lock.
pub async fn guard_dropped_by_a_panic_is_released(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let critical = AssertUnwindSafe(move || {
        let _guard = guard;
        // Unlike `panic!` it prints nothing.
        resume_unwind(Box::new("in the critical section"));
    });
    assert!(catch_unwind(critical).is_err());
    case.assert_free_within(&key, SOON).await;

    let guard = case.lock(&client, &key).await;
    let task = tokio::spawn(async move {
        let _guard = guard;
        tokio::task::yield_now().await;
        resume_unwind(Box::new("in a task"));
    });
    assert!(task.await.is_err_and(|error| error.is_panic()));
    case.assert_free_within(&key, SOON).await;
}

/// A runtime that is shut down with live guards neither hangs nor panics, and their locks are free when
/// their leases end at the latest.
pub async fn runtime_shut_down_with_live_guards_loses_no_lock_for_ever(case: Case) {
    let keys = [case.key(), case.key()];
    let (report, ready) = oneshot::channel();
    let (inner, inner_keys) = (case.clone(), keys.clone());
    let thread = std::thread::spawn(move || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let outer = runtime.block_on(async {
            let client = inner.client().await;
            let inside = inner.lock(&client, &inner_keys[0]).await;
            let outside = inner.lock(&client, &inner_keys[1]).await;
            tokio::spawn(async move {
                let _guard = inside;
                std::future::pending::<()>().await;
            });
            tokio::task::yield_now().await;
            (outside, client)
        });
        runtime.shutdown_timeout(Duration::from_secs(1));
        drop(outer);
        report.send(()).expect("the test listens");
    });
    ready.await.expect("the shutdown panicked");
    for key in &keys {
        case.assert_free_within(key, case.after_death()).await;
    }
    assert!(thread.join().is_ok());
}
