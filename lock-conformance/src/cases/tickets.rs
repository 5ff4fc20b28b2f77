//! A lock that one client acquires and another one finishes.

use polylock_core::memory::{Fault, Request};
use polylock_core::{DistributedLockExt, ErrorKind, LockKey, Released, Ticket};
use tokio::task::JoinSet;

use super::Case;
use super::case::SOON;
use super::support::{When, answered, granted, released};

/// A process that adopts a ticket holds the lock as if it had acquired it, without another holder in between.
pub async fn a_ticket_passes_the_lock_to_another_client(case: Case) {
    let (client, other, key) = (case.queue().await, case.queue().await, case.key());
    let guard = case.lock(&*client, &key).await;
    let token = guard.fencing_token();
    let ticket = guard.into_ticket().expect("a lease can be left");
    case.assert_taken(&key).await;
    let ticket: Ticket = ticket.to_string().parse().expect("a ticket is text");
    let guard = other.adopt(&ticket).await.expect("the ticket is adopted");
    assert!(
        guard.fencing_token() > token,
        "the holder's fencing token is {token:?}"
    );
    tokio::time::sleep(case.ttl().mul_f64(1.3)).await;
    assert!(guard.is_held(), "nobody renews it");
    case.assert_taken(&key).await;
    assert_eq!(released(guard).await, Released::Clean);
    case.assert_free(&key).await;
}

/// Of several clients that adopt a ticket at the same time, one holds the lock, and the others get an
/// error.
pub async fn of_several_that_adopt_a_ticket_one_holds_the_lock(case: Case) {
    let key = case.key();
    let ticket = ticket(&case, &key).await;
    let mut adopters = JoinSet::new();
    for _ in 0..6 {
        let (client, ticket) = (case.client().await, ticket.clone());
        adopters.spawn(async move { client.adopt(&ticket).await });
    }
    let (held, refused): (Vec<_>, Vec<_>) = adopters
        .join_all()
        .await
        .into_iter()
        .partition(Result::is_ok);
    assert_eq!(held.len(), 1);
    for error in refused.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }
    case.assert_taken(&key).await;
    for guard in held.into_iter().flatten() {
        assert_eq!(released(guard).await, Released::Clean);
    }
    case.assert_free(&key).await;
}

/// An adoption that is dropped after its k-th poll leaves the lock free, or the ticket as it was.
pub async fn adopt_dropped_after_each_poll_leaves_nothing_or_the_ticket(case: Case) {
    let (client, key) = (case.client().await, case.key());
    for polls in 1.. {
        let ticket = ticket(&case, &key).await;
        let answer = answered(polls, When::AtOnce, client.adopt(&ticket)).await;
        assert!(client.shutdown(SOON).await, "background work does not end");
        if let Some(guard) = answer {
            let guard = guard.expect("the ticket is adopted");
            assert_eq!(released(guard).await, Released::Clean);
            return case.assert_nothing_left(&client, &key).await;
        }
        match client.adopt(&ticket).await {
            Ok(guard) => assert_eq!(released(guard).await, Released::Clean),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Lost, "{error}"),
        }
        case.assert_nothing_left(&client, &key).await;
    }
}

/// A request without an answer is repeated, and the lock is held once.
pub async fn an_adoption_without_an_answer_is_an_adoption(case: Case) {
    let (client, key) = (case.client().await, case.key());
    for fault in [Fault::LostReply, Fault::LostRequest] {
        let ticket = ticket(&case, &key).await;
        case.faults().plan(Request::Adopt, fault);
        let guard = client.adopt(&ticket).await.expect("the ticket is adopted");
        case.assert_disturbed().await;
        case.assert_taken(&key).await;
        assert_eq!(released(guard).await, Released::Clean);
        case.assert_nothing_left(&client, &key).await;
    }
}

/// The ticket of a lease that lasts until the case adopts it.
async fn ticket(case: &Case, key: &LockKey) -> Ticket {
    let client = case.client().await;
    let request = case.request(key).with_ttl(case.ttl() + SOON);
    let guard = granted(&client, &request).await;
    guard.into_ticket().expect("a lease can be left")
}
