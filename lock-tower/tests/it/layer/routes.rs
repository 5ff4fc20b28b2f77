//! Every place in an application of axum where a layer goes, and keys of its path.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRef, Path, RawQuery};
use axum::http::Request;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use polylock_tower::{HeldLock, KeyLockLayer, Keys, Locker, NotHeld, Rejection};
use tower::{Layer as _, ServiceBuilder};

use crate::support::{Said, Scene, send};

fn by_id(locker: Locker) -> KeyLockLayer {
    KeyLockLayer::from_extractor::<Path<String>, _>(locker, |Path(id)| Keys::one(id))
}

async fn key(held: HeldLock) -> Result<String, NotHeld> {
    held.ensure_held()?;
    Ok(held.key().to_string())
}

fn request(path: &str, body: &'static str) -> Request<Body> {
    let request = Request::post(path).body(Body::from(body));
    request.expect("a request")
}

async fn posted(app: &Router, path: &str) -> (u16, String) {
    let Said { status, body, .. } = send(app, request(path, "")).await;
    (status, body)
}

#[tokio::test(start_paused = true)]
async fn it_stands_on_routers_routes_and_methods() {
    let layer = by_id(Scene::new().locker());
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
        assert_eq!(posted(&app, "/a/42").await, (200, "test:42".to_owned()));
    }
    type Both = (Path<(String, String)>, RawQuery);
    let keys = |(Path((tenant, id)), RawQuery(query)): Both| {
        Keys::joined([tenant, id, query.unwrap_or_default()])
    };
    let layer = KeyLockLayer::from_extractor::<Both, _>(Scene::new().locker(), keys);
    let inner = || Router::new().route("/a/{id}", post(key));
    let nest = |inner: Router| Router::new().nest("/{tenant}", inner);
    for app in [
        nest(inner().route_layer(layer.clone())),
        nest(inner().layer(layer.clone())),
        nest(inner()).route_layer(layer.clone()),
        nest(inner()).layer(layer),
    ] {
        let (status, key) = posted(&app, "/ac%2Fme/a/42?a=b").await;
        assert_eq!((status, &*key), (200, "test:ac%2Fme/42/a=b"));
    }
}

#[tokio::test]
async fn path_is_decoded_and_carried_exactly() {
    let layer = by_id(Scene::new().locker());
    let app = Router::new().route("/a/{id}", post(key).layer(layer.clone()));
    for (path, name) in [
        ("42", "42"),
        ("%2e%2e%2f", "../"),
        ("..", ".."),
        ("a%2Fb", "a/b"),
        ("a%252Fb", "a%2Fb"),
        ("a+b", "a+b"),
        ("%F0%9F%A6%80", "\u{1f980}"),
        ("%E2%80%AEevil", "\u{202e}evil"),
    ] {
        let expected = (200, format!("test:{name}"));
        assert_eq!(posted(&app, &format!("/a/{path}")).await, expected);
    }
    let files = Router::new().route("/files/{*path}", post(key).layer(layer));
    let (_, key) = posted(&files, "/files/../../etc//passwd").await;
    assert_eq!(key, "test:../../etc//passwd");
}

#[tokio::test]
async fn path_that_cannot_be_a_key_is_refused() {
    let layer = by_id(Scene::new().locker());
    let app = Router::new().route("/a/{id}", post(key).layer(layer));
    let odd = "%0d%0a a%00b %7f %c2%85 %09 %ff a%c0%af";
    for path in odd.split(' ').chain([&*"x".repeat(8193)]) {
        let status = posted(&app, &format!("/a/{path}")).await.0;
        assert_eq!(status, 400, "{path:.20}");
    }
}

#[tokio::test]
async fn path_that_axum_refuses_gets_the_answer_of_axum() {
    let keys = |Path(id): Path<u64>| Keys::one(id.to_string());
    let layer = KeyLockLayer::from_extractor(Scene::new().locker(), keys);
    let app = Router::new().route("/a/{id}", post(key).layer(layer));
    let plain = Router::new().route("/a/{id}", post(async |Path(_): Path<u64>| {}));
    for path in ["/a/abc", "/a/-1", "/a/%ff"] {
        let plain = send(&plain, request(path, "")).await;
        let said = send(&app, request(path, "")).await;
        assert_eq!((said.status, &said.headers), (plain.status, &plain.headers));
        assert!(!plain.body.is_empty());
        assert_eq!(said.body, plain.body);
    }
    assert_eq!(posted(&app, "/a/007").await.1, "test:7");
}

