//! What clients are answered.

use std::sync::{Arc, Mutex};

use http::request::Parts;
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use lock_tower::idempotency::{KeyScope, Missing};
use lock_tower::{KeyError, RefusedRequest, RejectionObserver};

use super::support::{Payments, Scene, post};
use crate::support::send;

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
        assert!(!again.headers.contains_key("set-cookie"));
    }
    assert_eq!(payments.charged(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_is_refused() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer());
    let refused = send(
        &service,
        Request::post("/payments").body(Full::default()).unwrap(),
    )
    .await;
    refused.assert_refused(400, "idempotency-key-missing");
    assert_eq!(payments.charged(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_passes_if_it_may() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer().with_missing(Missing::Pass));
    for charge in ["charge 1", "charge 2"] {
        let request = Request::post("/payments").body(Full::default()).unwrap();
        assert_eq!(send(&service, request).await.body, charge);
    }
    assert!(scene.store.kept.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_no_key_is_refused_even_where_none_is_needed() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer().with_missing(Missing::Pass));
    for bad in ["\"a", "a, b", "caf\u{e9}", &"k".repeat(256)] {
        let refused = send(&service, post(bad)).await;
        refused.assert_refused(400, "idempotency-key-invalid");
    }
    let mut twice = post("a");
    twice
        .headers_mut()
        .append("idempotency-key", "a".parse().unwrap());
    assert_eq!(send(&service, twice).await.status, 400);
    assert_eq!(payments.charged(), 0);
    assert_eq!(scene.memory.live_keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_key_of_another_request_is_refused() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let layer = scene.layer().with_methods([Method::POST, Method::PUT]);
    let service = payments.behind(&layer);
    send(&service, post("a")).await;
    let other = |method, uri: &str, body: &'static str| {
        let request = Request::builder().method(method).uri(uri);
        let request = request.header("idempotency-key", "a");
        request.body(Full::from(body)).unwrap()
    };
    for request in [
        other(Method::POST, "/payments", "11 euros"),
        other(Method::POST, "/payments?now", "10 euros"),
        other(Method::POST, "/refunds", "10 euros"),
        other(Method::PUT, "/payments", "10 euros"),
    ] {
        let refused = send(&service, request).await;
        refused.assert_refused(422, "idempotency-key-reused");
    }
    assert!(
        send(&service, other(Method::POST, "/payments", "10 euros"))
            .await
            .is_replayed()
    );
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
async fn keys_of_two_scopes_do_not_meet() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let layer = scene.layer_in(KeyScope::per_client(|parts| {
        let account = parts.headers.get("x-account");
        let account = account.ok_or_else(|| KeyError::Missing("who are you".to_owned()))?;
        Ok(String::from_utf8_lossy(account.as_bytes()).into_owned())
    }));
    let service = payments.behind(&layer);
    let by = |account: &str, key| {
        let mut request = post(key);
        request
            .headers_mut()
            .insert("x-account", account.parse().unwrap());
        request
    };
    assert_eq!(send(&service, by("ann", "a")).await.body, "charge 1");
    assert_eq!(send(&service, by("bob", "a")).await.body, "charge 2");
    assert_eq!(send(&service, by("ann", "b/c")).await.body, "charge 3");
    assert_eq!(send(&service, by("ann/b", "c")).await.body, "charge 4");
    assert!(send(&service, by("ann", "a")).await.is_replayed());
    assert_eq!(send(&service, post("a")).await.status, 400);
    // An empty name would make one client of all that have none.
    assert_eq!(send(&service, by("", "a")).await.status, 500);
    assert_eq!(payments.charged(), 4);
}

#[tokio::test(start_paused = true)]
async fn clients_meet_only_where_the_scope_is_shared() {
    for (scope, charged) in [(KeyScope::shared(), 1), (KeyScope::per_client(client), 2)] {
        let (scene, payments) = (Scene::new(), Payments::default());
        let service = payments.behind(&scene.layer_in(scope));
        for name in ["ann", "bob"] {
            let mut request = post("a");
            request.extensions_mut().insert(Client(name));
            assert_eq!(send(&service, request).await.status, 201);
        }
        assert_eq!(payments.charged(), charged);
    }
}

#[derive(Clone)]
struct Client(&'static str);

fn client(parts: &Parts) -> Result<String, KeyError> {
    let client = parts.extensions.get::<Client>();
    let Client(name) = client.ok_or_else(|| KeyError::Missing("who are you".to_owned()))?;
    Ok((*name).to_owned())
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
        assert_eq!(payments.charged(), 2, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_repeated_like_a_success() {
    let (scene, payments) = (Scene::new(), Payments::failing(402));
    let service = payments.behind(&scene.layer());
    send(&service, post("a")).await;
    let again = send(&service, post("a")).await;
    assert_eq!((again.status, again.is_replayed()), (402, true));
    assert_eq!(payments.charged(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_stored_can_be_chosen() {
    let (scene, payments) = (Scene::new(), Payments::failing(402));
    let layer = scene.layer().with_stored(|status, _| status.is_success());
    let service = payments.behind(&layer);
    send(&service, post("a")).await;
    assert_eq!(send(&service, post("a")).await.body, "charge 2");
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_what_is_refused() {
    let (scene, payments, ear) = (Scene::new(), Payments::default(), Arc::new(Ear::default()));
    let heard = Arc::clone(&ear) as Arc<dyn RejectionObserver>;
    let service = payments.behind(&scene.layer_with(|locker| locker.rejection_observer(heard)));
    let nameless = Request::post("/payments").body(Full::default());
    send(&service, nameless.unwrap()).await;
    send(&service, post("a")).await;
    let refused = [(
        "pay".to_owned(),
        "idempotency-key-missing",
        StatusCode::BAD_REQUEST,
    )];
    assert_eq!(*ear.0.lock().unwrap(), refused);
}

#[derive(Debug, Default)]
struct Ear(Mutex<Vec<(String, &'static str, StatusCode)>>);

impl RejectionObserver for Ear {
    fn refused(&self, refused: &RefusedRequest<'_>) {
        let class = refused.class.to_owned();
        let mut heard = self.0.lock().expect("nothing panics");
        heard.push((class, refused.reason, refused.status));
    }
}
