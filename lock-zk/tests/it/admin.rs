//! The operator's view of locks, and breaking them.

use polylock_core::admin::LockInfo;
use polylock_core::{AcquireRequest, DistributedLock, ErrorKind, Label, LostReason, Mode};
use tokio::time::Instant;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

use crate::support::{
    Place, SESSION, admin, granted, key, loss, ms, permits, release, request, seen, take,
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
async fn all_holders_of_a_shared_lock_are_broken_and_no_waiter_behind_them() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.client().await);
    for (name, mode) in [("a", Mode::Shared), ("b", permits(3))] {
        let mut guards = Vec::new();
        for n in 0..3 {
            let one = noted(name, &format!("h{n}")).with_mode(mode);
            guards.push(locks.acquire(&one).await.expect("it is granted"));
        }
        let writer = place.waiter(&other, request(name)).await;
        let late = place.waiter(&other, request(name).with_mode(mode)).await;
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

/// A client with an identity, whose nodes no other client may read.
async fn stranger(place: &Place, name: &str) -> (Client, String) {
    let client = Client::connector()
        .with_session_timeout(SESSION)
        .with_auth("digest", b"stranger:secret")
        .connect(&place.addresses())
        .await
        .expect("it connects");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::creator_all());
    let stem = format!("{}/x-lock-", place.tree().directory(name));
    let (_, number) = client
        .create(&stem, b"secret", &options)
        .await
        .expect("created");
    (client, format!("{stem}{number}"))
}

#[tokio::test]
async fn contenders_whose_data_may_not_be_read_are_seen_without_a_label() {
    let place = Place::new().await;
    let locks = place.client().await;
    release(take(&locks, "a").await).await;
    let (client, node) = stranger(&place, "a").await;
    let waiter = place.waiter(&locks, noted("a", "ours")).await;
    let (_other, _) = stranger(&place, "a").await;
    let info = seen(&locks, "a").await.expect("it is held");
    assert_eq!(notes(&info), (vec![""], vec!["ours", ""]));
    assert_eq!(
        (info.holders[0].label.pid(), info.holders[0].label.user()),
        (0, "")
    );
    let listed = admin(&locks).list("").await.expect("it answers");
    assert_eq!(listed.len(), 1);
    // A waiter needs no right to read its predecessor's node, and wakes when that is deleted.
    assert!(!waiter.is_finished());
    client.delete(&node, None).await.expect("it is deleted");
    release(granted(waiter).await).await;
}

#[tokio::test]
async fn a_directory_that_may_not_be_read_is_reported() {
    let place = Place::new().await;
    let locks = place.client().await;
    let guard = take(&locks, "a").await;
    let nobody = [Acl::new(
        Permission::READ,
        AuthId::new("digest", "nobody:x"),
    )];
    let options = CreateMode::Persistent.with_acls(Acls::new(&nobody));
    let path = place.tree().directory("b");
    let made = place.tree().client().create(&path, b"", &options);
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
