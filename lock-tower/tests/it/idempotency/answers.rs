//! What clients are answered.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use polylock_tower::idempotency::{KeyScope, MissingKey};
use polylock_tower::{
    KeyError, KeyLockLayer, Keys, Locker, LockerBuilder, ProblemDetails, RejectedRequest,
    Rejection, RejectionObserver, RequestInfo,
};
use tower::{Layer as _, service_fn};

use super::support::{Handler, Payments, Scene, post};
use crate::support::{Rejections, send};

fn nameless() -> Request<Full<Bytes>> {
    let request = Request::post("/payments").body(Full::default());
    request.expect("a request")
}

/// A request that says by whom it is.
fn by(account: &str, key: &str) -> Request<Full<Bytes>> {
    let mut request = post(key);
    let account = account.parse().expect("a header");
    request.headers_mut().insert("x-account", account);
    request
}

fn account(parts: &Parts) -> Result<String, KeyError> {
    let account = parts.headers.get("x-account");
    let account = account.ok_or_else(|| KeyError::Missing("who are you".to_owned()))?;
    Ok(String::from_utf8_lossy(account.as_bytes()).into_owned())
}

#[tokio::test(start_paused = true)]
async fn a_repetition_gets_the_response_of_the_first() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer());
    let first = send(&service, post("a")).await;
    assert_eq!((first.status, &first.body[..]), (201, "charge 1"));
    assert!(!first.is_replayed());
    assert_eq!(first.header("set-cookie"), Some("session=1"));
    for key in ["a", "\"a\""] {
        let again = send(&service, post(key)).await;
        assert_eq!((again.status, &again.body[..]), (201, "charge 1"));
        assert_eq!(again.header("location"), Some("/payments/1"));
        assert!(again.is_replayed());
        assert_eq!(again.header("set-cookie"), None);
    }
    assert_eq!(payments.charged(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_is_refused_unless_it_may_pass() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let rejections = Arc::new(Rejections::default());
    let heard = Arc::clone(&rejections) as Arc<dyn RejectionObserver>;
    let layer = scene.layer_with(|locker| locker.try_only().rejection_observer(heard));
    let answers = ProblemDetails::new().with_type_base("https://errors.example/");
    let service = payments.behind(&layer.with_responder(answers));
    let refused = send(&service, nameless()).await;
    let problem = refused.assert_refused(400, "idempotency-key-missing");
    let named = "https://errors.example/idempotency-key-missing";
    assert_eq!(problem["type"], named);
    assert_eq!(payments.charged(), 0);
    assert_eq!(rejections.all(), ["pay idempotency-key-missing 400"]);
    let service = payments.behind(&scene.layer().with_missing(MissingKey::Pass));
    for charge in ["charge 1", "charge 2"] {
        assert_eq!(send(&service, nameless()).await.body, charge);
    }
    assert!(scene.store.kept.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_no_key_is_refused_even_where_none_is_needed() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer().with_missing(MissingKey::Pass));
    let mut twice = post("a");
    let again = "a".parse().unwrap();
    twice.headers_mut().append("idempotency-key", again);
    let long = "k".repeat(256);
    let bad = ["", "\"\"", "\"a", "a, b", "caf\u{e9}", &long].map(post);
    for bad in bad.into_iter().chain([twice]) {
        let refused = send(&service, bad).await;
        refused.assert_refused(400, "idempotency-key-invalid");
    }
    assert_eq!(payments.charged(), 0);
    assert_eq!(scene.memory.live_keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_key_of_another_request_is_refused() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let layer = scene.layer().with_methods([Method::POST, Method::PUT]);
    let service = payments.behind(&layer);
    send(&service, post("a")).await;
    let ask = async |method, uri: &str, body: &'static str| {
        let mut request = post("a").map(|_| Full::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().unwrap();
        send(&service, request).await
    };
    for (method, uri, body) in [
        (Method::POST, "/payments", "11 euros"),
        (Method::POST, "/payments?now", "10 euros"),
        (Method::POST, "/refunds", "10 euros"),
        (Method::PUT, "/payments", "10 euros"),
    ] {
        let refused = ask(method, uri, body).await;
        refused.assert_refused(422, "idempotency-key-reused");
    }
    let same = ask(Method::POST, "/payments", "10 euros").await;
    assert!(same.is_replayed());
    assert_eq!(payments.charged(), 1);
}

#[tokio::test(start_paused = true)]
async fn methods_that_are_not_named_pass() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer());
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let mut request = post("a");
        *request.method_mut() = method;
        assert!(!send(&service, request).await.is_replayed());
    }
    assert_eq!(payments.charged(), 3);
    assert!(scene.store.kept.is_empty());
}

