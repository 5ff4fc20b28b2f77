//! Futures and values leave nothing behind, wherever they are dropped.

use lock_testkit::polled;
use lock_testkit::proxy::{Command, Fate, Then};
use polylock_core::{DistributedLock, ErrorKind, LockGuard, LostReason, Released};
use polylock_zk::ZooKeeper;
use tokio::runtime::{Builder, Runtime};
use zookeeper_client::Permission;

use crate::support::{
    Place, SESSION, SOON, is_check, is_end, is_entry, is_exchange, loss, ms, release_clean,
    request, take, until, waiting,
};

#[tokio::test]
async fn an_acquisition_dropped_wherever_its_request_is_leaves_no_node() {
    for fate in [
        Fate::LostReply(Then::Cut),
        Fate::LostRequest(Then::Cut),
        Fate::LateRequest(ms(60)),
    ] {
        let place = Place::new().await;
        let locks = place.patient().await;
        drop(take(&locks, "a").await);
        for polls in 1..=24 {
            println!("{fate:?}, {polls} polls");
            place.proxy().plan(is_entry, fate);
            drop(polled(polls, locks.acquire(&request("a"))).await);
            place.assert_nothing_left(&[&locks], "a").await;
            place.proxy().clear();
        }
        place.assert_free("a").await;
    }
}

#[tokio::test]
async fn an_acquisition_dropped_in_an_outage_leaves_no_node() {
    let place = Place::new().await;
    let locks = place.patient().await;
    drop(take(&locks, "a").await);
    for polls in 1..=6 {
        place.disconnect();
        let patience = ms(20 * polls);
        let one = request("a");
        let late = tokio::time::timeout(patience, locks.acquire(&one)).await;
        assert!(late.is_err(), "granted without a server");
        place.proxy().accept();
        place.assert_nothing_left(&[&locks], "a").await;
    }
    place.assert_free("a").await;
}

/// A leader that was replaced answers reads and `sync` for a while, and may not have the node.
#[tokio::test]
async fn a_node_counts_as_missing_only_behind_a_committed_write() {
    let place = Place::new().await;
    let locks = place.patient().await;
    let lost = place.proxy().plan(is_entry, Fate::LostRequest(Then::Cut));
    let uncommitted = Fate::LostRequest(Then::CutAfter(ms(300)));
    let writes = place.proxy().plan_each(is_check, uncommitted);
    let acquisition = waiting(&locks, request("a"));
    lost.met(SOON).await;
    acquisition.abort();
    drop(acquisition.await);
    writes.met(SOON).await;
    let is_over = locks.shutdown(ms(500)).await;
    assert!(!is_over, "a list is believed without a committed write");
    place.proxy().clear();
    place.assert_nothing_left(&[&locks], "a").await;
    place.assert_free("a").await;
}

/// Whether the downgrade was done or not, the guard has the lock in one mode, and releases it.
#[tokio::test]
async fn a_downgrade_dropped_wherever_its_request_is_leaves_no_node() {
    for fate in [
        None,
        Some(Fate::LostReply(Then::Cut)),
        Some(Fate::LostRequest(Then::Cut)),
    ] {
        let (place, locks, other) = Place::with_clients().await;
        for polls in 1..=6 {
            let mut guard = take(&locks, "a").await;
            if let Some(fate) = fate {
                place.proxy().plan(is_exchange, fate);
            }
            drop(polled(polls, guard.downgrade()).await);
            assert!(guard.is_held(), "{fate:?}, after {polls} polls");
            place.assert_taken("a").await;
            drop(guard.release().await);
            place.assert_nothing_left(&[&locks], "a").await;
            drop(take(&other, "a").await);
            assert!(other.shutdown(SOON).await);
            place.proxy().clear();
        }
    }
}

#[tokio::test]
async fn a_node_that_was_not_deleted_by_its_owner_was_lost() {
    let place = Place::new().await;
    let locks = place.patient().await;
    let watches = place.proxy().watch(is_watch_of_a_reader);
    let guard = refused_downgrade(&place, &locks, no_creation()).await;
    // The client looks for the node after the downgrade as well, and watches it then.
    until("its node is watched", async || !watches.seen().is_empty()).await;
    // The release looks for the node, at first in vain, and an operator comes before its delete.
    let lost = place.proxy().plan(is_check, Fate::LostReply(Then::Cut));
    let late = place.proxy().plan(is_end, Fate::LateRequest(ms(1_000)));
    let released = tokio::spawn(guard.release());
    late.met(SOON).await;
    place.tree().end("a").await;
    let released = released.await.expect("no panic").expect("it is released");
    assert_eq!(released, Released::AlreadyLost);
    assert_eq!(lost.struck(), 1);
}

