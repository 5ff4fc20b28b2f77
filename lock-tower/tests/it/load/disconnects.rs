//! Clients that close their connections.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::StatusCode;
use lock_tower::{KeyLockLayer, Locker, OnDisconnect};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::app::{by_path, connect, locker};
use super::client::Client;
use super::server::Server;

use crate::support::{Event, InTime as _, Stage, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_the_queue_is_out_of_it_at_once() {
    let locker = patient().await;
    let (stage, server) = start(by_path(locker.clone())).await;
    let _holder = send(server.address).await;
    stage.happened(1).await;
    let queued = send(server.address).await;
    until("it is queued", || locker.waiters() == 1).await;
    let began = Instant::now();
    drop(queued);
    until("it has left the queue", || locker.waiters() == 0).await;
    println!("out of the queue after {:?}", began.elapsed());
    assert_eq!(stage.events().len(), 1, "the holder is inside all the time");
    stage.let_go(2);
    assert_ok(server.address).await;
    let [
        Event::Entered(first),
        Event::Finished(_),
        Event::Entered(second),
        ..,
    ] = stage.events()[..]
    else {
        panic!("{:?}", stage.events())
    };
    assert!(first < second);
    assert_eq!(stage.events().len(), 4, "the client that left got nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_its_handler_cancels_it() {
    let locker = patient().await;
    let (stage, server) = start(by_path(locker.clone())).await;
    let client = send(server.address).await;
    stage.happened(1).await;
    let began = Instant::now();
    drop(client);
    let events = stage.happened(2).await;
    let [Event::Entered(entered), Event::Dropped(dropped)] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(entered, dropped);
    until("the lock is free", || locker.live_keys() == 0).await;
    println!("the lock was free after {:?}", began.elapsed());
    stage.let_go(1);
    assert_ok(server.address).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_runs_to_completion_keeps_its_lock_until_then() {
    let locker = patient().await;
    let layer = by_path(locker.clone()).with_on_disconnect(OnDisconnect::RunToCompletion);
    let (stage, server) = start(layer).await;
    let client = send(server.address).await;
    stage.happened(1).await;
    let address = server.address;
    let next = tokio::spawn(async move { Client::new(address).post("/hot", "next").await });
    until("another one is queued", || locker.waiters() == 1).await;
    drop(client);
    // A connection that is closed later is closed for its server later as well.
    let other = send(server.address).await;
    until("a third one is queued", || locker.waiters() == 2).await;
    drop(other);
    until("the third one has left", || locker.waiters() == 1).await;
    assert_eq!(
        stage.events().len(),
        1,
        "the handler is inside all the time"
    );

    stage.let_go(2);
    let next = next.answered().await.expect("no panic");
    assert_eq!(next.expect("it is answered").status, StatusCode::OK);
    let events = stage.events();
    let [
        Event::Entered(first),
        Event::Finished(finished),
        Event::Entered(second),
        Event::Finished(_),
    ] = events[..]
    else {
        panic!("{events:?}")
    };
    assert!(first == finished && first < second, "{events:?}");
    until("nothing is held", || locker.live_keys() == 0).await;
}

async fn patient() -> Locker {
    locker(connect("memory:").await, |builder| {
        builder.wait(Duration::from_secs(60))
    })
}

async fn start(layer: KeyLockLayer) -> (Stage, Server) {
    let stage = Stage::new();
    let server = Server::start(stage.router(layer)).await;
    (stage, server)
}

/// A request on a connection that closes when it is dropped.
async fn send(server: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(server).await.expect("it listens");
    let request = b"POST /hot HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(request).await.expect("it is open");
    stream
}

async fn assert_ok(server: SocketAddr) {
    let reply = Client::new(server).post("/hot", "another").await;
    assert_eq!(reply.expect("it is answered").status, StatusCode::OK);
}
