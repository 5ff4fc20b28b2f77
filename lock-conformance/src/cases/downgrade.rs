//! An exclusive lock becomes a shared one without a gap.

use polylock_core::{ErrorKind, Wait};

use super::Case;
use super::shared::reader;
use super::support::{granted, served};

/// After a downgrade, readers enter beside the holder, and writers do not.
pub async fn a_downgraded_lock_admits_readers_and_no_writer(case: Case) {
    let (client, other, key) = (case.client().await, case.client().await, case.key());
    let mut guard = case.lock(&client, &key).await;
    let before = guard.fencing_token();
    guard.downgrade().await.expect("a held lock is downgraded");
    assert!(guard.is_held());
    assert_eq!(
        guard.fencing_token(),
        before,
        "one acquisition has one token"
    );
    let request = reader(&case, &key).with_wait(Wait::Never);
    let beside = granted(&other, &request).await;
    case.assert_taken(&key).await;
    guard.release().await.expect("a held lock is released");
    case.assert_taken(&key).await;
    beside.release().await.expect("a held lock is released");
    case.assert_free(&key).await;
}

/// A waiting writer does not enter during a downgrade, and is served after it.
pub async fn a_downgrade_leaves_no_gap_for_a_writer(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let mut guard = case.lock(&client, &key).await;
    let waiting = case.waiting(&case.request(&key)).await;
    guard.downgrade().await.expect("a held lock is downgraded");
    tokio::time::sleep(case.ttl().mul_f64(0.2)).await;
    assert!(
        guard.is_held() && !waiting.is_finished(),
        "a writer entered beside a reader"
    );
    guard.release().await.expect("a held lock is released");
    let next = served(waiting).await;
    next.release().await.expect("a held lock is released");
}

/// A downgraded lock is renewed like any other.
pub async fn a_downgraded_lock_is_kept_beyond_its_ttl(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let mut guard = case.lock(&client, &key).await;
    guard.downgrade().await.expect("a held lock is downgraded");
    tokio::time::sleep(case.ttl().mul_f64(1.3)).await;
    case.assert_kept(&guard).await;
    guard.release().await.expect("a held lock is released");
    case.assert_free(&key).await;
}

/// A shared lock cannot be downgraded, and stays held.
pub async fn a_shared_lock_cannot_be_downgraded(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let request = reader(&case, &key);
    let mut guard = granted(&client, &request).await;
    let refused = guard.downgrade().await;
    let error = refused.expect_err("a shared lock was downgraded");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(guard.is_held());
    guard.release().await.expect("a held lock is released");
}
