//! Handlers that panic.

use axum::Router;
use axum::routing::post;
use http::StatusCode;
use lock_tower::{HeldLock, OnDisconnect};

use super::app::{by_path, connect, locker};
use super::client::Client;
use super::server::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_frees_its_lock() {
    assert_freed(OnDisconnect::Cancel).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_runs_to_completion_and_panics_frees_its_lock() {
    assert_freed(OnDisconnect::RunToCompletion).await;
}

async fn assert_freed(on_disconnect: OnDisconnect) {
    // A request that does not get the lock at once is answered within the default of 2 s.
    let locker = locker(connect("memory:").await, |builder| builder);
    let layer = by_path(locker).with_on_disconnect(on_disconnect);
    let router = Router::new()
        .route("/panic/{key}", post(panics))
        .route("/calm/{key}", post("done"))
        .route_layer(layer);
    let server = Server::start(router).await;
    let mut client = Client::new(server.address);
    for _ in 0..10 {
        let broken = client.post("/panic/hot", "panic").await;
        assert!(broken.is_err(), "a panic was answered: {broken:?}");
        let reply = client.post("/calm/hot", "calm").await;
        assert_eq!(reply.expect("it is answered").status, StatusCode::OK);
    }
}

async fn panics(held: HeldLock) {
    held.ensure_held().expect("it is held");
    panic!("what the handler does is wrong");
}
