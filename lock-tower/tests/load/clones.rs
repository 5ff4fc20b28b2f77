//! Two servers with clones of one router.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use lock_core::memory::Memory;
use lock_tower::Locker;

use super::app::{Setup, by_path, locker};
use super::client::{Client, load};
use super::ledger::Ledger;
use super::server::Server;
use super::stage::Stage;
use super::support::until;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clones_of_a_router_exclude_each_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let router = Setup::new("memory:", dir.path()).router().await;
    let servers = [
        Server::start(router.clone()).await,
        Server::start(router).await,
    ];
    let addresses = servers.each_ref().map(|server| server.address);
    let replies = load(&addresses, 16, 1_000, |_| "/work/hot".to_owned()).await;
    assert!(replies.iter().all(|reply| reply.status == StatusCode::OK));
    let ledger = Ledger::new(dir.path());
    assert_eq!(ledger.overlaps("hot"), 0);
    assert_eq!(ledger.count("hot"), 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clones_of_a_router_share_the_bound_of_a_queue() {
    let (stage, locker) = (Stage::new(), bounded());
    let router = stage.router(by_path(locker.clone()));
    let servers = [
        Server::start(router.clone()).await,
        Server::start(router).await,
    ];
    let mut sent = Vec::new();
    for (number, wanted) in [0, 1, 2, 3].into_iter().enumerate() {
        let mut client = Client::new(servers[number % 2].address);
        sent.push(tokio::spawn(
            async move { client.post("/hot", "early").await },
        ));
        until("it has come", || {
            (locker.live_keys(), locker.waiters()) == (1, wanted)
        })
        .await;
    }
    for server in &servers {
        let refused = Client::new(server.address).post("/hot", "late").await;
        let refused = refused.expect("it is answered");
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    }
    stage.let_go(sent.len());
    for reply in sent {
        let reply = reply.await.expect("no panic").expect("it is answered");
        assert_eq!(reply.status, StatusCode::OK);
    }
}

/// One may hold a key and three wait for it.
fn bounded() -> Locker {
    locker(Arc::new(Memory::new()), |builder| {
        builder.max_waiters_per_key(3).wait(Duration::from_secs(60))
    })
}
