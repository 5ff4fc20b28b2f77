//! Who hears of refused requests.

use std::sync::{Arc, Mutex};

use lock_tower::{RefusedRequest, RejectionObserver};
use tokio::sync::Notify;
use tower::{Layer as _, ServiceExt as _};

use super::support::{Scene, by_path, handler, post};
use crate::support::InTime as _;

#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_each_refusal_once_and_of_nothing_else() {
    let (scene, ear) = (Scene::new(), Arc::new(Ear::default()));
    let locker = scene
        .builder()
        .try_only()
        .rejection_observer(Arc::clone(&ear) as _);
    let service = by_path(locker.build().unwrap()).layer(handler(|_| async { "done" }));
    let held = scene.try_elsewhere("/a").await.unwrap();
    let refused = service
        .clone()
        .oneshot(post("/a"))
        .answered()
        .await
        .unwrap();
    assert_eq!(refused.status(), 409);
    held.release().await.unwrap();
    let served = service.oneshot(post("/a")).answered().await.unwrap();
    assert_eq!(served.status(), 200);
    assert_eq!(ear.heard(), ["test lock-busy 409"]);
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_a_handler_that_lost_its_lock() {
    let (scene, ear) = (Scene::new(), Arc::new(Ear::default()));
    let locker = scene.builder().rejection_observer(Arc::clone(&ear) as _);
    let began = Arc::new(Notify::new());
    let service = by_path(locker.build().unwrap()).layer(handler({
        let began = Arc::clone(&began);
        move |_| {
            let began = Arc::clone(&began);
            async move {
                began.notify_one();
                std::future::pending().await
            }
        }
    }));
    let request = tokio::spawn(service.oneshot(post("/a")));
    began.notified().in_time("the start of the handler").await;
    scene.break_lock("/a").await;
    assert_eq!(request.answered().await.unwrap().unwrap().status(), 503);
    assert_eq!(ear.heard(), ["test lock-lost 503"]);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_changes_no_answer() {
    let scene = Scene::new();
    let locker = scene
        .builder()
        .try_only()
        .rejection_observer(Arc::new(Panics));
    let service = by_path(locker.build().unwrap()).layer(handler(|_| async { "done" }));
    let _held = scene.try_elsewhere("/a").await.unwrap();
    let refused = service.oneshot(post("/a")).answered().await.unwrap();
    assert_eq!(refused.status(), 409);
}

#[derive(Debug, Default)]
struct Ear(Mutex<Vec<String>>);

impl Ear {
    fn heard(&self) -> Vec<String> {
        self.0.lock().expect("nothing panics").clone()
    }
}

impl RejectionObserver for Ear {
    fn refused(&self, refused: &RefusedRequest<'_>) {
        let RefusedRequest {
            class,
            reason,
            status,
            ..
        } = refused;
        let line = format!("{class} {reason} {}", status.as_u16());
        self.0.lock().expect("nothing panics").push(line);
    }
}

#[derive(Debug)]
struct Panics;

impl RejectionObserver for Panics {
    fn refused(&self, _: &RefusedRequest<'_>) {
        panic!("a broken observer");
    }
}
