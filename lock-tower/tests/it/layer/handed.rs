//! What a handler and a locker get.

use std::time::Duration;

use lock_core::{Owner, Renewal};
use lock_tower::{KeyLockLayer, Keys, Reason};
use tokio::time::Instant;
use tower::{Layer as _, ServiceExt as _};

use super::support::{Scene, handler, post};
use crate::support::InTime as _;

#[tokio::test(start_paused = true)]
async fn a_handler_knows_key_token_and_deadline() {
    let scene = Scene::new();
    let service = scene
        .layer()
        .with_fencing_token()
        .with_server_timing()
        .layer(handler(|held| async move {
            assert_eq!(held.key().as_str(), "test:/a");
            assert!(held.deadline().unwrap() > Instant::now() + Duration::from_secs(20));
            assert!(!held.is_lost() && !held.is_unprotected());
            held.ensure_held().unwrap();
            "done"
        }));
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let response = service
            .clone()
            .oneshot(post("/a"))
            .answered()
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        let header = |name| {
            let value = response.headers().get(name).expect("it is asked for");
            value.to_str().expect("a header of text")
        };
        let token = header("x-fencing-token").parse::<u64>();
        tokens.push(token.expect("a number"));
        let timing = header("server-timing");
        assert!(timing.starts_with("lock;dur="), "{timing}");
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_told_to_clients_unless_asked_for() {
    let scene = Scene::new();
    let service = scene.layer().layer(handler(|_| async { "done" }));
    let response = service.oneshot(post("/a")).answered().await.unwrap();
    assert!(response.headers().is_empty(), "{:?}", response.headers());
}

#[tokio::test(start_paused = true)]
async fn several_keys_are_held_together_whatever_their_order() {
    let scene = Scene::new();
    let layer = KeyLockLayer::new(scene.locker(), |parts: &http::request::Parts| {
        Ok(Keys::many(parts.uri.path().split('/').skip(1)))
    });
    let service = layer.layer(handler(|held| async move {
        let keys: Vec<_> = held.keys().map(|key| key.as_str().to_owned()).collect();
        assert_eq!(keys, ["test:a", "test:b"]);
        let tokens: Vec<_> = held.fencing_tokens().map(|(_, token)| token).collect();
        assert_eq!(tokens, ["a", "b"].map(|name| held.fencing_token_of(name)));
        assert!(tokens.iter().all(Option::is_some) && tokens[0] != tokens[1]);
        assert_eq!(held.fencing_token(), None, "each key has its own");
        assert_eq!(held.fencing_token_of("c"), None);
        tokio::time::sleep(Duration::from_millis(10)).await;
        "done"
    }));
    let requests = ["/a/b", "/b/a", "/a/b/a", "/b/a"];
    let requests = requests.map(|path| tokio::spawn(service.clone().oneshot(post(path))));
    let began = Instant::now();
    for request in requests {
        assert_eq!(request.answered().await.unwrap().unwrap().status(), 200);
    }
    let serial = Duration::from_millis(40);
    assert_eq!(
        began.elapsed(),
        serial,
        "4 requests of 10 ms, one at a time"
    );
    assert_eq!(layer.locker().live_keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_one_lock_at_least_and_64_at_most() {
    let scene = Scene::new();
    let names = |number: u32| (0..number).map(|name| name.to_string());
    for number in [0, 65, 10_000] {
        let refused = scene.locker().lock_all(names(number)).await.unwrap_err();
        assert_eq!(refused.reason(), Reason::InvalidKey, "{number}");
    }
    let held = scene.locker().lock_all(names(64)).await.unwrap();
    assert_eq!(held.keys().count(), 64);
}

#[tokio::test(start_paused = true)]
async fn a_locker_and_a_layer_share_the_queue() {
    let scene = Scene::new();
    let layer = scene.layer();
    let held = layer.locker().lock("/a").await.unwrap();
    let service = layer.layer(handler(|_| async { "done" }));
    let response = service
        .clone()
        .oneshot(post("/a"))
        .answered()
        .await
        .unwrap();
    assert_eq!(response.status(), 409);
    let sum = held.run(async { 40 + 2 }).await.unwrap();
    assert_eq!(sum, 42);
    held.release().await.unwrap();
    assert_eq!(
        service
            .oneshot(post("/a"))
            .answered()
            .await
            .unwrap()
            .status(),
        200
    );
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_as_long_as_it_was_set() {
    let scene = Scene::new();
    let _other = scene.try_elsewhere("/a").await.unwrap();
    let patient = scene.locker();
    let began = Instant::now();
    let refused = patient.lock("/a").await.unwrap_err();
    assert_eq!(refused.reason(), Reason::TimedOut);
    assert_eq!(began.elapsed(), Duration::from_secs(2), "the default wait");
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));

    let hasty = scene.builder().try_only().build().unwrap();
    let began = Instant::now();
    let refused = hasty.lock("/a").await.unwrap_err();
    assert_eq!(refused.reason(), Reason::Busy);
    assert_eq!(began.elapsed(), Duration::ZERO, "nobody waits");
}

#[tokio::test(start_paused = true)]
async fn what_could_never_be_granted_is_refused_at_once() {
    let scene = Scene::new();
    let short = scene
        .builder()
        .request(|request| request.with_ttl(Duration::from_millis(1)));
    assert!(short.build().is_err());
    // An owner would let all requests in at once.
    let owned = scene.builder().request(|r| r.with_owner(Owner::new()));
    assert!(owned.build().is_err());
    let manual = |r: lock_core::AcquireRequest| r.with_renewal(Renewal::Manual);
    assert!(scene.builder().request(manual).build().is_err());
    for namespace in ["", "a:b", "a\nb"] {
        let locks = std::sync::Arc::clone(&scene.locks);
        assert!(
            lock_tower::Locker::builder(locks, namespace)
                .build()
                .is_err()
        );
    }
}
