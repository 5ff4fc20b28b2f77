//! What clients read whose request does not get its lock.

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

use self::scene::{
    SECRET, Scene, ask, key, of, refused_by_backend, refused_by_extractor, refused_where_held,
    request,
};
use crate::support::InTime as _;

/// What a problem document says besides its status.
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
    let busy = refused_where_held(|locker| locker.try_only(), Problem::new()).await;
    let title = "the lock is held";
    let detail = "another request with the same key is being handled";
    busy.is_problem(&problem("lock-busy", 409, title, detail), Some("1"));

    let wait = |locker: LockerBuilder| {
        let locker = locker.wait(Duration::from_millis(50));
        locker.retry_after(Duration::from_millis(2100))
    };
    let title = "the lock was held for as long as the request may wait";
    let detail = "other requests with the same key were handled meanwhile";
    let timeout = refused_where_held(wait, Problem::new()).await;
    timeout.is_problem(&problem("lock-timeout", 409, title, detail), Some("3"));

    let full = refused_where_held(|locker| locker.max_waiters_per_key(0), Problem::new()).await;
    let title = "too many requests wait for locks";
    let detail = "too many requests wait for the same lock";
    full.is_problem(&problem("lock-queue-full", 429, title, detail), Some("1"));

    let away = refused_by_backend(ErrorKind::Unavailable).await;
    let title = "the lock service is unavailable";
    let detail = "the request can be repeated later";
    away.is_problem(&problem("lock-unavailable", 503, title, detail), Some("1"));
}

#[tokio::test]
async fn what_repeating_does_not_help_is_a_fault_of_the_service() {
    let refused = refused_by_backend(ErrorKind::Denied).await;
    refused.is_problem(&misconfigured(), None);
    let extractor = KeyError::Misconfigured(format!("no {SECRET}"));
    let refused = refused_by_extractor(extractor).await;
    refused.is_problem(&misconfigured(), None);
}

fn misconfigured() -> Value {
    let title = "the lock is not set up correctly";
    let detail = "the request is not at fault, and repeating it does not help";
    problem("lock-misconfigured", 500, title, detail)
}

#[tokio::test]
async fn what_is_no_key_is_a_bad_request() {
    for error in [KeyError::Missing, KeyError::Invalid] {
        let said = refused_by_extractor(error("there is no tenant".to_owned())).await;
        let title = "the request does not name its lock";
        let expected = problem("lock-key", 400, title, "there is no tenant");
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
    scene
        .entered
        .notified()
        .in_time("the start of the handler")
        .await;
    let (key, why) = (key(), "for the test");
    locks.break_lock(&key, why).await.unwrap().expect("held");
    let title = "the lock was lost while the request was handled";
    let detail = "it is unknown what the request has done; look before you repeat it";
    let expected = problem("lock-lost", 503, title, detail);
    first.answered().await.unwrap().is_problem(&expected, None);
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
