//! Renewal, deadlines and loss, and when the scheduler acts, under virtual time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::LostReason;
use polylock_core::admin::LockAdmin;
use polylock_core::engine::VirtualClock;
use polylock_core::memory::{Fault, Memory, Request};
use polylock_core::prelude::*;
use tokio::time::Instant;

use super::server::fake::Fake;
use super::server::lost;
use super::support::{
    InterruptedClock, Log, engine, in_time, key, left, manual, memory, millis, plan_all, secs,
    settle, suspendable,
};

/// A store and a client whose machines differ: the store goes on while the client is suspended.
fn apart() -> (Memory, Memory, Arc<VirtualClock>) {
    let (store, (engine, clock)) = (memory(), suspendable());
    let client = store.client_with(engine);
    (store, client, clock)
}

#[tokio::test(start_paused = true)]
async fn a_suspended_machine_sees_its_loss_at_the_first_look() {
    let (store, client, clock) = apart();
    let guard = client.request("k").ttl(secs(30)).acquire().await.unwrap();
    assert!(guard.is_held());
    clock.suspend(secs(600));
    assert!(!guard.is_held(), "before any await");
    assert_eq!(guard.lost().reason(), Some(LostReason::Expired));
    drop(store);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_told_counts_by_the_clock_of_the_waiter() {
    let (store, client, clock) = apart();
    clock.suspend(secs(600));
    let held = store.lock("k").await.unwrap();
    let waiter = tokio::spawn(async move { client.lock("k").await });
    tokio::task::yield_now().await;
    drop(held);
    let guard = waiter.await.unwrap().unwrap();
    let left = left(&guard);
    assert_eq!(
        left,
        secs(27),
        "what is left of a lease that was granted this moment"
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_clock_is_ahead_waits_for_the_clock_of_the_store() {
    let (store, client, clock) = apart();
    clock.suspend(secs(600));
    let held = store.request("k").ttl(secs(30)).acquire().await.unwrap();
    held.abandon();
    let began = Instant::now();
    let request = client.request("k").wait(Wait::Forever);
    let guard = in_time("the grant to the waiter", request.acquire()).await;
    assert!(guard.unwrap().is_held());
    assert!(began.elapsed() < secs(31), "after {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_signal_of_a_suspended_machine_comes_within_a_second() {
    let (_store, client, clock) = apart();
    let guard = client.request("k").ttl(secs(30)).acquire().await.unwrap();
    let signal = guard.lost();
    tokio::time::sleep(secs(1)).await;
    clock.suspend(secs(600));
    let began = Instant::now();
    signal.into_future().await;
    let after = began.elapsed();
    assert!(
        after <= secs(1),
        "the signal came {after:?} after the machine woke up"
    );
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_lock_that_is_renewed() {
    let locks = memory();
    let began = Instant::now();
    let request = locks.request("k").ttl(secs(6)).max_hold(secs(60));
    let guard = request.acquire().await.unwrap();
    let reason = lost(guard.lost(), secs(120)).await;
    assert_eq!(reason, Some(LostReason::MaxHold));
    let after = began.elapsed();
    // Not at the next renewal, which is due within 2 s.
    assert!(
        after >= secs(60) && after < millis(60_010),
        "a max hold of 60 s ended after {after:?}"
    );
    // The lease is left to run out, so that the holder's work ends before the next one begins.
    let next = locks.client().request("k").acquire().await.unwrap();
    let after = began.elapsed();
    assert!(
        after > secs(61),
        "granted after {after:?}, while the lease was running"
    );
    assert!(next.fencing_token() > guard.fencing_token());
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_ends_and_is_followed_up() {
    let locks = memory();
    let guard = locks.request("k").ttl(secs(6)).acquire().await.unwrap();
    locks.faults().plan(Request::Release, Fault::Silence);
    let began = Instant::now();
    assert!(guard.release().await.unwrap_err().is_outcome_unknown());
    assert_eq!(began.elapsed(), secs(2), "a third of the ttl");
    assert!(locks.shutdown(secs(5)).await);
    assert!(locks.try_lock("k").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_after_its_lease_is_released() {
    let locks = memory();
    let after = Fault::LateReply(secs(10));
    locks.faults().plan(Request::Acquire, after);
    let error = locks.request("k").ttl(secs(5)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    // Late within the lease is in time, with what is left of it.
    let within = Fault::LateReply(secs(3));
    locks.faults().plan(Request::Acquire, within);
    let guard = manual(&locks, secs(5)).await;
    let left = left(&guard);
    assert_eq!(left, millis(1_500), "the lease counts from the request");
}

#[tokio::test(start_paused = true)]
async fn run_does_not_poll_work_after_a_suspension() {
    for polls_before in [0, 1] {
        let (_store, client, clock) = apart();
        let guard = client.request("k").ttl(secs(30)).acquire().await.unwrap();
        if polls_before == 0 {
            clock.suspend(secs(60));
        }
        let mut polls = 0;
        let work = std::future::poll_fn(|cx| {
            polls += 1;
            // Woken before anything else gets to run.
            clock.suspend(secs(60));
            cx.waker().wake_by_ref();
            std::task::Poll::<()>::Pending
        });
        assert_eq!(guard.run(work).await.unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(polls, polls_before);
    }
}

#[tokio::test(start_paused = true)]
async fn expiring_warns_before_max_hold_ends_the_lock() {
    let (locks, began) = (memory(), Instant::now());
    let request = locks.request("k").max_hold(secs(60));
    let guard = request.acquire().await.unwrap();
    in_time("the warning", guard.expiring(secs(2))).await;
    assert_eq!(began.elapsed().as_secs(), 58, "seconds until the warning");
    let left = guard.max_hold_left().unwrap();
    assert!(
        left > millis(1_900) && left <= secs(2),
        "max_hold ends in {left:?}"
    );
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn renewals_due_together_travel_together() {
    let log = Log::default();
    let locks = log.of(Arc::new(memory()));
    let mut guards = Vec::new();
    for n in 0..1_000 {
        guards.push(locks.lock(format!("k{n}")).await.unwrap());
        tokio::time::sleep(millis(10)).await;
    }
    tokio::time::sleep(secs(20)).await;
    log.take();
    tokio::time::sleep(secs(10)).await;
    let renewed = log.take_only("renewed");
    let requests: BTreeSet<_> = renewed.iter().map(|one| one.at).collect();
    let requests = requests.len();
    assert!(
        renewed.len() >= 1_000,
        "each is renewed once in a third of its ttl: {}",
        renewed.len()
    );
    assert!(requests <= 10, "in few requests: {requests}");
    assert!(guards.iter().all(LockGuard::is_held));
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
async fn a_short_lease_is_renewed_although_the_scheduler_slept_through_a_suspension() {
    let (_store, client, clock) = apart();
    let log = Log::default();
    let locks = log.of(Arc::new(client));
    drop(locks.lock("k").await.unwrap());
    // The scheduler looks, and sleeps for a second.
    settle().await;
    clock.suspend(secs(10));
    let request = locks.request("next").ttl(secs(1));
    let guard = request.acquire().await.unwrap();
    tokio::time::sleep(millis(400)).await;
    let renewed = log.take_only("renewed");
    assert_eq!(renewed.len(), 1, "renewals within 400 ms: {renewed:?}");
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_release_after_a_suspension_tells_the_loss() {
    let (_store, locks, clock) = apart();
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
    let late = Fault::LateReply(millis(900));
    store.faults().plan(Request::Renew, late);
    tokio::time::sleep(secs(5)).await;
    assert!(guard.is_held());
    let renewed = log.take_only("renewed");
    let slack: Vec<_> = renewed.iter().map(|one| one.slack).collect();
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
        let request = locks.request("long").ttl(secs(60));
        let long = request.acquire().await.unwrap();
        tokio::time::sleep(secs(20) - millis(tenths * 100)).await;
        let began = Instant::now();
        let short = locks.request("k").ttl(secs(10)).acquire().await.unwrap();
        plan_all(&locks, Request::Renew, Fault::Silence);
        let reason = in_time("the loss of the lock", short.lost()).await;
        let after = began.elapsed();
        assert_eq!(
            reason,
            LostReason::Unreachable,
            "after {tenths} tenths of a second"
        );
        let expected = secs(9)..millis(9_010);
        assert!(expected.contains(&after), "{tenths}: lost after {after:?}");
        assert!(!short.is_held());
        assert!(long.is_held());
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_in_company_hangs_no_longer_than_the_shortest_lease_allows() {
    let (log, store) = (Log::default(), Arc::new(memory()));
    let locks = log.of(Arc::clone(&store) as _);
    let began = Instant::now();
    let request = locks.request("long").ttl(secs(60));
    let _long = request.acquire().await.unwrap();
    tokio::time::sleep(secs(19)).await;
    let request = locks.request("short").ttl(secs(10));
    let short = request.acquire().await.unwrap();
    // The renewal of the long lease is due at 20 s at the latest, and takes the short one along.
    store.faults().plan(Request::Renew, Fault::Silence);
    tokio::time::sleep(secs(10)).await;
    let failed = log.take_only("failing");
    let together = failed.iter().map(|one| &*one.key).collect::<Vec<_>>();
    assert_eq!(
        together,
        ["long", "short"],
        "what the hanging renewal was for"
    );
    let after = failed.iter().map(|one| one.at - began);
    let late = after.filter(|after| *after > millis(21_010));
    assert_eq!(late.count(), 0, "bounded by the lease of 60 s: {failed:?}");
    assert!(short.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_does_not_wait_for_the_renewal_of_a_far_longer_one() {
    let (log, store) = (Log::default(), Arc::new(memory()));
    let locks = log.of(Arc::clone(&store) as _);
    let request = locks.request("long").ttl(secs(300));
    let long = request.acquire().await.unwrap();
    tokio::time::sleep(secs(99)).await;
    let short = locks.request("short").ttl(secs(5)).acquire().await.unwrap();
    // The renewal of the long lease is due at 100 s at the latest, before the one of the short lease.
    store.faults().plan(Request::Renew, Fault::Silence);
    tokio::time::sleep(secs(10)).await;
    let failed = log.take_only("failing");
    let failed = failed.iter().map(|one| &*one.key).collect::<Vec<_>>();
    assert_eq!(failed, ["long"], "what the hanging renewal was for");
    assert!(short.is_held() && long.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_renews_a_long_lease_although_the_process_has_short_ones() {
    let locks = memory();
    // Longer than the renewal of a lease of 500 ms may take.
    plan_all(&locks, Request::Renew, Fault::LateReply(millis(150)));
    let long = locks.request("long").ttl(secs(30)).acquire().await.unwrap();
    let client = locks.client();
    let brief = tokio::spawn(async move {
        for _ in 0..700 {
            let request = client.request("short").ttl(millis(500));
            let guard = request.acquire().await.unwrap();
            tokio::time::sleep(millis(100)).await;
            drop(guard);
        }
    });
    assert_eq!(lost(long.lost(), secs(60)).await, None);
    assert!(!brief.is_finished(), "short leases until the end");
    brief.abort();
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
async fn a_lease_that_expired_here_is_released_before_it_expires_there() {
    let locks = memory();
    let began = Instant::now();
    let guard = manual(&locks, secs(10)).await;
    in_time("the loss", guard.lost()).await;
    drop(guard);
    drop(locks.client().lock("k").await.unwrap());
    let after = began.elapsed();
    assert!(
        after < millis(9_100),
        "the next holder came after {after:?}: nothing was given back"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pushed_grant_is_over_here_before_it_is_over_there() {
    let mut interrupted = 0;
    for read in 1..20 {
        let clock = InterruptedClock::new();
        let store = Memory::with_engine(engine(&clock));
        let held = store.lock("k").await.unwrap();
        let waiter = tokio::spawn({
            let client = store.client();
            async move { client.lock("k").await }
        });
        settle().await;
        clock.suspend_at(read);
        drop(held);
        interrupted += usize::from(clock.go_on());
        let guard = waiter.await.unwrap().unwrap();
        let here = guard.valid_until().unwrap() - Instant::now();
        let info = store.inspect(&key()).await.unwrap().expect("it is held");
        let there = info.holders[0].time_left.expect("a lease has an end");
        assert!(
            here < there,
            "read {read}: {here:?} left here, {there:?} in the store"
        );
    }
    assert!(interrupted > 0, "the grant reads no clock");
}

#[tokio::test(start_paused = true)]
async fn a_min_hold_that_ends_during_the_release_asks_for_no_empty_lease() {
    let mut interrupted = 0;
    for read in 1..20 {
        let clock = InterruptedClock::new();
        let locks = Fake::with_engine(engine(&clock));
        let request = locks.request("k").min_hold(secs(10));
        let guard = request.acquire().await.unwrap();
        settle().await;
        clock.suspend_at(read);
        drop(guard);
        interrupted += usize::from(clock.go_on());
        let ttls = locks.state().ttls.clone();
        assert!(
            !ttls.contains(&Duration::ZERO),
            "read {read}: a lease of no time was asked for: {ttls:?}"
        );
    }
    assert!(interrupted > 0, "the release reads no clock");
}
