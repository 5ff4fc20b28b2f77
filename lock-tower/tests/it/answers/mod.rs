//! What clients read whose request does not get its lock.

mod grpc;
mod options;
mod scene;

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http::{Response, StatusCode};
use lock_core::ErrorKind;
use lock_tower::{HeldLock, KeyError, LockerBuilder, NotHeld, Problem, Reason};
use serde_json::{Value, json};

use self::scene::{
    SECRET, ask, layer, refused_by_backend, refused_by_extractor, refused_where_held, request,
};
use crate::support::{Said, Scene, Stage, spawn};

/// Expects all of the document, and nothing for caches to keep.
#[track_caller]
fn assert_problem(said: &Said, retry_after: Option<&str>, expected: &Value) {
    let reason = expected["reason"].as_str().expect("a text");
    let status = u16::try_from(expected["status"].as_u64().expect("a number"));
    assert_eq!(
        &said.assert_refused(status.expect("a status"), reason),
        expected
    );
    assert_eq!(said.header("cache-control"), Some("no-store"));
    assert_eq!(said.header("retry-after"), retry_after);
}

fn problem(reason: &str, status: u16, title: &str, detail: &str) -> Value {
    json!({
        "type": format!("urn:polylock:{reason}"),
        "title": title,
        "status": status,
        "detail": detail,
        "reason": reason,
    })
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_in_time_says_why_and_when_to_come_back() {
    let busy = refused_where_held(LockerBuilder::try_only, Problem::new()).await;
    let title = "the lock is held";
    let detail = "another request with the same key holds it; if its server has failed, it is free when the lease ends";
    assert_problem(&busy, Some("1"), &problem("lock-busy", 409, title, detail));

    let wait = |locker: LockerBuilder| {
        let locker = locker.wait(Duration::from_millis(50));
        locker.retry_after(Duration::from_millis(2100))
    };
    let timeout = refused_where_held(wait, Problem::new()).await;
    let title = "the lock was held for as long as the request may wait";
    let detail = "requests with the same key held it; if their server has failed, it is free when the lease ends";
    assert_problem(
        &timeout,
        Some("3"),
        &problem("lock-timeout", 409, title, detail),
    );

    let locker = Scene::new().builder().max_waiters_per_key(0);
    let (stage, layer) = (Stage::new(), layer(locker, Problem::new()));
    let app = stage.router(layer);
    let first = spawn(&app, request());
    stage.happened(1).await;
    let full = ask(&app, request()).await;
    let title = "too many requests wait for locks";
    let detail = "too many requests wait for the same lock";
    assert_problem(
        &full,
        Some("1"),
        &problem("lock-queue-full", 429, title, detail),
    );
    stage.let_go(1);
    assert_eq!(first.said().await.status, 200);

    let away = refused_by_backend(ErrorKind::Unavailable).await;
    let title = "the lock service is unavailable";
    let detail = "the request can be repeated later";
    assert_problem(
        &away,
        Some("1"),
        &problem("lock-unavailable", 503, title, detail),
    );
}

#[tokio::test]
async fn what_repeating_does_not_help_is_a_fault_of_the_service() {
    let extractor = KeyError::Misconfigured(format!("no {SECRET}"));
    for refused in [
        refused_by_backend(ErrorKind::Denied).await,
        refused_by_extractor(extractor).await,
        released_by_its_handler().await,
    ] {
        let title = "the lock is not set up correctly";
        let detail = "the request is not at fault, and repeating it does not help";
        assert_problem(
            &refused,
            None,
            &problem("lock-misconfigured", 500, title, detail),
        );
    }
}

/// What a handler answers that looks at its lock.
async fn released_by_its_handler() -> Said {
    async fn handler(held: HeldLock) -> Result<(), NotHeld> {
        held.release().await.expect("memory answers");
        held.ensure_held()
    }
    let layer = layer(Scene::new().builder(), Problem::new());
    let app = Router::new().route("/{account}", post(handler).layer(layer));
    ask(&app, request()).await
}

#[tokio::test]
async fn what_is_no_key_is_a_bad_request() {
    for error in [KeyError::Missing, KeyError::Invalid] {
        let said = refused_by_extractor(error("there is no tenant".to_owned())).await;
        let title = "the request does not name its lock";
        assert_problem(
            &said,
            None,
            &problem("lock-key", 400, title, "there is no tenant"),
        );
    }
}

#[tokio::test]
async fn an_answer_of_the_extractor_is_the_answer() {
    let mut response = Response::new(Bytes::from_static(b"who are you"));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    let said = refused_by_extractor(KeyError::Response(Box::new(response))).await;
    assert_eq!((said.status, &said.body[..]), (401, "who are you"));
    assert_eq!(said.header("content-type"), None);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_is_unavailable_without_a_time_to_come_back() {
    let (scene, stage) = (Scene::new(), Stage::new());
    let locker = scene.builder().retry_after(Duration::from_secs(7));
    let first = spawn(&stage.router(layer(locker, Problem::new())), request());
    stage.happened(1).await;
    scene.break_lock(&format!("account-{SECRET}")).await;
    let title = "the lock was lost while the request was handled";
    let detail = "it is unknown what the request has done; look before you repeat it";
    assert_problem(
        &first.said().await,
        None,
        &problem("lock-lost", 503, title, detail),
    );
}

#[test]
fn every_reason_has_a_name_of_its_own() {
    let reasons = [
        Reason::Busy,
        Reason::InvalidKey,
        Reason::Lost,
        Reason::Misconfigured,
        Reason::QueueFull,
        Reason::TimedOut,
        Reason::Unavailable,
    ];
    let mut names: Vec<_> = reasons.map(Reason::as_str).into();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), reasons.len());
}
