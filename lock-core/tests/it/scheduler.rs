//! Renewal, deadlines and loss, under virtual time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::LostReason;
use polylock_core::engine::VirtualClock;
use polylock_core::memory::{Fault, Memory, Request};
use polylock_core::prelude::*;

use super::server::lost;
use super::support::{Log, left, manual, memory, plan_all, secs, suspendable};

/// A store and a client whose machines differ: the store goes on while the client is suspended.
fn apart() -> (Memory, Memory, Arc<VirtualClock>) {
    let (store, (engine, clock)) = (memory(), suspendable());
    let client = store.client_with(engine);
    (store, client, clock)
}

#[tokio::test(start_paused = true)]
async fn loss_comes_at_the_deadline_while_a_renewal_hangs() {
    let locks = memory();
    let began = tokio::time::Instant::now();
    let mut guards = Vec::new();
    // They travel in one renewal.
    for key in ["a", "b", "c"] {
        guards.push(locks.request(key).ttl(secs(10)).acquire().await.unwrap());
    }
    plan_all(&locks, Request::Renew, Fault::Silence);
    for guard in guards {
        let reason = lost(guard.lost(), secs(60)).await;
        assert_eq!(reason, Some(LostReason::Unreachable));
        let after = began.elapsed();
        assert!(
            after >= secs(9) && after < Duration::from_millis(9_010),
            "lost after {after:?}"
        );
        assert!(!guard.is_held());
    }
}

#[tokio::test(start_paused = true)]
async fn without_renewals_a_lock_that_is_not_ours_any_more_is_lost_at_its_end() {
    let locks = memory();
    let guard = manual(&locks, secs(30)).await;
    locks.expire(guard.key());
    let next = locks.client().lock("k").await.unwrap();
    assert_eq!(lost(guard.lost(), secs(26)).await, None);
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(lost(guard.lost(), secs(2)).await, Some(LostReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn lost_is_final_even_if_the_server_renews_late() {
    let locks = memory();
    let guard = manual(&locks, secs(10)).await;
    locks.faults().plan(
        Request::Renew,
        Fault::LateReply(Duration::from_millis(1_900)),
    );
    tokio::time::sleep(Duration::from_millis(8_500)).await;
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    tokio::time::sleep(secs(1)).await;
    assert!(!guard.is_held());
    assert_eq!(guard.lost().reason(), Some(LostReason::Expired));
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
async fn the_signal_of_a_suspended_machine_comes_within_a_second() {
    let (_store, client, clock) = apart();
    let guard = client.request("k").ttl(secs(30)).acquire().await.unwrap();
    let signal = guard.lost();
    tokio::time::sleep(secs(1)).await;
    clock.suspend(secs(600));
    let began = tokio::time::Instant::now();
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
    let began = tokio::time::Instant::now();
    let request = locks.request("k").ttl(secs(6)).max_hold(secs(60));
    let guard = request.acquire().await.unwrap();
    assert_eq!(
        lost(guard.lost(), secs(120)).await,
        Some(LostReason::MaxHold)
    );
    let after = began.elapsed();
    // Not at the next renewal, which is due within 2 s.
    assert!(
        after >= secs(60) && after < Duration::from_millis(60_010),
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
    let began = tokio::time::Instant::now();
    assert!(guard.release().await.unwrap_err().is_outcome_unknown());
    assert_eq!(began.elapsed(), secs(2), "a third of the ttl");
    assert!(locks.shutdown(secs(5)).await);
    assert!(locks.try_lock("k").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_after_its_lease_is_given_back() {
    let locks = memory();
    locks
        .faults()
        .plan(Request::Acquire, Fault::LateReply(secs(10)));
    let error = locks.request("k").ttl(secs(5)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    // Late within the lease is in time, with what is left of it.
    locks
        .faults()
        .plan(Request::Acquire, Fault::LateReply(secs(3)));
    let guard = manual(&locks, secs(5)).await;
    let left = left(&guard);
    assert_eq!(
        left,
        Duration::from_millis(1_500),
        "the lease counts from the request"
    );
}

#[tokio::test(start_paused = true)]
async fn run_does_not_poll_work_after_a_suspension() {
    let (_store, client, clock) = apart();
    let guard = client.request("k").ttl(secs(30)).acquire().await.unwrap();
    clock.suspend(secs(60));
    let error = guard
        .run(async { panic!("polled without the lock") })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn run_does_not_poll_work_again_after_a_suspension() {
    let (_store, client, clock) = apart();
    let guard = client.request("k").ttl(secs(30)).acquire().await.unwrap();
    let mut polls = 0;
    let work = std::future::poll_fn(|cx| {
        polls += 1;
        // Woken before anything else gets to run.
        clock.suspend(secs(60));
        cx.waker().wake_by_ref();
        std::task::Poll::<()>::Pending
    });
    assert_eq!(guard.run(work).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(polls, 1);
}

#[tokio::test(start_paused = true)]
async fn expiring_warns_ahead_and_follows_renewals() {
    let locks = memory();
    let guard = manual(&locks, secs(10)).await;
    let began = tokio::time::Instant::now();
    let warning = tokio::spawn(guard.expiring(secs(2)));
    tokio::time::sleep(secs(5)).await;
    guard.renew().await.unwrap();
    warning.await.unwrap();
    assert_eq!(
        began.elapsed().as_secs(),
        12,
        "5 s, and 2 s before the 9 s after that are over"
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
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(secs(20)).await;
    log.take();
    tokio::time::sleep(secs(10)).await;
    let renewed = log.take_only("renewed");
    let requests = renewed
        .iter()
        .map(|one| one.at)
        .collect::<BTreeSet<_>>()
        .len();
    assert!(
        renewed.len() >= 1_000,
        "each is renewed once in a third of its ttl: {}",
        renewed.len()
    );
    assert!(requests <= 10, "in few requests: {requests}");
    assert!(guards.iter().all(LockGuard::is_held));
}
