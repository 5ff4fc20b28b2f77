//! What a hot key does to the others.

use std::time::Duration;

use axum::routing::post;
use http::StatusCode;
use lock_testkit::servers::{RedisOptions, RedisServer};
use lock_tower::Locker;

use super::app::{by_path, connect, locker};
use super::client::load;
use super::server::Server;

use crate::support::{InTime as _, Stage, until};

const QUEUED: usize = 16;

/// By order and not by time: the hot key is held all the while, with a queue in each of two
/// processes, so that a request that waits behind it is not answered at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_does_not_delay_the_others() {
    let redis = RedisServer::start(RedisOptions::new());
    let stage = Stage::new();
    let (locker, server) = start(&redis, &stage).await;
    let (other_locker, other_server) = start(&redis, &stage).await;
    let (first, second) = (server.address, other_server.address);
    let hot = [first, second].map(|address| {
        let queued = async move { load(&[address], QUEUED, QUEUED, |_| "/hot".to_owned()).await };
        tokio::spawn(queued)
    });
    stage.happened(1).await;
    until("both processes have a queue for the hot key", || {
        locker.waiters() + other_locker.waiters() == 2 * (QUEUED - 1)
    })
    .await;

    let servers = [first, second];
    let others = load(&servers, 8, 1_000, |n| format!("/cold/{n}"));
    let others = others.in_time("an answer to each request for another key");
    for reply in others.await {
        assert_eq!(reply.status, StatusCode::OK, "{reply:?}");
    }
    let inside = stage.events();
    assert_eq!(inside.len(), 1, "the hot key was not held: {inside:?}");

    stage.let_go(2 * QUEUED);
    for hot in hot {
        for reply in hot.answered().await.expect("no panic") {
            assert_eq!(reply.status, StatusCode::OK, "{reply:?}");
        }
    }
}

/// One of the processes: `/hot` stays on the stage, and `/cold/{key}` does nothing under its lock.
async fn start(redis: &RedisServer, stage: &Stage) -> (Locker, Server) {
    let locks = connect(&redis.url()).await;
    let locker = locker(locks, |builder| builder.wait(Duration::from_secs(90)));
    let layer = by_path(locker.clone());
    let router = stage.router(layer.clone());
    let router = router.route("/cold/{key}", post("done").layer(layer));
    (locker, Server::start(router).await)
}
