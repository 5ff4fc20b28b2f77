//! What an operator sees and does.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use lock_core::admin::{LockEvent, LockInfo};
use lock_core::engine::LeaseId;
use lock_core::layers::LocalQueue;
use lock_core::{AcquireRequest, DistributedLock, ErrorKind, Label, LostReason, Mode, Released};
use lock_zk::ZooKeeper;
use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

use crate::support::{
    SESSION, SOON, Site, admin, granted, key, loss, ms, release, request, seen, take, waiting,
};

fn noted(name: &str, note: &str) -> AcquireRequest {
    request(name).with_label(Label::of_this_process().with_note(note))
}

fn notes(info: &LockInfo) -> (Vec<&str>, Vec<&str>) {
    let holders = info.holders.iter().map(|holder| holder.label.note());
    let waiters = info.waiters.iter().flatten().map(Label::note);
    (holders.collect(), waiters.collect())
}

#[tokio::test]
async fn a_lock_is_seen_with_its_holder_and_its_line() {
    let site = Site::shared().await;
    let (locks, other) = (site.client().await, site.client().await);
    assert!(seen(&locks, "a").await.is_none());
    let began = SystemTime::now() - ms(100);
    let guard = locks.acquire(&noted("a", "nightly & co=1/2")).await;
    let guard = guard.expect("a free lock is granted");
    let info = seen(&other, "a").await.expect("it is held");
    let holder = &info.holders[0];
    assert_eq!(info.key, key("a"));
    assert_eq!(holder.label.pid(), std::process::id());
    assert_eq!(holder.token, guard.fencing_token());
    assert_eq!(holder.time_left, None);
    let since = holder.since.expect("it was created");
    assert!(since >= began && since <= SystemTime::now() + ms(100));
    let mut line = Vec::new();
    for n in 0..4 {
        let locks = [&other, &locks][n % 2];
        line.push(waiting(locks, noted("a", &format!("w{n}"))));
        site.contenders("a", n + 2).await;
    }
    let info = seen(&locks, "a").await.expect("it is held");
    assert_eq!(info.mode, Mode::Exclusive);
    let expected = (vec!["nightly & co=1/2"], vec!["w0", "w1", "w2", "w3"]);
    assert_eq!(notes(&info), expected);
    // One that gives up leaves the line.
    line.remove(1).abort();
    site.contenders("a", 4).await;
    let info = seen(&locks, "a").await.expect("it is held");
    assert_eq!(notes(&info).1, ["w0", "w2", "w3"]);
    release(guard).await;
    for next in line {
        release(granted(next).await).await;
    }
    assert!(seen(&locks, "a").await.is_none());
}

#[tokio::test]
async fn directories_that_are_none_of_a_lock_are_not_listed() {
    let site = Site::shared().await;
    let locks = site.client().await;
    let guard = take(&locks, "shop/1").await;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for name in ["no%zz", "%61"] {
        let path = site.tree().directory(name);
        let made = site.tree().client().create(&path, b"", &options).await;
        made.expect("it is created");
    }
    for (prefix, expected) in [
        ("", &["shop/1"][..]),
        ("shop/", &["shop/1"]),
        ("shop%", &[]),
    ] {
        let listed = admin(&locks).list(prefix).await.expect("it answers");
        let keys: Vec<_> = listed.iter().map(|info| info.key.as_str()).collect();
        assert_eq!(keys, expected, "locks that begin with {prefix:?}");
    }
    release(guard).await;
}

