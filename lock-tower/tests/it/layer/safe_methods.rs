//! Requests that change nothing.

use http::Method;
use polylock_core::DistributedLockExt as _;
use polylock_tower::SafeMethods::{self, Exclusive, Pass, Shared};
use tower::Layer as _;

use crate::support::{Scene, key_of, request, send};

async fn status(scene: &Scene, then: SafeMethods, method: Method) -> u16 {
    let layer = scene.layer().with_safe_methods(then);
    let service = layer.expect("memory has shared locks");
    // A request that passes has no lock for `handler`.
    let inner = tower::service_fn(|_: http::Request<String>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
    });
    let said = send(&service.layer(inner), request(method, "/a")).await;
    said.status
}

#[tokio::test(start_paused = true)]
async fn they_pass_a_held_lock_unless_told_otherwise() {
    let scene = Scene::new();
    let _writer = scene.try_elsewhere("/a").await.unwrap();
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE] {
        for (then, expected) in [(Pass, 200), (Shared, 409), (Exclusive, 409)] {
            let status = status(&scene, then, method.clone()).await;
            assert_eq!(status, expected, "{method} {then:?}");
        }
    }
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        assert_eq!(status(&scene, Pass, method).await, 409);
    }
}

#[tokio::test(start_paused = true)]
async fn readers_share_the_lock() {
    let scene = Scene::new();
    let reader = scene.memory.request(key_of("/a")).shared();
    let _reader = reader.acquire().await.unwrap();
    assert_eq!(status(&scene, Shared, Method::GET).await, 200);
    assert_eq!(status(&scene, Shared, Method::POST).await, 409);
    assert_eq!(status(&scene, Exclusive, Method::GET).await, 409);
}
