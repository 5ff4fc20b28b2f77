//! Locks that are lost while a handler runs.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use lock_core::fencing::StaleToken;
use lock_core::{DistributedLock, FencingToken, LockKey};
use lock_testkit::servers::{RedisOptions, RedisServer};
use tokio::task::JoinHandle;

use super::app::{by_path, connect, locker};
use super::client::{Client, Reply};
use super::server::Server;
use super::stage::{Event, Stage};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_whose_lock_is_broken_is_dropped_and_its_late_write_refused() {
    let place = Place::new().await;
    let admin = place.locks.admin().expect("Redis has one");
    let (old, sent) = place.enter().await;
    let key = LockKey::new("load:hot").expect("a key");
    let broken = admin.break_lock(&key, "the test wants it").await;
    assert!(broken.expect("Redis answers").is_some(), "it was held");
    place.assert_replaced(old, sent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_whose_lock_the_server_forgets_is_dropped_and_its_late_write_refused() {
    let place = Place::new().await;
    let (old, sent) = place.enter().await;
    assert!(!place.redis.command(&["FLUSHALL"]).is_error());
    place.assert_replaced(old, sent).await;
}

#[derive(Debug)]
struct Place {
    redis: RedisServer,
    locks: Arc<dyn DistributedLock>,
    stage: Stage,
    server: Server,
}

type Sent = JoinHandle<hyper::Result<Reply>>;

impl Place {
    async fn new() -> Self {
        let redis = RedisServer::start(RedisOptions::new());
        let locks = connect(&redis.url()).await;
        let locker = locker(Arc::clone(&locks), |builder| {
            builder.request(|request| request.with_ttl(Duration::from_secs(1)))
        });
        let stage = Stage::new();
        let server = Server::start(stage.router(by_path(locker))).await;
        Self {
            redis,
            locks,
            stage,
            server,
        }
    }

    fn send(&self) -> Sent {
        let mut client = Client::new(self.server.address);
        tokio::spawn(async move { client.post("/hot", "1").await })
    }

    /// Gets a request into the handler, which stays there.
    async fn enter(&self) -> (FencingToken, Sent) {
        let sent = self.send();
        match self.stage.happened(1).await[..] {
            [Event::Entered(token)] => (token, sent),
            ref events => panic!("{events:?}"),
        }
    }

    /// The handler is dropped, its client is told, and the next one writes with a larger token.
    async fn assert_replaced(&self, old: FencingToken, sent: Sent) {
        let reply = sent.await.expect("no panic").expect("it is answered");
        assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
        let problem: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert_eq!(problem["type"], "urn:polylock:lock-lost");
        let events = self.stage.events();
        assert_eq!(events, [Event::Entered(old), Event::Dropped(old)]);

        self.stage.let_go(1);
        let reply = self.send().await.expect("no panic");
        assert_eq!(reply.expect("it is answered").status, StatusCode::OK);
        let [.., Event::Entered(new), Event::Finished(_)] = self.stage.events()[..] else {
            panic!("{:?}", self.stage.events())
        };
        let mut store = Store::default();
        assert_eq!(store.write(old), Ok(()));
        assert_eq!(store.write(new), Ok(()));
        let late = store.write(old).expect_err("a newer one has written");
        assert_eq!((late.token, late.newest), (old, Some(new)));
    }
}

/// Refuses a token that is smaller than one that it has seen.
#[derive(Debug, Default)]
struct Store {
    newest: Option<FencingToken>,
}

impl Store {
    fn write(&mut self, token: FencingToken) -> Result<(), StaleToken> {
        match self.newest {
            Some(newest) if token < newest => {
                Err(StaleToken::new("hot", token).with_newest(newest))
            }
            _ => {
                self.newest = Some(token);
                Ok(())
            }
        }
    }
}
