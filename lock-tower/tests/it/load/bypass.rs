//! What a service does while its lock service is down, as configured.

use std::time::Instant;

use http::StatusCode;
use http::header::RETRY_AFTER;
use lock_testkit::servers::{RedisOptions, RedisServer};
use lock_tower::Reason;

use super::app::{Setup, UNPROTECTED};
use super::client::{Client, Reply};
use super::ledger::Ledger;
use super::server::Server;
use crate::support::SOON;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_bypass_requests_run_and_know_that_they_are_unprotected() {
    let place = Place::new(true).await;
    let protected = place.post().await;
    assert_eq!(protected.status, StatusCode::OK);
    assert!(!is_unprotected(&protected));

    place.redis.kill();
    for _ in 0..3 {
        let reply = place.post().await;
        assert_eq!(reply.status, StatusCode::OK);
        assert!(is_unprotected(&reply));
    }
    place.redis.restart();
    place.resumes(|reply| !is_unprotected(reply)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_bypass_no_request_runs() {
    let place = Place::new(false).await;
    place.redis.kill();
    for _ in 0..3 {
        let reply = place.post().await;
        assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(reply.headers.contains_key(RETRY_AFTER));
        assert!(reply.text().contains(Reason::Unavailable.as_str()));
    }
    let ledger = Ledger::new(place.dir.path());
    assert_eq!(ledger.entries("hot"), []);
    place.redis.restart();
    place.resumes(|reply| reply.status == StatusCode::OK).await;
}

#[derive(Debug)]
struct Place {
    redis: RedisServer,
    server: Server,
    dir: tempfile::TempDir,
}

impl Place {
    async fn new(bypass: bool) -> Self {
        let redis = RedisServer::start(RedisOptions::new());
        let dir = tempfile::tempdir().expect("a directory");
        let setup = Setup {
            bypass,
            wait: std::time::Duration::from_millis(500),
            ..Setup::new(format!("{}?timeout=200ms", redis.url()), dir.path())
        };
        let server = Server::start(setup.router().await).await;
        Self { redis, server, dir }
    }

    async fn post(&self) -> Reply {
        let reply = Client::new(self.server.address)
            .post("/work/hot", "1")
            .await;
        reply.expect("it is answered")
    }

    /// Nobody restarts the service; it finds its server again.
    async fn resumes(&self, is_back: impl Fn(&Reply) -> bool + Send) {
        let deadline = Instant::now() + SOON;
        loop {
            let reply = self.post().await;
            if is_back(&reply) {
                break;
            }
            assert!(Instant::now() < deadline, "it does not resume: {reply:?}");
        }
    }
}

fn is_unprotected(reply: &Reply) -> bool {
    reply.headers.contains_key(UNPROTECTED)
}
