//! A panic of a backend or of a woken task does not affect other tasks.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use polylock_core::AcquireRequest;
use polylock_core::engine::{Spawn as _, VirtualClock};
use polylock_core::layers::{Event, Observe, Observer};
use polylock_core::memory::{Fault, Memory, Request};
use polylock_core::prelude::*;

use super::fake::{Call, Fake};
use super::lost;
use crate::support::{
    ProcessRuntime, assert_waits, engine_on, in_time, key, memory, millis, secs, settle, start,
    suspendable, try_start,
};

#[tokio::test(start_paused = true)]
async fn a_hand_over_that_panics_leaves_the_seat() {
    for awaited in [true, false] {
        let (server, locks) = Fake::new().queued();
        let first = locks.lock("k").await.unwrap();
        let [second, third] = [(); 2].map(|()| start(&locks, AcquireRequest::new(key())));
        tokio::task::yield_now().await;
        server.state().panics_in = Some(Call::HandOver);
        if awaited {
            assert_eq!(first.release().await.unwrap(), Released::Clean);
        } else {
            drop(first);
        }
        drop(second.await.unwrap());
        drop(third.await.unwrap());
        assert_eq!(server.state().panics_in, None, "it has panicked");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_panics_is_not_inherited() {
    let (server, locks) = Fake::new().queued();
    server.state().panics_in = Some(Call::Acquire);
    server.state().delay = secs(1);
    let [first, second] = [(); 2].map(|()| start(&locks, AcquireRequest::new(key())));
    assert!(first.await.unwrap_err().is_panic(), "as without the queue");
    assert!(second.await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_release_that_panics_is_repeated() {
    let server = Fake::new();
    let guard = server.lock("k").await.unwrap();
    server.state().panics_in = Some(Call::Release);
    assert!(guard.release().await.unwrap_err().is_outcome_unknown());
    assert!(server.shutdown(secs(2)).await);
    assert!(!server.is_taken());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_panics_when_it_is_attached_is_released() {
    for session in [true, false] {
        let server = Fake::new();
        server.state().session = session;
        server.state().panics_in = Some(Call::Attach);
        let client = server.clone();
        let acquired = tokio::spawn(async move { client.lock("k").await.map(drop) });
        assert!(acquired.await.unwrap_err().is_panic());
        assert!(server.shutdown(secs(2)).await);
        assert!(!server.is_taken());
    }
}

/// As an attempt that its first caller has given up, and the next one inherits.
#[tokio::test(start_paused = true)]
async fn a_lease_that_panics_when_it_is_inherited_is_released() {
    let (server, locks) = Fake::new().queued();
    let held = server.lock("k").await.unwrap();
    let wait = Wait::AtMost(secs(1));
    let brief = try_start(&locks, AcquireRequest::new(key()).with_wait(wait));
    let next = start(&locks, AcquireRequest::new(key()));
    brief.await.unwrap().unwrap_err();
    // The first call is for the grant, and the second one for the heir.
    server.state().panics_in = Some(Call::Attach);
    server.state().panics_after = 1;
    held.release().await.unwrap();
    assert!(next.await.unwrap().is_held());
    assert_eq!(server.state().panics_in, None, "it has panicked");
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_that_panics_is_unknown() {
    let server = Fake::new();
    let mut guard = server.lock("k").await.unwrap();
    server.state().panics_in = Some(Call::Downgrade);
    assert!(guard.downgrade().await.unwrap_err().is_outcome_unknown());
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_panics_is_tried_again() {
    let server = Fake::new();
    let guard = server.lock("k").await.unwrap();
    server.state().panics_in = Some(Call::Renew);
    assert_eq!(lost(guard.lost(), secs(100)).await, None);
    server.state().panics_in = Some(Call::Renew);
    assert!(guard.renew().await.unwrap_err().is_outcome_unknown());
    assert!(guard.is_held());
}

/// The waker of a task that cannot be woken.
fn broken() {
    panic!("the runtime of the task is gone");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_cannot_be_woken_costs_no_release() {
    for refuses_hand_overs in [true, false] {
        let (server, locks) = Fake::new().queued();
        server.state().refuses_hand_overs = refuses_hand_overs;
        let guard = locks.lock("k").await.unwrap();
        {
            let mut next = pin!(locks.lock("k"));
            assert_waits(next.as_mut(), broken);
            assert_eq!(guard.release().await.unwrap(), Released::Clean);
        }
        assert!(locks.shutdown(secs(2)).await);
        assert!(!server.is_taken());
        drop(locks.lock("k").await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_woken_ends_no_renewals() {
    let locks = memory();
    let kept = locks.request("kept").ttl(secs(10)).acquire().await.unwrap();
    let request = locks.request("short").ttl(secs(5)).manual_renewal();
    let short = request.acquire().await.unwrap();
    let mut signal = short.lost().into_future();
    assert_waits(signal.as_mut(), broken);
    let other = tokio::spawn(short.lost().into_future());
    settle().await;
    tokio::time::sleep(secs(100)).await;
    assert!(kept.is_held() && !short.is_held());
    assert!(other.is_finished(), "the next task is not woken");
}

/// An observer whose destructor panics.
#[derive(Debug)]
struct Breaks;

impl Observer for Breaks {
    fn event(&self, _: &Event<'_>) {}
}

impl Drop for Breaks {
    fn drop(&mut self) {
        panic!("a bug of an observer");
    }
}

/// A lock whose last reference cannot be dropped without a panic.
async fn breaking(store: &Memory, key: &str) -> LockGuard {
    let locks = Observe::new(Arc::new(store.client())).with_observer(Arc::new(Breaks));
    locks.lock(key).await.expect("it is free")
}

#[tokio::test(start_paused = true)]
async fn a_destructor_that_panics_in_the_scheduler_ends_no_renewals() {
    let (engine, clock) = suspendable();
    let locks = Memory::with_engine(engine);
    let kept = locks.lock("kept").await.unwrap();
    let request = locks.request("short").ttl(secs(5)).manual_renewal();
    let short = request.acquire().await.unwrap();
    let breaking = Mutex::new(Some(breaking(&locks, "breaking").await));
    let mut signal = short.lost().into_future();
    assert_waits(signal.as_mut(), move || {
        drop(breaking.lock().expect("nothing panics").take());
    });
    settle().await;
    // The loss and all renewals are due. The loss releases the lock whose last reference the scheduler drops next.
    clock.suspend(secs(11));
    tokio::time::sleep(secs(100)).await;
    assert!(kept.is_held() && !short.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_destructor_that_panics_before_a_renewal_costs_the_others_none() {
    let (clock, process) = (Arc::new(VirtualClock::new()), ProcessRuntime::new());
    let locks = Memory::with_engine(engine_on(&clock, &process));
    let kept = locks.lock("kept").await.unwrap();
    let breaking = breaking(&locks, "breaking").await;
    settle().await;
    process.hold_back();
    clock.suspend(secs(11));
    tokio::time::sleep(secs(2)).await;
    let late = process.take();
    assert_eq!(late.len(), 1, "both renewals travel together");
    drop(breaking);
    late.into_iter().for_each(|task| process.spawn(task));
    tokio::time::sleep(secs(100)).await;
    assert!(kept.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_cannot_be_woken_costs_the_next_one_no_grant() {
    let store = memory();
    let held = store.lock("k").await.unwrap();
    let mut first = Box::pin(store.request("k").shared().acquire());
    let client = store.client();
    assert_waits(first.as_mut(), move || {
        panic!("{} lock is held", client.live_keys());
    });
    let locks = store.client();
    let second = tokio::spawn(async move { locks.request("k").shared().acquire().await });
    settle().await;
    assert_eq!(store.waiters(&key()), 2);
    let release = in_time("the release", held.release()).await;
    assert_eq!(release.unwrap(), Released::Clean);
    settle().await;
    assert!(second.is_finished(), "the second reader is not woken");
    assert!(second.await.unwrap().unwrap().is_held());
    assert!(first.await.unwrap().is_held());
}

/// Two that panic in one task would end the process.
#[tokio::test(start_paused = true)]
async fn destructors_that_panic_after_a_renewal_end_nothing() {
    let locks = memory();
    let kept = locks.lock("kept").await.unwrap();
    let breaking = [breaking(&locks, "a").await, breaking(&locks, "b").await];
    let late = Fault::LateReply(secs(1));
    locks.faults().plan(Request::Renew, late);
    let renewing = async {
        while locks.faults().pending() > 0 {
            tokio::time::sleep(millis(100)).await;
        }
    };
    in_time("the renewal", renewing).await;
    // The renewal under way has the last references.
    drop(breaking);
    tokio::time::sleep(secs(100)).await;
    assert!(kept.is_held());
}
