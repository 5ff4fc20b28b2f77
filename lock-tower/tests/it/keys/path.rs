//! Keys by extractors of axum.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Path;
use axum::routing::post;
use http::{Request, Response, StatusCode};
use lock_core::DistributedLock;
use lock_tower::{HeldLock, KeyLockLayer, Keys, Locker};
use tower::{Layer as _, ServiceExt as _};

use super::support::Counted;
use crate::support::InTime as _;

struct App {
    locks: Arc<Counted>,
    locker: Locker,
}

impl App {
    fn new() -> Self {
        let locks = Arc::new(Counted::default());
        let shared = Arc::clone(&locks) as Arc<dyn DistributedLock>;
        let locker = Locker::builder(shared, "ns").try_only().build();
        let locker = locker.expect("a locker");
        Self { locks, locker }
    }

    fn by_text(&self) -> KeyLockLayer {
        let keys = |Path(id): Path<String>| Keys::one(id);
        KeyLockLayer::from_extractor::<Path<String>, _>(self.locker.clone(), keys)
    }

    fn by_number(&self) -> KeyLockLayer {
        let keys = |Path(id): Path<u64>| Keys::one(id.to_string());
        KeyLockLayer::from_extractor::<Path<u64>, _>(self.locker.clone(), keys)
    }

    fn by_tenant_and_id(&self) -> KeyLockLayer {
        type Ids = Path<(String, String)>;
        let keys = |Path((tenant, id)): Ids| Keys::joined([tenant, id]);
        KeyLockLayer::from_extractor::<Ids, _>(self.locker.clone(), keys)
    }

    /// Expects that a refusal came before the backend.
    async fn refused(&self, router: Router, path: &str) -> Response<Body> {
        let response = send(router, path).await;
        assert_ne!(response.status(), StatusCode::OK, "{path}");
        assert!(self.locks.asked().is_empty(), "{path}");
        response
    }
}

/// A handler that answers with its key.
async fn key(held: HeldLock) -> String {
    held.key().to_string()
}

async fn send(router: Router, path: &str) -> Response<Body> {
    let request = Request::post(path).body(Body::empty()).expect("a request");
    router
        .oneshot(request)
        .answered()
        .await
        .expect("infallible")
}

async fn text(response: Response<Body>) -> String {
    let bytes = to_bytes(response.into_body(), 1 << 20)
        .await
        .expect("a body");
    String::from_utf8(bytes.into()).expect("text")
}

#[tokio::test]
async fn path_is_decoded_and_carried_exactly() {
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
        let app = App::new();
        let router = Router::new().route("/accounts/{id}", post(key).layer(app.by_text()));
        let response = send(router, &format!("/accounts/{path}")).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert_eq!(text(response).await, format!("ns:{name}"), "{path}");
        assert_eq!(app.locks.asked(), [format!("ns:{name}")]);
    }
}

#[tokio::test]
async fn path_tricks_reach_a_wildcard_as_they_are() {
    let app = App::new();
    let router = Router::new().route("/files/{*path}", post(key).layer(app.by_text()));
    let response = send(router, "/files/../../etc//passwd").await;
    assert_eq!(text(response).await, "ns:../../etc//passwd");
}

#[tokio::test]
async fn path_that_cannot_be_a_key_is_refused() {
    let long = "x".repeat(8193);
    for path in [
        "%0d%0a", "a%00b", "%7f", "%c2%85", "%09", "%ff", "a%c0%af", &long,
    ] {
        let app = App::new();
        let router = Router::new().route("/accounts/{id}", post(key).layer(app.by_text()));
        let response = app.refused(router, &format!("/accounts/{path}")).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{path:.20}");
    }
}

#[tokio::test]
async fn path_that_axum_refuses_gets_the_answer_of_axum() {
    async fn number(Path(_): Path<u64>) {}
    for path in ["/accounts/abc", "/accounts/-1", "/accounts/%ff"] {
        let plain = send(Router::new().route("/accounts/{id}", post(number)), path).await;

        let app = App::new();
        let locked = post(key).layer(app.by_number());
        let router = Router::new().route("/accounts/{id}", locked);
        let response = app.refused(router, path).await;
        assert_eq!(response.status(), plain.status());
        assert_eq!(response.headers(), plain.headers());
        let (ours, theirs) = (text(response).await, text(plain).await);
        assert!(!theirs.is_empty());
        assert_eq!(ours, theirs);
    }
    let app = App::new();
    let router = Router::new().route("/accounts/{id}", post(key).layer(app.by_number()));
    assert_eq!(text(send(router, "/accounts/007").await).await, "ns:7");
}

#[tokio::test]
async fn path_is_known_in_routers_and_nested_ones() {
    let app = App::new();
    let flat = |router: Router| router.route("/{tenant}/accounts/{id}", post(key));
    let inner = || Router::new().route("/accounts/{id}", post(key));
    let layer = app.by_tenant_and_id();
    let routers = [
        flat(Router::new()).layer(layer.clone()),
        flat(Router::new()).route_layer(layer.clone()),
        Router::new().nest("/{tenant}", inner().route_layer(layer.clone())),
        Router::new().nest("/{tenant}", inner().layer(layer.clone())),
        Router::new()
            .nest("/{tenant}", inner())
            .route_layer(layer.clone()),
        Router::new()
            .nest("/{tenant}", inner())
            .layer(layer.clone()),
        Router::new().merge(flat(Router::new())).layer(layer),
    ];
    for (index, router) in routers.into_iter().enumerate() {
        let response = send(router, "/ac%2Fme/accounts/42").await;
        assert_eq!(response.status(), StatusCode::OK, "router {index}");
        assert_eq!(text(response).await, "ns:ac%2Fme/42", "router {index}");
    }
}

#[tokio::test]
async fn fallback_of_a_router_takes_no_lock_behind_route_layer() {
    let app = App::new();
    let router = Router::new().route("/accounts/{id}", post(key));
    let response = app
        .refused(router.route_layer(app.by_text()), "/nowhere")
        .await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
}

/// There is no route yet, and no parameter: the mistake is the service's.
#[tokio::test]
async fn path_is_unknown_around_a_router() {
    let app = App::new();
    let router = Router::new().route("/accounts/{id}", post(key));
    let around = Router::new().fallback_service(app.by_text().layer(router));
    let response = app.refused(around, "/accounts/42").await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn several_extractors_of_axum_name_one_lock() {
    type Both = (Path<String>, axum::extract::RawQuery);
    let app = App::new();
    let keys = |(Path(id), axum::extract::RawQuery(query)): Both| {
        Keys::joined([id, query.unwrap_or_default()])
    };
    let layer = KeyLockLayer::from_extractor::<Both, _>(app.locker.clone(), keys);
    let router = Router::new().route("/accounts/{id}", post(key).layer(layer));
    assert_eq!(
        text(send(router, "/accounts/42?a=b").await).await,
        "ns:42/a=b"
    );
}
