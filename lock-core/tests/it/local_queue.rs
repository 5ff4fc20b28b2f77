//! The queue inside a process, under virtual time.

use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::Engine;
use polylock_core::layers::LocalQueue;
use polylock_core::memory::{Fault, Memory, Request};
use polylock_core::prelude::*;
use polylock_core::{AcquireRequest, LostReason};
use tokio::time::Instant;

use super::support::{
    Log, Wrapper, drop_after_a_poll, in_time, is_free, key, left, memory, millis, plan_all, queued,
    secs, settle, start, try_start, until,
};

/// How many tasks of a process have the lock, for a millisecond each, before a client elsewhere that has
/// waited for the same time.
pub(crate) async fn handed_over(locks: &Arc<dyn DistributedLock>, store: &Memory) -> usize {
    let first = locks.lock("k").await.expect("granted");
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for who in ["here"; 60].into_iter().chain(["there"]) {
        let order = Arc::clone(&order);
        let locks = match who {
            "here" => Arc::clone(locks),
            _ => Arc::new(store.client()),
        };
        tasks.push(tokio::spawn(async move {
            let guard = locks.lock("k").await.expect("granted");
            order.lock().expect("not poisoned").push(who);
            tokio::time::sleep(Duration::from_millis(1)).await;
            guard.release().await.expect("released");
        }));
        settle().await;
    }
    first.release().await.expect("released");
    for task in tasks {
        task.await.expect("no panic");
    }
    let order = order.lock().expect("not poisoned");
    let place = order.iter().position(|who| *who == "there");
    place.expect("it was served")
}

#[tokio::test(start_paused = true)]
async fn short_work_is_handed_over_for_a_while() {
    let (store, locks) = queued();
    let place = handed_over(&(Arc::new(locks) as _), &store).await;
    // A millisecond each, 25 of them, and the last of the run is told in advance.
    assert!((25..=27).contains(&place), "granted in place {place}");
}

#[tokio::test(start_paused = true)]
async fn a_broken_lock_does_not_unseat_the_next_holder() {
    let store = memory();
    let locks = LocalQueue::new(Arc::new(store.client())).with_max_handovers(0);
    let first = locks.lock("k").await.unwrap();
    let second = start(&locks, AcquireRequest::new(key()));
    settle().await;
    // The store forgets the first holder, which does not know yet, and grants the second.
    store.expire(&key());
    let second = second.await.unwrap();
    assert!(locks.try_lock("k").await.unwrap().is_none());
    drop(first);
    settle().await;
    assert!(
        locks.try_lock("k").await.unwrap().is_none(),
        "the second is seated still"
    );
    assert!(second.is_held());
}

#[tokio::test(start_paused = true)]
async fn an_error_reaches_the_contender_and_the_next_tries_for_itself() {
    let (store, locks) = queued();
    let late = Fault::LateReply(secs(1));
    store.faults().plan(Request::Acquire, late);
    store.faults().plan(Request::Acquire, Fault::LostRequest);
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let guard = locks.lock("k").await?;
                tokio::time::sleep(secs(100)).await;
                drop(guard);
                Ok::<_, Error>(())
            })
        })
        .collect();
    let mut failed = 0;
    for task in tasks {
        failed += usize::from(task.await.unwrap().is_err());
    }
    assert_eq!(
        (failed, locks.live_keys()),
        (2, 0),
        "waits of 30 s end, and no waiter hangs"
    );
}

