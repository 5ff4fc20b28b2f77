//! Several instances of a service on one lock service, a lock service that stops, and clients that
//! close their connections.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Request, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use lock_testkit::servers::{Fsync, RedisOptions, RedisServer};
use polylock_tower::{HeldLock, KeyLockLayer, Keys, Locker, LockerBuilder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::{
    Event, InTime as _, SOON, Said, Stage, connect, patient, send, spawn, until, until_within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_requests_on_one_key_are_serial_on_redis() {
    let redis = RedisServer::start(RedisOptions::new());
    assert_serial(&patient(&redis), 3_000).await;
}

/// Shows that the test above can fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[should_panic(expected = "two were in it at once")]
async fn instances_whose_locks_are_not_the_same_are_caught() {
    assert_serial("memory:", 500).await;
}

/// Sends the requests to three instances, each with locks of its own, and looks at what they did.
async fn assert_serial(url: &str, requests: usize) {
    let app = App::default();
    let next = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..3 {
        let wait = |locker: LockerBuilder| locker.wait(SOON * 3);
        let instance = app.router(url, wait).await;
        for _ in 0..8 {
            let (instance, next) = (instance.clone(), Arc::clone(&next));
            clients.spawn(async move {
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if id >= requests {
                        break;
                    }
                    let said = send(&instance, request("/work/hot", id)).await;
                    let expected = (200, id.to_string());
                    assert_eq!((said.status, said.body), expected);
                }
            });
        }
    }
    clients.join_all().await;
    assert_eq!(
        app.entries_of("hot").len(),
        requests,
        "each was handled once"
    );
}

/// How many want the hot key, in each of two processes.
const QUEUED: usize = 16;

/// By order and not by time: the hot key is held all the while, with a queue in each of two
/// processes, so that a request that waits behind it is not answered at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_does_not_delay_the_others() {
    let redis = RedisServer::start(RedisOptions::new());
    let (stage, url) = (Stage::new(), patient(&redis));
    let (mut lockers, mut instances, mut hot) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..2 {
        let locker = locker(&url, |locker| locker.wait(SOON * 4)).await;
        let layer = by_path(locker.clone());
        let cold = post(async || "done").layer(layer.clone());
        let instance = stage.router(layer).route("/cold/{key}", cold);
        hot.extend((0..QUEUED).map(|id| spawn(&instance, request("/hot", id))));
        lockers.push(locker);
        instances.push(instance);
    }
    stage.happened(1).await;
    until("both processes have a queue for the hot key", || {
        lockers.iter().all(|locker| locker.waiters() == QUEUED - 1)
    })
    .await;

    let mut clients = JoinSet::new();
    for client in 0..8 {
        let instance = instances[client % 2].clone();
        clients.spawn(async move {
            for number in 0..50 {
                let path = format!("/cold/{client}-{number}");
                let said = send(&instance, request(&path, number)).await;
                assert_eq!(said.status, 200, "{path}: {said:?}");
            }
        });
    }
    let others = clients.join_all();
    others
        .in_time("an answer to each request for another key")
        .await;
    let inside = stage.events();
    assert_eq!(inside.len(), 1, "the hot key was not held: {inside:?}");

    stage.let_go(hot.len());
    for request in hot {
        assert_eq!(request.said().await.status, 200);
    }
}

