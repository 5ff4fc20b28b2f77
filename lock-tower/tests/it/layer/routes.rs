//! Every place in an application of axum where a layer goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRef, Path};
use axum::http::request::Parts;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::BodyExt as _;
use lock_tower::{HeldLock, KeyLockLayer, Keys, Locker, NotHeld, Rejection};
use tower::{ServiceBuilder, ServiceExt as _};

use super::support::{Scene, settle};
use crate::support::InTime as _;

fn by_id(scene: &Scene) -> KeyLockLayer {
    KeyLockLayer::from_extractor::<Path<String>, _>(scene.locker(), |Path(id)| Keys::one(id))
}

async fn key(held: HeldLock) -> Result<String, NotHeld> {
    held.ensure_held()?;
    Ok(held.key().to_string())
}

async fn send(app: &Router, path: &str) -> (StatusCode, String) {
    let request = Request::post(path).body(Body::empty());
    let answer = app
        .clone()
        .oneshot(request.expect("a request"))
        .answered()
        .await;
    let response = answer.expect("a router does not fail");
    let status = response.status();
    let body = response.into_body().collect().await.expect("it is there");
    (
        status,
        String::from_utf8_lossy(&body.to_bytes()).into_owned(),
    )
}

#[tokio::test(start_paused = true)]
async fn it_stands_on_routers_routes_and_methods() {
    let scene = Scene::new();
    let layer = by_id(&scene);
    let route = || Router::new().route("/a/{id}", post(key));
    let apps = [
        route().layer(layer.clone()),
        route().route_layer(layer.clone()),
        route().layer(ServiceBuilder::new().layer(layer.clone())),
        Router::new().route("/a/{id}", post(key).layer(layer.clone())),
        Router::new().route("/a/{id}", post(key).route_layer(layer.clone())),
        Router::new().nest("/a", Router::new().route("/{id}", post(key)).layer(layer)),
    ];
    for app in apps {
        let answer = send(&app, "/a/42").await;
        assert_eq!(answer, (StatusCode::OK, "test:42".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_expects_a_lock_and_has_none_does_not_run() {
    let app = Router::new().route("/a/{id}", post(key));
    let (status, said) = send(&app, "/a/42").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(said.contains("KeyLockLayer"), "{said}");

    let maybe = async |held: Option<HeldLock>| held.is_some().to_string();
    let app = Router::new().route("/a", post(maybe));
    assert_eq!(send(&app, "/a").await.1, "false");
}

#[tokio::test(start_paused = true)]
async fn a_handler_does_not_take_the_lock_of_an_outer_layer_for_its_own() {
    let scene = Scene::new();
    let passes = KeyLockLayer::new(scene.locker(), |_: &Parts| Ok(Keys::Skip));
    let route = || Router::new().route("/a/{id}", post(key));
    let app = route().layer(passes).layer(by_id(&scene));
    let (status, _) = send(&app, "/a/42").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);

    let other = Locker::builder(Arc::clone(&scene.locks), "inner").build();
    let inner = KeyLockLayer::new(other.unwrap(), |_: &Parts| Ok(Keys::one("k")));
    let app = route().layer(inner).layer(by_id(&scene));
    assert_eq!(send(&app, "/a/42").await.1, "inner:k");
}

#[tokio::test(start_paused = true)]
async fn clones_of_a_router_share_one_queue() {
    let scene = Scene::new();
    let inside = Arc::new(AtomicUsize::new(0));
    let handler = {
        let inside = Arc::clone(&inside);
        move || {
            let inside = Arc::clone(&inside);
            async move {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
            }
        }
    };
    let locker = scene.builder().max_waiters_per_key(3).build().unwrap();
    let keys = |Path(id): Path<String>| Keys::one(id);
    let layer = KeyLockLayer::from_extractor::<Path<String>, _>(locker, keys);
    let app = Router::new()
        .route("/a/{id}", post(handler))
        .layer(layer.clone());
    let clones = [app.clone(), app.clone(), app.clone(), app.clone()];
    let requests: Vec<_> = clones
        .into_iter()
        .map(|app| tokio::spawn(async move { send(&app, "/a/1").await.0 }))
        .collect();
    settle().await;
    assert_eq!(layer.locker().waiters(), 3);
    let beyond = send(&app.clone(), "/a/1").await.0;
    assert_eq!(beyond, StatusCode::TOO_MANY_REQUESTS, "one bound for all");
    for request in requests {
        assert_eq!(request.answered().await.unwrap(), StatusCode::OK);
    }
}

#[derive(Clone)]
struct App {
    locker: Locker,
}

impl FromRef<App> for Locker {
    fn from_ref(app: &App) -> Self {
        app.locker.clone()
    }
}

/// The key is in the body of the request.
async fn by_body(locker: Locker, account: String) -> Result<String, Rejection> {
    let held = locker.lock(account).await?;
    let key = held.key().to_string();
    Ok(key)
}

#[tokio::test(start_paused = true)]
async fn a_handler_locks_what_the_body_names() {
    let scene = Scene::new();
    let locker = scene.locker();
    let app = Router::new()
        .route("/transfer", post(by_body))
        .with_state(App { locker });
    let sent = |body: &'static str| {
        let request = Request::post("/transfer").body(Body::from(body)).unwrap();
        app.clone().oneshot(request)
    };
    assert_eq!(sent("42").await.unwrap().status(), StatusCode::OK);
    let _other = scene.try_elsewhere("42").await.unwrap();
    assert_eq!(sent("42").await.unwrap().status(), StatusCode::CONFLICT);
    assert_eq!(
        sent("a\nb").await.unwrap().status(),
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn what_a_handler_returns_is_an_answer() {
    let response: Response = NotHeld::Released.into_response();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let response: Response = NotHeld::Unprotected.into_response();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(start_paused = true)]
async fn a_layer_has_a_name_that_a_state_can_carry() {
    #[derive(Clone)]
    struct State {
        layer: KeyLockLayer,
    }
    let scene = Scene::new();
    let state = State {
        layer: by_id(&scene),
    };
    let app = Router::new()
        .route("/a/{id}", get(key).post(key))
        .route_layer(state.layer.clone());
    assert_eq!(send(&app, "/a/7").await.1, "test:7");
    assert_eq!(state.layer.locker().live_keys(), 0);
}