#[tokio::test]
async fn a_downgrade_that_is_refused_after_its_reply_was_lost_keeps_the_lock() {
    // Released at once, while the client looks for the node, and after that.
    for held_for in [ms(0), ms(500)] {
        let place = Place::new().await;
        let locks = place.patient().await;
        let guard = refused_downgrade(&place, &locks, no_creation()).await;
        tokio::time::sleep(held_for).await;
        assert!(guard.is_held() && is_reader_only(&place).await);
        release_clean(guard).await;
        place.assert_nothing_left(&[&locks], "a").await;
    }
}

#[tokio::test]
async fn a_downgrade_with_an_unknown_outcome_can_be_repeated() {
    // The first request was carried out, or not.
    for fate in [Fate::LostReply(Then::Cut), Fate::LostRequest(Then::Cut)] {
        let place = Place::new().await;
        let locks = place.patient().await;
        let watches = place.proxy().watch(is_watch_of_a_reader);
        let mut guard = refused_after(fate, &place, &locks, no_creation()).await;
        set_access(&place, Permission::ALL).await;
        let repeated = guard.downgrade().await;
        repeated.unwrap_or_else(|error| panic!("{fate:?}: {error}"));
        assert!(is_reader_only(&place).await, "{fate:?}");
        // From here on the end of the new node is reported, and the end of the old one was not.
        until("its node is watched", async || !watches.seen().is_empty()).await;
        assert!(guard.is_held(), "{fate:?}: {:?}", guard.lost().reason());
        place.tree().end("a").await;
        assert_eq!(loss(&guard).await, LostReason::Broken, "{fate:?}");
    }
}

fn is_watch_of_a_reader(command: &Command) -> bool {
    command.is("GETCHILDREN") && command.arg(1).contains("__READ__")
}

/// A holder that does not know the name of its node: the reply to its downgrade was lost, and the server
/// refuses the repetition before it sees that the node is there.
async fn refused_downgrade(place: &Place, locks: &ZooKeeper, left: Permission) -> LockGuard {
    refused_after(Fate::LostReply(Then::Cut), place, locks, left).await
}

/// The same after this fate of the first request.
async fn refused_after(
    fate: Fate,
    place: &Place,
    locks: &ZooKeeper,
    left: Permission,
) -> LockGuard {
    let mut guard = take(locks, "a").await;
    place.proxy().refuse();
    let planned = place.proxy().plan(is_exchange, fate);
    let downgraded = tokio::spawn(async move { (guard.downgrade().await, guard) });
    planned.met(SOON).await;
    if matches!(fate, Fate::LostReply(_)) {
        let is_exchanged = async || is_reader_only(place).await;
        until("the server has made the exchange", is_exchanged).await;
    }
    set_access(place, left).await;
    place.proxy().accept();
    let (downgraded, guard) = downgraded.await.expect("no panic");
    let error = downgraded.expect_err("the repetition is refused");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.is_outcome_unknown());
    guard
}

/// What all clients may do with the directory of the lock from now on.
async fn set_access(place: &Place, left: Permission) {
    let directory = place.tree().directory("a");
    place.tree().set_access(&directory, left).await;
}

fn no_creation() -> Permission {
    Permission::READ | Permission::DELETE | Permission::ADMIN
}

#[tokio::test]
async fn a_downgrade_whose_node_cannot_be_looked_for_loses_no_other_lock() {
    let place = Place::new().await;
    let locks = place.patient().await;
    let other = take(&locks, "b").await;
    let unreadable = Permission::DELETE | Permission::ADMIN;
    let guard = refused_downgrade(&place, &locks, unreadable).await;
    assert_eq!(loss(&guard).await, LostReason::Unreachable);
    set_access(&place, Permission::ALL).await;
    let is_gone = async || place.tree().nodes("a").await.is_empty();
    until("its node is deleted", is_gone).await;
    place.proxy().cut();
    tokio::time::sleep(SESSION * 2).await;
    assert!(other.is_held(), "{:?}", other.lost().reason());
    release_clean(other).await;
}

async fn is_reader_only(place: &Place) -> bool {
    let nodes = place.tree().nodes("a").await;
    nodes.len() == 1 && nodes[0].contains("__READ__")
}

#[tokio::test]
async fn the_loss_of_a_lock_whose_downgrade_was_dropped_is_signaled() {
    let place = Place::new().await;
    let locks = place.patient().await;
    let mut guard = take(&locks, "a").await;
    assert!(polled(1, guard.downgrade()).await.is_none());
    tokio::time::sleep(ms(300)).await;
    place.tree().end("a").await;
    assert_eq!(loss(&guard).await, LostReason::Broken);
}

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(1).enable_all();
    builder.build().expect("a runtime")
}

#[test]
fn a_client_dropped_before_its_guard_keeps_the_lock() {
    let watching = runtime();
    let place = watching.block_on(Place::new());
    let guard = watching.block_on(async {
        let locks = place.behind_proxy().await;
        take(&locks, "a").await
    });
    std::thread::sleep(SESSION + ms(500));
    assert!(guard.is_held());
    drop(guard);
    watching.block_on(place.contenders("a", 0));
}
