//! Several keys at once, all or none.

use std::time::Duration;

use polylock_core::{DistributedLock, DistributedLockExt, LockGuard};
use tokio::task::JoinSet;

use super::Case;
use super::case::{LATE, SOON};
use super::support::{When, answered, timed_out};

/// All of the keys are held, in order, each once.
pub async fn lock_all_holds_every_key_in_order(case: Case) {
    let client = case.client().await;
    let [a, b, c] = ["a", "b", "c"].map(|name| case.named(name));
    let all = client.lock_all([&c, &a, &b, &a]).await;
    let all = all.expect("free locks are granted");
    let keys: Vec<_> = all.guards().iter().map(LockGuard::key).collect();
    assert_eq!(keys, [&a, &b, &c]);
    assert!(all.is_held());
    for key in [&a, &b, &c] {
        case.assert_taken(key).await;
    }
    all.release().await.expect("held locks are released");
    for key in [&a, &b, &c] {
        case.assert_free(key).await;
    }
}

/// If one of the keys is held, no other key is held after the wait.
pub async fn lock_all_holds_nothing_after_a_refusal(case: Case) {
    let (client, other) = (case.client().await, case.client().await);
    let [a, b, c] = ["a", "b", "c"].map(|name| case.named(name));
    // Longer than a busy machine keeps a renewal waiting: nothing here is about leases.
    let held = case.request(&b).with_ttl(case.ttl() * 10);
    let held = held.with_wait(polylock_core::Wait::AtMost(SOON));
    let guard = other.acquire(&held).await.expect("a free lock is granted");
    // Connections are there before the time counts.
    let first = case.lock(&client, &a).await;
    first.release().await.expect("a held lock is released");
    let limit = Duration::from_millis(300);
    let wait = async || {
        let request = client.request_all([&a, &b, &c]);
        let request = request.with(|r| r.with_wait(polylock_core::Wait::AtMost(limit)));
        request.acquire().await
    };
    let (error, waited) = timed_out(&client, wait).await;
    assert_eq!(error.key(), Some(&b));
    assert!(
        waited >= limit && waited < limit + LATE,
        "timed out after {waited:?}"
    );
    for key in [&a, &c] {
        case.assert_nothing_left(&client, key).await;
    }
    let attempt = client.request_all([&a, &b, &c]).try_acquire().await;
    assert!(attempt.expect("contention is no error").is_none());
    case.assert_nothing_left(&client, &a).await;
    guard.release().await.expect("a held lock is released");
}

/// Callers that name the same keys in different orders all get them.
pub async fn crossing_orders_do_not_deadlock(case: Case) {
    let [a, b, c] = ["a", "b", "c"].map(|name| case.named(name));
    let mut tasks = JoinSet::new();
    for keys in [[&a, &b, &c], [&c, &b, &a], [&b, &a, &c], [&c, &a, &b]] {
        let (client, case) = (case.client().await, case.clone());
        let keys = keys.map(Clone::clone);
        tasks.spawn(async move {
            for _ in 0..5 {
                let request = client.request_all(keys.clone());
                let request = request.with(|request| request.with_ttl(case.ttl()));
                let all = request.acquire().await.expect("the locks are granted");
                tokio::task::yield_now().await;
                assert!(all.is_held());
                all.release().await.expect("held locks are released");
            }
        });
    }
    tasks.join_all().await;
    case.assert_free(&b).await;
}

/// A request for several keys that is dropped after its k-th poll leaves nothing behind.
pub async fn lock_all_dropped_after_each_poll_leaves_nothing(case: Case) {
    let client = case.client().await;
    let keys = ["a", "b", "c"].map(|name| case.named(name));
    for polls in 1.. {
        let answer = answered(polls, When::AtOnce, client.lock_all(&keys)).await;
        let granted = answer.map(|all| drop(all.expect("free locks are granted")));
        for key in &keys {
            case.assert_nothing_left(&client, key).await;
        }
        if granted.is_some() {
            return;
        }
    }
}

/// All of the locks are renewed.
pub async fn lock_all_keeps_every_key_beyond_the_ttl(case: Case) {
    let (client, keys) = (case.client().await, ["a", "b"].map(|name| case.named(name)));
    let request = client
        .request_all(&keys)
        .with(|request| request.with_ttl(case.ttl()));
    let all = request.acquire().await.expect("free locks are granted");
    tokio::time::sleep(case.ttl().mul_f64(1.3)).await;
    assert!(all.is_held());
    for key in &keys {
        case.assert_taken(key).await;
    }
    all.release().await.expect("held locks are released");
}
