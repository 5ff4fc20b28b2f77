//! Clients that go away, and handlers that panic.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use polylock_tower::OnDisconnect::{Cancel, RunToCompletion};
use polylock_tower::{HoldUntil, KeyLock, Locker, LockerBuilder};
use tokio::time::{Instant, sleep};
use tower::{Layer as _, ServiceExt as _};

use crate::support::{
    Event, Handler, InTime as _, Scene, Sent, Stage, by_path, handler, post, settle, spawn,
};

/// Sends a request and lets it get as far as it can.
async fn start(service: &KeyLock<Handler>) -> Sent {
    let sent = spawn(service, post("/a"));
    settle().await;
    sent
}

async fn leave(client: &Sent) {
    client.abort();
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_client_is_gone_is_dropped_and_its_lock_is_free() {
    let scene = Scene::new();
    for hold in [HoldUntil::Handler, HoldUntil::Manual] {
        let stage = Stage::new();
        let request = start(&scene.layer().with_hold(hold).layer(stage.handler())).await;
        assert!(!scene.is_free("/a").await);
        leave(&request).await;
        let events = stage.events();
        assert!(matches!(events[..], [Event::Entered(_), Event::Dropped(_)]));
        assert!(scene.is_free("/a").await, "{hold:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_runs_to_completion_keeps_its_lock_until_then() {
    let (scene, stage) = (Scene::new(), Stage::new());
    let layer = scene.layer().with_on_disconnect(RunToCompletion);
    let request = start(&layer.layer(stage.handler())).await;
    leave(&request).await;
    assert!(!scene.is_free("/a").await);
    assert_eq!(stage.events().len(), 1, "the handler is inside");
    stage.let_go(1);
    let events = stage.happened(2).await;
    assert!(matches!(events[1], Event::Finished(_)), "{events:?}");
    settle().await;
    assert!(scene.is_free("/a").await);
    assert_eq!(layer.locker().live_keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_handlers_that_have_outlived_their_clients() {
    const MINUTE: Duration = Duration::from_secs(60);
    let scene = Scene::new();
    let layer = scene.layer().with_on_disconnect(RunToCompletion);
    let request = start(&layer.layer(handler(async |_| {
        sleep(MINUTE).await;
        "done"
    })))
    .await;
    leave(&request).await;
    assert!(!layer.locker().shutdown(Duration::from_secs(1)).await);
    let began = Instant::now();
    assert!(layer.locker().shutdown(MINUTE * 2).await);
    let rest = Duration::from_secs(59);
    assert_eq!(began.elapsed(), rest, "what was left of the handler");
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_that_would_run_to_completion_leaves_the_queue_as_well() {
    let scene = Scene::new();
    let other = scene.try_elsewhere("/a").await.unwrap();
    let layer = scene.layer().with_on_disconnect(RunToCompletion);
    let gone = handler(async |_| panic!("its client is gone"));
    leave(&start(&layer.layer(gone)).await).await;
    assert_eq!(layer.locker().live_keys(), 0);
    other.release().await.unwrap();
    settle().await;
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_frees_its_lock_and_panics_on() {
    for then in [Cancel, RunToCompletion] {
        let scene = Scene::new();
        let layer = scene.layer().with_on_disconnect(then);
        let service = layer.layer(handler(async |_| panic!("out of paper")));
        let ended = tokio::spawn(service.oneshot(post("/a"))).answered().await;
        let panic = ended.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref(), Some(&"out of paper"), "{then:?}");
        settle().await;
        assert!(scene.is_free("/a").await, "{then:?}");
        assert_eq!(layer.locker().live_keys(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_at_any_poll_leaves_nothing() {
    for (permits, is_free) in [(1, true), (1, false), (3, false)] {
        dropped_at_any_poll(permits, is_free).await;
    }
}

/// With a lock that is free from the start, or that another process releases after the second poll.
async fn dropped_at_any_poll(permits: u32, is_free: bool) {
    let scene = Scene::new();
    let set = |locker: LockerBuilder| match NonZeroU32::new(permits) {
        Some(limit) if permits > 1 => locker.permits(limit),
        _ => locker,
    };
    let locker = scene.locker_with(set);
    // Not behind the queue of this process, which would hand the lock over.
    let elsewhere = Locker::builder(Arc::new(scene.memory.client()), "test");
    let elsewhere = set(elsewhere).try_only().build();
    let elsewhere = elsewhere.expect("memory serves this");
    let acquire_all = async || {
        let acquired = join_all((0..permits).map(|_| elsewhere.lock("/a"))).await;
        acquired.into_iter().collect::<Result<Vec<_>, _>>()
    };
    let service = by_path(locker.clone()).layer(handler(async |_| {
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        "done"
    }));
    let mut finished = false;
    for polls in 0..30 {
        let mut held = match is_free {
            true => Vec::new(),
            false => acquire_all().await.expect("all permits are free"),
        };
        let mut request = tokio_test::task::spawn(service.clone().oneshot(post("/a")));
        for poll in 0..polls {
            if request.poll().is_ready() {
                finished = true;
                break;
            }
            if poll == 1
                && let Some(first) = held.pop()
            {
                first.release().await.expect("answered");
            }
            settle().await;
        }
        drop((request, held));
        settle().await;
        let left = (locker.waiters(), locker.live_keys());
        assert_eq!(left, (0, 0), "after {polls} polls");
        let all = acquire_all().await;
        assert!(all.is_ok(), "{permits} permits, {polls} polls: {all:?}");
        drop(all);
        settle().await;
    }
    assert!(finished, "30 polls are not enough to get to the end");
}
