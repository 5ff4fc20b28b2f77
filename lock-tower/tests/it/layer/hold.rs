//! When the lock is released.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylock_core::memory::{Fault, Request as Sent};
use polylock_tower::{HeldLock, HoldUntil, KeyLock, KeyLockLayer, NotHeld};
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::Layer as _;

use crate::support::{Handler, InTime as _, Scene, handler, head, post, send, settle, spawn};

#[tokio::test(start_paused = true)]
async fn the_lock_is_free_when_the_client_sees_the_head() {
    let scene = Scene::new();
    let service = scene.layer().layer(handler(async |_| "done"));
    head(&service, post("/a")).await;
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_delays_the_head_by_a_second_at_most() {
    let scene = Scene::new();
    scene.memory.faults().plan(Sent::Release, Fault::Silence);
    let service = scene.layer().layer(handler(async |_| "done"));
    let began = Instant::now();
    assert_eq!(head(&service, post("/a")).await.status(), 200);
    let after = began.elapsed();
    assert!(
        after <= Duration::from_secs(1),
        "the head came after {after:?}"
    );
    // It goes on behind the answer.
    assert!(scene.locks.shutdown(Duration::from_secs(60)).await);
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_releases_early_lets_the_next_one_in() {
    static RELEASED: Notify = Notify::const_new();
    static GO_ON: Notify = Notify::const_new();
    let scene = Scene::new();
    let service = scene.layer().layer(handler(async |held| {
        held.release().await.unwrap();
        assert_eq!(held.ensure_held(), Err(NotHeld::Released));
        assert!(held.lost_reason().is_none());
        RELEASED.notify_one();
        GO_ON.notified().await;
        "done"
    }));
    let request = spawn(&service, post("/a"));
    RELEASED.notified().in_time("the release").await;
    assert!(scene.is_free("/a").await);
    GO_ON.notify_one();
    assert_eq!(request.said().await.status, 200);
}

/// A handler that leaves its lock to the test.
fn keeping(layer: &KeyLockLayer) -> (KeyLock<Handler>, Arc<Mutex<Option<HeldLock>>>) {
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let service = layer.layer(handler(move |held| {
        *keep.lock().expect("no panic") = Some(held);
        async { "accepted" }
    }));
    (service, kept)
}

#[tokio::test(start_paused = true)]
async fn a_manual_hold_lasts_until_it_is_released() {
    let scene = Scene::new();
    let (service, kept) = keeping(&scene.layer().with_hold(HoldUntil::Manual));
    send(&service, post("/a")).await;
    assert!(!scene.is_free("/a").await);
    let held = kept.lock().unwrap().take().unwrap();
    held.ensure_held().unwrap();
    held.release().await.unwrap();
    assert!(scene.is_free("/a").await);

    // The lock cannot leak: dropping the last clone releases it.
    send(&service, post("/a")).await;
    assert!(!scene.is_free("/a").await);
    drop(kept.lock().unwrap().take());
    settle().await;
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_outlives_the_handler_holds_nothing() {
    let scene = Scene::new();
    let (service, kept) = keeping(&scene.layer());
    send(&service, post("/a")).await;
    assert!(scene.is_free("/a").await);
    let held = kept.lock().unwrap().take().unwrap();
    assert_eq!(held.ensure_held(), Err(NotHeld::Released));
    assert!(held.deadline().is_none());
}
