//! Locks that are lost while their handler runs, and who hears of refused requests.

use std::sync::{Arc, Mutex};

use lock_core::LostReason;
use lock_tower::{NotHeld, OnLost, RefusedRequest, RejectionObserver};
use tokio::sync::Notify;
use tower::Layer as _;

use crate::support::{
    Event, InTime as _, Scene, Stage, by_path, handler, post, send, settle, spawn,
};

#[tokio::test(start_paused = true)]
async fn a_handler_that_lost_its_lock_is_dropped_and_the_answer_says_so() {
    let (scene, stage, ear) = (Scene::new(), Stage::new(), Arc::new(Ear::default()));
    let locker = scene.locker_with(|locker| locker.rejection_observer(Arc::clone(&ear) as _));
    let request = spawn(&by_path(locker).layer(stage.handler()), post("/a"));
    stage.happened(1).await;
    scene.break_lock("/a").await;
    let said = request.said().await;
    assert_eq!(said.status, 503);
    assert_eq!(said.header("retry-after"), None);
    let events = stage.events();
    assert!(matches!(events[..], [Event::Entered(_), Event::Dropped(_)]));
    assert_eq!(ear.heard(), ["test lock-lost 503"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_goes_on_sees_the_loss() {
    let scene = Scene::new();
    let began = Arc::new(Notify::new());
    let layer = scene.layer().with_on_lost(OnLost::Continue);
    let service = layer.layer(handler({
        let began = Arc::clone(&began);
        move |held| {
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
        }
    }));
    let request = spawn(&service, post("/a"));
    began.notified().in_time("the start of the handler").await;
    scene.break_lock("/a").await;
    assert_eq!(request.said().await.body, LostReason::Broken.as_str());
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_ends_after_the_loss_was_not_protected() {
    let (scene, stage) = (Scene::new(), Stage::new());
    let request = spawn(&scene.layer().layer(stage.handler()), post("/a"));
    stage.happened(1).await;
    scene.break_lock("/a").await;
    stage.let_go(1);
    assert_eq!(request.said().await.status, 503);
    let events = stage.events();
    assert!(
        matches!(events[1], Event::Dropped(_)),
        "polled after the loss: {events:?}"
    );
    settle().await;
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_each_refusal_once_and_of_nothing_else() {
    let (scene, ear) = (Scene::new(), Arc::new(Ear::default()));
    let heard = Arc::clone(&ear) as Arc<dyn RejectionObserver>;
    let locker = scene.locker_with(|locker| locker.try_only().rejection_observer(heard));
    let service = by_path(locker).layer(handler(async |_| "done"));
    let held = scene.try_elsewhere("/a").await.unwrap();
    assert_eq!(send(&service, post("/a")).await.status, 409);
    held.release().await.unwrap();
    assert_eq!(send(&service, post("/a")).await.status, 200);
    assert_eq!(ear.heard(), ["test lock-busy 409"]);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_changes_no_answer() {
    let (scene, panics) = (Scene::new(), Arc::new(Panics));
    let locker = scene.locker_with(|locker| locker.try_only().rejection_observer(panics));
    let service = by_path(locker).layer(handler(async |_| "done"));
    let _held = scene.try_elsewhere("/a").await.unwrap();
    assert_eq!(send(&service, post("/a")).await.status, 409);
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
        let (class, reason, status) = (refused.class, refused.reason, refused.status.as_u16());
        let line = format!("{class} {reason} {status}");
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
