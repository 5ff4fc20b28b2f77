//! Several keys behind the queue of a process, under virtual time.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polylock_core::admin::LockAdmin;
use polylock_core::layers::LocalQueue;
use polylock_core::memory::{Fault, Memory, Reachable, Request};
use polylock_core::prelude::*;
use polylock_core::{LostReason, MultiGuard, Owner};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::support::{Wrapper, drop_after_a_poll, in_time, memory, millis, secs, settle};

/// A store, a queue before it, and what the queue asks of it.
fn queue() -> (Memory, LocalQueue, Arc<AtomicUsize>) {
    let (store, calls) = (memory(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&calls);
    let counted = Wrapper::new(&store, move |inner, request| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move { inner.acquire(&request).await }
    });
    (store, LocalQueue::new(Arc::new(counted)), calls)
}

#[tokio::test(start_paused = true)]
async fn each_of_several_keys_is_handed_over_by_itself() {
    let (store, locks, counted) = queue();
    let all = locks.lock_all(["a", "b"]).await.unwrap();
    let next = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("a").await.unwrap() }
    });
    tokio::task::yield_now().await;
    all.release().await.unwrap();
    drop(next.await.unwrap());
    assert_eq!(
        counted.load(Ordering::SeqCst),
        2,
        "the lease has passed inside"
    );
    assert_eq!((locks.live_keys(), store.live_keys()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn each_of_several_keys_is_requested_with_the_options() {
    let store = memory();
    let readers = || store.request_all(["a", "b"]).shared();
    let request = readers().ttl(secs(10)).manual_renewal();
    let all = request.acquire().await.unwrap();
    for guard in all.guards() {
        let left = guard.valid_until().unwrap() - Instant::now();
        assert!(left > secs(5) && left <= secs(10), "valid for {left:?}");
    }
    assert!(readers().try_acquire().await.unwrap().is_some());
    let began = Instant::now();
    let writer = store.request_all(["b", "a"]).wait(Wait::AtMost(secs(1)));
    let error = writer.acquire().await.unwrap_err();
    assert_eq!(error.message(), "the lock is held, waited 1s");
    let waited = began.elapsed();
    assert!(
        waited >= secs(1) && waited < secs(2),
        "timed out after {waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_wanted_in_this_process_are_waited_for_in_line() {
    let (store, locks, counted) = queue();
    let held = locks.lock("b").await.unwrap();
    let all = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock_all(["a", "b"]).await.unwrap() }
    });
    tokio::time::sleep(secs(1)).await;
    drop(held);
    drop(all.await.unwrap());
    assert_eq!(counted.load(Ordering::SeqCst), 2, "b has passed inside");
    assert_eq!((locks.live_keys(), store.live_keys()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_held_elsewhere_is_waited_for_and_blocks_no_other() {
    let (store, locks, _) = queue();
    let held = store.lock("a").await.unwrap();
    let all = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock_all(["a", "b"]).await.unwrap() }
    });
    tokio::time::sleep(secs(1)).await;
    assert!(locks.try_lock("b").await.unwrap().is_some());
    drop(held);
    drop(all.await.unwrap());
    assert_eq!((locks.live_keys(), store.live_keys()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_one_budget() {
    let (store, locks, _) = queue();
    let held = store.lock("b").await.unwrap();
    let began = Instant::now();
    let late = Fault::LateReply(secs(2));
    store.faults().plan(Request::Acquire, late);
    let both = |wait| locks.request_all(["a", "b"]).wait(Wait::AtMost(wait));
    let error = both(secs(5)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    assert_eq!(began.elapsed(), secs(5), "one wait of 5 s for all keys");
    store.faults().plan(Request::Acquire, Fault::Silence);
    let error = both(secs(3)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(began.elapsed(), secs(8), "and one of 3 s");
    drop(held);
    assert!(locks.shutdown(secs(5)).await);
    assert_eq!((locks.live_keys(), store.live_keys()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_late_reply_of_the_store_is_part_of_the_wait() {
    let (store, _, _) = queue();
    let _held = store.lock("a").await.unwrap();
    let late = Fault::LateReply(secs(2));
    store.faults().plan(Request::Acquire, late);
    let began = Instant::now();
    let error = store.lock_within("a", secs(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    assert_eq!(began.elapsed(), secs(5), "until the wait timed out");
}

/// The time that the first key took says nothing about the server of the second, which may fail early or late.
#[tokio::test(start_paused = true)]
async fn a_wait_that_is_used_up_is_contention_and_a_server_that_fails_is_an_outage() {
    let late = Fault::LateReply(secs(1));
    for (wait, until_free, fault, kind) in [
        (2_000, 1_999, late, ErrorKind::Contended),
        (300, 1, Fault::LostRequest, ErrorKind::Unavailable),
    ] {
        let (store, locks, _) = queue();
        let held = store.client().lock("a").await.unwrap();
        let wait = Wait::AtMost(millis(wait));
        let both = locks.request_all(["a", "b"]).wait(wait);
        let release = async {
            tokio::time::sleep(millis(until_free)).await;
            store.faults().plan(Request::Acquire, fault);
            held.release().await.unwrap();
        };
        let (refused, ()) = tokio::join!(both.acquire(), release);
        assert_eq!(refused.unwrap_err().kind(), kind, "{fault:?}");
    }
}

/// In real time: where time stands still, nothing has used up the wait.
#[tokio::test]
async fn a_single_attempt_in_an_outage_is_no_contention() {
    for keys in [&["b"][..], &["a", "b"]] {
        let store = memory();
        let locks = Wrapper::new(&store, |inner, request| async move {
            if request.key().as_str() == "b" {
                inner.faults().set_reachable(Reachable::Cut);
            }
            inner.acquire(&request).await
        });
        let all = locks.request_all(keys.iter().copied());
        let all = all.wait(Wait::AtMost(secs(0)));
        let error = all.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{keys:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_granted_to_no_caller_has_no_min_hold() {
    let (store, locks, _) = queue();
    let held = store.client().lock("b").await.unwrap();
    let both = || locks.request_all(["a", "b"]).min_hold(secs(60));
    let is_a_free = async || {
        settle().await;
        store.client().try_lock("a").await.unwrap().is_some()
    };
    assert!(both().try_acquire().await.unwrap().is_none());
    assert!(is_a_free().await, "b is held");
    let mut waiting = Box::pin(both().acquire());
    drop_after_a_poll(&mut waiting).await;
    assert!(!is_a_free().await, "it waits for b");
    drop(waiting);
    assert!(is_a_free().await, "its future is dropped");
    drop(held);
    settle().await;
    both().acquire().await.unwrap().release().await.unwrap();
    assert!(!is_a_free().await, "both were held");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_lost_ends_the_wait_for_the_next_one() {
    let (store, locks, _) = queue();
    let held = store.client().lock("b").await.unwrap();
    let both = locks.request_all(["a", "b"]).wait(Wait::Forever);
    let a = LockKey::new("a").unwrap();
    let breaks = async {
        settle().await;
        let broken = store.break_lock(&a, "for the test").await;
        assert!(broken.unwrap().is_some(), "it has the first key");
    };
    let ends = async { tokio::join!(both.acquire(), breaks) };
    let (acquired, ()) = in_time("the end of the wait", ends).await;
    let error = acquired.unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Broken), "{error}");
    assert_eq!((error.kind(), error.key()), (ErrorKind::Lost, Some(&a)));
    assert!(error.is_outcome_unknown(), "b may have been granted");
    assert!(held.is_held());
}

/// The first guard of the owner has its min hold, whatever becomes of the second one.
#[tokio::test(start_paused = true)]
async fn a_reentry_that_fails_ends_no_min_hold() {
    let (store, locks, _) = queue();
    let _held = store.client().lock("b").await.unwrap();
    let owner = Owner::new();
    let outer = locks.request("a").owner(&owner).min_hold(secs(60));
    let outer = outer.acquire().await.unwrap();
    let both = locks.request_all(["a", "b"]).owner(&owner);
    let mut waiting = Box::pin(both.acquire());
    drop_after_a_poll(&mut waiting).await;
    outer.release().await.unwrap();
    drop(waiting);
    settle().await;
    assert!(store.client().try_lock("a").await.unwrap().is_none());
    tokio::time::sleep(secs(61)).await;
    assert!(store.client().try_lock("a").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn guards_of_two_backends_are_held_together() {
    let (one, two) = (memory(), memory());
    let guards = vec![one.lock("a").await.unwrap(), two.lock("b").await.unwrap()];
    let both = MultiGuard::new(guards);
    assert!(both.is_held());
    assert_eq!(both.run(async { 7 }).await.unwrap(), 7);
    let admin = two.admin().expect("memory has one");
    let broken = both.guards()[1].key();
    let (started, work) = (Notify::new(), Arc::new(()));
    let running = both.run({
        let (started, work) = (&started, Arc::clone(&work));
        async move {
            started.notify_one();
            pending::<()>().await;
            drop(work);
        }
    });
    let breaking = async {
        started.notified().await;
        assert_eq!(Arc::strong_count(&work), 2, "the work runs");
        admin.break_lock(broken, "for the test").await.unwrap();
    };
    let (stopped, ()) = tokio::join!(running, breaking);
    let error = stopped.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(error.lost_reason(), Some(LostReason::Broken));
    assert_eq!(error.key(), Some(broken));
    assert_eq!(Arc::strong_count(&work), 1, "the work is dropped");
    assert_eq!(in_time("the loss", both.lost()).await, LostReason::Broken);
    assert!(both.ensure_held().is_err());
    let refused = both.run(async { 7 }).await.unwrap_err();
    assert_eq!(refused.key(), Some(both.guards()[1].key()));
    assert_eq!(both.release().await.unwrap(), Released::AlreadyLost);
    assert!(one.try_lock("a").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn each_key_has_its_token_and_the_first_to_expire_warns() {
    let (one, two) = (memory(), memory());
    drop(two.lock("b").await.unwrap());
    let long = one.request("a").ttl(secs(60)).manual_renewal();
    let short = two.request("b").ttl(secs(10)).manual_renewal();
    let both = MultiGuard::new(vec![
        long.acquire().await.unwrap(),
        short.acquire().await.unwrap(),
    ]);
    let token = |key| both.fencing_token(&LockKey::new(key).unwrap());
    let tokens = both.guards().iter().map(LockGuard::fencing_token);
    let tokens: Vec<_> = tokens.collect();
    assert_eq!(
        [token("a"), token("b"), token("c")],
        [tokens[0], tokens[1], None]
    );
    assert_ne!(tokens[0], tokens[1]);
    let began = Instant::now();
    in_time("the warning", both.expiring(secs(4))).await;
    let warned = began.elapsed();
    assert!(
        warned > secs(4) && warned <= secs(6),
        "warned after {warned:?}"
    );
    assert!(both.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_release_that_hangs_keeps_no_other_key() {
    let store = memory();
    let request = store.request_all(["a", "b", "c"]).ttl(secs(30));
    let all = request.acquire().await.unwrap();
    // Those of `c`, which is released first, and of `b`.
    for _ in 0..2 {
        store.faults().plan(Request::Release, Fault::Silence);
    }
    let release = tokio::spawn(all.release());
    let began = Instant::now();
    drop(store.lock_within("a", secs(4)).await.unwrap());
    assert!(
        began.elapsed() < secs(1),
        "granted after {:?}",
        began.elapsed()
    );
    let error = release.await.unwrap().unwrap_err();
    assert!(error.is_outcome_unknown(), "{error:?}");
    assert!(store.shutdown(secs(60)).await);
    assert_eq!(store.live_keys(), 0);
}

/// A request without a wait may take as long as its server.
#[tokio::test(start_paused = true)]
async fn a_wait_that_the_first_key_has_used_up_bounds_the_others() {
    let slow = Wrapper::new(&memory(), |inner, request| async move {
        tokio::time::sleep(millis(80)).await;
        if request.key().as_str() == "b" {
            pending::<()>().await;
        }
        inner.acquire(&request).await
    });
    let locks = LocalQueue::new(Arc::new(slow));
    let began = Instant::now();
    let wait = Wait::AtMost(millis(50));
    let both = locks.request_all(["a", "b"]).wait(wait);
    let acquired = in_time("the wait ends", both.acquire()).await;
    let error = acquired.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    assert!(
        began.elapsed() <= millis(200),
        "timed out after {:?}",
        began.elapsed()
    );
}
