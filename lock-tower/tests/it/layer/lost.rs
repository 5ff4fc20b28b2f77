//! Locks that are lost while their handler runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::LostReason;
use lock_tower::{NotHeld, OnLost};
use tokio::sync::Notify;
use tower::{Layer as _, ServiceExt as _};

use super::support::{Scene, handler, post, settle, text};
use crate::support::InTime as _;

#[tokio::test(start_paused = true)]
async fn a_handler_that_lost_its_lock_is_dropped_and_the_answer_says_so() {
    let scene = Scene::new();
    let (began, ended) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let service = {
        let (began, ended) = (Arc::clone(&began), Arc::clone(&ended));
        scene.layer().layer(handler(move |_| {
            let (began, ended) = (Arc::clone(&began), Arc::clone(&ended));
            async move {
                began.notify_one();
                tokio::time::sleep(std::time::Duration::from_secs(120)).await;
                ended.store(true, Ordering::SeqCst);
                "done"
            }
        }))
    };
    let request = tokio::spawn(service.oneshot(post("/a")));
    began.notified().in_time("the start of the handler").await;
    scene.break_lock("/a").await;
    let response = request.answered().await.unwrap().unwrap();
    assert_eq!(response.status(), 503);
    assert!(response.headers().get("retry-after").is_none());
    assert!(!ended.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_goes_on_sees_the_loss() {
    let scene = Scene::new();
    let began = Arc::new(Notify::new());
    let service = {
        let began = Arc::clone(&began);
        scene
            .layer()
            .with_on_lost(OnLost::Continue)
            .layer(handler(move |held| {
                let began = Arc::clone(&began);
                async move {
                    assert!(held.fencing_token().is_some());
                    held.ensure_held().unwrap();
                    began.notify_one();
                    let reason = held.lost().await;
                    assert!(held.is_lost());
                    assert_eq!(held.ensure_held(), Err(NotHeld::Lost(reason)));
                    assert_eq!(held.lost_reason(), Some(reason));
                    reason.as_str()
                }
            }))
    };
    let request = tokio::spawn(service.oneshot(post("/a")));
    began.notified().in_time("the start of the handler").await;
    scene.break_lock("/a").await;
    let response = request.answered().await.unwrap().unwrap();
    assert_eq!(text(response).await, LostReason::Broken.as_str());
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_ends_after_the_loss_was_not_protected() {
    let scene = Scene::new();
    let (began, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let service = {
        let (began, end) = (Arc::clone(&began), Arc::clone(&end));
        scene.layer().layer(handler(move |held| {
            let (began, end) = (Arc::clone(&began), Arc::clone(&end));
            async move {
                began.notify_one();
                end.notified().await;
                assert!(!held.is_lost(), "it is not polled after a loss");
                "done"
            }
        }))
    };
    let request = tokio::spawn(service.oneshot(post("/a")));
    began.notified().in_time("the start of the handler").await;
    scene.break_lock("/a").await;
    end.notify_one();
    assert_eq!(request.answered().await.unwrap().unwrap().status(), 503);
    settle().await;
    assert!(scene.is_free("/a").await);
}
