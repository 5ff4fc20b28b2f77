//! When the lock is given back.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use lock_core::memory::{Fault, Request as Sent};
use lock_tower::{HoldUntil, NotHeld};
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;
use tower::{Layer as _, ServiceExt as _};

use super::support::{Scene, handler, post, settle};
use crate::support::InTime as _;

#[tokio::test(start_paused = true)]
async fn requests_with_one_key_run_one_at_a_time() {
    let scene = Scene::new();
    let inside = Arc::new(Mutex::new(()));
    let service = scene.layer().layer(handler(move |_| {
        let inside = Arc::clone(&inside);
        async move {
            let _alone = inside.try_lock().expect("two are inside");
            tokio::time::sleep(Duration::from_millis(10)).await;
            "done"
        }
    }));
    let began = Instant::now();
    let requests: Vec<_> = (0..20)
        .map(|_| tokio::spawn(service.clone().oneshot(post("/a"))))
        .collect();
    for request in requests {
        assert_eq!(request.answered().await.unwrap().unwrap().status(), 200);
    }
    let serial = Duration::from_millis(200);
    assert_eq!(
        began.elapsed(),
        serial,
        "20 requests of 10 ms, one at a time"
    );
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_free_when_the_client_sees_the_head() {
    let scene = Scene::new();
    let service = scene.layer().layer(handler(|_| async { "done" }));
    for _ in 0..10 {
        let response = service
            .clone()
            .oneshot(post("/a"))
            .answered()
            .await
            .unwrap();
        assert!(scene.is_free("/a").await);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "done");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_delays_the_head_by_a_second_at_most() {
    let scene = Scene::new();
    scene.memory.faults().plan(Sent::Release, Fault::Silence);
    let service = scene.layer().layer(handler(|_| async { "done" }));
    let began = Instant::now();
    let response = service.oneshot(post("/a")).answered().await.unwrap();
    assert_eq!(response.status(), 200);
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
    let scene = Scene::new();
    let (released, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let service = {
        let (released, end) = (Arc::clone(&released), Arc::clone(&end));
        scene.layer().layer(handler(move |held| {
            let (released, end) = (Arc::clone(&released), Arc::clone(&end));
            async move {
                held.release().await.unwrap();
                assert_eq!(held.ensure_held(), Err(NotHeld::Released));
                assert!(!held.is_lost());
                released.notify_one();
                end.notified().await;
                "done"
            }
        }))
    };
    let request = tokio::spawn(service.oneshot(post("/a")));
    released
        .notified()
        .in_time("the start of the handler")
        .await;
    assert!(scene.is_free("/a").await);
    end.notify_one();
    assert_eq!(request.answered().await.unwrap().unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_manual_hold_lasts_until_it_is_released() {
    let scene = Scene::new();
    let kept = Arc::new(std::sync::Mutex::new(None));
    let layer = scene.layer().with_hold(HoldUntil::Manual);
    let service = {
        let kept = Arc::clone(&kept);
        layer.layer(handler(move |held| {
            *kept.lock().unwrap() = Some(held);
            async { "accepted" }
        }))
    };
    let response = service
        .clone()
        .oneshot(post("/a"))
        .answered()
        .await
        .unwrap();
    drop(response);
    assert!(!scene.is_free("/a").await);
    let held = kept.lock().unwrap().take().unwrap();
    held.ensure_held().unwrap();
    held.release().await.unwrap();
    assert!(scene.is_free("/a").await);

    // Nobody can forget it: the last clone takes the lock along.
    service.oneshot(post("/a")).answered().await.unwrap();
    assert!(!scene.is_free("/a").await);
    drop(kept.lock().unwrap().take());
    settle().await;
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_outlives_the_handler_holds_nothing() {
    let scene = Scene::new();
    let kept = Arc::new(std::sync::Mutex::new(None));
    let service = {
        let kept = Arc::clone(&kept);
        scene.layer().layer(handler(move |held| {
            *kept.lock().unwrap() = Some(held);
            async { "done" }
        }))
    };
    service.oneshot(post("/a")).answered().await.unwrap();
    assert!(scene.is_free("/a").await);
    let held = kept.lock().unwrap().take().unwrap();
    assert_eq!(held.ensure_held(), Err(NotHeld::Released));
    assert!(held.deadline().is_none());
}
