//! What a hot key does to the others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use lock_testkit::servers::{RedisOptions, RedisServer};
use tokio::task::JoinSet;

use super::app::Setup;
use super::client::{Client, load};
use super::instance::Instance;
use super::support::percentile;

/// Below this, a percentile tells of the scheduler of a busy machine and not of locks.
const FLOOR: Duration = Duration::from_millis(5);
/// The two cases take turns, so that whatever else the machine does meets both of them.
const ROUNDS: usize = 9;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_does_not_delay_the_others() {
    let redis = RedisServer::start(RedisOptions::new());
    let dir = tempfile::tempdir().expect("a directory");
    // It waits, and leaves the processor to the others.
    let setup = Setup {
        work: Duration::from_millis(10),
        ..Setup::new(redis.url(), dir.path())
    };
    let instance = Instance::start(&setup).await;
    let address = instance.address;
    cold(address, "warm", 100).await;

    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        alone.push(cold(address, &format!("alone-{round}"), 200).await);
        let hot = Hot::start(address, 16);
        beside.push(cold(address, &format!("beside-{round}"), 200).await);
        hot.end().await;
    }
    let (alone, beside) = (percentile(alone, 50), percentile(beside, 50));
    println!("p99 of the others: {alone:?} alone, {beside:?} beside a hot key");
    assert!(
        beside < FLOOR.max(alone * 2),
        "{alone:?} alone, {beside:?} beside a hot key"
    );
}

/// The p99 of requests whose keys differ.
async fn cold(server: SocketAddr, name: &str, requests: usize) -> Duration {
    let name = name.to_owned();
    let replies = load(&[server], 4, requests, move |number| {
        format!("/plain/{name}-{number}")
    })
    .await;
    assert!(replies.iter().all(|reply| reply.status == StatusCode::OK));
    percentile(replies.iter().map(|reply| reply.took), 99)
}

/// Clients that always want the same key.
#[derive(Debug)]
struct Hot {
    ended: Arc<AtomicBool>,
    clients: JoinSet<Vec<Duration>>,
}

impl Hot {
    fn start(server: SocketAddr, clients: usize) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let one = |_| client(server, Arc::clone(&ended));
        let clients = (0..clients).map(one).collect();
        Self { ended, clients }
    }

    async fn end(self) {
        self.ended.store(true, Ordering::Relaxed);
        let waits = self.clients.join_all().await.concat();
        let median = percentile(waits, 50);
        assert!(median > Duration::from_millis(80), "no queue: {median:?}");
    }
}

async fn client(server: SocketAddr, ended: Arc<AtomicBool>) -> Vec<Duration> {
    let (mut client, mut waits) = (Client::new(server), Vec::new());
    while !ended.load(Ordering::Relaxed) {
        let reply = client.post("/slow/hot", "hot").await;
        let reply = reply.expect("it is answered");
        assert_eq!(reply.status, StatusCode::OK);
        waits.push(reply.took);
    }
    waits
}