/// Longer than requests wait, with time for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(8);
const TTL: Duration = Duration::from_secs(1);
/// The handler of `slow` takes longer than a lease that is not renewed, the other two none.
const PATHS: [&str; 3] = ["/work/a", "/work/b", "/slow/c"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_answered_and_none_unprotected_while_redis_stops_dies_and_returns() {
    // With every write on the disk, no lock is forgotten by a restart.
    let redis = RedisServer::start(RedisOptions::new().with_aof(Fsync::Always));
    let app = App::default();
    let url = format!("{}?timeout=300ms", redis.url());
    let short = |locker: LockerBuilder| {
        let locker = locker.wait(Duration::from_secs(1));
        locker.request(|request| request.with_ttl(TTL))
    };
    let traffic = Arc::<Traffic>::default();
    let clients = traffic.start(&app.router(&url, short).await);
    traffic.meets(200, "at first").await;
    redis.stop();
    traffic.meets(503, "while it is stopped").await;
    redis.resume();
    traffic.meets(200, "after it was stopped").await;
    redis.kill();
    traffic.meets(503, "while it is dead").await;
    redis.restart();
    traffic.meets(200, "after it was dead").await;
    traffic.ended.store(true, Ordering::Relaxed);
    clients.join_all().await;
    let replies = traffic.replies();

    let mut told = BTreeMap::<_, usize>::new();
    for reply in &*replies {
        *told.entry(reply.said.status).or_default() += 1;
        assert_eq!(reply.said.header(UNPROTECTED), None, "{reply:?}");
        assert!(reply.took < TIMEOUT, "answered late: {reply:?}");
    }
    println!("statuses: {told:?}");
    let known = [200, 409, 429, 503];
    let others = told.keys().filter(|status| !known.contains(status));
    assert_eq!(others.count(), 0, "other statuses than {known:?}: {told:?}");
    let done: BTreeSet<_> = ["a", "b", "c"]
        .map(|key| app.entries_of(key))
        .concat()
        .into_iter()
        .collect();
    let undone = replies
        .iter()
        .find(|reply| reply.said.status == 200 && !done.contains(&reply.id));
    assert!(
        undone.is_none(),
        "answered with 200 and not done: {undone:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_closes_its_connection_leaves_the_queue_and_cancels_its_handler() {
    let wait = |locker: LockerBuilder| locker.wait(Duration::from_secs(60));
    let locker = locker("memory:", wait).await;
    let stage = Stage::new();
    let router = stage.router(by_path(locker.clone()));
    let server = TcpListener::bind(("127.0.0.1", 0)).await;
    let server = server.expect("a free port");
    let address = server.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(server, router).await.expect("it runs") });

    let holder = sent(address).await;
    stage.happened(1).await;
    let queued = sent(address).await;
    until("it is queued", || locker.waiters() == 1).await;
    drop(queued);
    until("it has left the queue", || locker.waiters() == 0).await;
    assert_eq!(stage.events().len(), 1, "the holder is inside all the time");
    drop(holder);
    let events = stage.happened(2).await;
    let [Event::Entered(entered), Event::Dropped(dropped)] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(entered, dropped);
    until("the lock is free", || locker.live_keys() == 0).await;

    stage.let_go(1);
    let mut next = sent(address).await;
    let mut head = [0; 12];
    let read = next.read_exact(&mut head).in_time("the answer").await;
    assert!(read.is_ok() && head == *b"HTTP/1.1 200", "{head:?}");
    let events = stage.happened(4).await;
    let [.., Event::Entered(next), Event::Finished(_)] = events[..] else {
        panic!("{events:?}")
    };
    assert!(entered < next && events.len() == 4, "{events:?}");
}

/// A request on a connection of its own.
async fn sent(server: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(server).await.expect("it listens");
    let request = b"POST /hot HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(request).await.expect("it is open");
    stream
}

const REQUEST_ID: &str = "x-request-id";
/// Is there if the request ran without its lock.
const UNPROTECTED: &str = "x-unprotected";

fn request(path: &str, id: usize) -> Request<Body> {
    let request = Request::post(path).header(REQUEST_ID, id);
    request.body(Body::empty()).expect("a request")
}

async fn locker(url: &str, set: impl FnOnce(LockerBuilder) -> LockerBuilder) -> Locker {
    let locker = set(Locker::builder(connect(url).await, "load"));
    locker.build().expect("the options are right")
}

/// Locks what the last part of the path names.
fn by_path(locker: Locker) -> KeyLockLayer {
    KeyLockLayer::from_extractor::<Path<String>, _>(locker, |Path(key)| Keys::one(key))
}

/// The resource that the locks protect, in all instances: a page for each key.
///
/// A handler reads the number of lines, yields, and adds a line. This detects two handlers at once, and
/// lost updates.
#[derive(Clone, Debug, Default)]
struct App(Arc<Mutex<HashMap<String, Page>>>);

#[derive(Debug, Default)]
struct Page {
    inside: usize,
    overlaps: usize,
    /// Request and token of each.
    entries: Vec<(usize, u64)>,
}

