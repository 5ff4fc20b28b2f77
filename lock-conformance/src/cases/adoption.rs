//! Leases that another process adopts.

use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::{LeaseId, OsEntropy};
use polylock_core::memory::{Fault, Reachable, Request};
use polylock_core::{DistributedLock, FencingToken, LeaseState, LockKey, LostReason, Released};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Case;
use super::admin::inspect;
use super::case::SOON;
use super::lost::signaled;
use super::need::admin;
use super::support::{
    When, answered, eventually, granted, released, renewed, served, started, unavailable,
};

/// Of several clients that adopt one lease at the same time, one gets it.
pub async fn one_of_several_adopters_has_the_lease(case: Case) {
    let key = case.key();
    let (id, _) = left(&case, &key).await;
    let mut adopters = JoinSet::new();
    for _ in 0..6 {
        let (client, key, new, ttl) = (case.client().await, key.clone(), any_id(), long(&case));
        adopters.spawn(async move {
            let adopted = adopt(&client, &key, id, new, ttl).await;
            adopted.map(|_| new)
        });
    }
    let winners = adopters.join_all().await;
    let winners: Vec<_> = winners.into_iter().flatten().collect();
    let [winner] = winners[..] else {
        panic!("{} adopters have the lease", winners.len())
    };
    case.assert_taken(&key).await;
    give_back(&case, &key, winner).await;
}

/// The holder with the former id loses the lock, and cannot affect it.
pub async fn the_former_holder_of_an_adopted_lease_has_lost_it(case: Case) {
    let (client, other, key) = (case.client().await, case.client().await, case.key());
    let guard = case.lock(&client, &key).await;
    let (id, new) = (guard.lease_id().expect("a lease has an id"), any_id());
    let adopted = adopt(&other, &key, id, new, long(&case)).await;
    assert!(adopted.is_some(), "a held lease is adopted");
    let reason = signaled(&guard, case.after_death()).await;
    assert_eq!(reason, LostReason::Stolen);
    assert_eq!(released(guard).await, Released::AlreadyLost);
    let admin = admin(&*client);
    let state = admin.renew_lease(&key, id, long(&case)).await;
    assert!(matches!(state, Ok(LeaseState::Lost(_))), "{state:?}");
    let released = admin.release_lease(&key, id).await;
    assert!(
        matches!(released, Ok(Released::AlreadyLost)),
        "{released:?}"
    );
    let again = adopt(&client, &key, id, any_id(), long(&case)).await;
    assert_eq!(again, None, "it is adopted twice");
    case.assert_taken(&key).await;
    let state = admin.renew_lease(&key, new, long(&case)).await;
    assert!(matches!(state, Ok(LeaseState::Held)), "{state:?}");
    give_back(&case, &key, new).await;
}

/// Tokens grow over adoptions, also of a lease that was handed over inside a process.
pub async fn tokens_grow_over_adoptions(case: Case) {
    let (queue, other, key) = (case.queue().await, case.client().await, case.key());
    let request = case.request(&key).with_ttl(long(&case));
    let guard = granted(&*queue, &request).await;
    let (next, again) = (Arc::clone(&queue), request.clone());
    let waiting = started(async move { next.acquire(&again).await }).await;
    guard.release().await.expect("a held lock is released");
    let guard = served(waiting).await;
    let (mut id, mut last) = (guard.lease_id().expect("a lease"), guard.fencing_token());
    let label = request.label().clone();
    guard.abandon();
    for _ in 0..3 {
        let new = any_id();
        let token = adopt(&other, &key, id, new, long(&case)).await;
        assert!(token > last, "{token:?} after {last:?}");
        (id, last) = (new, token);
        let info = inspect(&other, &key).await.expect("it is held");
        let [holder] = &info.holders[..] else {
            panic!("{} holders", info.holders.len())
        };
        assert_eq!((holder.token, &holder.label), (token, &label));
    }
    give_back(&case, &key, id).await;
    let next = case.lock(&other, &key).await;
    let token = next.fencing_token();
    assert!(token > last, "{token:?} after {last:?}");
    next.release().await.expect("a held lock is released");
}