#[tokio::test(start_paused = true)]
async fn min_hold_is_kept_against_waiters_of_the_same_process() {
    let locks = LocalQueue::new(Arc::new(memory()));
    let began = Instant::now();
    let request = locks.request("k").min_hold(secs(20));
    let guard = request.acquire().await.unwrap();
    let (next, released) = tokio::join!(locks.lock("k"), guard.release());
    released.unwrap();
    drop(next.unwrap());
    let after = began.elapsed();
    assert!(
        after >= secs(20),
        "a waiter of the process was let in after {after:?} of 20 s of min hold"
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_gone_when_it_gets_the_lock_keeps_it_for_no_min_hold() {
    let (store, locks) = queued();
    let request = || AcquireRequest::new(key()).with_min_hold(secs(60));
    let first = locks.lock("k").await.unwrap();
    let gone = start(&locks, request());
    settle().await;
    drop(first);
    // It has been sent its guard, and has not looked.
    gone.abort();
    settle().await;
    assert!(is_free(&store).await);

    let first = locks.lock("k").await.unwrap();
    let [gone, next] = [(); 2].map(|()| start(&locks, request()));
    settle().await;
    drop(first);
    gone.abort();
    settle().await;
    assert!(next.is_finished(), "the lock has not passed on");
}

/// As on the backends whose waiters run on the engine.
#[tokio::test(start_paused = true)]
async fn a_grant_on_the_engine_to_a_caller_that_is_gone_has_no_min_hold() {
    let store = memory();
    let engine = Engine::on_current_runtime("memory");
    let locks = Wrapper::new(&store, move |inner, request| {
        let engine = engine.clone();
        async move {
            let granted = engine.run(async move { inner.acquire(&request).await });
            granted.await
        }
    });
    let held = store.lock("k").await.unwrap();
    let request = AcquireRequest::new(key()).with_min_hold(secs(60));
    let mut waiting = locks.acquire(&request);
    drop_after_a_poll(&mut waiting).await;
    assert_eq!(store.waiters(&key()), 1);
    held.release().await.unwrap();
    settle().await;
    assert_eq!(store.waiters(&key()), 0);
    assert!(!is_free(&store).await, "it is granted");
    drop(waiting);
    settle().await;
    assert!(is_free(&store).await);
}

#[tokio::test(start_paused = true)]
async fn a_lease_passes_only_to_a_request_with_its_ttl() {
    let (_store, locks) = queued();
    let long = locks.request("k").ttl(secs(60)).acquire().await.unwrap();
    let short = start(&locks, AcquireRequest::new(key()).with_ttl(secs(5)));
    settle().await;
    long.release().await.unwrap();
    let short = short.await.unwrap();
    // With its predecessor's lease, it would rely on more time than the server grants.
    let left = left(&short);
    assert!(
        left <= secs(5),
        "a lease of 5 s has {left:?} left: it is that of its predecessor"
    );
    tokio::time::sleep(secs(20)).await;
    assert!(short.is_held());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_inherited_only_with_its_ttl() {
    let (store, locks) = queued();
    let held = store.lock("k").await.unwrap();
    let impatient = AcquireRequest::new(key()).with_ttl(secs(60));
    let impatient = try_start(&locks, impatient.with_wait(Wait::AtMost(secs(1))));
    settle().await;
    let patient = start(&locks, AcquireRequest::new(key()).with_ttl(secs(5)));
    let error = impatient.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    settle().await;
    assert_eq!(store.waiters(&key()), 1);
    held.release().await.unwrap();
    let left = left(&patient.await.unwrap());
    assert!(
        left <= secs(5),
        "a lease of 5 s has {left:?} left: it is that of another request"
    );
}

#[test]
fn an_attempt_does_not_outlive_its_runtime() {
    let store = Memory::new();
    let locks = LocalQueue::new(Arc::new(store.client()));
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    };
    let (first, second) = (runtime(), runtime());
    let held = second.block_on(store.lock("k")).unwrap();
    let wait = |locks: LocalQueue| async move { locks.lock("k").await.map(drop) };
    drop(first.spawn(wait(locks.clone())));
    until(|| store.waiters(&key()) > 0);
    let behind = second.spawn(wait(locks));
    // The contender goes with its runtime, and so do the timers of its attempt.
    first.shutdown_background();
    drop(held);
    second.block_on(behind).unwrap().unwrap();
}

/// A wait of `seconds` in the queue that ends.
async fn refused(locks: &LocalQueue, seconds: u64) -> Error {
    let request = locks.request("k").wait(Wait::AtMost(secs(seconds)));
    request.acquire().await.expect_err("it is not granted")
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_silent_server_is_no_contention() {
    let (store, locks) = queued();
    store.faults().plan(Request::Acquire, Fault::Silence);
    let (contender, behind) = tokio::join!(refused(&locks, 3), refused(&locks, 2));
    assert_eq!(contender.kind(), ErrorKind::Unavailable);
    assert!(contender.is_outcome_unknown(), "it may be granted yet");
    assert_eq!(behind.kind(), ErrorKind::Unavailable);
    assert!(!behind.is_outcome_unknown(), "nothing was sent for it");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_lock_that_was_seen_held_is_contention() {
    let (store, locks) = queued();
    let held = store.request("k").acquire().await.unwrap();
    let (contender, behind) = tokio::join!(refused(&locks, 3), refused(&locks, 4));
    assert_eq!(contender.kind(), ErrorKind::Contended);
    assert_eq!(behind.kind(), ErrorKind::Contended, "it has inherited that");
    assert!(held.is_held());
}

/// The server has not told the next task that the lock is held.
#[tokio::test(start_paused = true)]
async fn what_another_task_has_seen_counts_for_two_seconds() {
    // The server is silent for 1 s or for 3 s.
    for (wait, kind) in [(4, ErrorKind::Contended), (6, ErrorKind::Unavailable)] {
        let (store, locks) = queued();
        let _held = store.request("k").acquire().await.unwrap();
        let (contender, other_ttl) = tokio::join!(refused(&locks, 3), async {
            let wait = Wait::AtMost(secs(wait));
            let request = locks.request("k").ttl(secs(7)).wait(wait);
            store.faults().plan(Request::Acquire, Fault::Silence);
            request.acquire().await.unwrap_err()
        });
        assert_eq!(contender.kind(), ErrorKind::Contended);
        assert_eq!(other_ttl.kind(), kind, "waited {wait} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_task_of_this_process_is_contention() {
    let (store, locks) = queued();
    let held = locks.lock("k").await.unwrap();
    store.faults().plan(Request::Acquire, Fault::Silence);
    let late = Fault::LateReply(secs(10));
    store.faults().plan(Request::Release, late);
    assert_eq!(refused(&locks, 1).await.kind(), ErrorKind::Contended);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_at_a_server_that_fell_silent_is_not_told_that_the_lock_is_held() {
    let falls_silent = Wrapper::new(&memory(), |_, request| async move {
        request.mark_contended();
        tokio::time::sleep(secs(5)).await;
        request.mark_unresponsive();
        std::future::pending().await
    });
    let locks = LocalQueue::new(Arc::new(falls_silent));
    let (early, late, behind) =
        tokio::join!(refused(&locks, 4), refused(&locks, 6), refused(&locks, 7));
    assert_eq!(early.kind(), ErrorKind::Contended);
    assert_eq!(late.kind(), ErrorKind::Unavailable);
    assert_eq!(
        behind.kind(),
        ErrorKind::Unavailable,
        "it has inherited that"
    );
}

/// The wait ends while another attempt is under way, whose outcome is unknown.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_server_that_cannot_grant_ends_with_its_last_reason() {
    let explains = Wrapper::new(&memory(), |_, request| async move {
        request.mark_unavailable("no majority votes yet");
        tokio::time::sleep(secs(5)).await;
        request.mark_contended();
        tokio::time::sleep(secs(2)).await;
        request.mark_unresponsive();
        tokio::time::sleep(secs(2)).await;
        request.mark_unavailable("no majority answers");
        std::future::pending().await
    });
    let locks = LocalQueue::new(Arc::new(explains));
    let (contender, behind, once, held, silent, again) = tokio::join!(
        refused(&locks, 4),
        refused(&locks, 3),
        async {
            tokio::time::sleep(millis(2_500)).await;
            locks.try_lock("k").await.unwrap_err()
        },
        refused(&locks, 6),
        refused(&locks, 8),
        refused(&locks, 10),
    );
    assert_eq!(contender.message(), "no majority votes yet");
    assert!(contender.is_outcome_unknown(), "it may be granted yet");
    for error in [&behind, &once] {
        assert_eq!(error.message(), "no majority votes yet");
        assert!(!error.is_outcome_unknown(), "nothing was sent for it");
    }
    assert_eq!(held.kind(), ErrorKind::Contended, "{held}");
    let message = silent.message();
    assert!(message.contains("has not answered"), "{message}");
    assert_eq!(again.message(), "no majority answers");
    for error in [contender, behind, once, silent, again] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_gets_at_once_why_the_server_cannot_grant() {
    let explains = Wrapper::new(&memory(), |_, request| async move {
        request.mark_unavailable("no majority votes yet");
        std::future::pending().await
    });
    let log = Log::default();
    let locks = log.of(Arc::new(LocalQueue::new(Arc::new(explains))));
    let began = Instant::now();
    let waiter = locks.lock_within("k", secs(4)).await;
    assert_eq!(waiter.unwrap_err().message(), "no majority votes yet");
    let told = log.take_only("unavailable");
    let [told] = &told[..] else {
        panic!("it is told {} times", told.len());
    };
    assert_eq!((told.at, &*told.key), (began, "k"));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_without_a_wait_does_not_take_a_silent_server_for_contention() {
    let (store, locks) = queued();
    store.faults().plan(Request::Acquire, Fault::Silence);
    let waiter = tokio::spawn({
        let locks = locks.clone();
        async move { refused(&locks, 20).await }
    });
    settle().await;
    let attempt = locks.try_lock("k").await;
    assert!(attempt.unwrap().is_none(), "two that come at once");
    tokio::time::sleep(secs(3)).await;
    let attempt = locks.try_lock("k").await.unwrap_err();
    assert_eq!(attempt.kind(), ErrorKind::Unavailable);
    assert!(!attempt.is_outcome_unknown(), "nothing was sent for it");
    waiter.abort();
}

/// The next task contends from the loss on, or since before it, where the holder hands over to none.
#[tokio::test(start_paused = true)]
async fn a_server_that_cost_the_holder_its_lock_by_silence_is_no_contention() {
    for max_handovers in [LocalQueue::DEFAULT_MAX_HANDOVERS, 0] {
        let (store, locks) = queued();
        let locks = locks.with_max_handovers(max_handovers);
        let held = locks.request("k").ttl(secs(10)).acquire().await.unwrap();
        plan_all(&store, Request::Renew, Fault::Silence);
        store.faults().plan(Request::Acquire, Fault::Silence);
        // Late enough for an attempt that is still under way after the loss.
        tokio::time::sleep(secs(8)).await;
        let request = AcquireRequest::new(key()).with_wait(Wait::AtMost(secs(60)));
        let waiter = try_start(&locks, request);
        settle().await;
        let reason = in_time("the loss of the lock", held.lost()).await;
        assert_eq!(reason, LostReason::Unreachable);
        tokio::time::sleep(secs(3)).await;
        let attempt = locks.try_lock("k").await.unwrap_err();
        assert_eq!(
            attempt.kind(),
            ErrorKind::Unavailable,
            "max_handovers {max_handovers}"
        );
        waiter.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_long_after_its_loss_makes_no_outage_of_contention() {
    let (store, locks) = queued();
    let held = locks.request("k").ttl(secs(10)).acquire().await.unwrap();
    plan_all(&store, Request::Renew, Fault::Silence);
    let other = tokio::spawn({
        let request = AcquireRequest::new(key()).with_ttl(secs(60));
        let other = store.client();
        async move { other.acquire(&request).await }
    });
    settle().await;
    let request = AcquireRequest::new(key()).with_wait(Wait::AtMost(secs(60)));
    let waiter = try_start(&locks, request);
    let reason = in_time("the loss of the lock", held.lost()).await;
    assert_eq!(reason, LostReason::Unreachable);
    // The network is back.
    store.faults().clear();
    let other = in_time("the grant to the other", other).await;
    let _other = other.unwrap().unwrap();
    assert_eq!(store.waiters(&key()), 1, "the server has answered");
    drop(held);
    tokio::time::sleep(secs(3)).await;
    let attempt = locks.try_lock("k").await;
    assert!(attempt.unwrap().is_none(), "the lock is held");
    let error = waiter.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
}

/// A queue before a server that answers after 60 ms.
fn slow_queue() -> LocalQueue {
    let slow = Wrapper::new(&memory(), |inner, request| async move {
        tokio::time::sleep(millis(60)).await;
        inner.acquire(&request).await
    });
    LocalQueue::new(Arc::new(slow))
}

#[tokio::test(start_paused = true)]
async fn a_short_wait_has_time_for_one_attempt() {
    let locks = slow_queue();
    let short = || locks.lock_within("k", millis(50));
    let (first, behind) = tokio::join!(short(), short());
    assert!(first.unwrap().is_held());
    let error = behind.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
}

/// Also behind a holder of this process that releases to the server.
#[tokio::test(start_paused = true)]
async fn a_short_wait_after_a_local_holder_has_time_for_one_attempt() {
    let locks = slow_queue();
    let held = locks.lock("k").await.unwrap();
    // No lease is handed over to another ttl.
    let request = AcquireRequest::new(key()).with_ttl(secs(7));
    let waiter = try_start(&locks, request.with_wait(Wait::AtMost(millis(50))));
    settle().await;
    drop(held);
    assert!(waiter.await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_late_only_by_the_min_time_of_an_attempt_without_an_answer() {
    let (store, locks) = queued();
    let _held = store.lock("k").await.unwrap();
    let silent = Some(Fault::Silence);
    for (wait, fault, ends, kind) in [
        (20, silent, 100, ErrorKind::Unavailable),
        (300, silent, 300, ErrorKind::Unavailable),
        (20, None, 20, ErrorKind::Contended),
    ] {
        if let Some(fault) = fault {
            store.faults().plan(Request::Acquire, fault);
        }
        let began = Instant::now();
        let waiting = || locks.lock_within("k", millis(wait));
        let (contender, behind) = tokio::join!(waiting(), waiting());
        assert_eq!(began.elapsed(), millis(ends), "{wait} ms");
        for error in [contender.unwrap_err(), behind.unwrap_err()] {
            assert_eq!(error.kind(), kind, "{wait} ms: {error}");
        }
    }
}

/// The next task contends from the release on, or since before it, where the holder hands over to none.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_silent_after_a_local_holder_is_no_contention_for_long() {
    for max_handovers in [LocalQueue::DEFAULT_MAX_HANDOVERS, 0] {
        let (store, locks) = queued();
        let locks = locks.with_max_handovers(max_handovers);
        let held = locks.lock("k").await.unwrap();
        store.faults().plan(Request::Acquire, Fault::Silence);
        // No lease is handed over to another ttl.
        let request = AcquireRequest::new(key()).with_ttl(secs(7));
        let waiter = try_start(&locks, request.with_wait(Wait::AtMost(secs(4))));
        settle().await;
        drop(held);
        tokio::time::sleep(secs(1)).await;
        let attempt = locks.try_lock("k").await;
        assert!(attempt.unwrap().is_none(), "a server may take that long");
        tokio::time::sleep(secs(2)).await;
        let attempt = locks.try_lock("k").await.unwrap_err();
        assert_eq!(
            attempt.kind(),
            ErrorKind::Unavailable,
            "max_handovers {max_handovers}"
        );
        let error = waiter.await.unwrap().unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::Unavailable,
            "max_handovers {max_handovers}"
        );
        assert!(error.is_outcome_unknown(), "it may be granted yet");
    }
}
