//! What is left of keys that come once, and of requests that are refused.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use http::header::RETRY_AFTER;
use http::{Request, StatusCode};
use lock_tower::Locker;
use tokio::sync::mpsc;
use tower::ServiceExt as _;

use super::app::{by_path, connect, locker};

use super::support::{is_alone, resident};
use crate::support::{InTime as _, Stage};

/// `POLYLOCK_LOAD_KEYS` asks for another number.
const KEYS: usize = 100_000;
const CROWD: usize = 10_000;
/// Of a crowd, one has the key and 64 wait.
const SERVED: usize = 65;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn distinct_keys_leave_no_memory_behind() {
    if !is_alone("load::memory::distinct_keys_leave_no_memory_behind") {
        return;
    }
    let keys = std::env::var("POLYLOCK_LOAD_KEYS");
    let keys = keys.map_or(KEYS, |text| text.parse().expect("a number"));
    let locker = patient().await;
    let router = Router::new().route("/{key}", post("done").layer(by_path(locker.clone())));
    visit(&router, 0..keys / 2).await;
    let before = resident();
    visit(&router, keys / 2..keys).await;
    assert_eq!((locker.live_keys(), locker.waiters()), (0, 0));
    assert_no_growth(before, &format!("{} keys", keys / 2));
}

/// Refused at once means: before any of those that are inside or wait has been served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_exceeds_the_queue_is_refused_at_once_and_leaves_no_memory_behind() {
    if !is_alone(
        "load::memory::what_exceeds_the_queue_is_refused_at_once_and_leaves_no_memory_behind",
    ) {
        return;
    }
    let (locker, stage) = (patient().await, Stage::new());
    let router = stage.router(by_path(locker.clone()));
    // The allocator keeps what the first ones needed at most.
    for _ in 0..3 {
        crowd(&stage, &router).await;
    }
    let before = resident();
    for _ in 0..4 {
        crowd(&stage, &router).await;
    }
    assert_eq!((locker.live_keys(), locker.waiters()), (0, 0));
    assert_no_growth(before, "four crowds");
}

fn assert_no_growth(before: u64, what: &str) {
    let more = resident().saturating_sub(before) / 1024;
    let most = 4 * 1024;
    assert!(
        more < most,
        "{what} left {more} KiB behind, and {most} KiB are allowed"
    );
}

async fn patient() -> Locker {
    let wait = Duration::from_secs(90);
    locker(connect("memory:").await, |builder| builder.wait(wait))
}

async fn visit(router: &Router, keys: std::ops::Range<usize>) {
    for key in keys {
        let served = post_to(router.clone(), format!("/key-{key}")).await;
        assert_eq!(served.status(), StatusCode::OK);
    }
}

async fn post_to(router: Router, path: String) -> Response {
    let request = Request::post(path).body(Body::empty());
    let response = router.oneshot(request.expect("a request")).answered().await;
    response.expect("it is infallible")
}

/// Sends all at once, and lets the first in when the last is refused.
async fn crowd(stage: &Stage, router: &Router) {
    let (answers, mut answered) = mpsc::unbounded_channel();
    for _ in 0..CROWD {
        let (router, answers) = (router.clone(), answers.clone());
        tokio::spawn(async move { answers.send(post_to(router, "/hot".to_owned()).await) });
    }
    let mut next = async |what| {
        answered
            .recv()
            .in_time(what)
            .await
            .expect("more are to come")
    };
    for _ in SERVED..CROWD {
        let refused = next("a refusal while nobody has been served").await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        let retry_after = refused.headers().get(RETRY_AFTER);
        assert_eq!(retry_after.map(|value| value.as_bytes()), Some(&b"1"[..]));
    }
    stage.let_go(SERVED);
    for _ in 0..SERVED {
        let served = next("the answer to a request that waited").await;
        assert_eq!(served.status(), StatusCode::OK);
    }
}