/// Around a router there is no route yet, and no parameter: the mistake is the service's.
#[tokio::test]
async fn what_has_no_route_takes_no_lock() {
    let layer = by_id(Scene::new().locker());
    let router = || Router::new().route("/a/{id}", post(key));
    let behind = router().route_layer(layer.clone());
    assert_eq!(posted(&behind, "/nowhere").await.0, 404);
    let around_fallback = router().layer(layer.clone());
    assert_eq!(posted(&around_fallback, "/nowhere").await.0, 500);
    let get = Request::get("/nowhere").body(Body::empty());
    let passed = send(&around_fallback, get.expect("a request")).await;
    assert_eq!(passed.status, 404);
    let around = Router::new().fallback_service(layer.layer(router()));
    assert_eq!(posted(&around, "/a/42").await.0, 500);
}

/// The lock is held elsewhere: a request for it gets 409.
#[tokio::test(start_paused = true)]
async fn a_method_without_a_handler_takes_no_lock() {
    let scene = Scene::new();
    let layer = by_id(scene.builder().try_only().build().expect("it is valid"));
    let _other = scene.try_elsewhere("42").await.expect("it is free");
    let app = Router::new().route("/a/{id}", post(key).route_layer(layer.clone()));
    let put = || {
        Request::put("/a/42")
            .body(Body::empty())
            .expect("a request")
    };
    assert_eq!(send(&app, put()).await.status, 405);
    assert_eq!(posted(&app, "/a/42").await.0, 409);
    // Around the router it comes before the choice of the method.
    let around = Router::new().route("/a/{id}", post(key)).route_layer(layer);
    assert_eq!(send(&around, put()).await.status, 409);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_expects_a_lock_and_has_none_does_not_run() {
    let app = Router::new().route("/a/{id}", post(key));
    let (status, said) = posted(&app, "/a/42").await;
    assert_eq!(status, 500);
    assert!(said.contains("KeyLockLayer"), "{said}");

    let maybe = async |held: Option<HeldLock>| held.is_some().to_string();
    let app = Router::new().route("/a", post(maybe));
    assert_eq!(posted(&app, "/a").await.1, "false");
}

#[tokio::test(start_paused = true)]
async fn a_handler_does_not_take_the_lock_of_an_outer_layer_for_its_own() {
    let scene = Scene::new();
    let passes = KeyLockLayer::new(scene.locker(), |_: &Parts| Ok(Keys::Skip));
    let route = || Router::new().route("/a/{id}", post(key));
    let app = route().layer(passes).layer(by_id(scene.locker()));
    assert_eq!(posted(&app, "/a/42").await.0, 500);

    let other = Locker::builder(Arc::clone(&scene.locks), "inner").build();
    let inner = KeyLockLayer::new(other.unwrap(), |_: &Parts| Ok(Keys::one("k")));
    let app = route().layer(inner).layer(by_id(scene.locker()));
    assert_eq!(posted(&app, "/a/42").await.1, "inner:k");
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
    Ok(held.key().to_string())
}

#[tokio::test(start_paused = true)]
async fn a_handler_locks_what_the_body_names() {
    let scene = Scene::new();
    let locker = scene.locker();
    let app = Router::new()
        .route("/transfer", post(by_body))
        .with_state(App { locker });
    let status = async |body| send(&app, request("/transfer", body)).await.status;
    assert_eq!(status("42").await, 200);
    let _other = scene.try_elsewhere("42").await.unwrap();
    assert_eq!(status("42").await, 409);
    assert_eq!(status("a\nb").await, 400);
}

#[test]
fn what_a_handler_returns_is_an_answer() {
    for (not_held, status, retry_after) in [
        (NotHeld::Released, 500, None),
        (NotHeld::Unprotected, 503, Some("1")),
    ] {
        let response: Response = not_held.into_response();
        assert_eq!(response.status(), status);
        let found = response.headers().get("retry-after");
        assert_eq!(found.map(|value| value.to_str().unwrap()), retry_after);
    }
}
