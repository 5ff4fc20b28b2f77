//! Clients that go away, and handlers that panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_tower::{HoldUntil, OnDisconnect};
use tokio::sync::Notify;
use tower::{Layer as _, ServiceExt as _};

use super::support::{Scene, handler, post, settle};
use crate::support::{InTime as _, until};

#[tokio::test(start_paused = true)]
async fn who_goes_away_while_it_waits_leaves_the_queue_at_once() {
    let scene = Scene::new();
    let layer = scene.layer();
    let end = Arc::new(Notify::new());
    let service = {
        let end = Arc::clone(&end);
        layer.layer(handler(move |_| {
            let end = Arc::clone(&end);
            async move {
                end.notified().await;
                "done"
            }
        }))
    };
    let first = tokio::spawn(service.clone().oneshot(post("/a")));
    settle().await;
    let waiting: Vec<_> = (0..3)
        .map(|_| tokio::spawn(service.clone().oneshot(post("/a"))))
        .collect();
    settle().await;
    assert_eq!(layer.locker().waiters(), 3);
    for request in &waiting {
        request.abort();
    }
    settle().await;
    assert_eq!(layer.locker().waiters(), 0);

    let last = tokio::spawn(service.oneshot(post("/a")));
    settle().await;
    end.notify_one();
    assert_eq!(first.answered().await.unwrap().unwrap().status(), 200);
    end.notify_one();
    assert_eq!(last.answered().await.unwrap().unwrap().status(), 200);
    assert_eq!(layer.locker().live_keys(), 0);
}

/// Sets its flag when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_client_is_gone_is_dropped_and_its_lock_is_free() {
    let scene = Scene::new();
    for hold in [HoldUntil::Handler, HoldUntil::Manual] {
        let dropped = Arc::new(AtomicBool::new(false));
        let service = {
            let dropped = Arc::clone(&dropped);
            scene.layer().with_hold(hold).layer(handler(move |held| {
                let flag = Flag(Arc::clone(&dropped));
                async move {
                    let _flag = flag;
                    held.lost().await;
                    "never"
                }
            }))
        };
        let request = tokio::spawn(service.oneshot(post("/a")));
        settle().await;
        assert!(!scene.is_free("/a").await);
        request.abort();
        settle().await;
        assert!(dropped.load(Ordering::SeqCst));
        assert!(scene.is_free("/a").await, "{hold:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_runs_to_completion_keeps_its_lock_until_then() {
    let scene = Scene::new();
    let (end, ended) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let layer = scene
        .layer()
        .with_on_disconnect(OnDisconnect::RunToCompletion);
    let service = {
        let (end, ended) = (Arc::clone(&end), Arc::clone(&ended));
        layer.layer(handler(move |held| {
            let (end, ended) = (Arc::clone(&end), Arc::clone(&ended));
            async move {
                end.notified().await;
                held.ensure_held().unwrap();
                ended.store(true, Ordering::SeqCst);
                "done"
            }
        }))
    };
    let request = tokio::spawn(service.oneshot(post("/a")));
    settle().await;
    request.abort();
    settle().await;
    assert!(!scene.is_free("/a").await);
    end.notify_one();
    until("the handler ends", || ended.load(Ordering::SeqCst)).await;
    settle().await;
    assert!(scene.is_free("/a").await);
    assert_eq!(layer.locker().live_keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_handlers_that_have_outlived_their_clients() {
    let scene = Scene::new();
    let layer = scene
        .layer()
        .with_on_disconnect(OnDisconnect::RunToCompletion);
    let (locker, minute) = (layer.locker().clone(), Duration::from_secs(60));
    let service = layer.layer(handler(move |_| async move {
        tokio::time::sleep(minute).await;
        "done"
    }));
    let request = tokio::spawn(service.oneshot(post("/a")));
    settle().await;
    request.abort();
    settle().await;
    assert!(!locker.shutdown(Duration::from_secs(1)).await);
    let began = tokio::time::Instant::now();
    assert!(locker.shutdown(minute * 2).await);
    let rest = Duration::from_secs(59);
    assert_eq!(began.elapsed(), rest, "what was left of the handler");
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn who_is_to_run_to_completion_still_leaves_the_queue() {
    let scene = Scene::new();
    let other = scene.try_elsewhere("/a").await.unwrap();
    let layer = scene
        .layer()
        .with_on_disconnect(OnDisconnect::RunToCompletion);
    let service = layer.layer(handler(|_| async { panic!("its client is gone") }));
    let request = tokio::spawn(service.oneshot(post("/a")));
    settle().await;
    request.abort();
    settle().await;
    assert_eq!(layer.locker().live_keys(), 0);
    other.release().await.unwrap();
    settle().await;
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_frees_its_lock_and_panics_on() {
    for then in [OnDisconnect::Cancel, OnDisconnect::RunToCompletion] {
        let scene = Scene::new();
        let layer = scene.layer().with_on_disconnect(then);
        let service = layer.layer(handler(|_| async { panic!("out of paper") }));
        let ended = tokio::spawn(service.oneshot(post("/a")))
            .answered()
            .await
            .unwrap_err();
        let panic = ended.into_panic();
        assert_eq!(panic.downcast_ref(), Some(&"out of paper"), "{then:?}");
        settle().await;
        assert!(scene.is_free("/a").await, "{then:?}");
        assert_eq!(layer.locker().live_keys(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_at_any_poll_leaves_nothing() {
    let scene = Scene::new();
    let layer = scene.layer();
    let service = layer.layer(handler(|_| async {
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        "done"
    }));
    let other = scene.try_elsewhere("/a").await.unwrap();
    let mut other = Some(other);
    let mut finished = false;
    for polls in 0..30 {
        let mut request = tokio_test::task::spawn(service.clone().oneshot(post("/a")));
        for poll in 0..polls {
            if request.poll().is_ready() {
                finished = true;
                break;
            }
            if poll == 1
                && let Some(other) = other.take()
            {
                other.release().await.unwrap();
            }
            settle().await;
        }
        drop(request);
        settle().await;
        assert_eq!(layer.locker().live_keys(), 0, "after {polls} polls");
        if other.is_none() {
            assert!(scene.is_free("/a").await, "after {polls} polls");
        }
    }
    assert!(finished, "30 polls are not enough to get to the end");
}
