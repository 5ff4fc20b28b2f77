//! Clients that do not read what they are sent.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use http_body_util::BodyExt as _;
use lock_tower::HoldUntil;

use super::app::{by_path, connect, locker};
use super::client::Client;
use super::server::Server;
use crate::support::SOON;

/// More than the buffers of the sockets take.
const CHUNKS: usize = 1024;
static CHUNK: [u8; 64 * 1024] = [b'x'; 64 * 1024];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_cut_off_at_the_maximum() {
    let max = Duration::from_millis(300);
    let server = start(max).await;
    let began = Instant::now();
    let mut slow = Client::new(server.address);
    let body = slow.open("/stream/hot").await;
    let next = Client::new(server.address).post("/calm/hot", "next").await;
    let waited = began.elapsed();
    assert_eq!(next.expect("it is answered").status, StatusCode::OK);
    assert!(waited >= max, "the body was not protected: {waited:?}");
    assert!(waited < SOON, "the next request waited for {waited:?}");
    let rest = body.collect().await;
    assert!(rest.is_err(), "the reader takes a part for the whole");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_in_time_gets_all_of_the_body_and_frees_the_lock() {
    let server = start(Duration::from_secs(60)).await;
    let mut client = Client::new(server.address);
    let body = client.open("/stream/hot").await.collect().await;
    let body = body.expect("nothing cuts it off").to_bytes();
    assert_eq!(body.len(), CHUNKS * CHUNK.len());
    let next = client.post("/calm/hot", "next").await;
    let next = next.expect("it is answered");
    assert_eq!(next.status, StatusCode::OK);
    assert!(next.took < SOON, "the next request took {:?}", next.took);
}

async fn start(max: Duration) -> Server {
    let locker = locker(connect("memory:").await, |builder| {
        builder.wait(Duration::from_secs(30))
    });
    let held = by_path(locker.clone()).with_hold(HoldUntil::BodyEnd { max });
    let router = Router::new()
        .route("/stream/{key}", post(streamed).layer(held))
        .route("/calm/{key}", post("done").layer(by_path(locker)));
    Server::start(router).await
}

async fn streamed() -> Body {
    let chunk = Ok::<_, Infallible>(Bytes::from_static(&CHUNK));
    Body::from_stream(stream::iter(std::iter::repeat_n(chunk, CHUNKS)))
}
