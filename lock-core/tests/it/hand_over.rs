//! How a lease, a place or a refusal passes from one task to the next, under virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylock_core::admin::LockAdmin;
use polylock_core::engine::VirtualClock;
use polylock_core::layers::LocalQueue;
use polylock_core::memory::{Fault, Memory, Request};
use polylock_core::prelude::*;
use polylock_core::{AcquireRequest, LostReason, Owner, Renewal};

use super::support::{
    Wrapper, assert_waits, in_time, key, left, memory, plan_all, secs, settle, start, suspendable,
    try_start,
};

/// A store, and the queue of a client on the same machine, which can be suspended.
fn queue() -> (Memory, Arc<LocalQueue>, Arc<VirtualClock>) {
    let (engine, clock) = suspendable();
    let store = Memory::with_engine(engine);
    let locks = Arc::new(LocalQueue::new(Arc::new(store.client())));
    (store, locks, clock)
}

fn request() -> AcquireRequest {
    AcquireRequest::new(key()).with_wait(Wait::Forever)
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_renewal_is_under_way_is_renewed_by_the_next_holder() {
    let (store, locks, _) = queue();
    let first = locks.acquire(&request()).await.unwrap();
    let next = start(&locks, request());
    store.faults().plan(Request::Renew, Fault::Silence);
    // The renewal at a third of 30 s hangs for 1 s.
    tokio::time::sleep(Duration::from_millis(10_100)).await;
    drop(first);
    let next = next.await.unwrap();
    tokio::time::sleep(secs(100)).await;
    assert!(next.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_shared_by_now_passes_to_no_writer() {
    let (store, locks, _) = queue();
    let mut first = locks.acquire(&request()).await.unwrap();
    let writer = start(&locks, request());
    settle().await;
    first.downgrade().await.unwrap();
    let client = store.client();
    let reader = client.request("k").shared().acquire().await.unwrap();
    drop(first);
    settle().await;
    assert!(!writer.is_finished(), "a writer beside a reader");
    drop(reader);
    assert!(writer.await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_refused_hand_over_costs_no_waiter_its_place() {
    let (store, locks, _) = queue();
    let first = locks.acquire(&request()).await.unwrap();
    let waiters: Vec<_> = (0..3).map(|_| start(&locks, request())).collect();
    settle().await;
    // The store has forgotten the holder, which does not know.
    store.expire(&key());
    drop(first);
    let mut tokens = Vec::new();
    for waiter in waiters {
        let guard = waiter.await.unwrap();
        tokens.push(guard.fencing_token());
    }
    assert!(tokens.is_sorted(), "first come, first served: {tokens:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_on_its_way_costs_its_waiter_no_turn() {
    let store = memory();
    let locks = LocalQueue::new(Arc::new(store.client())).with_max_waiters(2);
    let request = request();
    let first = locks.acquire(&request).await.unwrap();
    let [second, third] = [(); 2].map(|()| start(&locks, request.clone()));
    settle().await;
    drop(first);
    // The second has been sent its guard, and has not looked. The third contends from here on.
    let broken = store.break_lock(&key(), "test").await;
    assert!(broken.unwrap().is_some());
    // Those that come now fill the queue.
    let mut late = [(); 2].map(|()| locks.acquire(&request));
    for task in &mut late {
        assert_waits(task.as_mut(), || {});
    }
    assert!(!second.is_finished() && !third.is_finished());
    let mut tokens = Vec::new();
    for task in [third, second] {
        let guard = in_time("the turn of a waiter", task).await.unwrap();
        tokens.push(guard.fencing_token());
    }
    for task in late {
        let guard = in_time("the turn of a late one", task).await.unwrap();
        tokens.push(guard.fencing_token());
    }
    assert!(tokens.is_sorted(), "first come, first served: {tokens:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_runs_out_on_its_way_is_not_taken_for_held() {
    let (_store, locks, clock) = queue();
    let first = locks.acquire(&request()).await.unwrap();
    let next = start(&locks, request());
    settle().await;
    drop(first);
    // Handed over, but the machine is suspended before the next task runs.
    clock.suspend(secs(600));
    assert!(next.await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_inherited_grants_what_its_heir_asked_for() {
    let (store, locks, _) = queue();
    let held = store.lock("k").await.unwrap();
    let short = request()
        .with_max_hold(secs(5))
        .with_wait(Wait::AtMost(secs(1)));
    let impatient = try_start(&locks, short);
    settle().await;
    let patient = start(&locks, request());
    impatient.await.unwrap().unwrap_err();
    drop(held);
    let guard = patient.await.unwrap();
    let left = left(&guard);
    assert!(left <= secs(27), "no longer than the lease: {left:?}");
    tokio::time::sleep(secs(60)).await;
    let reason = guard.lost().reason();
    assert!(
        guard.is_held(),
        "the max hold of another request ended it: {reason:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_sent_to_the_server_before_the_last_of_a_run_releases() {
    let store = memory();
    let locks = Arc::new(LocalQueue::new(Arc::new(store.client())).with_max_handovers(1));
    let first = locks.acquire(&request()).await.unwrap();
    let [second, third, fourth] = [(); 3].map(|()| start(&locks, request()));
    settle().await;
    assert_eq!(store.waiters(&key()), 0, "the lease passes once more");
    drop(first);
    let second = second.await.unwrap();
    settle().await;
    assert_eq!(store.waiters(&key()), 1);
    // Granted by the server, the third starts a run of its own.
    drop(second);
    let third = third.await.unwrap();
    settle().await;
    assert_eq!(store.waiters(&key()), 0);
    drop(third);
    assert!(fourth.await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_former_holder_that_the_store_forgot_hands_nothing_over() {
    let store = memory();
    let locks = Arc::new(LocalQueue::new(Arc::new(store.client())).with_max_handovers(1));
    let first = locks.acquire(&request()).await.unwrap();
    let owner = Owner::new();
    let owned = request().with_owner(owner.clone());
    let [second, third] = [start(&locks, request()), start(&locks, owned.clone())];
    settle().await;
    drop(first);
    let second = second.await.unwrap();
    settle().await;
    // The third is granted the lock by the store while the second believes to hold it.
    store.expire(&key());
    let third = third.await.unwrap();
    let fourth = start(&locks, request());
    settle().await;
    drop(second);
    settle().await;
    assert!(third.is_held() && !fourth.is_finished());
    let again = locks.acquire(&owned.with_wait(Wait::Never)).await;
    assert!(again.is_ok_and(|again| again.fencing_token() == third.fencing_token()));
    drop(third);
    assert!(fourth.await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_lost_before_it_was_seated_stops_no_waiter() {
    let store = memory();
    let locks = breaking(&store);
    let [first, second] = [(); 2].map(|()| start(&locks, request()));
    let first = first.await.unwrap();
    assert_eq!(first.lost().reason(), Some(LostReason::Broken));
    let second = tokio::time::timeout(secs(60), second)
        .await
        .expect("is served");
    assert!(second.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_inherits_a_lost_lock_acquires_it_anew() {
    let store = memory();
    let held = store.lock("k").await.unwrap();
    let locks = breaking(&store);
    let impatient = try_start(&locks, request().with_wait(Wait::AtMost(secs(1))));
    settle().await;
    let patient = start(&locks, request());
    impatient.await.unwrap().unwrap_err();
    drop(held);
    assert!(patient.await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_almost_over_or_that_nobody_will_renew_is_not_handed_over() {
    for (renewal, held_for) in [
        (Renewal::Automatic, Duration::from_millis(26_500)),
        (Renewal::Manual, secs(5)),
    ] {
        let (store, locks, _) = queue();
        let first = locks.acquire(&request()).await.unwrap();
        let next = start(&locks, request().with_renewal(renewal));
        plan_all(&store, Request::Renew, Fault::Silence);
        tokio::time::sleep(held_for).await;
        drop(first);
        let left = left(&next.await.unwrap());
        assert_eq!(left, secs(27), "not acquired anew: {renewal:?}");
    }
}

/// The queue of a service whose administrator breaks the first lock the moment it is granted.
fn breaking(store: &Memory) -> Arc<LocalQueue> {
    let is_first = Arc::new(AtomicBool::new(true));
    let service = Wrapper::new(store, move |inner, request| {
        let is_first = Arc::clone(&is_first);
        async move {
            let guard = inner.acquire(&request).await?;
            if is_first.swap(false, Ordering::SeqCst) {
                inner.break_lock(request.key(), "test").await?;
            }
            Ok(guard)
        }
    });
    Arc::new(LocalQueue::new(Arc::new(service)))
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gave_up_is_not_kept() {
    let (_store, locks, _) = queue();
    let held = locks.acquire(&request()).await.unwrap();
    let behind = start(&locks, request());
    let class: Arc<str> = "payment".into();
    for _ in 0..1_000 {
        let waiter = start(&locks, request().with_class(Arc::clone(&class)));
        tokio::task::yield_now().await;
        waiter.abort();
        waiter.await.unwrap_err();
    }
    let kept = Arc::strong_count(&class) - 1;
    assert!(kept < 10, "{kept} requests of tasks that are gone");
    drop(held);
    assert!(behind.await.unwrap().is_held());
}
