//! Keys by extractors of axum.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery};
use axum::routing::post;
use http::Request;
use lock_tower::{HeldLock, KeyLockLayer, Keys};
use tower::Layer as _;

use super::support::Bench;
use crate::support::{Said, send};

impl Bench {
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
    async fn refused(&self, router: Router, path: &str) -> Said {
        let said = ask(router, path).await;
        assert_ne!(said.status, 200, "{path}");
        assert!(self.locks.asked().is_empty(), "{path}");
        said
    }
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
        let bench = Bench::new();
        let said = ask(accounts(bench.by_text()), &format!("/accounts/{path}")).await;
        assert_eq!((said.status, said.body), (200, format!("ns:{name}")));
        assert_eq!(bench.locks.asked(), [format!("ns:{name}")]);
    }
}

#[tokio::test]
async fn path_tricks_reach_a_wildcard_as_they_are() {
    let files = post(key).layer(Bench::new().by_text());
    let router = Router::new().route("/files/{*path}", files);
    let said = ask(router, "/files/../../etc//passwd").await;
    assert_eq!(said.body, "ns:../../etc//passwd");
}

#[tokio::test]
async fn path_that_cannot_be_a_key_is_refused() {
    let long = "x".repeat(8193);
    for path in [
        "%0d%0a", "a%00b", "%7f", "%c2%85", "%09", "%ff", "a%c0%af", &long,
    ] {
        let bench = Bench::new();
        let router = accounts(bench.by_text());
        let said = bench.refused(router, &format!("/accounts/{path}")).await;
        assert_eq!(said.status, 400, "{path:.20}");
    }
}

#[tokio::test]
async fn path_that_axum_refuses_gets_the_answer_of_axum() {
    async fn number(Path(_): Path<u64>) {}
    for path in ["/accounts/abc", "/accounts/-1", "/accounts/%ff"] {
        let plain = ask(Router::new().route("/accounts/{id}", post(number)), path).await;
        let bench = Bench::new();
        let said = bench.refused(accounts(bench.by_number()), path).await;
        assert_eq!((said.status, &said.headers), (plain.status, &plain.headers));
        assert!(!plain.body.is_empty());
        assert_eq!(said.body, plain.body);
    }
    let said = ask(accounts(Bench::new().by_number()), "/accounts/007").await;
    assert_eq!(said.body, "ns:7");
}

#[tokio::test]
async fn path_is_known_in_routers_and_nested_ones() {
    let layer = Bench::new().by_tenant_and_id();
    let flat = |router: Router| router.route("/{tenant}/accounts/{id}", post(key));
    let inner = || Router::new().route("/accounts/{id}", post(key));
    let nest = |inner: Router| Router::new().nest("/{tenant}", inner);
    let routers = [
        flat(Router::new()).layer(layer.clone()),
        flat(Router::new()).route_layer(layer.clone()),
        nest(inner().route_layer(layer.clone())),
        nest(inner().layer(layer.clone())),
        nest(inner()).route_layer(layer.clone()),
        nest(inner()).layer(layer.clone()),
        Router::new().merge(flat(Router::new())).layer(layer),
    ];
    for (index, router) in routers.into_iter().enumerate() {
        let said = ask(router, "/ac%2Fme/accounts/42").await;
        assert_eq!(said.status, 200, "router {index}");
        assert_eq!(said.body, "ns:ac%2Fme/42", "router {index}");
    }
}

/// Around a router there is no route yet, and no parameter: the mistake is the service's.
#[tokio::test]
async fn what_has_no_route_takes_no_lock() {
    let bench = Bench::new();
    let router = || Router::new().route("/accounts/{id}", post(key));
    let behind = router().route_layer(bench.by_text());
    assert_eq!(bench.refused(behind, "/nowhere").await.status, 404);
    let around = Router::new().fallback_service(bench.by_text().layer(router()));
    assert_eq!(bench.refused(around, "/accounts/42").await.status, 500);
}

#[tokio::test]
async fn several_extractors_of_axum_name_one_lock() {
    type Both = (Path<String>, RawQuery);
    let keys = |(Path(id), RawQuery(query)): Both| Keys::joined([id, query.unwrap_or_default()]);
    let layer = KeyLockLayer::from_extractor::<Both, _>(Bench::new().locker, keys);
    let said = ask(accounts(layer), "/accounts/42?a=b").await;
    assert_eq!(said.body, "ns:42/a=b");
}
