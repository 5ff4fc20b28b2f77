//! Sessions with a real server.

use std::sync::Arc;
use std::time::Duration;

use lock_testkit::locks::{key, until, waiting};
use lock_testkit::proxy::{Command, Fate, Proxy, Then};
use lock_testkit::servers::ZooKeeperServer;
use polylock_core::layers::LocalQueue;
use polylock_core::{AcquireRequest, DistributedLock, ErrorKind, LostReason, Wait};
use tokio::time::{Instant, timeout};

use super::ZkSession;
use crate::{ZooKeeper, ZooKeeperConfig};

const SOON: Duration = Duration::from_secs(10);

fn port() -> u16 {
    let addresses = ZooKeeperServer::shared().addresses();
    addresses[0].rsplit_once(':').unwrap().1.parse().unwrap()
}

async fn connect(port: u16, root: &str) -> ZooKeeper {
    let config = ZooKeeperConfig::new([("127.0.0.1", port)]);
    let config = config.with_root(root).unwrap();
    let config = config.with_session_timeout(SOON).unwrap();
    ZooKeeper::connect(config).await.unwrap()
}

fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(key(name)).with_wait(Wait::AtMost(SOON * 2))
}

async fn session(locks: &ZooKeeper) -> Arc<ZkSession> {
    let sessions = &locks.client.sessions;
    sessions.get(Instant::now() + SOON).await.unwrap()
}

/// Waits until a lock has two contenders.
async fn contended(locks: &ZooKeeper, name: &str) {
    let client = &session(locks).await.client;
    let path = format!("/{name}");
    let is_contended = async || client.list_children(&path).await.unwrap().len() == 2;
    until("it is waited for", is_contended).await;
}

/// Where negotiated timeouts are unknown, the session of a new connection may be shorter than its
/// locks assume: they are lost, and there is another session.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_connects_again_unheard_is_replaced() {
    let proxy = Proxy::zookeeper(port());
    let locks = connect(proxy.port(), "/a_session_that_connects_again_unheard").await;
    let request = request("a");
    // A session with known timeouts goes on.
    let guard = locks.acquire(&request).await.unwrap();
    let first = session(&locks).await;
    let responses = first.negotiated.responses();
    proxy.cut();
    until("it connects again", async || {
        first.negotiated.responses() > responses
    })
    .await;
    assert!(guard.renew().await.is_ok() && guard.is_held());
    assert!(
        !first.is_over(),
        "a session with known timeouts is replaced"
    );

    first.negotiated.ignore_log();
    proxy.cut();
    let lost = timeout(SOON, guard.lost().into_future()).await;
    let lost = lost.expect("the locks of a session of unknown length are kept");
    assert_eq!(lost, LostReason::SessionEnded);
    let next = session(&locks).await;
    assert_ne!(next.client.session_id(), first.client.session_id());
    // The session closes with the last that knows it.
    let token = guard.fencing_token();
    drop((guard, first));
    let again = locks.acquire(&request).await.unwrap();
    assert!(again.fencing_token() > token);
    again.release().await.unwrap();
}

/// The server keeps a session that was ended here for as long as any of its guards exists. Its nodes
/// are deleted, after the holders were notified.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_replaced_leaves_no_node_in_the_way() {
    let root = "/a_session_that_is_replaced_leaves_no_node";
    let (port, keys) = (port(), ["a", "b", "c"]);
    let proxy = Proxy::zookeeper(port);
    let locks = connect(proxy.port(), root).await;
    let other = Arc::new(connect(port, root).await);
    let mut guards = Vec::new();
    for key in keys {
        guards.push(locks.acquire(&request(key)).await.unwrap());
    }
    let waiters = keys.map(|key| waiting(&other, request(key)));
    for key in keys {
        contended(&other, key).await;
    }
    session(&locks).await.negotiated.ignore_log();
    proxy.cut();
    for (waiter, guard) in waiters.into_iter().zip(&guards) {
        let granted = timeout(SOON, waiter).await;
        assert!(!guard.is_held(), "two hold a lock");
        let granted = granted.expect("the node of the session that was ended is in the way");
        assert_eq!(guard.lost().into_future().await, LostReason::SessionEnded);
        granted.unwrap().unwrap().release().await.unwrap();
    }
    // The same process acquires its locks again while it still has the lost guards.
    for key in keys {
        let again = locks.acquire(&request(key)).await.unwrap();
        again.release().await.unwrap();
    }
}

/// The same for a waiter, whose next node is behind its former one.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_session_is_replaced_is_not_behind_its_former_node() {
    let root = "/a_waiter_whose_session_is_replaced";
    let (port, waited) = (port(), "waited");
    let proxy = Proxy::zookeeper(port);
    let locks = Arc::new(connect(proxy.port(), root).await);
    let other = connect(port, root).await;
    // It keeps the session at the server.
    let _pinned = locks.acquire(&request("pinned")).await.unwrap();
    let holder = other.acquire(&request(waited)).await.unwrap();
    let waiter = waiting(&locks, request(waited));
    contended(&other, waited).await;
    let is_end = |command: &Command| command.is("DELETE") && command.arg(1).contains("/waited/");
    let planned = proxy.plan(is_end, Fate::LostRequest(Then::Cut));
    session(&locks).await.negotiated.ignore_log();
    proxy.cut();
    planned.met(SOON).await;
    holder.release().await.unwrap();
    let granted = timeout(SOON, waiter).await;
    let granted = granted.expect("the node of the session that was ended is in the way");
    granted.unwrap().unwrap().release().await.unwrap();
}

/// The queue of the process has one attempt for all of its waiters, which knows nothing of the lock before the
/// next session.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_ends_without_a_session_is_no_contention() {
    let root = "/a_wait_that_ends_without_a_session";
    let (port, waited) = (port(), "waited");
    let proxy = Proxy::zookeeper(port);
    let locks = Arc::new(connect(proxy.port(), root).await);
    let other = connect(port, root).await;
    let holder = other.acquire(&request(waited)).await.unwrap();
    let inner: Arc<dyn DistributedLock> = Arc::<ZooKeeper>::clone(&locks);
    let queue = Arc::new(LocalQueue::new(inner));
    let is_watch = |command: &Command| command.is("GETCHILDREN") && command.has("watch");
    let watches = proxy.watch(is_watch);
    let short = AcquireRequest::new(key(waited)).with_wait(Wait::AtMost(SOON / 2));
    let waiter = waiting(&queue, short);
    until("it watches", async || watches.count() == 1).await;
    // The old connection stays, and no other one is made.
    proxy.refuse();
    session(&locks).await.end();
    let error = waiter.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    proxy.accept();
    holder.release().await.unwrap();
}
