//! The arguments of a handler and a locker.

use std::time::Duration;

use polylock_core::{Owner, Renewal};
use polylock_tower::{KeyLockLayer, Keys, Locker, LockerBuilder, Reason};
use tokio::time::{Instant, sleep};
use tower::Layer as _;

use crate::support::{Scene, handler, post, send, spawn};

#[tokio::test(start_paused = true)]
async fn a_handler_knows_key_token_and_deadline() {
    let layer = Scene::new().layer().with_fencing_token();
    let service = layer.with_server_timing().layer(handler(async |held| {
        assert_eq!(held.key().as_str(), "test:/a");
        assert!(held.deadline().unwrap() > Instant::now() + Duration::from_secs(20));
        assert!(held.lost_reason().is_none() && !held.is_unprotected());
        held.ensure_held().unwrap();
        "done"
    }));
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let said = send(&service, post("/a")).await;
        assert_eq!(said.status, 200);
        let token = said.header("x-fencing-token").expect("it is asked for");
        tokens.push(token.parse::<u64>().expect("a number"));
        let timing = said.header("server-timing").expect("it is asked for");
        assert!(timing.starts_with("lock;dur="), "{timing}");
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    // Nothing is told to clients unless asked for.
    let service = Scene::new().layer().layer(handler(async |_| "done"));
    let said = send(&service, post("/a")).await;
    assert!(said.headers.is_empty(), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn several_keys_are_held_together_whatever_their_order() {
    let layer = KeyLockLayer::new(Scene::new().locker(), |parts: &http::request::Parts| {
        Ok(Keys::many(parts.uri.path().split('/').skip(1)))
    });
    let service = layer.layer(handler(async |held| {
        let keys: Vec<_> = held.keys().map(|key| key.as_str().to_owned()).collect();
        assert_eq!(keys, ["test:a", "test:b"]);
        let tokens: Vec<_> = held.fencing_tokens().map(|(_, token)| token).collect();
        assert_eq!(tokens, ["a", "b"].map(|name| held.fencing_token_of(name)));
        assert!(tokens.iter().all(Option::is_some) && tokens[0] != tokens[1]);
        assert_eq!(held.fencing_token(), None, "each key has its own");
        assert_eq!(held.fencing_token_of("c"), None);
        sleep(Duration::from_millis(10)).await;
        "done"
    }));
    let requests = ["/a/b", "/b/a", "/a/b/a", "/b/a"].map(|path| spawn(&service, post(path)));
    let began = Instant::now();
    for request in requests {
        assert_eq!(request.said().await.status, 200);
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
    let locker = Scene::new().locker();
    let names = |number: u32| (0..number).map(|name| name.to_string());
    for number in [0, 65, 10_000] {
        let refused = locker.lock_all(names(number)).await.unwrap_err();
        assert_eq!(refused.reason(), Reason::InvalidKey, "{number} names");
    }
    let held = locker.lock_all(names(64)).await.unwrap();
    assert_eq!(held.keys().count(), 64);
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_as_long_as_it_was_set() {
    let scene = Scene::new();
    let _other = scene.try_elsewhere("/a").await.unwrap();
    let began = Instant::now();
    let refused = scene.locker().lock("/a").await.unwrap_err();
    assert_eq!(refused.reason(), Reason::TimedOut);
    assert_eq!(began.elapsed(), Duration::from_secs(2), "the default wait");
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));

    let hasty = scene.locker_with(LockerBuilder::try_only);
    let began = Instant::now();
    let refused = hasty.lock("/a").await.unwrap_err();
    assert_eq!(refused.reason(), Reason::Busy);
    assert_eq!(began.elapsed(), Duration::ZERO, "the request waited");
}

#[tokio::test(start_paused = true)]
async fn what_could_never_be_granted_is_refused_at_once() {
    let scene = Scene::new();
    let short = scene.builder();
    let short = short.request(|request| request.with_ttl(Duration::from_millis(1)));
    // An owner would let all requests in at once.
    let owned = scene.builder().request(|r| r.with_owner(Owner::new()));
    let manual = scene.builder();
    let manual = manual.request(|r| r.with_renewal(Renewal::Manual));
    for builder in [short, owned, manual] {
        assert!(builder.build().is_err());
    }
    for namespace in ["", "a:b", "a\nb"] {
        let builder = Locker::builder(std::sync::Arc::clone(&scene.locks), namespace);
        assert!(builder.build().is_err(), "{namespace:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_got_no_lock_sees_how_long_it_waited() {
    let scene = Scene::new();
    let layer = scene.layer().with_server_timing();
    let service = layer.layer(handler(async |_| "done"));
    let _held = scene.try_elsewhere("/a").await.unwrap();
    let refused = send(&service, post("/a")).await;
    refused.assert_refused(409, "lock-timeout");
    let timing = refused.header("server-timing").expect("it is asked for");
    let millis = timing.strip_prefix("lock;dur=").unwrap();
    assert!(
        millis.parse::<f64>().unwrap() >= 2000.0,
        "the header is {timing}"
    );
}
