//! The contract of tower, by mocks.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio_test::{assert_pending, assert_ready_ok};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer as _, Service as _, ServiceBuilder, ServiceExt as _, service_fn};
use tower_test::mock;

use super::support::{Scene, handler, post, settle};
use crate::support::InTime as _;

type Mock = mock::Mock<Request<String>, Response<String>>;

fn mocked() -> (Mock, mock::Handle<Request<String>, Response<String>>) {
    mock::pair()
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_while_the_inner_service_is_not() {
    let scene = Scene::new();
    let (inner, mut handle) = mocked();
    handle.allow(0);
    let mut service = mock::Spawn::new(scene.layer().layer(inner));
    assert_ready_ok!(service.poll_ready());
    assert_ready_ok!(service.poll_ready());
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_is_asked_when_the_lock_is_held() {
    let scene = Scene::new();
    let (inner, mut handle) = mocked();
    let other = scene.try_elsewhere("/a").await.unwrap();
    let mut service = mock::Spawn::new(scene.layer().layer(inner));

    let mut response = tokio_test::task::spawn(service.call(post("/a")));
    assert_pending!(response.poll());
    settle().await;
    assert_pending!(handle.poll_request(), "called without the lock");

    other.release().await.unwrap();
    let served = tokio::spawn(response);
    let (request, send) = handle
        .next_request()
        .in_time("a call of the inner service")
        .await
        .unwrap();
    assert_eq!(request.uri().path(), "/a");
    assert!(!scene.is_free("/a").await);
    send.send_response(Response::new("done".to_owned()));
    assert_eq!(
        served.answered().await.unwrap().unwrap().status(),
        StatusCode::OK
    );
}

#[tokio::test(start_paused = true)]
async fn an_inner_service_that_is_not_ready_is_waited_for_under_the_lock() {
    let scene = Scene::new();
    let (inner, mut handle) = mocked();
    handle.allow(0);
    let mut service = mock::Spawn::new(scene.layer().layer(inner));
    let mut response = tokio_test::task::spawn(service.call(post("/a")));
    assert_pending!(response.poll());
    assert!(!scene.is_free("/a").await);
    assert_pending!(handle.poll_request());

    handle.allow(1);
    assert!(response.is_woken());
    assert_pending!(response.poll());
    let (_, send) = handle
        .next_request()
        .in_time("a call of the inner service")
        .await
        .unwrap();
    send.send_response(Response::new(String::new()));
    assert_ready_ok!(response.poll());
}

#[tokio::test(start_paused = true)]
async fn the_error_of_the_inner_service_is_passed_on_after_the_release() {
    let scene = Scene::new();
    let (inner, mut handle) = mocked();
    let mut service = scene.layer().layer(inner);
    let failing = tokio::spawn(service.call(post("/a")));
    let (_, send) = handle
        .next_request()
        .in_time("a call of the inner service")
        .await
        .unwrap();
    send.send_error("out of paper");
    let error = failing.answered().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "out of paper");
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn an_inner_service_that_has_failed_for_good_frees_the_lock() {
    let scene = Scene::new();
    let (inner, mut handle) = mocked();
    handle.send_error("closed");
    let error = scene
        .layer()
        .layer(inner)
        .oneshot(post("/a"))
        .answered()
        .await;
    assert_eq!(error.unwrap_err().to_string(), "closed");
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_lock_occupies_nothing_in_the_inner_service() {
    let scene = Scene::new();
    let inner = ServiceBuilder::new()
        .layer(ConcurrencyLimitLayer::new(2))
        .service(handler(|_| async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            "done"
        }));
    let service = scene.layer().layer(inner);
    let hot: Vec<_> = (0..4)
        .map(|_| tokio::spawn(service.clone().oneshot(post("/hot"))))
        .collect();
    settle().await;

    let began = tokio::time::Instant::now();
    service.oneshot(post("/cold")).answered().await.unwrap();
    let after = began.elapsed();
    assert_eq!(
        after,
        Duration::from_millis(100),
        "waiters took the permits of the others"
    );
    for request in hot {
        request.answered().await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_is_called_again_and_again() {
    let scene = Scene::new();
    let inner = service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let layer = scene.layer();
    let mut service = layer.layer(inner);
    for _ in 0..3 {
        let response = service.ready().await.unwrap().call(post("/a")).await;
        assert_eq!(response.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(layer.locker().live_keys(), 0);
}
