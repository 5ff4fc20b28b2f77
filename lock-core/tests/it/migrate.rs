//! Locks on two backends, under virtual time.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use lock_core::admin::LockAdmin;
use lock_core::engine::VirtualClock;
use lock_core::layers::{LocalQueue, Migrate};
use lock_core::memory::{Fault, Memory, Request};
use lock_core::prelude::*;
use lock_core::{Fencing, LostReason};

use super::support::{in_time, key, secs, settle, suspendable};

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
        Migrate::new(Arc::new(self.old.client()), Arc::new(self.new.client())).expect("no queue")
    }

    async fn is_free(&self) -> (bool, bool) {
        (is_free(&self.old).await, is_free(&self.new).await)
    }
}

async fn is_free(store: &Memory) -> bool {
    let held = store.client().inspect(&key()).await.expect("answers");
    held.is_none() && store.waiters(&key()) == 0
}

#[tokio::test(start_paused = true)]
async fn excludes_those_who_use_either_backend_alone() {
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
    // What it had of the old one meanwhile is given back before it answers.
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
        let store = match broken {
            "old" => &stores.old,
            _ => &stores.new,
        };
        let lost = guard.lost();
        let admin = store.admin().unwrap();
        admin.break_lock(&key(), "test").await.unwrap();
        assert!(!guard.is_held(), "{broken}");
        assert_eq!(lost.await, LostReason::Broken, "{broken}");
        // The holder may be stuck: nobody waits until it drops its guard.
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
async fn is_kept_on_both_beyond_the_ttl() {
    let stores = Move::new();
    let both = stores.both();
    let guard = both.request("k").ttl(secs(10)).acquire().await.unwrap();
    for _ in 0..20 {
        tokio::time::sleep(secs(3)).await;
        assert!(guard.is_held());
        assert_eq!(stores.is_free().await, (false, false));
    }
    drop(guard);
    settle().await;
    assert_eq!(stores.is_free().await, (true, true));
}

#[tokio::test(start_paused = true)]
async fn who_renews_by_hand_renews_both() {
    let stores = Move::new();
    let both = stores.both();
    let request = both.request("k").ttl(secs(10)).manual_renewal();
    let guard = request.acquire().await.unwrap();
    for _ in 0..5 {
        tokio::time::sleep(secs(6)).await;
        guard.renew().await.unwrap();
    }
    assert_eq!(
        in_time("the loss of the lock", guard.lost()).await,
        LostReason::Expired
    );
    settle().await;
    assert_eq!(stores.is_free().await, (true, true));
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_both_and_min_hold_keeps_both() {
    let stores = Move::new();
    let both = stores.both();
    let request = both.request("k").ttl(secs(10)).max_hold(secs(20));
    let guard = request.acquire().await.unwrap();
    assert_eq!(
        in_time("the loss of the lock", guard.lost()).await,
        LostReason::MaxHold
    );
    settle().await;
    assert_eq!(stores.is_free().await, (true, true));
    drop(guard);

    let request = both.request("k").ttl(secs(10)).min_hold(secs(60));
    let guard = request.acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Clean);
    tokio::time::sleep(secs(59)).await;
    assert_eq!(stores.is_free().await, (false, false));
    tokio::time::sleep(secs(2)).await;
    settle().await;
    assert_eq!(stores.is_free().await, (true, true));
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_lock_stays_taken_on_both_until_its_lease_is_over() {
    let stores = Move::new();
    let both = stores.both();
    let guard = both.request("k").ttl(secs(10)).acquire().await.unwrap();
    // Whoever listens does not keep it alive.
    let _signal = guard.lost();
    guard.abandon();
    settle().await;
    assert_eq!(stores.is_free().await, (false, false));
    tokio::time::sleep(secs(11)).await;
    assert!(both.try_lock("k").await.unwrap().is_some());
}

/// An acquisition that is dropped after each number of polls leaves nothing on either.
#[tokio::test(start_paused = true)]
async fn dropped_after_each_poll_it_leaves_nothing() {
    for polls in 1..12 {
        let stores = Move::new();
        let both = stores.both();
        let blocker = match polls % 3 {
            0 => Some(stores.new.client().lock("k").await.unwrap()),
            1 => Some(stores.old.client().lock("k").await.unwrap()),
            _ => None,
        };
        {
            let mut acquire = pin!(both.lock("k"));
            let mut cx = Context::from_waker(Waker::noop());
            for _ in 0..polls {
                if acquire.as_mut().poll(&mut cx).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        drop(blocker);
        settle().await;
        assert_eq!(stores.is_free().await, (true, true), "{polls} polls");
    }
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
        let stores = Move::new();
        stores.new.faults().plan(request, fault);
        let both = stores.both();
        let asked = both.request("k").ttl(secs(10)).wait(Wait::AtMost(secs(5)));
        let outcome = match asked.acquire().await {
            Ok(guard) => {
                tokio::time::sleep(secs(7)).await;
                assert!(guard.is_held(), "{request:?} {fault:?}");
                guard.release().await.map(drop)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            assert_eq!(
                error.kind(),
                ErrorKind::Unavailable,
                "{request:?} {fault:?}"
            );
        }
        assert!(both.shutdown(secs(60)).await, "{request:?} {fault:?}");
        assert_eq!(
            stores.is_free().await,
            (true, true),
            "{request:?} {fault:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_both_releases() {
    let stores = Move::new();
    let late = Fault::LateReply(secs(2));
    stores.old.faults().plan(Request::Release, late);
    stores.new.faults().plan(Request::Release, late);
    let both = stores.both();
    drop(both.lock("k").await.unwrap());
    assert!(!both.shutdown(secs(1)).await);
    assert!(both.shutdown(Duration::MAX).await);
    assert_eq!(stores.is_free().await, (true, true));
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
async fn the_next_one_of_the_process_renews_as_it_says() {
    let stores = Move::new();
    let locks = Arc::new(LocalQueue::new(Arc::new(stores.both())));
    // Its attempt is taken over by one that is renewed by itself.
    let blocker = stores.old.client().lock("k").await.unwrap();
    let by_hand = locks.request("k").ttl(secs(10)).manual_renewal();
    let by_hand = by_hand.wait(Wait::AtMost(secs(1)));
    let kept = locks
        .request("k")
        .ttl(secs(10))
        .wait(Wait::AtMost(secs(60)));
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
async fn min_hold_keeps_what_is_renewed_by_hand() {
    let stores = Move::new();
    let both = stores.both();
    let request = both.request("k").ttl(secs(10)).manual_renewal();
    let guard = request.min_hold(secs(60)).acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Clean);
    tokio::time::sleep(secs(55)).await;
    assert_eq!(stores.is_free().await, (false, false));
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

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_new_one_and_loses_the_old_one_is_told() {
    let stores = Move::new();
    let both = stores.both();
    let blocker = stores.new.client().lock("k").await.unwrap();
    let breaks = async {
        tokio::time::sleep(secs(1)).await;
        let admin = stores.old.admin().unwrap();
        admin.break_lock(&key(), "test").await.unwrap();
    };
    let (acquired, ()) = tokio::join!(both.lock("k"), breaks);
    let error = acquired.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    drop(blocker);
    settle().await;
    assert_eq!(stores.is_free().await, (true, true));
}

#[tokio::test(start_paused = true)]
async fn refuses_what_it_cannot_keep() {
    let stores = Move::new();
    let both = stores.both();
    let mut guard = both.lock("k").await.unwrap();
    let error = guard.downgrade().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(guard.is_held());
    drop(guard);
    assert!(both.admin().is_none());
    // The numbers of two counters cannot be compared.
    assert_eq!(both.capabilities().fencing, Fencing::Unavailable);
    assert_eq!(both.lock("k").await.unwrap().fencing_token(), None);

    let queue = LocalQueue::new(Arc::new(stores.old.client()));
    let error = Migrate::new(Arc::new(queue), Arc::new(stores.new.client())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
}

/// A fleet of which each process moves on at its own time, but for the two barriers.
#[tokio::test(start_paused = true)]
async fn a_fleet_moves_without_two_holders() {
    let stores = Arc::new(Move::new());
    let inside = Arc::new(AtomicU32::new(0));
    let step = Arc::new(tokio::sync::Barrier::new(8));
    let mut processes = Vec::new();
    for process in 0..8_u64 {
        let (stores, inside, step) = (Arc::clone(&stores), Arc::clone(&inside), Arc::clone(&step));
        processes.push(tokio::spawn(async move {
            let work = async |locks: &dyn DistributedLock, rounds: u64| {
                for round in 0..rounds {
                    let guard = locks.lock("k").await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    tokio::time::sleep(Duration::from_millis(1 + (process + round) % 3)).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(guard);
                    tokio::time::sleep(Duration::from_micros(300)).await;
                }
            };
            // The later a process, the later it takes each step.
            work(&stores.old.client(), 3 + process * 4).await;
            let both = LocalQueue::new(Arc::new(stores.both()));
            work(&both, 3).await;
            step.wait().await;
            work(&both, 3 + process * 4).await;
            work(&stores.new.client(), 10).await;
        }));
    }
    for process in processes {
        process.await.unwrap();
    }
    settle().await;
    assert_eq!(stores.is_free().await, (true, true));
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_process_queue_above_it() {
    let stores = Move::new();
    let locks = Arc::new(LocalQueue::new(Arc::new(stores.both())));
    let first = locks.lock("k").await.unwrap();
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let locks = Arc::clone(&locks);
            tokio::spawn(async move { locks.lock("k").await.map(drop) })
        })
        .collect();
    settle().await;
    // One contender of the process at most stands in each queue.
    assert!(stores.old.waiters(&key()) <= 1);
    drop(first);
    for task in waiting {
        task.await.unwrap().unwrap();
    }
    settle().await;
    assert_eq!(stores.is_free().await, (true, true));
}
