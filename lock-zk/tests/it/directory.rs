//! Other nodes in the directory of a lock, and nodes that an operator deletes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lock_testkit::proxy::{Command, Fate};
use lock_testkit::servers::ZooKeeperServer;
use polylock_core::{DistributedLock, ErrorKind, LostReason, Mode, Wait};
use polylock_zk::ZooKeeper;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};
use zookeeper_client::{Acls, CreateMode};

use crate::support::{
    Place, SOON, assert_error, attempt, granted, loss, ms, permits, quick_containers,
    release_clean, request, seen, take, token, until, within,
};

/// Deletes these paths in one transaction.
async fn delete(place: &Place, paths: &[String]) {
    let mut all = place.tree().client().new_multi_writer();
    for path in paths {
        all.add_delete(path, None).expect("it is a path");
    }
    all.commit().await.expect("they are deleted");
}

/// The paths of the nodes of a lock, and that of its directory.
async fn paths(place: &Place, name: &str) -> Vec<String> {
    let directory = place.tree().directory(name);
    let nodes = place.tree().nodes(name).await;
    let nodes = nodes.iter().map(|node| format!("{directory}/{node}"));
    nodes.chain([directory.clone()]).collect()
}

#[tokio::test]
async fn a_directory_that_is_deleted_under_all_begins_anew() {
    let place = Place::new().await;
    let clients = [place.patient().await, place.patient().await];
    let mut last = 0;
    for _ in 0..3 {
        let holder = take(&clients[0], "a").await;
        assert!(token(&holder) > last, "{} after {last}", token(&holder));
        let holding = Arc::new(AtomicUsize::new(0));
        let mut waiters = JoinSet::new();
        for n in 0..10 {
            let (locks, holding) = (Arc::clone(&clients[n % 2]), Arc::clone(&holding));
            waiters.spawn(async move {
                let guard = locks.acquire(&request("a")).await.expect("it is granted");
                assert_eq!(holding.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                sleep(ms(5)).await;
                assert!(guard.is_held());
                holding.fetch_sub(1, Ordering::SeqCst);
                let token = token(&guard);
                release_clean(guard).await;
                token
            });
        }
        place.contenders("a", 11).await;
        let before = token(&holder);
        delete(&place, &paths(&place, "a").await).await;
        assert_eq!(loss(&holder).await, LostReason::Broken);
        let mut tokens = waiters.join_all().await;
        tokens.sort_unstable();
        tokens.dedup();
        assert!(tokens.len() == 10 && tokens[0] > before, "{tokens:?}");
        last = tokens[9];
        drop(holder);
        place
            .assert_nothing_left(&[&clients[0], &clients[1]], "a")
            .await;
    }
}

/// Names that look like those of contenders and are none, and one that does not. The tests of the names have more.
const JUNK: [&str; 4] = [
    "junk",
    "0000000000",
    "_c_x-lock-12345",
    "_c_x-lease-0000000000",
];

async fn add_junk(place: &Place, name: &str, mode: CreateMode) {
    let options = mode.with_acls(Acls::anyone_all());
    for junk in JUNK {
        let path = format!("{}/{junk}", place.tree().directory(name));
        let made = place.tree().client().create(&path, b"?", &options).await;
        made.expect("it is created");
    }
}

#[tokio::test]
async fn a_node_that_is_no_contender_blocks_no_contender() {
    let (place, locks, other) = Place::with_clients().await;
    for mode in [Mode::Exclusive, Mode::Shared, permits(2)] {
        let name = format!("{mode:?}").replace(|c: char| !c.is_alphanumeric(), "");
        let holder = take(&other, &name).await;
        let early = place.waiter(&locks, request(&name).with_mode(mode)).await;
        add_junk(&place, &name, CreateMode::Persistent).await;
        place.contenders(&name, 2 + JUNK.len()).await;
        let late = place.waiter(&locks, request(&name).with_mode(mode)).await;
        assert!(!early.is_finished() && !late.is_finished());
        release_clean(holder).await;
        let early = granted(early).await;
        if mode == Mode::Exclusive {
            assert!(!late.is_finished());
            release_clean(early).await;
            release_clean(granted(late).await).await;
        } else {
            release_clean(granted(late).await).await;
            release_clean(early).await;
        }
        assert!(seen(&locks, &name).await.is_none(), "junk holds the lock");
        let free = attempt(&name);
        release_clean(locks.acquire(&free).await.expect("it is free")).await;
        assert_eq!(place.tree().nodes(&name).await.len(), JUNK.len());
    }
}

#[tokio::test]
async fn junk_that_comes_and_goes_wakes_no_waiter() {
    let place = Place::new().await;
    let (locks, other) = (place.with_session(SOON * 2).await, place.client().await);
    let holder = take(&other, "a").await;
    let watches = place.proxy().watch(|command| command.has("watch"));
    let waiter = place.waiter(&locks, request("a")).await;
    until("it watches", async || watches.count() == 1).await;
    let requests = place.proxy().watch(|command| command.is("GETCHILDREN"));
    let events = place.proxy().watch_pushes(|_| true);
    add_junk(&place, "a", CreateMode::Ephemeral).await;
    for junk in JUNK {
        place.tree().delete("a", junk).await;
    }
    sleep(ms(200)).await;
    assert_eq!((requests.count(), events.count()), (0, 0), "{events:?}");
    release_clean(holder).await;
    let guard = granted(waiter).await;
    // Before a holder that watches its own node is told of the end of that.
    assert_eq!(events.count(), 1, "{events:?}");
    release_clean(guard).await;
}

#[tokio::test]
async fn directories_are_containers_and_contenders_are_ephemeral() {
    let place = Place::new().await;
    let locks = place.patient().await;
    // Clients cannot ask a server whether a node is a container.
    let made = place.proxy().watch(|command| command.is("CREATE"));
    let guard = take(&locks, "a").await;
    let made = made.seen();
    let flags: Vec<_> = made.iter().map(|command| command.arg(2)).collect();
    assert_eq!(flags, ["3", "4", "3"]);
    assert_ne!(place.tree().session("a", 0).await, 0);
    release_clean(guard).await;
}

#[tokio::test]
async fn directories_that_the_server_removes_at_once_are_made_again() {
    let server = ZooKeeperServer::start(quick_containers());
    let place = Place::of(&server).await;
    let clients = [place.patient().await, place.client().await];
    let mut last = 0;
    for n in 0..200 {
        let guard = take(&clients[n % 2], "a").await;
        assert!(token(&guard) > last);
        last = token(&guard);
        release_clean(guard).await;
        sleep(ms(n as u64 % 40)).await;
    }
    let is_removed = async || !place.tree().exists("a").await;
    until("the directory is removed", is_removed).await;
    let guard = take(&clients[0], "a").await;
    assert!(token(&guard) > last);
    release_clean(guard).await;
}

/// Contenders that go past the client under test, 500 in a request.
async fn crowd(place: &Place, name: &str, count: usize) -> Vec<String> {
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let directory = place.tree().directory(name);
    let stem = format!("{directory}/_c_0b8d7b1e-9c1e-4a8e-8d0f-3f6d0f0f4a11-lock-");
    for _ in 0..count / 500 {
        let mut some = place.tree().client().new_multi_writer();
        for _ in 0..500 {
            some.add_create(&stem, b"", &options).expect("it is a path");
        }
        some.commit().await.expect("they are created");
    }
    let mut paths = paths(place, name).await;
    paths.retain(|path| path.starts_with(&stem));
    assert_eq!(paths.len(), count);
    paths.sort();
    paths
}

#[tokio::test]
async fn a_waiter_behind_five_thousand_contenders_wakes_once() {
    let place = Place::new().await;
    let locks = place.patient().await;
    release_clean(take(&locks, "a").await).await;
    let before = crowd(&place, "a", 5_000).await;
    let waiter = place.waiter(&locks, within("a", SOON * 6)).await;
    let began = Instant::now();
    assert_error(&locks, &attempt("a"), ErrorKind::Contended).await;
    assert!(
        began.elapsed() < ms(2_000),
        "refused after {:?}",
        began.elapsed()
    );
    assert!(locks.shutdown(SOON).await);
    sleep(ms(200)).await;
    let events = place.proxy().watch_pushes(|_| true);
    // Deleting all but the direct predecessor wakes no waiter.
    let (last, others) = before.split_last().expect("there are 5,000");
    for paths in others.chunks(500) {
        delete(&place, paths).await;
    }
    sleep(ms(200)).await;
    assert!(events.count() == 0 && !waiter.is_finished());
    let began = Instant::now();
    delete(&place, std::slice::from_ref(last)).await;
    let guard = granted(waiter).await;
    assert!(
        began.elapsed() < ms(2_000),
        "granted after {:?}",
        began.elapsed()
    );
    assert_eq!(events.count(), 1, "{events:?}");
    release_clean(guard).await;
    place.assert_nothing_left(&[&locks], "a").await;
}

#[tokio::test]
async fn a_lock_whose_node_was_deleted_cannot_be_downgraded_and_is_lost() {
    let place = Place::new().await;
    let locks = place.patient().await;
    let mut guard = take(&locks, "a").await;
    place.tree().end("a").await;
    let error = guard.downgrade().await.expect_err("it is lost");
    assert_eq!(error.lost_reason(), Some(LostReason::Broken), "{error}");
    assert_eq!(loss(&guard).await, LostReason::Broken);
    drop(guard);
    place.assert_nothing_left(&[&locks], "a").await;
}

/// A client that lists the queue 400 ms after it has made its node: time enough to delete that, also on a busy machine.
async fn slow(place: &Place) -> Arc<ZooKeeper> {
    let locks = place.with_timeout(ms(1_000)).await;
    drop(take(&locks, "a").await);
    place.assert_nothing_left(&[&locks], "a").await;
    let is_list = |command: &Command| command.is("GETCHILDREN") && !command.has("watch");
    place.proxy().plan_each(is_list, Fate::LateRequest(ms(400)));
    locks
}

/// Deletes all nodes but one.
fn deleting(place: &Place, but: Option<String>) -> JoinHandle<()> {
    let tree = place.tree().clone();
    tokio::spawn(async move {
        loop {
            for node in tree.nodes("a").await {
                if Some(&node) != but.as_ref() {
                    tree.delete("a", &node).await;
                }
            }
            sleep(ms(10)).await;
        }
    })
}

#[tokio::test]
async fn a_request_that_has_seen_no_holder_does_not_say_that_the_lock_is_held() {
    let place = Place::new().await;
    let locks = slow(&place).await;
    let deleting = deleting(&place, None);
    for wait in [Wait::Never, Wait::AtMost(ms(1_000))] {
        let one = request("a").with_wait(wait);
        let mut granted = 0;
        let (error, took) = loop {
            let began = Instant::now();
            match locks.acquire(&one).await {
                // On a machine that stood still, the list may come before the deletion.
                Ok(guard) if granted < 5 => {
                    granted += 1;
                    drop(guard.release().await);
                }
                refused => break (refused.expect_err("its nodes are gone"), began.elapsed()),
            }
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{wait:?}: {error}");
        assert!(took >= ms(900) && took < SOON, "{wait:?} took {took:?}");
    }
    deleting.abort();
    place.proxy().clear();
    place.assert_free("a").await;
}

#[tokio::test]
async fn a_waiter_that_has_seen_a_holder_reports_contention() {
    let place = Place::new().await;
    let (locks, other) = (slow(&place).await, place.client().await);
    let holder = take(&other, "a").await;
    let node = place.tree().nodes("a").await.remove(0);
    let one = within("a", ms(2_000));
    let waiter = place.waiter(&locks, one).await;
    sleep(ms(1_000)).await;
    let deleting = deleting(&place, Some(node));
    let error = waiter.await.expect("no panic").expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    deleting.abort();
    assert!(holder.is_held());
}
