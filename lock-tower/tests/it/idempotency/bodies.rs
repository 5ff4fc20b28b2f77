//! Bodies that are large, slow or broken.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, Limited, StreamBody};
use polylock_tower::OnDisconnect;
use polylock_tower::idempotency::Idempotency;
use tokio::sync::Notify;
use tower::util::BoxCloneService;
use tower::{Layer as _, ServiceExt as _, service_fn};

use super::support::{Scene, post};
use crate::support::{InTime as _, head, send, settle, spawn, until};

#[tokio::test(start_paused = true)]
async fn a_request_that_is_too_large_or_breaks_off_is_not_handled() {
    const TOO_LARGE: (u16, &str) = (413, "idempotency-body-too-large");
    const UNREADABLE: (u16, &str) = (400, "idempotency-body-unreadable");
    let (service, handled) = streaming(&[], None);
    let beyond_an_outer_limit = Body::new(Limited::new(frames(&["123", "45"], None), 4));
    for (body, (status, reason)) in [
        (Body::from("9 bytes.."), TOO_LARGE),
        (frames(&["12345", "6789"], None), TOO_LARGE),
        (beyond_an_outer_limit, TOO_LARGE),
        (frames(&["123"], Some(Last::Error)), UNREADABLE),
    ] {
        let refused = send(&service, post("a").map(|_| body)).await;
        refused.assert_refused(status, reason);
    }
    assert_eq!(handled.load(Ordering::SeqCst), 0);
    for (key, body) in [
        ("a", Body::from("10 euros")),
        ("b", frames(&["12345", "678"], None)),
    ] {
        assert_eq!(send(&service, post(key).map(|_| body)).await.status, 200);
    }
    assert_eq!(handled.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn the_frames_of_a_request_are_freed_while_it_is_read() {
    let buffer: Arc<[u8]> = Arc::from(&b"x"[..]);
    let most = Arc::new(AtomicUsize::new(0));
    let frame = {
        let (buffer, most) = (Arc::clone(&buffer), Arc::clone(&most));
        move |_| {
            most.fetch_max(Arc::strong_count(&buffer), Ordering::SeqCst);
            let data = Bytes::from_owner(Arc::clone(&buffer));
            Ok::<_, Infallible>(Frame::data(data))
        }
    };
    let body = Body::new(StreamBody::new(stream::iter((0..8).map(frame))));
    let (service, _) = streaming(&[], None);
    assert_eq!(send(&service, post("a").map(|_| body)).await.status, 200);
    assert_eq!(most.load(Ordering::SeqCst), 2, "frames are kept");
}

#[tokio::test(start_paused = true)]
async fn a_response_of_any_number_of_frames_is_repeated_in_one() {
    for (chunks, whole) in [(&["123", "", "45678"][..], "12345678"), (&[], "")] {
        let (service, handled) = streaming(chunks, None);
        for _ in 0..2 {
            let response = head(&service, asked()).await;
            let size = response.body().size_hint().exact();
            assert_eq!(size, Some(whole.len() as u64));
            assert_eq!(response.body().is_end_stream(), whole.is_empty());
            let body = response.into_body().collect().await.unwrap();
            assert_eq!(body.to_bytes(), whole);
        }
        assert_eq!(handled.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_come_once() {
    let (service, _) = streaming(&["1"], Some(Last::Trailers));
    for trailers in [true, false] {
        let body = head(&service, asked()).await.into_body();
        // HTTP/1.1 has trailers after a body of unknown length alone.
        assert_eq!(body.size_hint().exact().is_none(), trailers);
        let body = body.collect().await;
        assert_eq!(body.unwrap().trailers().is_some(), trailers);
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_too_large_comes_once_and_is_not_made_again() {
    let (service, handled) = streaming(&["12345", "6789", "0"], None);
    let response = head(&service, asked()).await;
    assert!(response.body().size_hint().lower() >= 9);
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "1234567890");
    let again = send(&service, asked()).await;
    again.assert_refused(409, "idempotency-response-not-kept");
    assert_eq!(handled.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_breaks_off_does_so_for_the_client_and_is_not_made_again() {
    let (service, handled) = streaming(&["123"], Some(Last::Error));
    let response = head(&service, asked()).await;
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let first = body.frame().in_time("a frame").await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "123");
    let error = body.frame().in_time("a frame").await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "it breaks off");
    assert!(body.frame().in_time("a frame").await.is_none());
    assert_eq!(send(&service, asked()).await.status, 409);
    assert_eq!(handled.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_response_is_read_although_its_client_leaves_meanwhile() {
    let (scene, gate) = (Scene::new(), Arc::new(Notify::new()));
    let handled = Arc::new(AtomicUsize::new(0));
    let handler = {
        let (handled, gate) = (Arc::clone(&handled), Arc::clone(&gate));
        service_fn(move |_: Request<Body>| {
            handled.fetch_add(1, Ordering::SeqCst);
            let gate = Arc::clone(&gate);
            let first = Ok::<_, Infallible>(Frame::data(Bytes::from("123")));
            let last = async move {
                gate.notified().await;
                Ok(Frame::data(Bytes::from("45")))
            };
            let frames = stream::iter([first]).chain(stream::once(last));
            let body = Body::new(StreamBody::new(frames));
            std::future::ready(Ok::<_, Infallible>(Response::new(body)))
        })
    };
    let layer = scene.layer().with_on_disconnect(OnDisconnect::Cancel);
    let service: Idempotency<Streaming> = layer.layer(handler.boxed_clone());
    let client = spawn(&service, asked());
    until("it is handled", || handled.load(Ordering::SeqCst) > 0).await;
    settle().await; // the first frame is read
    client.abort();
    settle().await;
    gate.notify_one();
    until("the lock is free", || scene.memory.live_keys() == 0).await;
    let again = send(&service, asked()).await;
    assert_eq!((&again.body[..], again.is_replayed()), ("12345", true));
    assert_eq!(handled.load(Ordering::SeqCst), 1);
}

type Streaming = BoxCloneService<Request<Body>, Response<Body>, Infallible>;

#[derive(Clone, Copy)]
enum Last {
    Error,
    Trailers,
}

fn frames(chunks: &'static [&'static str], last: Option<Last>) -> Body {
    let data = chunks
        .iter()
        .map(|chunk| Bytes::from_static(chunk.as_bytes()));
    let last = last.map(|last| match last {
        Last::Error => Err(io::Error::other("it breaks off")),
        Last::Trailers => Ok(Frame::trailers(HeaderMap::new())),
    });
    let frames: Vec<_> = data.map(|data| Ok(Frame::data(data))).chain(last).collect();
    Body::new(StreamBody::new(stream::iter(frames)))
}

fn asked() -> Request<Body> {
    post("a").map(|_| Body::empty())
}

/// A service that answers with these frames, and how often it has; with limits of 8 bytes.
fn streaming(
    chunks: &'static [&'static str],
    last: Option<Last>,
) -> (Idempotency<Streaming>, Arc<AtomicUsize>) {
    let handled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&handled);
    let handler = service_fn(move |_: Request<Body>| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(Response::new(frames(chunks, last))))
    });
    let layer = Scene::new().layer().with_max_request_body(8);
    let layer = layer.with_max_response_body(8);
    (layer.layer(handler.boxed_clone()), handled)
}
