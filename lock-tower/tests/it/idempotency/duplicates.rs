//! Requests with one key that come at the same time, or after a client that went away.

use std::sync::atomic::Ordering;
use std::time::Duration;

use polylock_tower::idempotency::PendingResponse;
use polylock_tower::{HeldLock, LockerBuilder, OnDisconnect};
use tokio::task::JoinSet;
use tower::{Layer as _, service_fn};

use super::support::{Handler, Layered, Payments, Scene, StoreFault, post};
use crate::support::{Said, send, settle, spawn, until};

const TIME: Duration = Duration::from_millis(100);

/// Sends all of them at once, over all of the services in turn.
async fn at_once(services: &[Layered], requests: usize) -> Vec<Said> {
    let mut clients = JoinSet::new();
    for service in services.iter().cycle().take(requests) {
        let service = service.clone();
        clients.spawn(async move { send(&service, post("a")).await });
    }
    clients.join_all().await
}

#[tokio::test(start_paused = true)]
async fn fifty_at_once_are_one_charge_and_the_others_are_told_so() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let services = [(); 3].map(|()| payments.slow(&scene.layer(), TIME));
    let seen = at_once(&services, 50).await;
    let (handled, refused): (Vec<_>, Vec<_>) = seen.iter().partition(|seen| seen.status == 201);
    assert_eq!((handled.len(), refused.len()), (1, 49));
    assert_eq!(payments.charged(), 1);
    for refused in refused {
        refused.assert_refused(409, "lock-busy");
        assert_eq!(refused.header("retry-after"), Some("1"));
        let told = "Idempotency-Key is being handled, or its server has failed";
        assert!(refused.body.contains(told), "{refused:?}");
    }
    assert!(at_once(&services, 50).await.iter().all(Said::is_replayed));
    assert_eq!(payments.charged(), 1);
}

#[tokio::test(start_paused = true)]
async fn fifty_that_wait_get_the_response_of_the_first() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let wait = |locker: LockerBuilder| locker.wait(Duration::from_secs(5));
    let services = [(); 3].map(|()| payments.slow(&scene.layer_with(wait), TIME));
    let seen = at_once(&services, 50).await;
    for seen in &seen {
        assert_eq!((seen.status, &seen.body[..]), (201, "charge 1"));
    }
    assert_eq!(seen.iter().filter(|seen| seen.is_replayed()).count(), 49);
    assert_eq!(payments.charged(), 1);
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_queue_do_not_read_the_store() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let few = |locker: LockerBuilder| locker.wait(TIME * 50).max_waiters_per_key(4);
    let service = payments.slow(&scene.layer_with(few), TIME);
    let seen = at_once(&[service], 50).await;
    let beyond = seen.iter().filter(|seen| seen.status == 429).count();
    assert!(
        beyond >= 40,
        "of 50 for a queue of 4, {beyond} were refused"
    );
    assert_eq!(scene.store.looks.load(Ordering::SeqCst), 50 - beyond);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_failed_one_is_handled_next() {
    let (scene, payments) = (Scene::new(), Payments::failing(502));
    let wait = |locker: LockerBuilder| locker.wait(Duration::from_secs(5));
    let service = payments.slow(&scene.layer_with(wait), TIME);
    let seen = at_once(&[service], 3).await;
    let mut statuses: Vec<_> = seen.iter().map(|seen| seen.status).collect();
    statuses.sort_unstable();
    assert_eq!((statuses, payments.charged()), (vec![201, 201, 502], 2));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_finds_its_response_later_unless_the_handler_was_cancelled() {
    for then in [OnDisconnect::RunToCompletion, OnDisconnect::Cancel] {
        let (scene, payments) = (Scene::new(), Payments::default());
        let wait = |locker: LockerBuilder| locker.wait(Duration::from_secs(5));
        let layer = scene.layer_with(wait).with_on_disconnect(then);
        let service = payments.slow(&layer, TIME);
        let gone = tokio::time::timeout(TIME / 2, send(&service, post("a"))).await;
        assert!(gone.is_err());
        let again = send(&service, post("a")).await;
        let is_kept = then == OnDisconnect::RunToCompletion;
        assert_eq!(again.is_replayed(), is_kept, "{then:?}");
        assert_eq!(payments.charged(), if is_kept { 1 } else { 2 }, "{then:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_is_stored_although_its_client_leaves_meanwhile() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let layer = scene.layer().with_on_disconnect(OnDisconnect::Cancel);
    let service = payments.behind(&layer);
    scene.store.set(StoreFault::WaitingPuts);
    let client = spawn(&service, post("a"));
    let puts = &scene.store.puts;
    until("a put waits", || puts.load(Ordering::SeqCst) > 0).await;
    client.abort();
    settle().await;
    scene.store.set(StoreFault::None);
    scene.store.gate.notify_one();
    until("the lock is free", || scene.memory.live_keys() == 0).await;
    let again = send(&service, post("a")).await;
    assert!(again.is_replayed(), "{again:?}");
    assert_eq!(payments.charged(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_handler_gets_the_lock_and_the_place_of_its_response() {
    let scene = Scene::new();
    let service = scene.layer().layer(Handler::new(service_fn(
        |request: http::Request<_>| async move {
            let held: &HeldLock = request.extensions().get().unwrap();
            let pending: &PendingResponse = request.extensions().get().unwrap();
            held.ensure_held().unwrap();
            assert!(held.fencing_token().is_some());
            assert_eq!(held.fencing_token(), pending.fencing_token);
            assert_eq!(held.key(), &pending.key);
            assert_eq!(pending.key.as_str(), "pay:/a");
            let body = http_body_util::Full::from(bytes::Bytes::new());
            Ok::<_, std::convert::Infallible>(http::Response::new(body))
        },
    )));
    assert_eq!(send(&service, post("a")).await.status, 200);
}