/// A lease that has ended, or was never there, is not adopted.
pub async fn a_lease_that_has_ended_is_not_adopted(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let assert_gone = async |id| {
        let adopted = adopt(&client, &key, id, any_id(), long(&case)).await;
        assert_eq!(adopted, None, "it is adopted");
    };
    assert_gone(any_id()).await;
    let guard = case.lock(&client, &key).await;
    let released = guard.lease_id().expect("a lease has an id");
    guard.release().await.expect("a held lock is released");
    assert_gone(released).await;
    case.assert_free(&key).await;
    let guard = case.lease(&client, &key).await;
    let expired = guard.lease_id().expect("a lease has an id");
    eventually("the lease ends", || async {
        inspect(&client, &key).await.is_none()
    })
    .await;
    assert_gone(expired).await;
    case.assert_free(&key).await;
    let next = case.lock(&client, &key).await;
    assert_gone(released).await;
    assert_gone(expired).await;
    renewed(&next).await;
    next.release().await.expect("a held lock is released");
}

/// A repeated adoption gets the same answer while the lease is held, and extends it each time.
pub async fn an_adoption_that_is_repeated_is_answered_alike(case: Case) {
    let (client, other, key) = (case.client().await, case.client().await, case.key());
    let ((id, _), new) = (left(&case, &key).await, any_id());
    let token = adopt(&client, &key, id, new, long(&case)).await;
    assert!(token.is_some(), "a held lease is adopted");
    let again = adopt(&other, &key, id, new, 2 * long(&case)).await;
    assert_eq!(again, token);
    let info = inspect(&client, &key).await.expect("it is held");
    let left = info.holders[0].time_left;
    assert!(left > Some(long(&case)), "not extended: {left:?}");
    case.assert_taken(&key).await;
    give_back(&case, &key, new).await;
    assert_eq!(adopt(&client, &key, id, new, case.ttl()).await, None);
    case.assert_free(&key).await;
}

/// A lease lasts for its ttl from its adoption on, and no longer.
pub async fn an_adopted_lease_lasts_for_its_ttl(case: Case) {
    let (client, key) = (case.client().await, case.key());
    // The first lease outlasts a pause of the machine, and ends before that of the adopter.
    let request = case.request(&key).with_ttl(3 * case.ttl());
    let guard = granted(&client, &request).await;
    let id = guard.lease_id().expect("a lease has an id");
    guard.abandon();
    let (ttl, began) = (4 * case.ttl(), Instant::now());
    let adopted = adopt(&client, &key, id, any_id(), ttl).await;
    assert!(adopted.is_some(), "a held lease is adopted");
    case.assert_free_within(&key, ttl + SOON).await;
    let lasted = began.elapsed();
    assert!(lasted >= ttl.mul_f64(0.95), "free after {lasted:?}");
}

/// A waiter for the lock keeps its place, and gets a larger token than the adopter.
pub async fn a_waiter_keeps_its_place_over_an_adoption(case: Case) {
    let (other, key) = (case.client().await, case.key());
    let ((id, _), new) = (left(&case, &key).await, any_id());
    let request = case.request_within(&key, 3 * SOON);
    let waiting = case.waiting(&request).await;
    let adopted = adopt(&other, &key, id, new, long(&case)).await;
    if let Some(waiters) = inspect(&other, &key).await.and_then(|info| info.waiters) {
        assert_eq!(waiters.len(), 1);
    }
    // Longer than a heartbeat takes.
    tokio::time::sleep(case.ttl().mul_f64(1.2)).await;
    assert!(!waiting.is_finished(), "two hold the lock");
    let given_back = admin(&*other).release_lease(&key, new).await;
    assert!(matches!(given_back, Ok(Released::Clean)), "{given_back:?}");
    let next = served(waiting).await;
    assert!(
        next.fencing_token() > adopted,
        "adopted with fencing token {adopted:?}"
    );
    next.release().await.expect("a held lock is released");
}

/// The lease of a shared lock cannot be adopted.
pub async fn a_shared_lease_is_not_adopted(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let guard = granted(&client, &super::shared::reader(&case, &key)).await;
    let id = guard.lease_id().expect("a lease has an id");
    let adopted = adopt(&client, &key, id, any_id(), case.ttl()).await;
    assert_eq!(adopted, None, "it is adopted");
    renewed(&guard).await;
    guard.release().await.expect("a held lock is released");
}

