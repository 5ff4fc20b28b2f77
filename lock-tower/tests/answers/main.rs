//! What clients read whose request does not get its lock.

#![cfg(feature = "axum")]

mod broken;
mod grpc;
mod options;
mod scene;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http::{Response, StatusCode};
use lock_core::ErrorKind;
use lock_core::admin::LockAdmin as _;
use lock_core::engine::Engine;
use lock_core::memory::Memory;
use lock_tower::{HeldLock, KeyError, LockerBuilder, NotHeld, Problem, Reason};
use serde_json::{Value, json};

use crate::scene::{
    SECRET, Scene, ask, key, of, refused_by_backend, refused_by_extractor, refused_where_held,
    request,
};

#[tokio::test]
async fn busy_is_a_conflict() {
    let said = refused_where_held(|locker| locker.try_only(), Problem::new()).await;
    let expected = json!({
        "type": "urn:polylock:lock-busy",
        "title": "the lock is held",
        "status": 409,
        "detail": "another request with the same key is being handled",
        "reason": "lock-busy",
    });
    said.is_problem(&expected, Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_in_vain_is_a_conflict() {
    let wait = |locker: LockerBuilder| {
        let locker = locker.wait(Duration::from_millis(50));
        locker.retry_after(Duration::from_millis(2100))
    };
    let said = refused_where_held(wait, Problem::new()).await;
    let expected = json!({
        "type": "urn:polylock:lock-timeout",
        "title": "the lock was held for as long as the request may wait",
        "status": 409,
        "detail": "other requests with the same key were handled meanwhile",
        "reason": "lock-timeout",
    });
    said.is_problem(&expected, Some("3"));
}

#[tokio::test]
async fn a_full_queue_is_too_many_requests() {
    let said = refused_where_held(|locker| locker.max_waiters_per_key(0), Problem::new()).await;
    let expected = json!({
        "type": "urn:polylock:lock-queue-full",
        "title": "too many requests wait for locks",
        "status": 429,
        "detail": "too many requests wait for the same lock",
        "reason": "lock-queue-full",
    });
    said.is_problem(&expected, Some("1"));
}

#[tokio::test]
async fn a_lock_service_that_is_away_is_unavailable() {
    let said = refused_by_backend(ErrorKind::Unavailable).await;
    let expected = json!({
        "type": "urn:polylock:lock-unavailable",
        "title": "the lock service is unavailable",
        "status": 503,
        "detail": "the request can be repeated later",
        "reason": "lock-unavailable",
    });
    said.is_problem(&expected, Some("1"));
}

#[tokio::test]
async fn a_lock_service_that_refuses_is_a_fault_of_the_service() {
    let said = refused_by_backend(ErrorKind::Denied).await;
    said.is_problem(&misconfigured(), None);
}

#[tokio::test]
async fn an_extractor_that_cannot_work_is_a_fault_of_the_service() {
    let said = refused_by_extractor(KeyError::Misconfigured(format!("no {SECRET}"))).await;
    said.is_problem(&misconfigured(), None);
}

fn misconfigured() -> Value {
    json!({
        "type": "urn:polylock:lock-misconfigured",
        "title": "the lock is not set up correctly",
        "status": 500,
        "detail": "the request is not at fault, and repeating it does not help",
        "reason": "lock-misconfigured",
    })
}

#[tokio::test]
async fn what_is_no_key_is_a_bad_request() {
    for error in [KeyError::Missing, KeyError::Invalid] {
        let said = refused_by_extractor(error("there is no tenant".to_owned())).await;
        let expected = json!({
            "type": "urn:polylock:lock-key",
            "title": "the request does not name its lock",
            "status": 400,
            "detail": "there is no tenant",
            "reason": "lock-key",
        });
        said.is_problem(&expected, None);
    }
}

#[tokio::test]
async fn an_answer_of_the_extractor_is_the_answer() {
    let mut response = Response::new(Bytes::from_static(b"who are you"));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    let said = refused_by_extractor(KeyError::Response(Box::new(response))).await;
    assert_eq!(said.status, StatusCode::UNAUTHORIZED);
    assert_eq!(said.body, "who are you");
    assert_eq!(said.header("content-type"), None);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_is_unavailable_without_a_time_to_come_back() {
    let engine = Engine::on_current_runtime("memory");
    let locks = Arc::new(Memory::with_engine(engine));
    let locker = of(&locks).retry_after(Duration::from_secs(7));
    let scene = Scene::new(locker, Problem::new());
    let first = scene.spawn("account");
    scene.entered.notified().await;
    let (key, why) = (key(), "for the test");
    locks.break_lock(&key, why).await.unwrap().expect("held");
    let expected = json!({
        "type": "urn:polylock:lock-lost",
        "title": "the lock was lost while the request was handled",
        "status": 503,
        "detail": "it is unknown what the request has done; look before you repeat it",
        "reason": "lock-lost",
    });
    first.await.unwrap().is_problem(&expected, None);
}

#[tokio::test]
async fn a_handler_that_looks_at_its_lock_answers_with_the_same_problem() {
    async fn handler(held: HeldLock) -> Result<(), NotHeld> {
        held.release().await.expect("memory answers");
        held.ensure_held()
    }
    let layer = Scene::layer(of(&Arc::new(Memory::new())), Problem::new());
    let app = Router::new().route("/{account}", post(handler).layer(layer));
    let said = ask(app, request("account")).await;
    said.is_problem(&misconfigured(), None);
}

#[tokio::test]
async fn every_reason_has_a_name_of_its_own() {
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
