//! Answers that are set up otherwise.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use lock_tower::{Asked, Format, LockerBuilder, Problem, Rejection};
use serde_json::json;

use super::scene::refused_where_held;

#[tokio::test]
async fn the_status_of_a_held_lock_and_the_base_of_the_types_can_be_set() {
    let locked = Problem::new()
        .with_busy_status(StatusCode::LOCKED)
        .with_type_base("https://errors.example/");
    let expected = json!({
        "type": "https://errors.example/lock-busy",
        "title": "the lock is held",
        "status": 423,
        "detail": "another request with the same key is being handled",
        "reason": "lock-busy",
    });
    let said = refused_where_held(|locker| locker.try_only(), locked.clone()).await;
    said.is_problem(&expected, Some("1"));

    let no_wait = |locker: LockerBuilder| locker.wait(Duration::from_millis(1));
    let said = refused_where_held(no_wait, locked.clone()).await;
    assert_eq!(said.status, StatusCode::LOCKED);

    let said = refused_where_held(|locker| locker.max_waiters_per_key(0), locked).await;
    assert_eq!(said.status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn the_body_can_be_a_line_of_text_or_nothing() {
    let text = Problem::new().with_format(Format::Text);
    let said = refused_where_held(|locker| locker.try_only(), text).await;
    assert_eq!(said.status, StatusCode::CONFLICT);
    assert_eq!(
        said.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(said.header("retry-after"), Some("1"));
    assert_eq!(
        said.body,
        "the lock is held: another request with the same key is being handled\n"
    );

    let empty = Problem::new().with_format(Format::Empty);
    let said = refused_where_held(|locker| locker.try_only(), empty).await;
    assert_eq!(said.status, StatusCode::CONFLICT);
    assert_eq!(said.header("content-type"), None);
    assert_eq!(said.header("cache-control"), Some("no-store"));
    assert_eq!(said.header("retry-after"), Some("1"));
    assert_eq!(said.body, "");
}

#[tokio::test]
async fn a_closure_is_an_answer() {
    let answer = |asked: &Asked, rejection: &Rejection| {
        let text = format!("{} {}", asked.method(), rejection.reason().as_str());
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    };
    let said = refused_where_held(|locker| locker.try_only(), answer).await;
    assert_eq!(said.status, StatusCode::IM_A_TEAPOT);
    assert_eq!(said.body, "POST lock-busy");
    assert_eq!(said.header("cache-control"), None);
}
