//! Locks that are lost while a handler runs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use http::{HeaderMap, StatusCode};
use lock_core::fencing::StaleToken;
use lock_core::{DistributedLock, FencingToken};
use lock_testkit::servers::{RedisOptions, RedisServer};
use lock_tower::{HeldLock, Locker, OnLost};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::app::{REQUEST_ID, by_path, connect, locker};
use super::client::{Client, Reply};
use super::server::Server;

use crate::support::{Event, InTime as _, Stage, break_lock};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_whose_lock_the_server_forgets_is_dropped() {
    let redis = RedisServer::start(RedisOptions::new());
    let (locks, stage) = (connect(&redis.url()).await, Stage::new());
    let server = Server::start(stage.router(by_path(short_leases(&locks)))).await;
    let sent = send(&server, "1");
    let [Event::Entered(old)] = stage.happened(1).await[..] else {
        panic!("{:?}", stage.events())
    };
    assert!(!redis.command(&["FLUSHALL"]).is_error());
    let lost = reply(sent).await;
    assert_eq!(lost.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        lost.text().contains("urn:polylock:lock-lost"),
        "{}",
        lost.text()
    );
    let events = stage.events();
    assert_eq!(events, [Event::Entered(old), Event::Dropped(old)]);

    stage.let_go(1);
    assert_eq!(reply(send(&server, "2")).await.status, StatusCode::OK);
    let [.., Event::Entered(new), Event::Finished(_)] = stage.events()[..] else {
        panic!("{:?}", stage.events())
    };
    assert!(new > old, "{new} comes after {old}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_late_write_of_a_handler_that_goes_on_is_refused_by_the_store() {
    let redis = RedisServer::start(RedisOptions::new());
    let locks = connect(&redis.url()).await;
    let layer = by_path(short_leases(&locks)).with_on_lost(OnLost::Continue);
    let desk = Arc::new(Desk::default());
    let writer = post(write).layer(layer).with_state(Arc::clone(&desk));
    let server = Server::start(Router::new().route("/{key}", writer)).await;

    let late = send(&server, LATE);
    desk.entered.notified().in_time("the first request").await;
    break_lock(&*locks, "load:hot".to_owned()).await;
    let prompt = reply(send(&server, "prompt")).await;
    assert_eq!(prompt.status, StatusCode::OK, "{}", prompt.text());

    desk.go_on.notify_one();
    let late = reply(late).await;
    assert_eq!(late.status, StatusCode::CONFLICT, "{}", late.text());
    let store = desk.store.lock().expect("no panic");
    let [refused] = &store.refused[..] else {
        panic!("{store:?}");
    };
    assert_eq!(refused.newest, store.newest);
    assert_eq!(
        store.newest.map(|newest| newest.to_string()),
        Some(prompt.text())
    );
}

/// Where handlers write.
#[derive(Debug, Default)]
struct Desk {
    store: Mutex<Store>,
    entered: Notify,
    go_on: Notify,
}

const LATE: &str = "late";

/// Writes with the token of its lock, and answers with it. One that is late stays inside until it is
/// told to go on and its lock is lost, and writes all the same.
async fn write(State(desk): State<Arc<Desk>>, held: HeldLock, headers: HeaderMap) -> Response {
    if headers.get(REQUEST_ID).is_some_and(|id| id == LATE) {
        desk.entered.notify_one();
        desk.go_on.notified().await;
        held.lost().await;
    }
    let token = held.fencing_token().expect("Redis has tokens");
    let written = desk.store.lock().expect("no panic").write(token);
    match written {
        Ok(()) => token.to_string().into_response(),
        Err(stale) => (StatusCode::CONFLICT, stale.to_string()).into_response(),
    }
}

/// Refuses a token that is smaller than one that it has seen.
#[derive(Debug, Default)]
struct Store {
    newest: Option<FencingToken>,
    refused: Vec<StaleToken>,
}

impl Store {
    fn write(&mut self, token: FencingToken) -> Result<(), StaleToken> {
        match self.newest {
            Some(newest) if token < newest => {
                let stale = StaleToken::new("hot", token).with_newest(newest);
                self.refused.push(stale.clone());
                Err(stale)
            }
            _ => {
                self.newest = Some(token);
                Ok(())
            }
        }
    }
}

fn short_leases(locks: &Arc<dyn DistributedLock>) -> Locker {
    locker(Arc::clone(locks), |builder| {
        builder.request(|request| request.with_ttl(Duration::from_secs(1)))
    })
}

type Sent = JoinHandle<hyper::Result<Reply>>;

fn send(server: &Server, id: &'static str) -> Sent {
    let mut client = Client::new(server.address);
    tokio::spawn(async move { client.post("/hot", id).await })
}

async fn reply(sent: Sent) -> Reply {
    let replied = sent.answered().await.expect("no panic");
    replied.expect("it is answered")
}
