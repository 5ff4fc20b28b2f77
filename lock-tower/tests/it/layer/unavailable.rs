//! A lock service that does not answer.

use std::sync::Arc;
use std::time::Duration;

use polylock_core::ErrorKind;
use polylock_core::memory::{Fault, Reachable, Request as Sent};
#[cfg(feature = "axum")]
use polylock_tower::HeldLock;
use polylock_tower::{
    KeyError, KeyLockLayer, Locker, LockerBuilder, NotHeld, Reason, WhenUnavailable,
};
use tower::Layer as _;

use crate::support::{Broken, Scene, by_path, handler, post, send};

fn bypass(locker: LockerBuilder) -> LockerBuilder {
    locker.when_unavailable(WhenUnavailable::Bypass)
}

#[tokio::test(start_paused = true)]
async fn requests_run_unprotected_if_that_is_allowed_and_know_it() {
    let scene = Scene::new();
    let locker = scene.locker_with(bypass);
    let service = by_path(locker.clone()).layer(handler(async |held| {
        if !held.is_unprotected() {
            return "protected";
        }
        assert_eq!(held.ensure_held(), Err(NotHeld::Unprotected));
        assert_eq!(held.fencing_token(), None);
        assert_eq!(held.key().as_str(), "test:/a");
        "unprotected"
    }));
    for (reachable, said) in [
        (Reachable::Cut, "unprotected"),
        (Reachable::Connected, "protected"),
    ] {
        scene.set_reachable(reachable);
        assert_eq!(send(&service, post("/a")).await.body, said);
    }
    assert_eq!(locker.live_keys(), 0);
}

/// Logs until the guard is dropped; how often a text was logged.
fn logged() -> (tracing::subscriber::DefaultGuard, impl Fn(&str) -> usize) {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let subscriber = tracing_subscriber::fmt().with_writer(Arc::new(log.reopen().expect("a file")));
    let count = move |text: &str| {
        let log = std::fs::read_to_string(log.path()).expect("a text");
        log.matches(text).count()
    };
    let guard = tracing::subscriber::set_default(subscriber.finish());
    (guard, count)
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_every_ten_seconds_and_not_for_each_request() {
    let (_logs, count) = logged();
    let lines = || count("requests get no lock");
    let scene = Scene::new();
    let service = by_path(scene.locker()).layer(handler(async |_| "done"));
    assert_eq!(send(&service, post("/a")).await.status, 200);
    assert_eq!(lines(), 0);
    scene.set_reachable(Reachable::Cut);
    for (pause, expected) in [(0, 1), (1, 1), (10, 2)] {
        tokio::time::advance(Duration::from_secs(pause)).await;
        assert_eq!(send(&service, post("/a")).await.status, 503);
        assert_eq!(lines(), expected, "after a pause of {pause} s");
    }

    let full = Locker::builder(Arc::new(Broken(ErrorKind::QueueFull)), "test");
    let full = full.build().unwrap();
    for _ in 0..2 {
        let rejected = full.lock("a").await.unwrap_err();
        assert_eq!(rejected.reason(), Reason::QueueFull);
        assert_eq!(lines(), 3, "one line says that there is no room");
    }

    let denied = Locker::builder(Arc::new(Broken(ErrorKind::Denied)), "test");
    let denied = denied.build().unwrap();
    let unprotected = scene.locker_with(bypass);
    for _ in 0..2 {
        let rejected = denied.lock("a").await.unwrap_err();
        assert_eq!(rejected.reason(), Reason::Misconfigured);
        assert_eq!(count("no request can get its lock"), 1);
        drop(unprotected.lock("a").await.unwrap());
        assert_eq!(count("requests run without their locks"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_in_a_hurry_does_not_get_around_the_lock() {
    let scene = Scene::new();
    let _other = scene.try_elsewhere("/a").await.unwrap();
    let locker = scene.locker_with(bypass);
    let service = by_path(locker).layer(handler(async |_| panic!("it ran")));
    for content_type in ["application/grpc", "text/plain"] {
        let late = Fault::LateReply(Duration::from_millis(50));
        scene.memory.faults().plan(Sent::Acquire, late);
        let mut request = post("/a");
        let headers = request.headers_mut();
        headers.insert("content-type", content_type.parse().unwrap());
        headers.insert("grpc-timeout", "1m".parse().unwrap());
        let said = send(&service, request).await;
        let is_refused = said.status == 409 || said.header("grpc-status").is_some();
        assert!(is_refused, "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_set_up_wrongly_is_logged_every_ten_seconds() {
    let (_logs, count) = logged();
    let keys = |_: &http::request::Parts| Err(KeyError::Misconfigured("no route".to_owned()));
    let layer = KeyLockLayer::new(Scene::new().locker(), keys);
    let service = layer.layer(handler(async |_| panic!("it ran")));
    // Other tests of this process may have logged.
    tokio::time::advance(Duration::from_secs(3600)).await;
    for (pause, expected) in [(0, 1), (1, 1), (10, 2)] {
        tokio::time::advance(Duration::from_secs(pause)).await;
        assert_eq!(send(&service, post("/a")).await.status, 500);
        assert_eq!(count("no key can be read from a request"), expected);
        #[cfg(feature = "axum")]
        {
            use axum::extract::FromRequestParts as _;
            let (mut parts, _) = post("/a").into_parts();
            let lock = HeldLock::from_request_parts(&mut parts, &()).await;
            assert_eq!(lock.unwrap_err().0, 500);
            assert_eq!(count("the handler takes a HeldLock"), expected);
        }
    }
}
