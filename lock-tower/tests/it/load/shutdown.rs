//! Servers that are shut down.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use lock_testkit::servers::{RedisOptions, RedisServer};
use tokio::net::TcpStream;

use super::app::{by_path, connect, locker};
use super::client::load;
use super::server::Server;

use crate::support::{InTime as _, SOON, Stage, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graceful_shutdown_answers_what_is_there_and_leaves_nothing_held() {
    let redis = RedisServer::start(RedisOptions::new());
    let locks = connect(&redis.url()).await;
    let locker = locker(Arc::clone(&locks), |builder| builder.wait(SOON));
    let stage = Stage::new();
    let server = Server::start(stage.router(by_path(locker.clone()))).await;
    let address = server.address;
    // Four are inside, and behind each of them one waits.
    let sent = tokio::spawn(async move {
        load(&[address], 8, 8, |number| format!("/key-{}", number % 4)).await
    });
    stage.happened(4).await;
    until("four wait", || locker.waiters() == 4).await;

    let stopped = tokio::spawn(server.shut_down(SOON));
    let deadline = std::time::Instant::now() + SOON;
    while TcpStream::connect(address).await.is_ok() {
        assert!(std::time::Instant::now() < deadline, "it still listens");
    }
    assert_eq!(stage.events().len(), 4, "nothing has ended by then");
    stage.let_go(8);
    let replies = sent.answered().await.expect("every request is answered");
    assert!(replies.iter().all(|reply| reply.status == StatusCode::OK));
    stopped.await.expect("it ends in time");

    assert!(locker.shutdown(Duration::from_secs(5)).await);
    let admin = locks.admin().expect("Redis has one");
    assert_eq!(admin.list("").await.expect("it answers"), []);
    assert_eq!((locker.live_keys(), locker.waiters()), (0, 0));
}
