//! Many more requests for one key than may wait for it.

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Request, StatusCode};
use tokio::sync::mpsc;
use tower::ServiceExt as _;

use super::app::{by_path, connect, locker};
use super::client::load;
use super::server::Server;
use super::stage::Stage;
use super::support::{is_alone, percentile, resident, until};

/// One has the key, 64 wait.
const SERVED: usize = 65;
const CROWD: usize = 10_000;
const AT_ONCE: Duration = Duration::from_millis(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_exceeds_the_queue_is_refused_at_once() {
    let (stage, router) = stage().await;
    let refused = crowd(&stage, &router).await;
    let slow = percentile(refused, 99);
    println!("p99 of {} refusals: {slow:?}", CROWD - SERVED);
    assert!(slow < AT_ONCE, "{slow:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowds_leave_no_memory_behind() {
    if !is_alone("crowds::crowds_leave_no_memory_behind") {
        return;
    }
    let (stage, router) = stage().await;
    crowd(&stage, &router).await;
    let before = resident();
    for _ in 0..4 {
        crowd(&stage, &router).await;
    }
    let more = resident().saturating_sub(before) / 1024;
    println!("{more} KiB more after four more crowds");
    assert!(more < 4 * 1024, "{more} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_beyond_the_queue_are_told_at_once() {
    let locker = locker(connect("memory:").await, |builder| {
        builder.wait(Duration::from_secs(60))
    });
    let stage = Stage::new();
    let server = Server::start(stage.router(by_path(locker.clone()))).await;
    let address = server.address;
    let first =
        tokio::spawn(async move { load(&[address], SERVED, SERVED, |_| "/hot".to_owned()).await });
    until("the queue is full", || locker.waiters() == SERVED - 1).await;

    let refused = load(&[address], 2, CROWD - SERVED, |_| "/hot".to_owned()).await;
    for reply in &refused {
        assert_refused(reply.status, &reply.headers);
    }
    let times = || refused.iter().map(|reply| reply.took);
    let (median, slow) = (percentile(times(), 50), percentile(times(), 99));
    println!(
        "{} refusals over HTTP: median {median:?}, p99 {slow:?}",
        refused.len()
    );
    // Client and server share the processors, which the p99 tells more of than of the layer.
    assert!(median < AT_ONCE, "{median:?}");

    stage.let_go(SERVED);
    let served = first.await.expect("no panic");
    assert!(served.iter().all(|reply| reply.status == StatusCode::OK));
}

async fn stage() -> (Stage, Router) {
    let locker = locker(connect("memory:").await, |builder| {
        builder.wait(Duration::from_secs(60))
    });
    let stage = Stage::new();
    let router = stage.router(by_path(locker));
    (stage, router)
}

/// Sends all at once; how long each of those took that were refused.
async fn crowd(stage: &Stage, router: &Router) -> Vec<Duration> {
    let (answers, mut answered) = mpsc::unbounded_channel();
    for _ in 0..CROWD {
        let (router, answers) = (router.clone(), answers.clone());
        tokio::spawn(async move {
            let request = Request::post("/hot").body(Body::empty());
            let began = Instant::now();
            let response = router.oneshot(request.expect("a request")).await;
            let took = began.elapsed();
            answers.send((response.expect("it is infallible"), took))
        });
    }
    let mut refused = Vec::new();
    while refused.len() < CROWD - SERVED {
        let (response, took) = answered.recv().await.expect("more are to come");
        assert_refused(response.status(), response.headers());
        refused.push(took);
    }
    stage.let_go(SERVED);
    for _ in 0..SERVED {
        let (response, _) = answered.recv().await.expect("more are to come");
        assert_eq!(response.status(), StatusCode::OK);
    }
    refused
}

fn assert_refused(status: StatusCode, headers: &HeaderMap) {
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    let retry_after = headers.get(RETRY_AFTER);
    assert!(retry_after.is_some_and(|value| value == "1"), "{headers:?}");
}
