//! Requests out of range are refused before anything is sent.

use std::time::Duration;

use polylock_core::{
    AcquireRequest, DistributedLock, DistributedLockExt, ErrorKind, LockKey, LockLifetime, Owner,
    Wait,
};

use super::Case;
use super::support::granted;

/// Leases of zero, almost zero and unlimited time are refused.
pub async fn a_ttl_out_of_range_is_refused(case: Case) {
    let ns = Duration::from_nanos(1);
    let least = case.client().await.capabilities().min_ttl;
    let most = AcquireRequest::MAX_TTL;
    for ttl in [Duration::ZERO, ns, least - ns, most + ns, Duration::MAX] {
        refused(&case, &format!("a ttl of {ttl:?}"), |request| {
            request.with_ttl(ttl)
        })
        .await;
    }
}

/// Holds that make no sense are refused.
pub async fn a_hold_out_of_range_is_refused(case: Case) {
    let secs = Duration::from_secs;
    refused(&case, "no longest hold at all", |r| {
        r.with_max_hold(Duration::ZERO)
    })
    .await;
    refused(&case, "a min hold beyond the longest", |r| {
        r.with_min_hold(secs(9)).with_max_hold(secs(8))
    })
    .await;
    refused(&case, "an endless min hold", |r| {
        r.with_min_hold(Duration::MAX)
    })
    .await;
}

async fn refused(case: &Case, what: &str, change: impl FnOnce(AcquireRequest) -> AcquireRequest) {
    let (client, key) = (case.client().await, case.key());
    let request = change(case.request(&key));
    let error = client.acquire(&request).await.expect_err(what);
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{what}: {error}");
    assert!(
        !error.is_retryable() && !error.is_outcome_unknown(),
        "{what}: {error:?}"
    );
    assert_eq!(error.key(), Some(&key), "{what}");
    case.assert_free(&key).await;
}

/// Invalid names are refused, whichever way they come.
pub async fn a_name_that_is_no_key_is_refused(case: Case) {
    let client = case.client().await;
    let long = "x".repeat(LockKey::MAX_LEN + 1);
    for name in ["", &long, "a\0b", "a\nb", "\r\n", "\u{7f}", "\u{85}", "\t"] {
        let error = client.lock(name).await.expect_err("it is no key");
        assert_eq!(error.kind(), ErrorKind::InvalidKey, "{name:?}: {error}");
        let error = client.try_lock(name).await.expect_err("it is no key");
        assert_eq!(error.kind(), ErrorKind::InvalidKey, "{name:?}: {error}");
        let error = client
            .lock_all(["fine", name])
            .await
            .expect_err("it is no key");
        assert_eq!(error.kind(), ErrorKind::InvalidKey, "{name:?}: {error}");
    }
}

/// Waits and holds without end are granted like others.
pub async fn endless_waits_and_holds_are_served(case: Case) {
    let client = case.client().await;
    for change in [
        |request: AcquireRequest| request.with_wait(Wait::AtMost(Duration::MAX)),
        |request: AcquireRequest| request.with_max_hold(Duration::MAX),
        |request: AcquireRequest| request.with_max_hold(None),
        |request: AcquireRequest| request.with_ttl(AcquireRequest::MAX_TTL),
    ] {
        let key = case.key();
        let request = change(AcquireRequest::new(key.clone()));
        let guard = granted(&client, &request).await;
        assert!(guard.is_held());
        guard.release().await.expect("a held lock is released");
        case.assert_free(&key).await;
    }
}

/// A lease of the shortest ttl that the backend serves is granted, and ends by itself.
pub async fn the_shortest_ttl_is_served(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let min_ttl = client.capabilities().min_ttl;
    let request = AcquireRequest::new(key.clone()).with_ttl(min_ttl);
    let guard = granted(&client, &request).await;
    let is_lease = client.capabilities().bound == LockLifetime::Lease;
    if let Some(until) = guard.valid_until().filter(|_| is_lease) {
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        assert!(
            left <= min_ttl.mul_f64(0.9),
            "valid for {left:?} of {min_ttl:?}"
        );
    }
    guard.release().await.expect("it is released");
    case.assert_free(&key).await;
    if is_lease {
        granted(&client, &request).await.abandon();
        case.assert_free_within(&key, min_ttl + super::case::SOON)
            .await;
    }
}

/// An owner enters again, or is told that it cannot.
pub async fn an_owner_is_served_or_refused(case: Case) {
    let (client, key, owner) = (case.client().await, case.key(), Owner::new());
    let request = case.request(&key).with_owner(owner).with_wait(Wait::Never);
    let first = client.acquire(&request).await;
    if client.capabilities().reentry {
        let (first, second) = (first, client.acquire(&request).await);
        drop((
            first.expect("it is granted"),
            second.expect("the owner enters again"),
        ));
    } else {
        let error = first.expect_err("re-entry is no capability");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    case.assert_free_within(&key, super::case::SOON).await;
}
