//! Faults of the store and of the lock service.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use polylock_core::memory::Reachable;
use polylock_tower::HeldLock;
use polylock_tower::idempotency::ResponseStore as _;
use tokio::sync::mpsc;
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::support::{Handler, Payments, Scene, StoreFault, post};
use crate::support::{InTime as _, break_lock, send, until};

/// Its status would not be stored, so a repetition could not be read.
#[tokio::test(start_paused = true)]
async fn a_call_of_grpc_with_a_key_is_not_handled() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer());
    let mut call = post("a");
    let content_type = "application/grpc".parse().expect("a header");
    call.headers_mut().insert("content-type", content_type);
    let refused = send(&service, call).await;
    assert_eq!(refused.header("grpc-status"), Some("13"), "INTERNAL");
    assert_eq!(payments.charged(), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_handled_while_responses_cannot_be_read() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    for (fault, after) in [
        (StoreFault::Unreadable, Duration::ZERO),
        (StoreFault::Silent, TIMEOUT),
    ] {
        let (scene, payments) = (Scene::new(), Payments::default());
        let service = payments.behind(&scene.layer().with_store_timeout(TIMEOUT));
        scene.store.set(fault);
        let began = tokio::time::Instant::now();
        let refused = send(&service, post("a")).await;
        refused.assert_refused(503, "idempotency-store-unavailable");
        assert_eq!(began.elapsed(), after, "{fault:?}");
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert!(!refused.body.contains("down"));
        assert_eq!(payments.charged(), 0, "{fault:?}");
        scene.store.set(StoreFault::None);
        assert_eq!(send(&service, post("a")).await.body, "charge 1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_not_stored_is_given_to_the_client() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer());
    scene.store.set(StoreFault::Unwritable);
    assert_eq!(send(&service, post("a")).await.body, "charge 1");
    scene.store.set(StoreFault::None);
    assert_eq!(send(&service, post("a")).await.body, "charge 2");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_moment_is_asked_again() {
    for lost in 1..=4 {
        let (scene, payments) = (Scene::new(), Payments::default());
        let service = payments.behind(&scene.layer());
        scene.store.set(StoreFault::LosesPuts(lost));
        let began = tokio::time::Instant::now();
        let first = send(&service, post("a")).await;
        assert_eq!((first.status, &first.body[..]), (201, "charge 1"));
        let after = began.elapsed();
        assert!(after < Duration::from_secs(1), "answered after {after:?}");
        assert!(
            send(&service, post("a")).await.is_replayed(),
            "{lost} lost writes"
        );
    }
}

/// As one that restarts.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_seconds_is_asked_until_it_is_back() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer());
    scene.store.set(StoreFault::Unwritable);
    let restart = async {
        // In the last quarter of its time it may still take the whole response.
        tokio::time::sleep(Duration::from_millis(4_100)).await;
        scene.store.set(StoreFault::None);
    };
    let (first, ()) = tokio::join!(send(&service, post("a")), restart);
    assert_eq!((first.status, &first.body[..]), (201, "charge 1"));
    assert!(send(&service, post("a")).await.is_replayed());
}

/// As a database with a limit of its own.
#[tokio::test(start_paused = true)]
async fn that_there_was_a_response_is_recorded_if_it_is_too_large_for_the_store() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer());
    scene.store.set(StoreFault::SmallPuts(60));
    assert_eq!(send(&service, post("a")).await.body, "charge 1");
    let again = send(&service, post("a")).await;
    again.assert_refused(409, "idempotency-response-not-kept");
    assert_eq!(payments.charged(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_may_have_no_limit_of_time() {
    for limit in [Duration::MAX, Duration::MAX / 2] {
        let (scene, payments) = (Scene::new(), Payments::default());
        let service = payments.behind(&scene.layer().with_store_timeout(limit));
        assert_eq!(send(&service, post("a")).await.body, "charge 1");
        assert!(send(&service, post("a")).await.is_replayed());
    }
}

/// As one on a connection that a firewall has forgotten.
#[tokio::test(start_paused = true)]
async fn a_lookup_without_an_answer_is_repeated_in_time() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer());
    scene.store.set(StoreFault::SilentLookup);
    let began = tokio::time::Instant::now();
    assert_eq!(send(&service, post("a")).await.body, "charge 1");
    let after = began.elapsed();
    assert!(after < Duration::from_secs(4), "answered after {after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_put_without_an_answer_is_repeated_in_time() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer().with_store_timeout(TIMEOUT));
    scene.store.set(StoreFault::SilentPut);
    let began = tokio::time::Instant::now();
    assert_eq!(send(&service, post("a")).await.body, "charge 1");
    let after = began.elapsed();
    assert!(after < TIMEOUT, "answered after {after:?}");
    assert!(send(&service, post("a")).await.is_replayed());
}

/// As one that connects anew for each put.
#[tokio::test(start_paused = true)]
async fn a_put_that_takes_seconds_is_not_dropped() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer());
    let slow = StoreFault::SlowPuts(Duration::from_secs(2));
    scene.store.set(slow);
    assert_eq!(send(&service, post("a")).await.body, "charge 1");
    let again = send(&service, post("a")).await;
    assert!(again.is_replayed(), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_finds_another_response_was_not_alone() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer());
    scene.store.set(StoreFault::RefusesPuts);
    let refused = send(&service, post("a")).await;
    refused.assert_refused(503, "lock-lost");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_was_not_alone_returns_the_stored_response_despite_equal_tokens() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let apart = Scene {
        store: Arc::clone(&scene.store),
        ..Scene::new()
    };
    let services =
        [&scene, &apart].map(|scene| payments.slow(&scene.layer(), Duration::from_millis(100)));
    let [one, other] = &services;
    let (one, other) = tokio::join!(send(one, post("a")), send(other, post("a")));
    assert_eq!(payments.charged(), 2);
    assert_eq!((one.status, other.status), (201, 201));
    assert_eq!(one.body, other.body);
    assert_ne!(one.is_replayed(), other.is_replayed());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_handled_while_locks_cannot_be_reached_and_the_rest_is_repeated() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.behind(&scene.layer());
    send(&service, post("a")).await;
    scene.memory.faults().set_reachable(Reachable::Cut);
    assert!(send(&service, post("a")).await.is_replayed());
    let refused = send(&service, post("b")).await;
    refused.assert_refused(503, "lock-unavailable");
    assert_eq!(payments.charged(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_loses_its_lock_is_dropped_and_nothing_is_stored() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let service = payments.slow(&scene.layer(), Duration::from_secs(5));
    let lost = async {
        until("the request is handled", || payments.charged() > 0).await;
        break_lock(&scene.memory, "pay:/a".to_owned()).await;
    };
    let (seen, ()) = tokio::join!(send(&service, post("a")), lost);
    seen.assert_refused(503, "lock-lost");
    assert!(!seen.headers.contains_key("retry-after"));
    assert!(scene.store.kept.is_empty());
    assert_eq!(send(&service, post("a")).await.body, "charge 2");
}

/// A handler that shows the lock under which it runs.
fn showing() -> (Handler, mpsc::UnboundedReceiver<HeldLock>) {
    let (handling, handled) = mpsc::unbounded_channel();
    let handler = Handler::new(service_fn(move |request: Request<Full<Bytes>>| {
        let held = request.extensions().get::<HeldLock>().cloned();
        let held = held.expect("the layer has put it there");
        handling.send(held).expect("the test is there");
        async { Ok(Response::new(Full::from("paid"))) }
    }));
    (handler, handled)
}

/// Breaks the lock of a request that is storing its response.
async fn lose_while_storing(scene: &Scene, handled: &mut mpsc::UnboundedReceiver<HeldLock>) {
    let puts = &scene.store.puts;
    until("a put waits", || puts.load(Ordering::SeqCst) > 0).await;
    break_lock(&scene.memory, "pay:/a".to_owned()).await;
    let held = handled.recv().await.expect("it was handled");
    held.lost().in_time("the loss").await;
}

/// What is stored decides: a repetition may have been handled under the next lock.
#[tokio::test(start_paused = true)]
async fn a_response_that_is_not_stored_without_the_lock_is_not_returned() {
    for is_handled_again in [false, true] {
        let scene = Scene::new();
        let (handler, mut handled) = showing();
        let service = scene.layer().layer(handler);
        scene.store.set(StoreFault::WaitingPuts);
        let lost = async {
            lose_while_storing(&scene, &mut handled).await;
            if is_handled_again {
                scene.store.set(StoreFault::None);
                assert!(!send(&service, post("a")).await.is_replayed());
                scene.store.set(StoreFault::WaitingPuts);
            }
        };
        let (seen, ()) = tokio::join!(send(&service, post("a")), lost);
        match is_handled_again {
            true => assert!(seen.is_replayed(), "{}", seen.body),
            false => drop(seen.assert_refused(503, "lock-lost")),
        }
    }
}

/// The handler has done its work under the lock.
#[tokio::test(start_paused = true)]
async fn a_response_is_stored_and_returned_although_the_lock_is_lost_meanwhile() {
    let scene = Scene::new();
    let (handler, mut handled) = showing();
    let service = scene.layer().layer(handler);
    scene.store.set(StoreFault::WaitingPuts);
    let lost = async {
        lose_while_storing(&scene, &mut handled).await;
        scene.store.gate.notify_one();
    };
    let (seen, ()) = tokio::join!(send(&service, post("a")), lost);
    assert_eq!((seen.status, &seen.body[..]), (200, "paid"));
    assert!(!seen.is_replayed());
    let again = send(&service, post("a")).await;
    assert_eq!((again.is_replayed(), &again.body[..]), (true, "paid"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_gives_its_key_back() {
    let (scene, payments) = (Scene::new(), Payments::default());
    let layer = scene.layer();
    let panics = layer.layer(Handler::new(service_fn(|_| async { panic!("a test") })));
    let ended = tokio::spawn(panics.oneshot(post("a"))).answered().await;
    assert!(ended.is_err_and(|ended| ended.is_panic()));
    until("the key is given back", || scene.memory.live_keys() == 0).await;
    let again = send(&payments.behind(&layer), post("a")).await;
    assert_eq!(again.body, "charge 1");
}

#[tokio::test(start_paused = true)]
async fn nothing_of_the_content_is_in_debug() {
    let scene = Scene::new();
    let service = Payments::default().behind(&scene.layer());
    send(&service, post("a")).await;
    let key = polylock_core::LockKey::new("pay:/a").unwrap();
    let stored = scene.store.get(&key).await.unwrap();
    for text in [
        format!("{stored:?}"),
        format!("{:?}", scene.store),
        format!("{service:?}"),
    ] {
        let is_told = text.contains("charge") || text.contains("location");
        assert!(!is_told, "{text}");
    }
}