/// An adoption whose reply is lost has an unknown outcome, and is repeated with the same new id.
pub async fn an_adoption_without_an_answer_is_repeated(case: Case) {
    let (client, key) = (case.client().await, case.key());
    for fault in [Fault::LostReply, Fault::LostRequest] {
        let ((id, before), new) = (left(&case, &key).await, any_id());
        case.faults().plan(Request::Adopt, fault);
        let adopting = admin(&*client).adopt_lease(&key, id, new, long(&case));
        let error = unavailable(adopting.await);
        assert!(error.is_outcome_unknown(), "{error:?}");
        let token = adopt(&client, &key, id, new, long(&case)).await;
        assert!(token > Some(before), "{token:?} after {before:?}");
        give_back(&case, &key, new).await;
    }
}

/// An adoption that arrives twice is one.
pub async fn an_adoption_that_arrives_twice_is_one(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let ((id, _), new) = (left(&case, &key).await, any_id());
    case.faults().plan(Request::Adopt, Fault::Duplicated);
    let token = adopt(&client, &key, id, new, long(&case)).await;
    case.assert_disturbed().await;
    let info = inspect(&client, &key).await.expect("it is held");
    assert!(token.is_some(), "a held lease is adopted");
    assert_eq!(info.holders[0].token, token);
    give_back(&case, &key, new).await;
}

/// An adoption that is dropped after its k-th poll leaves the lease with either id, and is done when it is repeated.
pub async fn an_adoption_dropped_after_each_poll_can_be_repeated(case: Case) {
    let (client, other, key) = (case.client().await, case.client().await, case.key());
    for polls in 1.. {
        let ((id, before), new) = (left(&case, &key).await, any_id());
        let adopting = admin(&*client).adopt_lease(&key, id, new, long(&case));
        let answer = answered(polls, When::AtOnce, adopting).await;
        let token = adopt(&other, &key, id, new, long(&case)).await;
        assert!(token > Some(before), "{token:?} after {before:?}");
        give_back(&case, &key, new).await;
        if let Some(adopted) = answer {
            assert_eq!(adopted.expect("the server answers"), token);
            return;
        }
    }
}

/// A server that cannot be reached is an error, and not the end of the lease.
pub async fn an_unreachable_server_has_no_answer_about_adoption(case: Case) {
    let (client, key) = (case.client().await, case.key());
    let (id, _) = left(&case, &key).await;
    case.faults().set_reachable(Reachable::Cut);
    let adopting = admin(&*client).adopt_lease(&key, id, any_id(), long(&case));
    unavailable(adopting.await);
    case.faults().set_reachable(Reachable::Connected);
}

/// Longer than a case takes until it adopts.
fn long(case: &Case) -> Duration {
    case.ttl() + SOON
}

fn any_id() -> LeaseId {
    LeaseId::random(&OsEntropy::default())
}

/// A lease that its holder has left, with its token.
async fn left(case: &Case, key: &LockKey) -> (LeaseId, FencingToken) {
    let client = case.client().await;
    let request = case.request(key).with_ttl(long(case));
    let guard = granted(&client, &request).await;
    let (id, token) = (guard.lease_id(), guard.fencing_token());
    guard.abandon();
    let id = id.expect("a lease has an id");
    (id, token.expect("a holder has a token"))
}

async fn adopt(
    locks: &dyn DistributedLock,
    key: &LockKey,
    id: LeaseId,
    new: LeaseId,
    ttl: Duration,
) -> Option<FencingToken> {
    let adopted = admin(locks).adopt_lease(key, id, new, ttl).await;
    adopted.expect("the server answers")
}

/// Releases the lease of an adopter.
async fn give_back(case: &Case, key: &LockKey, id: LeaseId) {
    let client = case.client().await;
    let released = admin(&*client).release_lease(key, id).await;
    assert!(matches!(released, Ok(Released::Clean)), "{released:?}");
    case.assert_free(key).await;
}
