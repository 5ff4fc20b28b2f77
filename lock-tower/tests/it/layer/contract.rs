//! The contract of tower, by mocks.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tokio_test::{assert_pending, assert_ready_ok};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer as _, Service as _, ServiceBuilder, ServiceExt as _, service_fn};
use tower_test::mock::{self, Handle, SendResponse};

use crate::support::{InTime as _, Scene, handler, post, send, settle, spawn};

type Asked = Request<String>;
type Answer = Response<String>;
type Mock = mock::Mock<Asked, Answer>;

/// The next call of the inner service.
async fn called(handle: &mut Handle<Asked, Answer>) -> (Asked, SendResponse<Answer>) {
    let called = handle.next_request().in_time("a call of the inner service");
    called.await.expect("the service is there")
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_while_the_inner_service_is_not() {
    let (inner, mut handle): (Mock, _) = mock::pair();
    handle.allow(0);
    let mut service = mock::Spawn::new(Scene::new().layer().layer(inner));
    assert_ready_ok!(service.poll_ready());
    assert_ready_ok!(service.poll_ready());
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_is_asked_when_the_lock_is_held() {
    let scene = Scene::new();
    let (inner, mut handle): (Mock, _) = mock::pair();
    let other = scene.try_elsewhere("/a").await.unwrap();
    let mut service = mock::Spawn::new(scene.layer().layer(inner));

    let mut response = tokio_test::task::spawn(service.call(post("/a")));
    assert_pending!(response.poll());
    settle().await;
    assert_pending!(handle.poll_request(), "called without the lock");

    other.release().await.unwrap();
    let served = tokio::spawn(response);
    let (request, answer) = called(&mut handle).await;
    assert_eq!(request.uri().path(), "/a");
    assert!(!scene.is_free("/a").await);
    answer.send_response(Response::new("done".to_owned()));
    assert_eq!(served.answered().await.unwrap().unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn an_inner_service_that_is_not_ready_is_waited_for_under_the_lock() {
    let scene = Scene::new();
    let (inner, mut handle): (Mock, _) = mock::pair();
    handle.allow(0);
    let mut service = mock::Spawn::new(scene.layer().layer(inner));
    let mut response = tokio_test::task::spawn(service.call(post("/a")));
    assert_pending!(response.poll());
    assert!(!scene.is_free("/a").await);
    assert_pending!(handle.poll_request());

    handle.allow(1);
    assert!(response.is_woken());
    assert_pending!(response.poll());
    let (_, answer) = called(&mut handle).await;
    answer.send_response(Response::new(String::new()));
    assert_ready_ok!(response.poll());
}

#[tokio::test(start_paused = true)]
async fn the_error_of_the_inner_service_is_passed_on_after_the_release() {
    let scene = Scene::new();
    let (inner, mut handle): (Mock, _) = mock::pair();
    let failing = tokio::spawn(scene.layer().layer(inner).call(post("/a")));
    called(&mut handle).await.1.send_error("out of paper");
    let error = failing.answered().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "out of paper");
    assert!(scene.is_free("/a").await);

    let (inner, mut handle): (Mock, _) = mock::pair();
    handle.send_error("closed for good");
    let service = scene.layer().layer(inner);
    let error = service.oneshot(post("/a")).answered().await;
    assert_eq!(error.unwrap_err().to_string(), "closed for good");
    assert!(scene.is_free("/a").await);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_lock_occupies_nothing_in_the_inner_service() {
    const WORK: Duration = Duration::from_millis(100);
    let limit = ServiceBuilder::new().layer(ConcurrencyLimitLayer::new(2));
    let inner = limit.service(handler(async |_| {
        sleep(WORK).await;
        "done"
    }));
    let service = Scene::new().layer().layer(inner);
    let hot = [(); 4].map(|()| spawn(&service, post("/hot")));
    settle().await;

    let began = Instant::now();
    send(&service, post("/cold")).await;
    let after = began.elapsed();
    assert_eq!(after, WORK, "waiters took the permits of the others");
    for request in hot {
        request.said().await;
    }
}

/// Each copy is allocated and moved with every request.
#[tokio::test]
async fn the_future_of_a_request_has_room_for_one_future_of_the_handler() {
    const ROOM: usize = 8 << 10;
    let handler = service_fn(async |_: Asked| {
        let work = [0_u8; ROOM];
        yield_now().await;
        Ok::<_, Infallible>(Response::new(work.len().to_string()))
    });
    let response = Scene::new().layer().layer(handler).call(post("/a"));
    let size = size_of_val(&*response);
    assert!((ROOM..2 * ROOM).contains(&size), "{size}");
    assert_eq!(response.await.unwrap().status(), 200);
}
