//! A lock service that does not answer.

use std::time::Duration;

use lock_core::memory::{Fault, Reachable, Request as Sent};
use lock_tower::{NotHeld, WhenUnavailable};
use tower::{Layer as _, ServiceExt as _};

use super::support::{Scene, by_path, handler, post, text};
use crate::support::InTime as _;

#[tokio::test(start_paused = true)]
async fn requests_are_rejected_until_it_answers_again() {
    let scene = Scene::new();
    let layer = scene.layer();
    let service = layer.layer(handler(|held| async move {
        held.ensure_held().unwrap();
        "done"
    }));
    scene.memory.faults().set_reachable(Reachable::Cut);
    let response = service
        .clone()
        .oneshot(post("/a"))
        .answered()
        .await
        .unwrap();
    assert_eq!(response.status(), 503);
    scene.memory.faults().set_reachable(Reachable::Connected);
    let response = service.oneshot(post("/a")).answered().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(layer.locker().live_keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn requests_run_unprotected_if_that_is_allowed_and_know_it() {
    let scene = Scene::new();
    let locker = scene
        .builder()
        .when_unavailable(WhenUnavailable::Bypass)
        .build()
        .unwrap();
    let service = by_path(locker.clone()).layer(handler(|held| async move {
        match held.is_unprotected() {
            true => {
                assert_eq!(held.ensure_held(), Err(NotHeld::Unprotected));
                assert_eq!(held.fencing_token(), None);
                assert_eq!(held.key().as_str(), "test:/a");
                "unprotected"
            }
            false => "protected",
        }
    }));
    let said = async || {
        let response = service
            .clone()
            .oneshot(post("/a"))
            .answered()
            .await
            .unwrap();
        text(response).await
    };
    scene.memory.faults().set_reachable(Reachable::Cut);
    assert_eq!(said().await, "unprotected");
    scene.memory.faults().set_reachable(Reachable::Connected);
    assert_eq!(said().await, "protected");
    assert_eq!(locker.live_keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_held_lock_is_no_reason_to_run_unprotected() {
    let scene = Scene::new();
    let _other = scene.try_elsewhere("/a").await.unwrap();
    let locker = scene
        .builder()
        .wait(Duration::from_millis(100))
        .when_unavailable(WhenUnavailable::Bypass)
        .build()
        .unwrap();
    let service = by_path(locker).layer(handler(|_| async { panic!("it ran") }));
    assert_eq!(
        service
            .oneshot(post("/a"))
            .answered()
            .await
            .unwrap()
            .status(),
        409
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_in_a_hurry_does_not_get_around_the_lock() {
    let scene = Scene::new();
    let _other = scene.try_elsewhere("/a").await.unwrap();
    let locker = scene
        .builder()
        .when_unavailable(WhenUnavailable::Bypass)
        .build()
        .unwrap();
    let service = by_path(locker).layer(handler(|_| async { panic!("it ran") }));
    for content_type in ["application/grpc", "text/plain"] {
        let late = Fault::LateReply(Duration::from_millis(50));
        scene.memory.faults().plan(Sent::Acquire, late);
        let mut request = post("/a");
        let headers = request.headers_mut();
        headers.insert("content-type", content_type.parse().unwrap());
        headers.insert("grpc-timeout", "1m".parse().unwrap());
        let response = service.clone().oneshot(request).answered().await.unwrap();
        assert!(response.status() == 409 || response.headers().contains_key("grpc-status"));
    }
}
