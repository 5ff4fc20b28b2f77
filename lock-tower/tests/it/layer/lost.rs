//! Locks that are lost while their handler runs, and observers of rejected requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylock_core::{FencingToken, LostReason};
use polylock_tower::{NotHeld, OnLost, RejectedRequest, RejectionObserver};
use tokio::sync::Notify;
use tower::Layer as _;

use crate::support::{
    Event, InTime as _, Rejections, Scene, Stage, by_path, handler, post, send, settle, spawn,
};

#[tokio::test(start_paused = true)]
async fn a_handler_that_lost_its_lock_is_dropped_and_the_answer_says_so() {
    let (scene, stage, rejections) = (Scene::new(), Stage::new(), Arc::new(Rejections::default()));
    let locker =
        scene.locker_with(|locker| locker.rejection_observer(Arc::clone(&rejections) as _));
    let layer = by_path(locker).with_fencing_token().with_server_timing();
    let request = spawn(&layer.layer(stage.handler()), post("/a"));
    stage.happened(1).await;
    scene.break_lock("/a").await;
    let said = request.said().await;
    said.assert_refused(503, "lock-lost");
    for name in ["server-timing", "x-fencing-token"] {
        assert!(said.header(name).is_some(), "{name} of the lost lock");
    }
    assert_eq!(said.header("retry-after"), None);
    assert!(!said.body.contains("/a"), "it names the key");
    let events = stage.events();
    assert!(matches!(events[..], [Event::Entered(_), Event::Dropped(_)]));
    assert_eq!(rejections.all(), ["test lock-lost 503"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_goes_on_sees_the_loss() {
    static BEGAN: Notify = Notify::const_new();
    let scene = Scene::new();
    let layer = scene.layer().with_on_lost(OnLost::Continue);
    let service = layer.layer(handler(async |held| {
        assert!(held.fencing_token().is_some());
        held.ensure_held().unwrap();
        BEGAN.notify_one();
        let reason = held.lost().await;
        assert_eq!(held.ensure_held(), Err(NotHeld::Lost(reason)));
        assert_eq!(held.lost_reason(), Some(reason));
        reason.as_str()
    }));
    let request = spawn(&service, post("/a"));
    BEGAN.notified().in_time("the start of the handler").await;
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

/// A store that keeps the largest token refuses the write of a handler that went on after its loss.
#[tokio::test(start_paused = true)]
async fn the_late_write_of_a_handler_that_goes_on_is_refused_by_the_store() {
    static NEWEST: Mutex<Option<FencingToken>> = Mutex::new(None);
    static ENTERED: Notify = Notify::const_new();
    static GO_ON: Notify = Notify::const_new();
    let scene = Scene::new();
    // The queue of this process lets the next one in when the loss is known.
    let locker = scene.locker_with(|locker| locker.wait(Duration::from_secs(60)));
    let layer = by_path(locker).with_on_lost(OnLost::Continue);
    let service = layer.layer(handler(async |held| {
        let token = held.fencing_token().expect("memory has tokens");
        let is_first = NEWEST.lock().unwrap().is_none();
        if is_first {
            *NEWEST.lock().unwrap() = Some(token);
            ENTERED.notify_one();
            GO_ON.notified().await;
            held.lost().await;
        }
        let mut newest = NEWEST.lock().unwrap();
        if newest.is_some_and(|newest| token < newest) {
            return "stale";
        }
        *newest = Some(token);
        "written"
    }));
    let late = spawn(&service, post("/a"));
    ENTERED.notified().in_time("the first request").await;
    scene.break_lock("/a").await;
    assert_eq!(send(&service, post("/a")).await.body, "written");
    GO_ON.notify_one();
    assert_eq!(late.said().await.body, "stale");
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_changes_no_answer() {
    let scene = Scene::new();
    let locker = scene.locker_with(|locker| locker.try_only().rejection_observer(Arc::new(Panics)));
    let service = by_path(locker).layer(handler(async |_| "done"));
    let _held = scene.try_elsewhere("/a").await.unwrap();
    assert_eq!(send(&service, post("/a")).await.status, 409);
}

#[derive(Debug)]
struct Panics;

impl RejectionObserver for Panics {
    fn rejected(&self, _: &RejectedRequest<'_>) {
        panic!("a broken observer");
    }
}
