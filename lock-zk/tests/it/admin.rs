//! The operator's view of locks, and breaking them.

use std::sync::Arc;
use std::time::Duration;

use lock_testkit::proxy::{Command, Direction, Fate, Planned};
use polylock_core::admin::LockInfo;
use polylock_core::{
    AcquireRequest, DistributedLock, ErrorKind, Label, LockGuard, LostReason, Mode,
};
use polylock_zk::ZooKeeper;
use tokio::time::Instant;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

use crate::support::{
    Place, SESSION, SOON, admin, granted, in_time, is_end, key, loss, ms, permits, release,
    request, seen, take, timed,
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
    let clients = [place.client().await, place.client().await];
    for (name, mode) in [("a", Mode::Shared), ("b", permits(3))] {
        let broken = async || broken_beneath_waiters(&place, &clients, name, mode).await;
        let (took, ()) = in_time(ms(300), async || (broken().await, ())).await;
        assert!(took < ms(300), "the losses are learned after {took:?}");
    }
}

/// Breaks three holders that have waiters behind them; returns how long after the break all have learned it.
async fn broken_beneath_waiters(
    place: &Place,
    [locks, other]: &[Arc<ZooKeeper>; 2],
    name: &str,
    mode: Mode,
) -> Duration {
    let mut guards = Vec::new();
    for n in 0..3 {
        let one = noted(name, &format!("h{n}")).with_mode(mode);
        guards.push(locks.acquire(&one).await.expect("it is granted"));
    }
    let writer = place.waiter(other, request(name)).await;
    let late = place.waiter(other, request(name).with_mode(mode)).await;
    let broken = admin(other).break_lock(&key(name), "they hang").await;
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
    let writer = granted(writer).await;
    assert!(!late.is_finished());
    release(writer).await;
    release(granted(late).await).await;
    took
}

/// Delays the first such request of a client behind the proxy until the guard is downgraded.
async fn downgraded_before(place: &Place, guard: &mut LockGuard, late: &Planned) {
    late.met(SOON).await;
    place.proxy().hold(Direction::Requests);
    guard.downgrade().await.expect("it becomes shared");
    place.proxy().resume(Direction::Requests);
}

#[tokio::test]
async fn a_holder_that_is_downgraded_meanwhile_is_broken() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.with_timeout(SOON * 2).await);
    let mut guard = take(&locks, "a").await;
    let late = place.proxy().plan(is_end, Fate::LateRequest(ms(500)));
    let name = key("a");
    let breaking = admin(&other).break_lock(&name, "it hangs");
    let (broken, ()) = tokio::join!(breaking, downgraded_before(&place, &mut guard, &late));
    assert!(broken.expect("it is broken").is_some(), "it was held");
    assert_eq!(loss(&guard).await, LostReason::Broken);
}

/// Breaks the lock `a` of its holder, which releases it before its node is deleted. Returns what was broken, and
/// what `then` returns after the release.
async fn released_before<T>(
    place: &Place,
    guard: LockGuard,
    then: impl Future<Output = T>,
) -> (Option<LockInfo>, T) {
    let other = place.with_session(SOON * 6).await;
    let late = place.proxy().plan(is_end, Fate::LateRequest(ms(2_000)));
    let name = key("a");
    let breaking = admin(&other).break_lock(&name, "it hangs");
    let releasing = async {
        late.met(SOON).await;
        place.proxy().hold(Direction::Requests);
        release(guard).await;
        let done = then.await;
        place.proxy().resume(Direction::Requests);
        done
    };
    let (broken, done) = tokio::join!(breaking, releasing);
    (broken.expect("it answers"), done)
}

#[tokio::test]
async fn a_holder_that_releases_meanwhile_is_not_said_to_be_broken() {
    let place = Place::new().await;
    let locks = place.client().await;
    let guard = take(&locks, "a").await;
    let (broken, ()) = released_before(&place, guard, async {}).await;
    assert_eq!(broken, None);
    // The next holder is broken in its place.
    let guard = take(&locks, "a").await;
    let waiter = place.waiter(&locks, noted("a", "next")).await;
    let (broken, next) = released_before(&place, guard, granted(waiter)).await;
    let broken = broken.expect("it was held");
    assert_eq!(notes(&broken), (vec!["next"], vec![]));
    assert_eq!(loss(&next).await, LostReason::Broken);
}

#[tokio::test]
async fn a_holder_that_is_downgraded_while_it_is_read_is_shown_and_no_waiter_in_its_place() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.with_timeout(SOON * 2).await);
    let guard = locks.acquire(&noted("a", "holder")).await;
    let mut guard = guard.expect("it is granted");
    let waiter = place.waiter(&locks, noted("a", "waiter")).await;
    let is_read = |command: &Command| command.is("GETDATA");
    let late = place.proxy().plan(is_read, Fate::LateRequest(ms(500)));
    let looking = seen(&other, "a");
    let (info, ()) = tokio::join!(looking, downgraded_before(&place, &mut guard, &late));
    let info = info.expect("it is held");
    assert_eq!(
        (info.mode, notes(&info)),
        (Mode::Shared, (vec!["holder"], vec!["waiter"]))
    );
    release(guard).await;
    release(granted(waiter).await).await;
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

#[tokio::test]
async fn nothing_is_listed_where_the_root_is_deleted() {
    let place = Place::new().await;
    let locks = place.client().await;
    let deleted = place.tree().client().delete(place.root(), None).await;
    deleted.expect("it is empty");
    let listed = admin(&locks).list("").await.expect("it answers");
    assert!(listed.is_empty(), "{listed:?}");
    let mut events = admin(&locks).watch("").await.expect("it begins");
    // The root is created again.
    let guard = take(&locks, "a").await;
    assert!(timed(events.recv()).await.0.is_some(), "it ends");
    let listed = admin(&locks).list("").await.expect("it answers");
    assert_eq!(listed.len(), 1);
    release(guard).await;
}
