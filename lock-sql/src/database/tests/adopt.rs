//! Leases that another process adopts.

use std::time::Duration;

use futures_util::future::join_all;
use lock_testkit::locks::{token, until};
use polylock_core::{ErrorKind, FencingToken, Released, RenewalRequest};
use tokio::time::{sleep, timeout};

use super::doubt::{block, block_and, until_blocked};
use super::locked::{begin, end, renewal_after, rows};
use super::waiting::{leases, request, wait};
use super::{ALONE, Client, TTL, databases, id, key};
use crate::error::{SqlCause, SqlFailure};
use crate::store::LeaseStore as _;

async fn adopt(
    client: &Client,
    name: &str,
    from: u8,
    to: u8,
) -> Result<Option<FencingToken>, SqlFailure> {
    let renewal = RenewalRequest::new(key(name), id(to), TTL);
    client.store.adopt(id(from), &renewal).await
}

#[tokio::test]
async fn a_lease_that_ends_goes_to_its_adopter_or_to_a_waiter() {
    let brief = Duration::from_secs(2);
    let around =
        (0..10).map(|n| brief - Duration::from_millis(300) + Duration::from_millis(60) * n);
    let moments = [Duration::ZERO, brief * 5 / 4].into_iter().chain(around);
    let moments: Vec<_> = moments.collect();
    for url in databases() {
        let (client, waiters) = (Client::open(&url, "").await, leases(&url, "").await);
        let raced = moments.iter().map(async |moment| {
            let name = format!("{moment:?}");
            let taken = client.try_take(&name, 1, ALONE, brief).await;
            let first = taken.expect("an answer").expect("it is free");
            let waiting = wait(&waiters, request(&name));
            sleep(*moment).await;
            let adopted = adopt(&client, &name, 1, 2).await.expect("an answer");
            if let Some(token) = adopted {
                assert!(token.value() > first.last);
                sleep(brief).await;
                assert!(!waiting.is_finished(), "two hold the lock");
                assert_eq!(client.release(&name, 2).await, Released::Clean);
            }
            let (guard, _) = waiting.await.expect("no panic");
            let least = adopted.map_or(first.last, FencingToken::value);
            assert!(token(&guard) > least);
            adopted.is_some()
        });
        let adopted = join_all(raced).await;
        assert!(
            adopted.contains(&true) && adopted.contains(&false),
            "{adopted:?}"
        );
    }
}

#[tokio::test]
async fn an_adoption_of_a_locked_row_is_unknown_in_time_and_may_be_repeated() {
    for url in databases() {
        let client = Client::hasty(&url).await;
        let mut first = None;
        until("it is taken", async || {
            let taken = client.try_take("k", 1, ALONE, TTL).await;
            first = taken.ok().and_then(Result::ok);
            first.is_some()
        })
        .await;
        let first = first.expect("it is taken");
        let other = begin(&url, &rows("k", 0)).await;
        let answer = timeout(TTL, adopt(&client, "k", 1, 2)).await;
        let failure = answer.expect("it is bounded").expect_err("it is locked");
        let error = polylock_core::Error::from(failure);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        other.sql("COMMIT").await;
        let mut adopted = None;
        until("there is an answer", async || {
            match adopt(&client, "k", 1, 2).await {
                Ok(token) => adopted = Some(token),
                Err(failure) => {
                    let is_silent = matches!(failure.cause, SqlCause::Silent { .. });
                    assert!(is_silent, "{}", failure.cause);
                }
            }
            adopted.is_some()
        })
        .await;
        let adopted = adopted.flatten();
        assert!(adopted.is_some_and(|token| token.value() > first.last));
        assert_eq!(client.release("k", 2).await, Released::Clean);
    }
}

#[tokio::test]
async fn a_release_waits_for_an_adoption_that_was_dropped() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        client.take("k", 1, ALONE).await.expect("it is free");
        let blocking = block(&url, "k", 3).await;
        tokio::select! {
            _ = adopt(&client, "k", 1, 2) => panic!("the row is locked"),
            () = until_blocked(&url) => {}
        }
        assert_eq!(client.release("k", 2).await, Released::Clean);
        blocking.await.expect("no panic");
        assert!(client.take("k", 3, ALONE).await.is_some());
    }
}

/// The statement may have begun while the lease was alive.
#[tokio::test]
async fn an_adoption_that_has_waited_is_refused_beside_a_shared_holder() {
    let brief = Duration::from_secs(2);
    // What the grant of a shared lease leaves in the row of the lock.
    let grant = "UPDATE polylock_locks SET sharers = 1, version = version + 1 \
                 WHERE kind = 1 AND lock_key = 'k' AND slot = 0; ";
    for url in databases() {
        let client = Client::open(&url, "").await;
        let taken = client.try_take("k", 1, ALONE, brief).await;
        taken.expect("an answer").expect("it is free");
        let shared = block_and(&url, "k", 3, grant).await;
        let adopted = adopt(&client, "k", 1, 2).await.expect("an answer");
        assert_eq!(adopted, None, "{url}");
        shared.await.expect("no panic");
    }
}

/// A repeated one may come after renewals of the lease that it has adopted.
#[tokio::test]
async fn an_adoption_that_has_waited_takes_no_later_renewal_back() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        client.take("k", 1, ALONE).await.expect("it is free");
        let adopted = adopt(&client, "k", 1, 2).await.expect("an answer");
        let end = end("k", 0);
        let before = client.number(&end).await;
        let other = begin(&url, &renewal_after("k", 60_000_000)).await;
        let commit = async {
            sleep(Duration::from_millis(300)).await;
            other.sql("COMMIT").await;
        };
        let (repeated, ()) = tokio::join!(adopt(&client, "k", 1, 2), commit);
        assert_eq!(repeated.expect("an answer"), adopted);
        assert_eq!(client.number(&end).await - before, 60_000_000);
    }
}
