//! Locks on two backends, under virtual time.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use polylock_core::admin::LockAdmin;
use polylock_core::engine::VirtualClock;
use polylock_core::layers::{EventKind, Migrate, Observe};
use polylock_core::memory::{Fault, Memory, Reachable, Request};
use polylock_core::prelude::*;
use polylock_core::{AcquireRequest, LostReason, Owner, Renewal, Wait};

use super::server::fake::Fake;
use super::support::{
    ProcessRuntime, assert_waits, drop_after_a_poll, engine_on, in_time, is_free, key, memory,
    millis, on_event, secs, settle, suspendable,
};

/// Two stores, and processes that use one of them or both.
struct Move {
    old: Memory,
    new: Memory,
    clock: Arc<VirtualClock>,
}

impl Move {
    fn new() -> Self {
        let (engine, clock) = suspendable();
        Self {
            old: Memory::with_engine(engine.clone()),
            new: Memory::with_engine(engine),
            clock,
        }
    }

    fn both(&self) -> Migrate {
        Migrate::new(Arc::new(self.old.client()), Arc::new(self.new.client()))
    }

    fn store(&self, name: &str) -> &Memory {
        match name {
            "old" => &self.old,
            _ => &self.new,
        }
    }

    async fn is_free(&self) -> (bool, bool) {
        (is_free(&self.old).await, is_free(&self.new).await)
    }

