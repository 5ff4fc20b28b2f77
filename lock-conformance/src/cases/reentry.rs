//! The same owner enters again, on the queue that keeps the count.

use std::time::Duration;

use polylock_core::{LostReason, Owner, Released, Renewal, Wait};

use super::Case;
use super::case::SOON;
use super::lost::signaled;
use super::support::{contended, granted, released};

/// An owner gets the lock again with the same token, and releases it with its last guard.
pub async fn an_owner_enters_again_until_its_last_guard(case: Case) {
    let (queue, key, owner) = (case.queue().await, case.key(), Owner::new());
    let request = case
        .request(&key)
        .with_owner(owner.clone())
        .with_wait(Wait::Never);
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(granted(&queue, &request).await);
    }
    let token = guards[0].fencing_token();
    assert!(guards.iter().all(|guard| guard.fencing_token() == token));
    while let Some(guard) = guards.pop() {
        case.assert_taken(&key).await;
        assert!(guard.is_held());
        assert_eq!(released(guard).await, Released::Clean);
    }
    case.assert_nothing_left(&*queue, &key).await;
}

/// Neither another owner nor a request without one enters.
pub async fn only_the_owner_enters_again(case: Case) {
    let (queue, key, owner) = (case.queue().await, case.key(), Owner::new());
    let plain = case.request(&key).with_wait(Wait::Never);
    let guard = granted(&queue, &plain.clone().with_owner(owner)).await;
    for request in [plain.clone(), plain.with_owner(Owner::new())] {
        contended(&queue, &request).await;
    }
    guard.release().await.expect("a held lock is released");
    case.assert_free(&key).await;
}

/// A guard that is dropped counts like one that is released.
pub async fn dropped_guards_of_an_owner_are_counted(case: Case) {
    let (queue, key, owner) = (case.queue().await, case.key(), Owner::new());
    let request = case.request(&key).with_owner(owner);
    let outer = granted(&queue, &request).await;
    for _ in 0..5 {
        drop(granted(&queue, &request).await);
        assert!(outer.is_held());
    }
    case.assert_taken(&key).await;
    drop(outer);
    case.assert_nothing_left(&*queue, &key).await;
}

/// All guards of an owner lose the lock at once.
pub async fn guards_of_an_owner_are_lost_together(case: Case) {
    let (queue, key, owner) = (case.queue().await, case.key(), Owner::new());
    let request = case
        .request(&key)
        .with_owner(owner)
        .with_max_hold(Duration::from_millis(300));
    let outer = granted(&queue, &request).await;
    let inner = granted(&queue, &request).await;
    assert_eq!(signaled(&inner, SOON).await, LostReason::MaxHold);
    assert_eq!(outer.lost().reason(), Some(LostReason::MaxHold));
    drop((inner, outer));
    case.assert_free_within(&key, SOON).await;
}

/// An owner does not enter a lock that it has lost, but gets it anew.
pub async fn an_owner_does_not_enter_a_lock_that_it_lost(case: Case) {
    let (queue, key, owner) = (case.queue().await, case.key(), Owner::new());
    let request = case
        .request(&key)
        .with_owner(owner)
        .with_renewal(Renewal::Manual);
    let old = granted(&queue, &request).await;
    signaled(&old, case.after_death()).await;
    let patient = request.with_wait(Wait::AtMost(case.after_death()));
    let new = granted(&queue, &patient).await;
    assert!(!old.is_held() && new.is_held());
    if let (Some(before), Some(after)) = (old.fencing_token(), new.fencing_token()) {
        assert!(before < after, "token {after} after {before}");
    }
    drop(old);
    assert!(new.is_held());
    new.release().await.expect("a held lock is released");
    case.assert_nothing_left(&*queue, &key).await;
}