#[tokio::test]
async fn a_broken_lock_is_lost_at_once_and_goes_to_the_next_in_line() {
    let site = Site::shared().await;
    let (locks, other) = (site.client().await, site.client().await);
    // Before its node is watched and after.
    for held_for in [ms(0), ms(500)] {
        let guard = locks.acquire(&noted("a", "stuck")).await;
        let guard = guard.expect("a free lock is granted");
        let next = waiting(&other, noted("a", "next"));
        site.contenders("a", 2).await;
        tokio::time::sleep(held_for).await;
        let broken = admin(&other).break_lock(&key("a"), "it hangs").await;
        let broken = broken.expect("it is broken").expect("it was held");
        assert_eq!(notes(&broken), (vec!["stuck"], vec!["next"]));
        let began = Instant::now();
        assert_eq!(loss(&guard).await, LostReason::Broken);
        let took = began.elapsed();
        assert!(took < ms(300), "the loss is learned after {took:?}");
        let next = granted(next).await;
        assert!(next.fencing_token() > guard.fencing_token());
        let released = guard.release().await.expect("no error");
        assert_eq!(released, Released::AlreadyLost);
        assert!(next.is_held());
        release(next).await;
    }
    let broken = admin(&other).break_lock(&key("a"), "nobody").await;
    assert!(broken.expect("no error").is_none());
}

#[tokio::test]
async fn all_who_share_a_lock_are_broken_and_nobody_behind_them() {
    let site = Site::shared().await;
    let (locks, other) = (site.client().await, site.client().await);
    let limit = NonZeroU32::new(3).expect("not zero");
    for (name, mode) in [("a", Mode::Shared), ("b", Mode::Permit { limit })] {
        let mut guards = Vec::new();
        for n in 0..3 {
            let one = noted(name, &format!("h{n}")).with_mode(mode);
            guards.push(locks.acquire(&one).await.expect("it is granted"));
        }
        let writer = waiting(&other, request(name));
        site.contenders(name, 4).await;
        let late = waiting(&other, request(name).with_mode(mode));
        site.contenders(name, 5).await;
        let broken = admin(&other).break_lock(&key(name), "they hang").await;
        let broken = broken.expect("they are broken").expect("it was held");
        assert_eq!(
            (broken.mode, notes(&broken).0),
            (mode, vec!["h0", "h1", "h2"])
        );
        let began = Instant::now();
        for guard in &guards {
            assert_eq!(loss(guard).await, LostReason::Broken);
        }
        let took = began.elapsed();
        assert!(took < ms(300), "the losses are learned after {took:?}");
        let writer = granted(writer).await;
        assert!(!late.is_finished());
        release(writer).await;
        release(granted(late).await).await;
    }
}

