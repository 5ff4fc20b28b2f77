//! Keys by extractors of axum.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::post;
use http::Request;
use polylock_tower::{HeldLock, KeyLockLayer, Keys};
use tower::Layer as _;

use crate::support::{Said, Scene, send};

fn by_text() -> KeyLockLayer {
    let keys = |Path(id): Path<String>| Keys::one(id);
    KeyLockLayer::from_extractor::<Path<String>, _>(Scene::new().locker(), keys)
}

fn by_number() -> KeyLockLayer {
    let keys = |Path(id): Path<u64>| Keys::one(id.to_string());
    KeyLockLayer::from_extractor::<Path<u64>, _>(Scene::new().locker(), keys)
}

/// One route, to a handler that answers with its key.
fn accounts(layer: KeyLockLayer) -> Router {
    Router::new().route("/accounts/{id}", post(key).layer(layer))
}

async fn key(held: HeldLock) -> String {
    held.key().to_string()
}

async fn ask(router: Router, path: &str) -> Said {
    let request = Request::post(path).body(Body::empty());
    send(&router, request.expect("a request")).await
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
        let said = ask(accounts(by_text()), &format!("/accounts/{path}")).await;
        assert_eq!((said.status, said.body), (200, format!("test:{name}")));
    }
    let files = Router::new().route("/files/{*path}", post(key).layer(by_text()));
    let said = ask(files, "/files/../../etc//passwd").await;
    assert_eq!(said.body, "test:../../etc//passwd");
}

#[tokio::test]
async fn path_that_cannot_be_a_key_is_refused() {
    let long = "x".repeat(8193);
    for path in [
        "%0d%0a", "a%00b", "%7f", "%c2%85", "%09", "%ff", "a%c0%af", &long,
    ] {
        let said = ask(accounts(by_text()), &format!("/accounts/{path}")).await;
        assert_eq!(said.status, 400, "{path:.20}");
    }
}

#[tokio::test]
async fn path_that_axum_refuses_gets_the_answer_of_axum() {
    async fn number(Path(_): Path<u64>) {}
    for path in ["/accounts/abc", "/accounts/-1", "/accounts/%ff"] {
        let plain = ask(Router::new().route("/accounts/{id}", post(number)), path).await;
        let said = ask(accounts(by_number()), path).await;
        assert_eq!((said.status, &said.headers), (plain.status, &plain.headers));
        assert!(!plain.body.is_empty());
        assert_eq!(said.body, plain.body);
    }
    let said = ask(accounts(by_number()), "/accounts/007").await;
    assert_eq!(said.body, "test:7");
}

/// Around a router there is no route yet, and no parameter: the mistake is the service's.
#[tokio::test]
async fn what_has_no_route_takes_no_lock() {
    let router = || Router::new().route("/accounts/{id}", post(key));
    let behind = router().route_layer(by_text());
    assert_eq!(ask(behind, "/nowhere").await.status, 404);
    let around = Router::new().fallback_service(by_text().layer(router()));
    assert_eq!(ask(around, "/accounts/42").await.status, 500);
}
