//! A lock service that stops, dies and comes back while requests go on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use lock_testkit::servers::{Fsync, RedisOptions, RedisServer};
use tokio::task::JoinSet;

use super::app::{Setup, UNPROTECTED};
use super::client::{Client, Reply};
use super::instance::Instance;
use super::ledger::Ledger;
use crate::support::until_within;

/// Longer than requests wait, with time for a busy machine.
const PATIENCE: Duration = Duration::from_secs(8);
const DOWN: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
const TTL: Duration = Duration::from_secs(1);
/// The handler of `slow` takes longer than a lease that is not renewed, the other two none.
const PATHS: [&str; 3] = ["/work/a", "/work/b", "/slow/c"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_answered_and_none_unprotected_while_redis_stops_dies_and_returns() {
    // With every write on the disk, no lock is forgotten by a restart.
    let redis = RedisServer::start(RedisOptions::new().with_aof(Fsync::Always));
    let dir = tempfile::tempdir().expect("a directory");
    let setup = Setup {
        wait: Duration::from_secs(1),
        ttl: TTL,
        work: TTL + TTL / 20,
        ..Setup::new(format!("{}?timeout=300ms", redis.url()), dir.path())
    };
    let instance = Instance::start(&setup).await;
    let traffic = Traffic::start(instance.address, 16);
    traffic.meets(StatusCode::OK, "at first").await;
    redis.stop();
    traffic.meets(DOWN, "while it is stopped").await;
    redis.resume();
    traffic.meets(StatusCode::OK, "after it was stopped").await;
    redis.kill();
    traffic.meets(DOWN, "while it is dead").await;
    redis.restart();
    traffic.meets(StatusCode::OK, "after it was dead").await;
    let replies = traffic.end().await;

    let mut told = BTreeMap::<_, usize>::new();
    for reply in &replies {
        *told.entry(reply.status.as_u16()).or_default() += 1;
        let unprotected = reply.headers.contains_key(UNPROTECTED);
        assert!(!unprotected, "a request ran unprotected: {reply:?}");
        assert!(
            reply.took < PATIENCE,
            "answered after more than {PATIENCE:?}: {reply:?}"
        );
    }
    println!("statuses: {told:?}");
    let known = [200, 409, 429, 503];
    let others = told.keys().filter(|status| !known.contains(status));
    assert_eq!(others.count(), 0, "other statuses than {known:?}: {told:?}");
    let ledger = Ledger::new(dir.path());
    for key in ["a", "b", "c"] {
        assert_serial(&ledger, key);
    }
    let entries = ["a", "b", "c"].map(|key| ledger.entries(key)).concat();
    let done: BTreeSet<_> = entries.iter().map(|one| &one.request).collect();
    assert_eq!(done.len(), entries.len(), "a request was handled twice");
    let undone = replies
        .iter()
        .find(|reply| reply.status == StatusCode::OK && !done.contains(&reply.id));
    assert!(
        undone.is_none(),
        "answered with 200 and not done: {undone:?}"
    );
}

fn assert_serial(ledger: &Ledger, key: &str) {
    assert_eq!(ledger.overlaps(key), 0, "two were in {key} at once");
    let entries = ledger.entries(key);
    assert_eq!(ledger.count(key), entries.len() as u64, "updates are lost");
    let tokens: Vec<_> = entries.iter().map(|one| one.token).collect();
    assert!(
        tokens.is_sorted_by(|earlier, later| earlier < later),
        "the tokens of {key} go back"
    );
}

/// Clients that go on whatever they are told.
#[derive(Debug)]
struct Traffic {
    noted: Arc<Noted>,
    clients: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Noted {
    ended: AtomicBool,
    next: AtomicUsize,
    replies: Mutex<Vec<(&'static str, Reply)>>,
}

impl Traffic {
    fn start(server: SocketAddr, connections: usize) -> Self {
        let noted = Arc::<Noted>::default();
        let mut clients = JoinSet::new();
        for number in 0..connections {
            let (noted, path) = (Arc::clone(&noted), PATHS[number % PATHS.len()]);
            let mut client = Client::new(server);
            clients.spawn(async move {
                while !noted.ended.load(Ordering::Relaxed) {
                    let id = noted.next.fetch_add(1, Ordering::Relaxed);
                    let reply = client.post(path, &id.to_string()).await;
                    let reply = reply.expect("every request is answered");
                    noted.replies().push((path, reply));
                }
            });
        }
        Self { noted, clients }
    }

    /// Waits until a request for each key, sent from now on, is answered with `status`.
    async fn meets(&self, status: StatusCode, when: &str) {
        let from = self.noted.next.load(Ordering::Relaxed);
        let seen = self.noted.replies().len();
        let is_met = |path: &&str| {
            let replies = self.noted.replies();
            replies[seen..].iter().any(|(to, reply)| {
                let id: usize = reply.id.parse().expect("a number");
                to == path && reply.status == status && id >= from
            })
        };
        let what = format!("{status} on all paths {when}");
        // A backend may ask a server that is silent again for 10 s before it gives up.
        until_within(PATIENCE * 2, &what, || PATHS.iter().all(is_met)).await;
    }

    async fn end(self) -> Vec<Reply> {
        self.noted.ended.store(true, Ordering::Relaxed);
        self.clients.join_all().await;
        let replies = std::mem::take(&mut *self.noted.replies());
        replies.into_iter().map(|(_, reply)| reply).collect()
    }
}

impl Noted {
    fn replies(&self) -> MutexGuard<'_, Vec<(&'static str, Reply)>> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
