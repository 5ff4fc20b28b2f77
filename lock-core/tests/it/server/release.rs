//! Acquisitions that are undone, and releases that are late or outlasted by their lock.

use std::sync::Arc;
use std::time::Duration;

use polylock_core::PendingRelease;
use polylock_core::engine::Engine;
use polylock_core::memory::{Fault, Request};
use polylock_core::prelude::*;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::fake::{Call, Fake};
use crate::support::{Log, drop_after_a_poll, memory, millis, secs, suspendable, until};

const TTL: Duration = Duration::from_secs(30);

fn armed(unanswered: usize) -> (Fake, PendingRelease) {
    let fake = Fake::new();
    fake.state().unanswered = unanswered;
    let pending = fake.pending(TTL);
    (fake, pending)
}

#[tokio::test(start_paused = true)]
async fn an_armed_release_is_repeated_until_there_is_an_answer_or_no_lease() {
    let (fake, pending) = armed(3);
    drop(pending);
    tokio::time::sleep(TTL).await;
    assert_eq!(fake.releases(), 4, "three without an answer and one with");

    let (fake, pending) = armed(usize::MAX);
    drop(pending);
    tokio::time::sleep(TTL * 2).await;
    let after_a_ttl = fake.releases();
    tokio::time::sleep(TTL * 10).await;
    assert_eq!(fake.releases(), after_a_ttl);

    let (fake, pending) = armed(0);
    pending.disarm();
    tokio::time::sleep(TTL).await;
    assert_eq!(fake.releases(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_armed_release_is_repeated_after_a_suspension_that_outlasts_the_lease() {
    let (engine, clock) = suspendable();
    let fake = Fake::with_engine(engine);
    fake.state().unanswered = 3;
    drop(fake.pending(TTL));
    clock.suspend(TTL * 10);
    tokio::time::sleep(TTL).await;
    assert_eq!(fake.releases(), 4, "three without an answer and one with");
}

#[tokio::test(start_paused = true)]
async fn what_has_no_lease_is_released_for_as_long_as_it_takes() {
    let (fake, pending) = armed(250);
    fake.state().session = true;
    drop(pending);
    tokio::time::sleep(TTL * 10).await;
    let tries = fake.releases();
    assert!((10..100).contains(&tries), "with pauses: {tries}");
    tokio::time::sleep(TTL * 1_000).await;
    assert_eq!(fake.releases(), 251);
}

#[tokio::test(start_paused = true)]
async fn an_undo_is_done_when_it_returns_or_goes_on_without_an_answer() {
    let (fake, pending) = armed(0);
    pending.undo().await;
    assert_eq!(fake.releases(), 1);
    tokio::time::sleep(TTL).await;
    assert_eq!(fake.releases(), 1);

    let (fake, pending) = armed(1);
    pending.undo().await;
    tokio::time::sleep(TTL).await;
    assert_eq!(fake.releases(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_work_of_a_caller_that_is_gone() {
    let engine = Engine::on_current_runtime("fake");
    let (_works, ended) = oneshot::channel();
    engine.answered(async {}, ended).await;
    assert!(engine.drain(TTL).await, "the caller has the answer");
    let (works, ended) = oneshot::channel();
    drop_after_a_poll(engine.answered(std::future::pending::<()>(), ended)).await;
    assert!(!engine.drain(TTL).await);
    drop(works);
    assert!(engine.drain(TTL).await);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_under_way_at_the_release_does_not_cut_the_min_hold() {
    let locks = Fake::new();
    let request = locks.request("k").ttl(secs(10)).min_hold(secs(60));
    let guard = request.acquire().await.unwrap();
    locks.state().delay = millis(500);
    tokio::time::sleep(millis(3_400)).await;
    assert_eq!(locks.state().sent.last(), Some(&Call::Renew));
    assert_eq!(locks.state().renewals, 0, "it is on its way");
    locks.state().delay = Duration::ZERO;
    guard.release().await.unwrap();
    tokio::time::sleep(secs(55)).await;
    assert!(locks.is_taken());
    tokio::time::sleep(secs(2)).await;
    assert!(!locks.is_taken());
}

#[tokio::test(start_paused = true)]
async fn the_request_of_a_min_hold_is_repeated_until_it_is_answered() {
    for fault in [Fault::LostRequest, Fault::LostReply, Fault::Silence] {
        let locks = memory();
        let began = Instant::now();
        let request = locks.request("k").ttl(secs(10)).min_hold(secs(60));
        let guard = request.acquire().await.unwrap();
        for _ in 0..3 {
            locks.faults().plan(Request::Renew, fault);
        }
        guard.release().await.unwrap_err();
        let other = locks.client();
        let next = other.request("k").wait(Wait::Forever).acquire().await;
        drop(next.unwrap());
        let after = began.elapsed();
        assert!(
            (secs(60)..secs(62)).contains(&after),
            "{fault:?}: {after:?}"
        );
    }
}

/// In real time.
#[test]
fn a_release_whose_runtime_ends_goes_on() {
    let fake = Fake::with_engine(Engine::of_this_process("slow"));
    let brief = Runtime::new().unwrap();
    let guard = brief.block_on(fake.lock("k")).unwrap();
    // Long enough that the runtime ends before the release arrives.
    fake.state().delay = Duration::from_secs(1);
    brief.spawn(guard.release());
    until(|| fake.releases() == 1);
    drop(brief);
    // Its timer has gone with the runtime, so that it begins again on the engine's.
    until(|| fake.releases() == 2 && !fake.is_taken());
    assert_eq!(fake.releases(), 2, "it is done then");
}

/// In real time, since the engine has a runtime of its own.
#[test]
fn a_release_that_its_caller_drops_is_reported_when_it_is_done() {
    for is_done in [false, true] {
        let fake = Fake::with_engine(Engine::of_this_process("slow"));
        let log = Log::default();
        let locks = log.of(Arc::new(fake.clone()));
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let guard = locks.lock("k").await.unwrap();
            fake.state().delay = millis(100);
            drop_after_a_poll(guard.release()).await;
        });
        if is_done {
            // By the request of the release that was dropped.
            fake.state().free();
        }
        let mut outcomes = Vec::new();
        until(|| {
            let all = log.take().into_iter().map(|entry| entry.what);
            outcomes.extend(all.filter(|what| !["requested", "acquired"].contains(what)));
            outcomes.len() == 3
        });
        assert_eq!(outcomes, ["held", "given_up", "released"], "{is_done}");
    }
}

/// In real time, since the engine has a runtime of its own.
#[test]
fn a_release_that_moves_to_another_runtime_does_not_hide_a_loss() {
    for is_lost in [false, true] {
        let fake = Fake::with_engine(Engine::of_this_process("slow"));
        let [first, second] = [(); 2].map(|()| Runtime::new().unwrap());
        let guard = first.block_on(fake.lock("k")).unwrap();
        if is_lost {
            fake.state().free();
        }
        fake.state().delay = millis(100);
        let mut release = Box::pin(guard.release());
        first.block_on(drop_after_a_poll(&mut release));
        let released = second.block_on(release);
        match is_lost {
            false => assert_eq!(released.unwrap(), Released::Clean),
            true => assert!(released.unwrap_err().is_outcome_unknown()),
        }
        assert_eq!(fake.releases(), 2, "lost: {is_lost}");
    }
}
