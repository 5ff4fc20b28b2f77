//! Requests that change nothing.

use http::Method;
use lock_tower::SafeMethods;
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::support::{Scene, request};
use crate::support::InTime as _;

async fn status(scene: &Scene, then: SafeMethods, method: Method) -> u16 {
    let inner = service_fn(|_: http::Request<String>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
    });
    let layer = scene.layer().with_safe_methods(then);
    let service = layer.expect("memory has shared locks").layer(inner);
    let response = service.oneshot(request(method, "/a")).answered().await;
    response
        .expect("the handler does not fail")
        .status()
        .as_u16()
}

#[tokio::test(start_paused = true)]
async fn they_pass_a_held_lock_unless_told_otherwise() {
    let scene = Scene::new();
    let _writer = scene.try_elsewhere("/a").await.unwrap();
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE] {
        assert_eq!(status(&scene, SafeMethods::Pass, method.clone()).await, 200);
        assert_eq!(
            status(&scene, SafeMethods::Shared, method.clone()).await,
            409
        );
        assert_eq!(status(&scene, SafeMethods::Exclusive, method).await, 409);
    }
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        assert_eq!(status(&scene, SafeMethods::Pass, method).await, 409);
    }
}

#[tokio::test(start_paused = true)]
async fn readers_share_the_lock() {
    use lock_core::DistributedLockExt as _;

    let scene = Scene::new();
    let reader = scene.memory.request(super::support::stored("/a")).shared();
    let _reader = reader.acquire().await.unwrap();
    assert_eq!(status(&scene, SafeMethods::Shared, Method::GET).await, 200);
    assert_eq!(status(&scene, SafeMethods::Shared, Method::POST).await, 409);
    assert_eq!(
        status(&scene, SafeMethods::Exclusive, Method::GET).await,
        409
    );
}
