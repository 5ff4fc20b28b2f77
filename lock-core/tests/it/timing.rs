//! The times at which the scheduler acts, under virtual time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polylock_core::admin::LockAdmin;
use polylock_core::engine::{Clock, Moment, VirtualClock};
use polylock_core::memory::{Fault, Memory, Request};
use polylock_core::prelude::*;
use polylock_core::{LostReason, LostSignal};
use tokio::time::Instant;

use super::support::{
    Log, engine, in_time, key, manual, memory, millis, plan_all, secs, settle, suspendable,
};

/// A client whose machine can be suspended while the store's goes on.
fn client() -> (Memory, Arc<VirtualClock>) {
    let (engine, clock) = suspendable();
    (memory().client_with(engine), clock)
}

async fn lost_after(signal: LostSignal, since: Instant) -> (LostReason, Duration) {
    (
        in_time("the loss of the lock", signal).await,
        since.elapsed(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_is_renewed_although_the_scheduler_sleeps_for_a_long_one() {
    let locks = memory();
    let long = locks.lock("long").await.unwrap();
    // The scheduler looks once a second unless something is due before.
    tokio::time::sleep(millis(50)).await;
    let short = locks.request("short").ttl(secs(1)).acquire().await.unwrap();
    tokio::time::sleep(secs(10)).await;
    assert!(long.is_held() && short.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_after_a_time_without_any() {
    let locks = memory();
    drop(locks.lock("k").await.unwrap());
    tokio::time::sleep(secs(100)).await;
    let guard = locks.request("k").ttl(secs(3)).acquire().await.unwrap();
    tokio::time::sleep(secs(10)).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_release_after_a_suspension_tells_the_loss() {
    let (locks, clock) = client();
    let guard = locks.lock("k").await.unwrap();
    let signal = guard.lost();
    clock.suspend(secs(600));
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
    assert_eq!(signal.reason(), Some(LostReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_counts_from_when_the_renewal_left() {
    let (log, store) = (Log::default(), Arc::new(memory()));
    let locks = log.of(Arc::clone(&store) as _);
    let guard = locks.request("k").ttl(secs(10)).acquire().await.unwrap();
    store
        .faults()
        .plan(Request::Renew, Fault::LateReply(millis(900)));
    tokio::time::sleep(secs(5)).await;
    assert!(guard.is_held());
    let slack: Vec<_> = log
        .take_only("renewed")
        .iter()
        .map(|one| one.slack)
        .collect();
    assert_eq!(
        slack,
        [millis(8_100)],
        "9 s from when the renewal left, of which its answer took 900 ms"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_kept_whenever_a_renewal_in_company_begins() {
    // A long lease takes the short one along in the pauses between attempts of its own.
    for tenths in 70..90 {
        let locks = memory();
        let request = locks.request("long").ttl(secs(300));
        let long = request.acquire().await.unwrap();
        tokio::time::sleep(secs(100) - millis(tenths * 100)).await;
        let began = Instant::now();
        let short = locks.request("k").ttl(secs(10)).acquire().await.unwrap();
        plan_all(&locks, Request::Renew, Fault::Silence);
        let (_, after) = lost_after(short.lost(), began).await;
        assert!(after < millis(9_010), "{tenths}: lost after {after:?}");
        assert!(long.is_held());
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_in_company_hangs_no_longer_than_the_shortest_lease_allows() {
    let (log, store) = (Log::default(), Arc::new(memory()));
    let locks = log.of(Arc::clone(&store) as _);
    let request = locks.request("long").ttl(secs(300));
    let _long = request.acquire().await.unwrap();
    tokio::time::sleep(secs(99)).await;
    let short = locks.request("short").ttl(secs(5)).acquire().await.unwrap();
    // The renewal of the long lease is due at 100 s at the latest, and takes the short one along.
    store.faults().plan(Request::Renew, Fault::Silence);
    tokio::time::sleep(secs(10)).await;
    let failed = log.take_only("failing");
    let together = failed.iter().map(|one| &*one.key).collect::<Vec<_>>();
    assert_eq!(
        together,
        ["long", "short"],
        "what the hanging renewal was for"
    );
    let (long, after) = (failed[0].at, failed[1].at);
    assert_eq!(long, after, "they were given up at different times");
    assert!(
        short.is_held(),
        "the hanging renewal used up the lease of 5 s: it was bounded by the lease of 300 s"
    );
}

#[tokio::test(start_paused = true)]
async fn leases_that_were_taken_together_are_renewed_apart() {
    let (engine, _) = suspendable();
    let began = Instant::now();
    let log = Log::default();
    let mut guards = Vec::new();
    // Those of one server would travel in one request.
    for n in 0..20 {
        let store = Arc::new(Memory::with_engine(engine.clone()));
        let locks = log.of(store);
        guards.push(locks.lock(format!("k{n}")).await.unwrap());
    }
    tokio::time::sleep(secs(11)).await;
    let renewed = log.take_only("renewed");
    assert_eq!(renewed.len(), 20, "one renewal of each lease within 11 s");
    let after: Vec<_> = renewed.iter().map(|one| one.at - began).collect();
    let (first, last) = (after[0], after[19]);
    assert!(
        first >= secs(9) && last <= millis(10_010),
        "a third of 30 s less up to a tenth of that: {first:?} to {last:?}"
    );
    assert!(
        last - first >= millis(800),
        "renewals have no jitter: all of them between {first:?} and {last:?}"
    );
    let distinct = after.iter().collect::<BTreeSet<_>>().len();
    assert!(distinct >= 18, "renewals coincide: {after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_here_is_given_back_before_it_runs_out_there() {
    let locks = memory();
    let began = Instant::now();
    let guard = manual(&locks, secs(10)).await;
    guard.lost().await;
    drop(guard);
    drop(locks.client().lock("k").await.unwrap());
    let after = began.elapsed();
    assert!(
        after < millis(9_100),
        "the next holder came after {after:?}: nothing was given back"
    );
}

/// A clock of a machine that is suspended for 20 s just before it is read for the `left`th time.
#[derive(Debug)]
struct SuspendedOnce {
    clock: VirtualClock,
    left: AtomicUsize,
}

impl Clock for SuspendedOnce {
    fn now(&self) -> Moment {
        let count = |left: usize| left.checked_sub(1);
        let left = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, count);
        if left == Ok(1) {
            self.clock.suspend(secs(20));
        }
        self.clock.now()
    }
}

#[tokio::test(start_paused = true)]
async fn a_pushed_grant_is_over_here_before_it_is_over_there() {
    for read in 1..20 {
        let clock = Arc::new(SuspendedOnce {
            clock: VirtualClock::new(),
            left: AtomicUsize::new(0),
        });
        let store = Memory::with_engine(engine(&clock));
        let held = store.lock("k").await.unwrap();
        let waiter = tokio::spawn({
            let client = store.client();
            async move { client.lock("k").await }
        });
        settle().await;
        clock.left.store(read, Ordering::SeqCst);
        drop(held);
        clock.left.store(0, Ordering::SeqCst);
        let guard = waiter.await.unwrap().unwrap();
        let here = guard.valid_until().unwrap() - Instant::now();
        let info = store.inspect(&key()).await.unwrap().expect("it is held");
        let there = info.holders[0].time_left.expect("a lease has an end");
        assert!(
            here < there,
            "read {read}: {here:?} left here, {there:?} in the store"
        );
    }
}
