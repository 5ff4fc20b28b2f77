//! Permits: a limited number of holders per key.

use std::num::NonZeroU32;
use std::time::Duration;

use polylock_core::{
    AcquireRequest, DistributedLock, DistributedLockExt, ErrorKind, LockKey, Mode, Wait,
};

use super::support::{contended, crowd, granted, noted, served};
use super::{Case, two};
use crate::history::{Checker, Recorder};

fn permit(case: &Case, key: &LockKey, limit: NonZeroU32) -> AcquireRequest {
    case.request(key).with_mode(Mode::Permit { limit })
}

/// As many holders as the limit get permits, one more does not, and a release makes room.
pub async fn at_most_the_limit_hold_permits(case: Case) {
    let (here, there, key) = (case.client().await, case.client().await, case.key());
    let request = permit(&case, &key, two()).with_wait(Wait::Never);
    let first = granted(&here, &request).await;
    let second = granted(&there, &request).await;
    for client in [&here, &there] {
        contended(client, &request).await;
    }
    first.release().await.expect("a held permit is released");
    let third = granted(&here, &request).await;
    for guard in [second, third] {
        assert!(guard.is_held());
        guard.release().await.expect("a held permit is released");
    }
    case.assert_free(&key).await;
}

/// A waiter for a permit gets the next one.
pub async fn a_waiter_gets_the_next_permit(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let request = permit(&case, &key, two());
    let first = granted(&client, &request).await;
    let second = granted(&client, &request).await;
    let waiting = case.waiting(&request).await;
    assert!(!waiting.is_finished(), "one permit too many");
    drop(second);
    let third = served(waiting).await;
    assert!(first.is_held() && third.is_held());
    first.release().await.expect("a held permit is released");
    third.release().await.expect("a held permit is released");
}

/// Instances that name a new limit work beside those that name the old one: each permit is granted while
/// fewer hold the lock than its own limit.
pub async fn each_permit_counts_by_its_own_limit(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let request = |limit| {
        let limit = NonZeroU32::new(limit).expect("it is not zero");
        permit(&case, &key, limit)
    };
    let mut held = Vec::new();
    // The limit that is asked for, and how many hold the lock then.
    for (limit, count) in [(2, 1), (1, 1), (3, 2), (2, 2), (3, 3), (3, 3)] {
        match client.acquire(&request(limit).with_wait(Wait::Never)).await {
            Ok(guard) => held.push(guard),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Contended, "{error}"),
        }
        assert_eq!(held.len(), count, "after a request with the limit {limit}");
    }
    let waiting = case.waiting(&request(1)).await;
    for guard in held {
        assert!(!waiting.is_finished(), "one permit too many");
        guard.release().await.expect("a held permit is released");
    }
    let last = served(waiting).await;
    last.release().await.expect("a held permit is released");
    case.assert_free(&key).await;
}

/// A permit excludes exclusive holders, and they exclude permits.
pub async fn permits_and_exclusive_holders_exclude_each_other(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let request = permit(&case, &key, two()).with_wait(Wait::Never);
    let guard = granted(&client, &request).await;
    case.assert_taken(&key).await;
    guard.release().await.expect("a held permit is released");
    let guard = case.lock(&client, &key).await;
    contended(&client, &request).await;
    guard.release().await.expect("a held lock is released");
    case.assert_free(&key).await;
}

/// A permit whose holder died is free after its ttl, and the others stay held.
pub async fn the_permit_of_a_dead_holder_is_free_after_its_ttl(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let request = permit(&case, &key, two());
    let dead = granted(&client, &request).await;
    let alive = granted(&client, &request).await;
    dead.abandon();
    contended(&client, &request.clone().with_wait(Wait::Never)).await;
    let patient = request.with_wait(Wait::AtMost(case.after_death()));
    let next = granted(&client, &patient).await;
    assert!(alive.is_held() && next.is_held());
    alive.release().await.expect("a held permit is released");
    next.release().await.expect("a held permit is released");
}

/// Tasks that compete for permits never exceed the limit.
pub async fn competitors_are_never_more_than_the_limit(case: Case) {
    let (key, recorder) = (case.key(), Recorder::new());
    let limit = two().saturating_add(1);
    crowd(&case, 3, 4, |client, _| {
        let (request, recorder) = (permit(&case, &key, limit), recorder.clone());
        async move {
            for _ in 0..4 {
                let held = noted(&recorder, &client, &request).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
                held.release().await.expect("a held permit is released");
            }
        }
    })
    .await;
    let summary = Checker::new().check(&recorder.events()).assert_clean();
    assert_eq!(summary.grants, 48);
    case.assert_free(&key).await;
}

/// A permit of one is an exclusive lock.
pub async fn a_limit_of_one_is_exclusive(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let request = permit(&case, &key, NonZeroU32::MIN).with_wait(Wait::Never);
    let guard = granted(&client, &request).await;
    contended(&client, &request).await;
    guard.release().await.expect("a held permit is released");
    let request = client.request(&key).permit(NonZeroU32::MIN);
    let guard = request.try_acquire().await;
    drop(guard.expect("no error").expect("a free permit is granted"));
}
