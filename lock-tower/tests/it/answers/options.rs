//! Answers that are set up otherwise.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use lock_tower::{Asked, Format, LockerBuilder, Problem, Rejection};
use serde_json::json;

use super::assert_problem;
use super::scene::{ask, layer, refused_where_held, request};
use crate::support::{Scene, Stage, spawn};

#[tokio::test(start_paused = true)]
async fn the_status_of_a_held_lock_and_the_base_of_the_types_can_be_set() {
    let locked = Problem::new()
        .with_busy_status(StatusCode::LOCKED)
        .with_type_base("https://errors.example/");
    let expected = json!({
        "type": "https://errors.example/lock-busy",
        "title": "the lock is held",
        "status": 423,
        "detail": "another request with the same key holds it; if its server has failed, it is free when the lease ends",
        "reason": "lock-busy",
    });
    let said = refused_where_held(LockerBuilder::try_only, locked.clone()).await;
    assert_problem(&said, Some("1"), &expected);
    let short_wait = |locker: LockerBuilder| locker.wait(Duration::from_millis(1));
    let said = refused_where_held(short_wait, locked.clone()).await;
    assert_eq!(said.status, 423);

    let stage = Stage::new();
    let locker = Scene::new().builder().max_waiters_per_key(0);
    let app = stage.router(layer(locker, locked));
    let _first = spawn(&app, request());
    stage.happened(1).await;
    assert_eq!(ask(&app, request()).await.status, 429);
}

#[tokio::test]
async fn the_body_can_be_a_line_of_text_or_nothing() {
    let line = "the lock is held: another request with the same key holds it; if its server has failed, it is free when the lease ends\n";
    for (format, content_type, body) in [
        (Format::Text, Some("text/plain; charset=utf-8"), line),
        (Format::Empty, None, ""),
    ] {
        let answer = Problem::new().with_format(format);
        let said = refused_where_held(LockerBuilder::try_only, answer).await;
        assert_eq!((said.status, &said.body[..]), (409, body));
        assert_eq!(said.header("content-type"), content_type);
        assert_eq!(said.header("cache-control"), Some("no-store"));
        assert_eq!(said.header("retry-after"), Some("1"));
    }
}

#[tokio::test]
async fn a_closure_is_an_answer() {
    let answer = |asked: &Asked, rejection: &Rejection| {
        let text = format!("{} {}", asked.method(), rejection.reason().as_str());
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    };
    let said = refused_where_held(LockerBuilder::try_only, answer).await;
    assert_eq!((said.status, &said.body[..]), (418, "POST lock-busy"));
    assert_eq!(said.header("cache-control"), None);
}