#[tokio::test(start_paused = true)]
async fn clients_meet_only_where_the_scope_is_shared() {
    for (scope, charged) in [(KeyScope::shared(), 1), (KeyScope::per_client(account), 2)] {
        let (scene, payments) = (Scene::new(), Payments::default());
        let service = payments.behind(&scene.layer_of(LockerBuilder::try_only, scope));
        for name in ["ann", "bob"] {
            let request = by(name, "a");
            assert_eq!(send(&service, request).await.status, 201);
        }
        assert_eq!(payments.charged(), charged);
    }
    let (scene, payments) = (Scene::new(), Payments::default());
    let service =
        payments.behind(&scene.layer_of(LockerBuilder::try_only, KeyScope::per_client(account)));
    for (request, charge) in [
        (by("ann", "b/c"), "charge 1"),
        (by("ann/b", "c"), "charge 2"),
    ] {
        assert_eq!(send(&service, request).await.body, charge);
    }
    assert_eq!(send(&service, post("a")).await.status, 400);
    // An empty name would make one client of all that have none.
    assert_eq!(send(&service, by("", "a")).await.status, 500);
    assert_eq!(payments.charged(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_asks_to_be_repeated_is_handled_again() {
    for status in [401, 403, 408, 425, 429, 500, 503] {
        let (scene, payments) = (Scene::new(), Payments::failing(status));
        let service = payments.behind(&scene.layer());
        let first = send(&service, post("a")).await;
        assert_eq!((first.status, &first.body[..]), (status, "charge 1"));
        assert_eq!(send(&service, post("a")).await.body, "charge 2");
        assert!(send(&service, post("a")).await.is_replayed());
        assert_eq!(payments.charged(), 2, "status {status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_repeated_like_a_success_unless_it_is_chosen_otherwise() {
    let (scene, payments) = (Scene::new(), Payments::failing(402));
    let service = payments.behind(&scene.layer());
    send(&service, post("a")).await;
    let again = send(&service, post("a")).await;
    assert_eq!((again.status, again.is_replayed()), (402, true));
    assert_eq!(payments.charged(), 1);

    let (scene, payments) = (Scene::new(), Payments::failing(402));
    let layer = scene.layer().with_stored(|status, _| status.is_success());
    let service = payments.behind(&layer);
    send(&service, post("a")).await;
    assert_eq!(send(&service, post("a")).await.body, "charge 2");
}

#[tokio::test(start_paused = true)]
async fn a_rejection_of_an_inner_layer_is_not_stored() {
    let scene = Scene::new();
    let accounts = Locker::builder(Arc::new(scene.memory.client()), "accounts").try_only();
    let accounts = accounts.build().unwrap();
    let locked = |_: &RequestInfo, _: &Rejection| {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::LOCKED;
        response
    };
    let inner = KeyLockLayer::new(accounts.clone(), |_: &Parts| Ok(Keys::one("7")));
    let inner = inner.with_responder(locked);
    let handler = Handler::new(service_fn(|_| async {
        Ok(Response::new(Full::from("paid")))
    }));
    let service = scene.layer().layer(inner.layer(handler));
    let held = accounts.lock("7").await.unwrap();
    assert_eq!(send(&service, post("a")).await.status, 423);
    held.release().await.unwrap();
    for is_replayed in [false, true] {
        let seen = send(&service, post("a")).await;
        assert_eq!((seen.status, seen.is_replayed()), (200, is_replayed));
    }
}

/// Counts the reasons that can occur.
#[derive(Debug, Default)]
struct Announced(std::sync::Mutex<Vec<String>>);

impl RejectionObserver for Announced {
    fn rejected(&self, _: &RejectedRequest<'_>) {}

    fn announced(&self, possible: &RejectedRequest<'_>) {
        let line = format!("{} {}", possible.reason, possible.status.as_u16());
        self.0.lock().expect("no panic").push(line);
    }
}

#[tokio::test(start_paused = true)]
async fn each_reason_is_announced_when_the_layer_is_made() {
    let announced = Arc::new(Announced::default());
    let heard = Arc::clone(&announced) as Arc<dyn RejectionObserver>;
    let _layer = Scene::new().layer_with(|locker| locker.rejection_observer(heard));
    let lines = announced.0.lock().expect("no panic");
    let (locks, keys): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.starts_with("lock-"));
    assert_eq!(locks.len(), 7);
    let expected = [
        "idempotency-body-too-large 413",
        "idempotency-body-unreadable 400",
        "idempotency-key-invalid 400",
        "idempotency-key-missing 400",
        "idempotency-key-reused 422",
        "idempotency-response-not-kept 409",
        "idempotency-store-unavailable 503",
    ];
    assert_eq!(keys, expected);
}