async fn event(events: &mut Receiver<LockEvent>) -> String {
    let event = tokio::time::timeout(SOON, events.recv()).await;
    match event.expect("something is told").expect("it goes on") {
        LockEvent::Acquired(info) => format!("+{} {}", info.key, notes(&info).0.join(",")),
        LockEvent::Free(key) => format!("-{key}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_watch_tells_of_the_holders_in_their_order() {
    let site = Site::shared().await;
    let (locks, other) = (site.client().await, site.client().await);
    let before = locks.acquire(&noted("shop/0", "before")).await;
    let mut events = admin(&other).watch("shop/").await.expect("it answers");
    let elsewhere = take(&locks, "else").await;
    let mut guard = locks
        .acquire(&noted("shop/1", "w0"))
        .await
        .expect("granted");
    assert_eq!(event(&mut events).await, "+shop/1 w0");
    // Ours hands over to those who wait.
    for n in 1..4 {
        let note = format!("w{n}");
        let next = waiting(&other, noted("shop/1", &note));
        site.contenders("shop%2F1", 2).await;
        release(guard).await;
        guard = granted(next).await;
        assert_eq!(event(&mut events).await, format!("+shop/1 {note}"));
    }
    let broken = admin(&other).break_lock(&key("shop/1"), "it hangs").await;
    broken.expect("it is broken");
    assert_eq!(event(&mut events).await, "-shop/1");
    before.expect("granted").release().await.expect("released");
    assert_eq!(event(&mut events).await, "-shop/0");
    release(elsewhere).await;
    drop(guard);
}

#[tokio::test]
async fn a_hand_over_inside_a_process_leaves_the_label_of_the_first() {
    let site = Site::shared().await;
    let locks = site.client().await;
    let queue = LocalQueue::new(std::sync::Arc::<ZooKeeper>::clone(&locks));
    let first = queue.acquire(&noted("a", "first")).await.expect("granted");
    let one = noted("a", "second");
    let mut next = queue.acquire(&one);
    tokio::select! {
        biased;
        _ = &mut next => panic!("two hold it"),
        () = std::future::ready(()) => {}
    }
    release(first).await;
    let second = next.await.expect("it is granted");
    let info = seen(&locks, "a").await.expect("it is held");
    assert_eq!(notes(&info), (vec!["first"], vec![]));
    assert!(info.holders[0].token < second.fencing_token());
    release(second).await;
}

/// A client with an identity, and nodes that nobody else may read.
async fn stranger(site: &Site, name: &str) -> (Client, String) {
    let client = Client::connector()
        .with_session_timeout(SESSION)
        .with_auth("digest", b"stranger:secret")
        .connect(&site.addresses())
        .await
        .expect("it connects");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::creator_all());
    let stem = format!("{}/x-lock-", site.tree().directory(name));
    let (_, number) = client
        .create(&stem, b"secret", &options)
        .await
        .expect("created");
    (client, format!("{stem}{number}"))
}

#[tokio::test]
async fn contenders_whose_data_may_not_be_read_are_seen_without_a_label() {
    let site = Site::shared().await;
    let locks = site.client().await;
    release(take(&locks, "a").await).await;
    let (client, node) = stranger(&site, "a").await;
    let waiter = waiting(&locks, noted("a", "ours"));
    site.contenders("a", 2).await;
    let (_other, _) = stranger(&site, "a").await;
    let info = seen(&locks, "a").await.expect("it is held");
    assert_eq!(notes(&info), (vec![""], vec!["ours", ""]));
    assert_eq!(
        (info.holders[0].label.pid(), info.holders[0].label.user()),
        (0, "")
    );
    let listed = admin(&locks).list("").await.expect("it answers");
    assert_eq!(listed.len(), 1);
    // Waiting needs no right to read the node before, and its end wakes.
    assert!(!waiter.is_finished());
    client.delete(&node, None).await.expect("it is deleted");
    release(granted(waiter).await).await;
}

#[tokio::test]
async fn a_directory_that_may_not_be_read_is_reported() {
    let site = Site::shared().await;
    let locks = site.client().await;
    let guard = take(&locks, "a").await;
    let nobody = [Acl::new(
        Permission::READ,
        AuthId::new("digest", "nobody:x"),
    )];
    let options = CreateMode::Persistent.with_acls(Acls::new(&nobody));
    let path = site.tree().directory("b");
    let made = site.tree().client().create(&path, b"", &options);
    made.await.expect("it is created");
    let denied = admin(&locks)
        .inspect(&key("b"))
        .await
        .expect_err("no right");
    assert_eq!(denied.kind(), ErrorKind::Denied);
    let denied = admin(&locks).list("").await.expect_err("no right");
    assert_eq!(denied.kind(), ErrorKind::Denied);
    let listed = admin(&locks).list("a").await.expect("it answers");
    assert_eq!(listed.len(), 1);
    release(guard).await;
}

#[tokio::test]
async fn a_lease_of_a_session_is_renewed_and_released_by_nobody_else() {
    let site = Site::shared().await;
    let locks = site.client().await;
    let guard = take(&locks, "a").await;
    assert!(guard.lease_id().is_none());
    let id = LeaseId::from_hex(&"7".repeat(32)).expect("it is an id");
    let admin = admin(&locks);
    let renewed = admin
        .renew_lease(&key("a"), id, Duration::from_secs(30))
        .await;
    let refused = renewed.expect_err("it lives with its session");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    let released = admin.release_lease(&key("a"), id).await;
    let refused = released.expect_err("it lives with its session");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(guard.is_held());
    release(guard).await;
}