impl App {
    /// An instance with a connection of its own: `POST /work/{key}` writes under the lock of the
    /// key, and `POST /slow/{key}` stays there for a while.
    async fn router(&self, url: &str, set: impl FnOnce(LockerBuilder) -> LockerBuilder) -> Router {
        Router::new()
            .route("/work/{key}", post(work))
            .route("/slow/{key}", post(work))
            .route_layer(by_path(locker(url, set).await))
            .with_state(self.clone())
    }

    fn page<T>(&self, key: &str, change: impl FnOnce(&mut Page) -> T) -> T {
        let mut pages = self.0.lock().expect("no panic");
        change(pages.entry(key.to_owned()).or_default())
    }

    /// The requests that were handled, which were serial.
    fn entries_of(&self, key: &str) -> Vec<usize> {
        self.page(key, |page| {
            assert_eq!(page.overlaps, 0, "two were in it at once");
            let is_sorted = page.entries.is_sorted_by(|one, next| one.1 < next.1);
            assert!(is_sorted, "the tokens of {key} go back");
            let requests: Vec<_> = page.entries.iter().map(|(request, _)| *request).collect();
            let once: BTreeSet<_> = requests.iter().collect();
            assert_eq!(once.len(), requests.len(), "a request was handled twice");
            requests
        })
    }
}

struct Inside<'a>(&'a App, &'a str);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.page(self.1, |page| page.inside -= 1);
    }
}

async fn work(
    State(app): State<App>,
    Path(key): Path<String>,
    held: HeldLock,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let id = headers[REQUEST_ID].to_str().expect("a number").to_owned();
    if held.is_unprotected() {
        return ([(UNPROTECTED, "1")], id).into_response();
    }
    let before = app.page(&key, |page| {
        page.overlaps += page.inside;
        page.inside += 1;
        page.entries.len()
    });
    let inside = Inside(&app, &key);
    match uri.path().starts_with("/slow/") {
        true => tokio::time::sleep(TTL + TTL / 20).await,
        false => tokio::task::yield_now().await,
    }
    if let Err(not_held) = held.ensure_held() {
        return not_held.into_response();
    }
    let token = held.fencing_token().expect("the backend has tokens");
    app.page(&key, |page| {
        page.overlaps += usize::from(page.entries.len() != before);
        page.entries
            .push((id.parse().expect("a number"), token.value()));
    });
    drop(inside);
    id.into_response()
}

/// Clients that continue after any response.
#[derive(Debug, Default)]
struct Traffic {
    ended: AtomicBool,
    next: AtomicUsize,
    replies: Mutex<Vec<Reply>>,
}

#[derive(Debug)]
struct Reply {
    id: usize,
    path: &'static str,
    said: Said,
    took: Duration,
}

impl Traffic {
    fn start(self: &Arc<Self>, instance: &Router) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for path in PATHS.into_iter().cycle().take(16) {
            let (traffic, instance) = (Arc::clone(self), instance.clone());
            clients.spawn(async move {
                while !traffic.ended.load(Ordering::Relaxed) {
                    let id = traffic.next.fetch_add(1, Ordering::Relaxed);
                    let began = Instant::now();
                    let said = send(&instance, request(path, id)).await;
                    let took = began.elapsed();
                    traffic.replies().push(Reply {
                        id,
                        path,
                        said,
                        took,
                    });
                }
            });
        }
        clients
    }

    /// Waits until a request for each key, sent from now on, is answered with `status`.
    async fn meets(&self, status: u16, when: &str) {
        let from = self.next.load(Ordering::Relaxed);
        let seen = self.replies().len();
        let is_met = |path: &&str| {
            let replies = self.replies();
            let mut later = replies[seen..].iter().filter(|reply| reply.id >= from);
            later.any(|reply| reply.path == *path && reply.said.status == status)
        };
        let what = format!("{status} on all paths {when}");
        // A backend may ask a server that is silent again for 10 s before it gives up.
        until_within(TIMEOUT * 2, &what, || PATHS.iter().all(is_met)).await;
    }

    fn replies(&self) -> MutexGuard<'_, Vec<Reply>> {
        self.replies.lock().expect("no panic")
    }
}