    /// Asserts that both locks are kept for a min hold of 60 s that has just begun, and no longer.
    async fn assert_kept_for_a_minute(&self, what: &str) {
        tokio::time::sleep(secs(59)).await;
        assert_eq!(self.is_free().await, (false, false), "{what}");
        tokio::time::sleep(secs(2)).await;
        settle().await;
        assert_eq!(self.is_free().await, (true, true), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn excludes_clients_of_either_backend_alone() {
    let stores = Move::new();
    let both = stores.both();
    let guard = both.lock("k").await.unwrap();
    assert!(stores.old.client().try_lock("k").await.unwrap().is_none());
    assert!(stores.new.client().try_lock("k").await.unwrap().is_none());
    assert!(stores.both().try_lock("k").await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), Released::Clean);
    assert_eq!(stores.is_free().await, (true, true));

    let alone = stores.new.client().lock("k").await.unwrap();
    assert!(both.try_lock("k").await.unwrap().is_none());
    // Its lock on the old backend is released before it returns.
    assert!(is_free(&stores.old).await);
    drop(alone);
    let alone = stores.old.client().lock("k").await.unwrap();
    assert!(both.try_lock("k").await.unwrap().is_none());
    drop(alone);
    assert!(both.try_lock("k").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn is_lost_when_either_is_and_gives_the_other_back() {
    for broken in ["old", "new"] {
        let stores = Move::new();
        let guard = stores.both().lock("k").await.unwrap();
        let store = stores.store(broken);
        let lost = guard.lost();
        store.break_lock(&key(), "test").await.unwrap();
        assert!(!guard.is_held(), "{broken}");
        let reason = in_time("the loss", lost).await;
        assert_eq!(reason, LostReason::Broken, "{broken}");
        // The holder may be stuck: the other lock is released before it drops its guard.
        settle().await;
        assert_eq!(stores.is_free().await, (true, true), "{broken}");
        assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
    }
}

#[tokio::test(start_paused = true)]
async fn is_not_held_once_the_clock_has_passed_the_lease_of_a_part() {
    let stores = Move::new();
    let both = stores.both();
    let guard = both.request("k").ttl(secs(10)).acquire().await.unwrap();
    let until = guard.valid_until().expect("both parts have leases");
    assert!(until <= tokio::time::Instant::now() + secs(10));
    // No task has run in between: the machine slept.
    stores.clock.suspend(secs(11));
    assert!(!guard.is_held());
    assert!(guard.ensure_held().is_err());
    let outcome = guard.run(async { "done" }).await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_one_backend_refuses_extends_neither_lease() {
    for (session, refusal) in [
        (true, ErrorKind::Unsupported),
        (false, ErrorKind::InvalidRequest),
    ] {
        let (old, new) = (Fake::new(), Fake::new());
        old.state().session = session;
        old.state().max_ttl = Some(secs(60));
        let both = Migrate::new(Arc::new(old), Arc::new(new.clone()));
        let request = both.request("k").ttl(secs(30));
        let guard = request.acquire().await.unwrap();
        let error = guard.renew_for(secs(600)).await.unwrap_err();
        assert_eq!(error.kind(), refusal, "{error}");
        new.state().unanswered = usize::MAX;
        drop(guard);
        assert!(
            new.shutdown(secs(60)).await,
            "the release of a lease of 30 s is retried for that long: {refusal:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_both() {
    let stores = Move::new();
    let both = stores.both();
    let request = both.request("k").ttl(secs(10)).max_hold(secs(20));
    let guard = request.acquire().await.unwrap();
    let reason = in_time("the loss of the lock", guard.lost()).await;
    assert_eq!(reason, LostReason::MaxHold);
    settle().await;
    assert_eq!(stores.is_free().await, (true, true));
}

/// As of a quorum of Redis masters, whose nodes forget a longer lease.
#[tokio::test(start_paused = true)]
async fn a_min_hold_that_the_old_backend_cannot_keep_is_refused() {
    let (old, new, owner) = (Fake::new(), memory(), Owner::new());
    old.state().max_ttl = Some(secs(60));
    let both = Migrate::new(Arc::new(old.clone()), Arc::new(new.client()));
    let request = |min_hold| both.request("k").owner(&owner).min_hold(secs(min_hold));
    let refused = request(61).acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidRequest, "{refused}");
    assert!(!old.is_taken() && is_free(&new).await);

    let outer = request(60).acquire().await.unwrap();
    let inner = request(61).acquire().await;
    drop(inner.expect("the min hold is that of the first guard"));
    assert_eq!(outer.release().await.unwrap(), Released::Clean);
    assert!(old.is_taken() && !is_free(&new).await);
}

/// The guard of the first request has ended when the second one, which waited beside it, goes on.
#[tokio::test(start_paused = true)]
async fn a_min_hold_is_refused_after_the_first_guard_of_the_owner_too() {
    let (old, new, owner) = (Fake::new(), memory(), Owner::new());
    old.state().max_ttl = Some(secs(60));
    let both = Migrate::new(Arc::new(old.clone()), Arc::new(new.client()));
    let blocker = old.lock("k").await.unwrap();
    let request = |min_hold| {
        let request = both.request("k").owner(&owner).min_hold(secs(min_hold));
        Box::pin(request.acquire())
    };
    let mut requests = [request(0), request(61)];
    poll_pending(&mut requests).await;
    blocker.release().await.unwrap();
    let [first, second] = requests;
    let guard = first.await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Clean);
    let refused = second.await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidRequest, "{refused}");
    assert!(!old.is_taken() && is_free(&new).await);
}

#[tokio::test(start_paused = true)]
async fn min_hold_keeps_both_although_the_process_ends_after_the_release() {
    let stores = Move::new();
    let process = ProcessRuntime::new();
    let engine = engine_on(&stores.clock, &process);
    let [old, new] = [&stores.old, &stores.new].map(|store| store.client_with(engine.clone()));
    let both = Migrate::new(Arc::new(old), Arc::new(new));
    let request = both.request("k").ttl(secs(10)).min_hold(secs(60));
    let guard = request.acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Clean);
    process.end();
    stores.assert_kept_for_a_minute("without its process").await;
}

#[tokio::test(start_paused = true)]
async fn whatever_the_new_one_does_nothing_is_left() {
    let requests = [Request::Acquire, Request::Release, Request::Renew];
    let faults = [
        Fault::Duplicated,
        Fault::LateReply(secs(3)),
        Fault::LateReply(secs(11)),
        Fault::LostReply,
        Fault::LostRequest,
        Fault::Silence,
    ];
    for (request, fault) in requests.iter().flat_map(|r| faults.map(|f| (*r, f))) {
        let what = format!("{request:?} {fault:?}");
        let stores = Move::new();
        stores.new.faults().plan(request, fault);
        let both = stores.both();
        let asked = both.request("k").ttl(secs(10)).wait(Wait::AtMost(secs(5)));
        let outcome = match asked.acquire().await {
            Ok(guard) => {
                tokio::time::sleep(secs(7)).await;
                assert!(guard.is_held(), "{what}");
                guard.release().await.map(drop)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}");
        }
        assert!(both.shutdown(secs(60)).await, "{what}");
        assert_eq!(stores.is_free().await, (true, true), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_old_one_is_not_renewed_while_the_release_of_the_new_one_hangs() {
    let stores = Move::new();
    let both = stores.both();
    let guard = both.request("k").ttl(secs(30)).acquire().await.unwrap();
    tokio::time::sleep(secs(8)).await;
    stores.new.faults().plan(Request::Release, Fault::Silence);
    let admin = stores.old.client();
    let left = async || {
        let info = admin.inspect(&key()).await.unwrap();
        info.map(|info| info.holders[0].time_left.expect("has a lease"))
    };
    // A renewal is due two seconds later, and the new one has five to answer.
    let (released, ()) = tokio::join!(guard.release(), async {
        tokio::time::sleep(secs(4)).await;
        let left = left().await.expect("is given back after the new one");
        let most = secs(30 - 8 - 4);
        assert!(
            left <= most,
            "the old one was renewed: {left:?} are left of {most:?}"
        );
    });
    assert_eq!(released.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(both.shutdown(secs(60)).await);
    assert_eq!(stores.is_free().await, (true, true));
}

#[tokio::test(start_paused = true)]
async fn both_are_released_although_the_release_is_not_polled() {
    let stores = Move::new();
    let both = stores.both();
    let guard = both.lock("k").await.unwrap();
    let late = Fault::LateReply(secs(1));
    stores.new.faults().plan(Request::Release, late);
    let mut release = Box::pin(guard.release());
    drop_after_a_poll(&mut release).await;
    let next = both.lock_within("k", secs(10)).await;
    assert!(next.expect("it is released").is_held());
    assert_eq!(release.await.unwrap(), Released::Clean);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_of_the_old_one_waits_for_a_release_on_both() {
    let stores = Move::new();
    let old = Arc::new(stores.old.client());
    let locks: Arc<dyn DistributedLock> = Arc::<Memory>::clone(&old);
    let both = Migrate::new(locks, Arc::new(stores.new.client()));
    let guard = both.lock("k").await.unwrap();
    let late = Fault::LateReply(secs(2));
    stores.new.faults().plan(Request::Release, late);
    let mut release = Box::pin(guard.release());
    drop_after_a_poll(&mut release).await;
    assert!(!old.shutdown(secs(1)).await, "the old lock is held");
    assert!(old.shutdown(secs(10)).await, "the release does not end");
    assert_eq!(stores.is_free().await, (true, true));
}

#[tokio::test(start_paused = true)]
async fn the_next_one_of_the_process_renews_as_it_says() {
    let stores = Move::new();
    let locks = Arc::new(stores.both());
    // Its attempt is taken over by one that is renewed by itself.
    let blocker = stores.old.client().lock("k").await.unwrap();
    let by_hand = locks.request("k").ttl(secs(10)).manual_renewal();
    let by_hand = by_hand.wait(Wait::AtMost(secs(1)));
    let kept = locks.request("k").ttl(secs(10));
    let kept = kept.wait(Wait::AtMost(secs(60)));
    let later = async {
        tokio::time::sleep(secs(5)).await;
        drop(blocker);
    };
    let (by_hand, kept, ()) = tokio::join!(by_hand.acquire(), kept.acquire(), later);
    assert_eq!(by_hand.unwrap_err().kind(), ErrorKind::Contended);
    let kept = kept.unwrap();
    tokio::time::sleep(secs(100)).await;
    assert!(kept.is_held());
}

#[tokio::test(start_paused = true)]
async fn min_hold_keeps_both_with_each_kind_of_renewal() {
    for renewal in [Renewal::Automatic, Renewal::Manual] {
        let stores = Move::new();
        let request = AcquireRequest::new(key()).with_ttl(secs(10));
        let request = request.with_min_hold(secs(60)).with_renewal(renewal);
        let both = stores.both();
        let guard = both.acquire(&request).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Clean);
        stores
            .assert_kept_for_a_minute(&format!("{renewal:?}"))
            .await;
    }
}

/// Polls requests that are not granted yet until they wait where they can.
async fn poll_pending<F: Future + Send + ?Sized>(requests: &mut [Pin<Box<F>>]) {
    for _ in 0..10 {
        for request in &mut *requests {
            assert_waits(request.as_mut(), || {});
        }
        settle().await;
    }
}

/// It waits for one of the locks while the first is granted, which gives it a guard that it never looks at.
#[tokio::test(start_paused = true)]
async fn min_hold_keeps_both_although_another_request_of_the_owner_ends_last() {
    for blocked in ["old", "new"] {
        let stores = Move::new();
        let (both, owner) = (stores.both(), Owner::new());
        let blocker = stores.store(blocked).client().lock("k").await.unwrap();
        let request = || {
            let request = both.request("k").ttl(secs(10)).owner(&owner);
            Box::pin(request.min_hold(secs(60)).acquire())
        };
        let mut requests = [request(), request()];
        poll_pending(&mut requests).await;
        blocker.release().await.unwrap();
        let [first, second] = requests;
        let guard = first.await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Clean);
        drop(second);
        stores.assert_kept_for_a_minute(blocked).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_wait_is_for_both() {
    let stores = Move::new();
    let both = stores.both();
    let blocker = stores.old.client().lock("k").await.unwrap();
    let last = stores.new.client().lock("k").await.unwrap();
    let began = tokio::time::Instant::now();
    let acquire = both.lock_within("k", secs(10));
    let later = async {
        tokio::time::sleep(secs(6)).await;
        drop(blocker);
    };
    let (acquired, ()) = tokio::join!(acquire, later);
    assert_eq!(acquired.unwrap_err().kind(), ErrorKind::Contended);
    assert_eq!(began.elapsed(), secs(10), "the wait for both together");
    assert!(is_free(&stores.old).await);
    drop(last);
}

/// The time that the old one took says nothing about the server of the new one.
#[tokio::test(start_paused = true)]
async fn a_wait_that_the_old_one_used_up_is_contention() {
    for (until_free, kind) in [(1_940, ErrorKind::Contended), (940, ErrorKind::Unavailable)] {
        let stores = Move::new();
        let both = stores.both();
        let blocker = stores.old.client().lock("k").await.unwrap();
        let late = Fault::LateReply(secs(10));
        stores.new.faults().plan(Request::Acquire, late);
        let free = async {
            tokio::time::sleep(millis(until_free)).await;
            blocker.release().await.unwrap();
        };
        let (refused, ()) = tokio::join!(both.lock_within("k", secs(2)), free);
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), kind, "free after {until_free} ms: {error}");
        assert!(error.is_outcome_unknown(), "it may be granted yet");
    }
}

/// In real time: where time stands still, the old one has used up nothing.
#[tokio::test]
async fn a_single_attempt_in_an_outage_of_the_new_one_is_no_contention() {
    let stores = Move::new();
    stores.new.faults().set_reachable(Reachable::Cut);
    let both = stores.both();
    let request = both.request("k").wait(Wait::AtMost(secs(0)));
    let error = request.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(is_free(&stores.old).await);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_the_new_lock_that_loses_the_old_one_is_notified() {
    let stores = Move::new();
    let both = stores.both();
    let blocker = stores.new.client().lock("k").await.unwrap();
    let breaks = async {
        tokio::time::sleep(secs(1)).await;
        stores.old.break_lock(&key(), "test").await.unwrap();
    };
    let (acquired, ()) = tokio::join!(both.lock("k"), breaks);
    let error = acquired.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(
        error.is_outcome_unknown(),
        "the new one may have been granted"
    );
    drop(blocker);
    settle().await;
    assert_eq!(stores.is_free().await, (true, true));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_after_a_loss_waits_for_the_release_of_the_other_part() {
    let stores = Move::new();
    let both = Arc::new(stores.both());
    let (tell, told) = mpsc::channel();
    // Begins a shutdown as soon as a lock is lost.
    let observer = on_event({
        let both = Arc::clone(&both);
        move |event| {
            if let EventKind::Lost { .. } = event.kind {
                let mut cx = Context::from_waker(Waker::noop());
                let waits = both.shutdown(secs(1)).as_mut().poll(&mut cx).is_pending();
                tell.send(waits).expect("the test listens");
            }
        }
    });
    let locks = Observe::new(both).with_observer(observer);
    let guard = locks.lock("k").await.unwrap();
    stores.old.break_lock(&key(), "for the test").await.unwrap();
    assert_eq!(in_time("the loss", guard.lost()).await, LostReason::Broken);
    assert_eq!(
        told.try_recv(),
        Ok(true),
        "the shutdown is over while the new backend has the lock still"
    );
    assert!(locks.shutdown(secs(1)).await);
    assert_eq!(stores.is_free().await, (true, true));
}

/// The guard of a caller that is gone by the time that it is granted ends nothing of another guard.
#[tokio::test(start_paused = true)]
async fn a_dropped_reentry_leaves_both_locks_to_the_first_guard() {
    let stores = Move::new();
    let both = stores.both();
    let blocker = stores.new.client().lock("k").await.unwrap();
    let owner = Owner::new();
    let request = || both.request("k").owner(&owner).acquire();
    let mut requests = [Box::pin(request()), Box::pin(request())];
    poll_pending(&mut requests).await;
    blocker.release().await.unwrap();
    let [first, second] = requests;
    let guard = first.await.unwrap();
    settle().await;
    // It has been sent its guard, and never looked.
    drop(second);
    settle().await;
    assert!(guard.is_held());
    assert_eq!(stores.is_free().await, (false, false));
    let inner = request().await.unwrap();
    drop(inner);
    settle().await;
    assert_eq!(stores.is_free().await, (false, false));
    assert_eq!(guard.release().await.unwrap(), Released::Clean);
    settle().await;
    assert_eq!(stores.is_free().await, (true, true));
}

type Acquiring = Pin<Box<dyn Future<Output = polylock_core::Result<LockGuard>> + Send>>;

/// A request that goes on at the moment of its wakeup, as on another thread.
struct RunsOnWake(Mutex<(Option<Acquiring>, Option<LockGuard>)>);

impl Wake for RunsOnWake {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut state = self.0.lock().expect("no poll panicked");
        let (request, granted) = &mut *state;
        let polled = request
            .as_mut()
            .map(|request| request.as_mut().poll(&mut Context::from_waker(&waker)));
        if let Some(Poll::Ready(answer)) = polled {
            *request = None;
            *granted = answer.ok();
        }
    }
}

/// Each of them has acquired an old lock, the second one after the first had lost its own.
#[tokio::test(start_paused = true)]
async fn a_request_that_has_lost_the_old_lock_costs_no_other_of_the_owner_the_new_one() {
    // In a random order of its branches, a request would see first now its loss and now its grant.
    for round in 0..20 {
        let stores = Move::new();
        let (both, owner) = (Arc::new(stores.both()), Owner::new());
        let blocker = stores.new.client().lock("k").await.unwrap();
        let request = || -> Acquiring {
            let (both, owner) = (Arc::clone(&both), owner.clone());
            Box::pin(async move { both.request("k").owner(&owner).acquire().await })
        };
        let mut first = [request()];
        poll_pending(&mut first).await;
        stores.old.break_lock(&key(), "for the test").await.unwrap();
        let second = Arc::new(RunsOnWake(Mutex::new((Some(request()), None))));
        Arc::clone(&second).wake();
        settle().await;
        blocker.release().await.unwrap();
        let [first] = first;
        let refused = first.await.unwrap_err();
        let granted = second.0.lock().unwrap().1.take();
        let guard = granted.expect("it is woken by the first");
        assert!(guard.is_held(), "round {round}: {refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_told_of_the_loss_enters_neither_lease() {
    for broken in ["old", "new"] {
        let stores = Move::new();
        let (both, owner) = (Arc::new(stores.both()), Owner::new());
        let guard = both.request("k").owner(&owner).acquire().await.unwrap();
        let again: Acquiring = Box::pin(async move {
            let again = both.request("k").owner(&owner);
            again.wait(Wait::AtMost(secs(10))).acquire().await
        });
        let again = Arc::new(Mutex::new(Some(again)));
        let mut lost = guard.lost().into_future();
        assert_waits(lost.as_mut(), {
            let again = Arc::clone(&again);
            move || {
                let mut again = again.lock().expect("no poll panicked");
                if let Some(again) = again.as_mut() {
                    // The lock is not granted while it is lost.
                    assert_waits(again.as_mut(), || {});
                }
            }
        });
        let store = stores.store(broken);
        store.break_lock(&key(), "for the test").await.unwrap();
        let again = again.lock().unwrap().take().unwrap();
        let next = in_time("it is granted", again).await;
        assert!(next.expect(broken).is_held() && !guard.is_held());
    }
}
