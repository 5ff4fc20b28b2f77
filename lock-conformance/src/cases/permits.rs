//! At most so many hold a key.

use std::num::NonZeroU32;
use std::time::Duration;

use lock_core::{
    AcquireRequest, DistributedLock, DistributedLockExt, ErrorKind, LockKey, Mode, Wait,
};

use super::case::SOON;
use super::support::crowd;
use super::waiting::queued;
use super::{Case, two};
use crate::history::{Checker, Recorder};

fn permit(case: &Case, key: &LockKey, limit: NonZeroU32) -> AcquireRequest {
    case.request(key).with_mode(Mode::Permit { limit })
}

/// As many as the limit says hold permits, one more does not, and one that leaves makes room.
pub async fn at_most_the_limit_hold_permits(case: Case) {
    let (here, there, key) = (case.client().await, case.client().await, case.key());
    let request = permit(&case, &key, two()).with_wait(Wait::Never);
    let first = here
        .acquire(&request)
        .await
        .expect("a free permit is granted");
    let second = there
        .acquire(&request)
        .await
        .expect("a free permit is granted");
    for client in [&here, &there] {
        let error = client
            .acquire(&request)
            .await
            .expect_err("one permit too many");
        assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    }
    first.release().await.expect("a held permit is released");
    let third = here
        .acquire(&request)
        .await
        .expect("a free permit is granted");
    for guard in [second, third] {
        assert!(guard.is_held());
        guard.release().await.expect("a held permit is released");
    }
    case.assert_free(&key).await;
}

/// Who waits for a permit gets the next one.
pub async fn a_waiter_gets_the_next_permit(case: Case) {
    let (client, waiter, key) = (case.client().await, case.client().await, case.key());
    let request = permit(&case, &key, two());
    let first = client
        .acquire(&request)
        .await
        .expect("a free permit is granted");
    let second = client
        .acquire(&request)
        .await
        .expect("a free permit is granted");
    let waiting = tokio::spawn(async move { waiter.acquire(&request).await });
    queued(&case, &key, 1).await;
    assert!(!waiting.is_finished(), "one permit too many");
    drop(second);
    let third = tokio::time::timeout(SOON, waiting)
        .await
        .expect("the waiter is served");
    let third = third.expect("no panic").expect("it is granted");
    assert!(first.is_held() && third.is_held());
    first.release().await.expect("a held permit is released");
    third.release().await.expect("a held permit is released");
}

/// Permits of one key have one limit at a time.
pub async fn another_limit_is_refused(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = client
        .acquire(&permit(&case, &key, two()))
        .await
        .expect("a free permit");
    let other = permit(&case, &key, two().saturating_add(1)).with_wait(Wait::Never);
    let error = client
        .acquire(&other)
        .await
        .expect_err("two limits at once");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    guard.release().await.expect("a held permit is released");
    let guard = client
        .acquire(&other)
        .await
        .expect("the limit goes with its last holder");
    guard.release().await.expect("a held permit is released");
    case.assert_free(&key).await;
}

/// A permit excludes exclusive holders, and they exclude permits.
pub async fn permits_and_exclusive_holders_exclude_each_other(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let request = permit(&case, &key, two()).with_wait(Wait::Never);
    let guard = client
        .acquire(&request)
        .await
        .expect("a free permit is granted");
    case.assert_taken(&key).await;
    guard.release().await.expect("a held permit is released");
    let guard = case.lock(&client, &key).await;
    let error = client
        .acquire(&request)
        .await
        .expect_err("a permit beside an exclusive holder");
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    guard.release().await.expect("a held lock is released");
    case.assert_free(&key).await;
}

/// A permit whose holder died is free after its ttl, and the others stay held.
pub async fn a_dead_holder_gives_its_permit_back_after_its_ttl(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let request = permit(&case, &key, two());
    let dead = client
        .acquire(&request)
        .await
        .expect("a free permit is granted");
    let alive = client
        .acquire(&request)
        .await
        .expect("a free permit is granted");
    dead.abandon();
    let error = client
        .acquire(&request.clone().with_wait(Wait::Never))
        .await;
    error.expect_err("one permit too many");
    let patient = request.with_wait(Wait::AtMost(case.after_death()));
    let next = client
        .acquire(&patient)
        .await
        .expect("the permit of the dead is free");
    assert!(alive.is_held() && next.is_held());
    alive.release().await.expect("a held permit is released");
    next.release().await.expect("a held permit is released");
}

/// Tasks that compete for permits are never more than the limit.
pub async fn competitors_are_never_more_than_the_limit(case: Case) {
    let (key, recorder) = (case.key(), Recorder::new());
    let limit = two().saturating_add(1);
    crowd(&case, 3, 4, |client, _| {
        let (request, recorder) = (permit(&case, &key, limit), recorder.clone());
        async move {
            for _ in 0..4 {
                let held = recorder
                    .acquire(&client, &request)
                    .await
                    .expect("it is granted");
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
    let guard = client
        .acquire(&request)
        .await
        .expect("a free permit is granted");
    let error = client
        .acquire(&request)
        .await
        .expect_err("one permit too many");
    assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
    guard.release().await.expect("a held permit is released");
    let guard = client
        .request(&key)
        .permit(NonZeroU32::MIN)
        .try_acquire()
        .await;
    drop(guard.expect("no error").expect("a free permit is granted"));
}
