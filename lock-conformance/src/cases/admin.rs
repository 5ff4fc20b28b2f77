//! What an operator sees and does.

use polylock_core::admin::{LockEvent, LockInfo};
use polylock_core::{DistributedLock, Label, LockKey, LostReason, Mode, Released, Wait};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Case;
use super::case::SOON;
use super::lost::signaled;
use super::need::admin;
use super::support::{eventually, granted, release_all, released, served};

/// The list has exactly the held keys, sorted.
pub async fn list_shows_what_is_held_in_order(case: Case) {
    let (client, other) = (case.client().await, case.client().await);
    let mut guards = Vec::new();
    for name in ["list/c", "list/a", "list/b", "else"] {
        guards.push(case.lock(&client, &case.named(name)).await);
    }
    drop(case.lock(&client, &case.named("list/gone")).await);
    assert!(client.shutdown(SOON).await, "background work does not end");
    let prefix = format!("{}/list/", case.prefix());
    let listed = list(&other, &prefix).await;
    let keys: Vec<_> = listed.iter().map(|info| info.key.clone()).collect();
    let expected = ["list/a", "list/b", "list/c"].map(|name| case.named(name));
    assert_eq!(keys, expected);
    assert!(listed.iter().all(|info| info.holders.len() == 1));
    release_all(guards).await;
    let listed = list(&other, &prefix).await;
    assert_eq!(listed, []);
}

/// A lock is shown with its holder.
pub async fn inspect_shows_the_holder(case: Case) {
    let (client, other, key) = (case.client().await, case.client().await, case.key());
    let label = Label::of_this_process().with_note("a \"note\" & more");
    let request = case.request(&key).with_label(label.clone());
    let guard = granted(&client, &request).await;
    let shown = inspect(&other, &key).await;
    let info = shown.expect("it is held");
    assert_eq!((&info.key, info.mode), (&key, Mode::Exclusive));
    let [holder] = &info.holders[..] else {
        panic!("{} holders", info.holders.len())
    };
    assert_eq!(holder.label, label);
    let token = guard.fencing_token();
    let is_own = holder.token.is_none() || holder.token == token;
    let is_in_time = holder.time_left.is_none_or(|left| left <= case.ttl());
    assert!(is_own && is_in_time, "{holder:?}");
    // A server may get to know the token by the first renewal.
    let deadline = Instant::now() + case.ttl();
    loop {
        let info = inspect(&other, &key).await.expect("it is held");
        if info.holders[0].token == token {
            break;
        }
        assert!(Instant::now() < deadline, "it has no token: {info:?}");
        tokio::time::sleep(case.ttl() / 20).await;
    }
    guard.release().await.expect("a held lock is released");
    assert_eq!(inspect(&other, &key).await, None);
}

/// Waiters are shown in order, if there is a queue.
pub async fn inspect_shows_waiters(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let mut waiting = JoinSet::new();
    for n in 1..=2 {
        let (waiter, label) = (case.client().await, Label::of_this_process());
        let request = case
            .request(&key)
            .with_label(label.with_note(format!("waiter {n}")));
        waiting.spawn(async move {
            drop(granted(&waiter, &request).await);
        });
        case.queued(&key, n).await;
    }
    let shown = inspect(&client, &key).await;
    if let Some(waiters) = shown.expect("it is held").waiters {
        let notes: Vec<_> = waiters.iter().map(Label::note).collect();
        assert_eq!(notes, ["waiter 1", "waiter 2"]);
    }
    guard.release().await.expect("a held lock is released");
    waiting.join_all().await;
}

/// The holder of a broken lock is notified.
pub async fn the_holder_of_a_broken_lock_learns_it(case: Case) {
    let (client, other, key) = (case.client().await, case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let broken = broken(&other, &key).await.expect("it was held");
    assert_eq!((&broken.key, broken.holders.len()), (&key, 1));
    let reason = signaled(&guard, case.after_death()).await;
    assert_eq!(reason, LostReason::Broken);
    assert!(!guard.is_held());
    case.assert_free(&key).await;
    assert_eq!(released(guard).await, Released::AlreadyLost);
}

/// A waiter gets a broken lock, and keeps it.
pub async fn breaking_a_lock_lets_the_next_one_in(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let waiting = case.waiting(&case.request(&key)).await;
    broken(&client, &key).await;
    let next = served(waiting).await;
    let reason = signaled(&guard, case.after_death()).await;
    assert_eq!(reason, LostReason::Broken);
    drop(guard);
    assert!(client.shutdown(SOON).await, "background work does not end");
    assert!(next.is_held());
    case.assert_taken(&key).await;
    next.release().await.expect("a held lock is released");
}

/// Breaking a free lock does nothing.
pub async fn breaking_a_free_lock_does_nothing(case: Case) {
    let (client, key) = (case.client().await, case.key());
    assert_eq!(broken(&client, &key).await, None);
    case.assert_free(&key).await;
}

/// A watcher sees locks that are acquired and freed, and no others.
pub async fn watch_reports_what_is_taken_and_freed(case: Case) {
    let (client, other) = (case.client().await, case.client().await);
    let key = case.named("seen/a");
    let prefix = format!("{}/seen/", case.prefix());
    let watch = admin(&*other).watch(&prefix).await;
    let mut events = watch.expect("locks can be watched");
    let unseen = case.lock(&client, &case.named("unseen")).await;
    let guard = case.lock(&client, &key).await;
    let mut next = async || {
        let next = tokio::time::timeout(SOON, events.recv()).await;
        next.expect("the watcher is told")
    };
    let taken = next().await;
    let Some(LockEvent::Acquired(info)) = taken else {
        panic!("{taken:?} instead of a grant")
    };
    assert_eq!((&info.key, info.holders.len()), (&key, 1));
    guard.release().await.expect("a held lock is released");
    assert_eq!(next().await, Some(LockEvent::Free(key)));
    unseen.release().await.expect("a held lock is released");
}

/// A shared lock is shown with all its holders.
pub async fn inspect_shows_all_readers(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let request = super::shared::reader(&case, &key).with_wait(Wait::Never);
    let first = granted(&client, &request).await;
    let second = granted(&client, &request).await;
    let shown = inspect(&client, &key).await;
    let info = shown.expect("it is held");
    assert_eq!((info.mode, info.holders.len()), (Mode::Shared, 2));
    first.release().await.expect("a held lock is released");
    second.release().await.expect("a held lock is released");
    eventually("the lock is shown to be free", || async {
        inspect(&client, &key).await.is_none()
    })
    .await;
}

pub(super) async fn inspect(locks: &dyn DistributedLock, key: &LockKey) -> Option<LockInfo> {
    let shown = admin(locks).inspect(key).await;
    shown.expect("a lock can be inspected")
}

pub(super) async fn list(locks: &dyn DistributedLock, prefix: &str) -> Vec<LockInfo> {
    let listed = admin(locks).list(prefix).await;
    listed.expect("locks can be listed")
}

pub(super) async fn broken(locks: &dyn DistributedLock, key: &LockKey) -> Option<LockInfo> {
    let broken = admin(locks).break_lock(key, "a test").await;
    broken.expect("it can be broken")
}
