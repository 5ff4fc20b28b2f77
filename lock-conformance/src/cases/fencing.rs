//! Every holder has a larger token than the one before it.

use std::time::Duration;

use polylock_core::{DistributedLock, DistributedLockExt, LockGuard, LockKey};

use super::Case;
use super::admin::broken;
use super::case::SOON;
use super::support::{crowd, granted, noted, renewed};
use crate::history::{Checker, Recorder};

pub(super) fn token(guard: &LockGuard) -> u64 {
    guard.fencing_token().expect("a holder has a token").value()
}

/// Asserts that the next holder has a larger token; it releases the lock.
async fn grows(case: &Case, key: &LockKey, token_before: u64) -> u64 {
    let client = case.client().await;
    let guard = granted(&client, &case.request(key)).await;
    let next = token(&guard);
    assert!(next > token_before, "token {next} after {token_before}");
    guard.release().await.expect("a held lock is released");
    next
}

/// Tokens grow over releases.
pub async fn tokens_grow_over_releases(case: Case) {
    let key = case.key();
    let mut last = 0;
    for _ in 0..20 {
        last = grows(&case, &key, last).await;
    }
}

/// Tokens grow over guards that are dropped.
pub async fn tokens_grow_over_drops(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let first = token(&guard);
    drop(guard);
    grows(&case, &key, first).await;
}

/// Tokens grow over a lease that expires.
pub async fn tokens_grow_over_expiry(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lease(&client, &key).await;
    grows(&case, &key, token(&guard)).await;
}

/// Tokens grow over a lock that is broken.
pub async fn tokens_grow_over_a_break(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    assert!(broken(&client, &key).await.is_some());
    grows(&case, &key, token(&guard)).await;
}

/// Tokens grow over a request that was dropped, whether it was granted or not.
pub async fn tokens_grow_over_cancelled_requests(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let mut last = 0;
    for micros in [1, 50, 200, 1_000, 5_000] {
        let attempt = client.lock(&key);
        drop(tokio::time::timeout(Duration::from_micros(micros), attempt).await);
        assert!(client.shutdown(SOON).await, "background work does not end");
        last = grows(&case, &key, last).await;
    }
}

/// Tokens grow among holders that compete.
pub async fn tokens_grow_among_competitors(case: Case) {
    let (key, recorder) = (case.key(), Recorder::new());
    crowd(&case, 3, 3, |client, _| {
        let (request, recorder) = (case.request(&key), recorder.clone());
        async move {
            for _ in 0..4 {
                let held = noted(&recorder, &client, &request).await;
                assert!(held.fencing_token().is_some());
                drop(held);
            }
        }
    })
    .await;
    let summary = Checker::new().check(&recorder.events()).assert_clean();
    assert_eq!(summary.grants, 36);
}

/// A holder keeps its token while it holds the lock, and the token fits a signed column of a database.
pub async fn a_token_stays_as_it_is(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let first = token(&guard);
    assert!(
        first > 0 && i64::try_from(first).is_ok(),
        "the first fencing token is {first}"
    );
    tokio::time::sleep(case.ttl().mul_f64(0.6)).await;
    renewed(&guard).await;
    assert_eq!(token(&guard), first);
    guard.release().await.expect("a held lock is released");
}
