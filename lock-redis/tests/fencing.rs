//! Tokens grow whatever is forgotten.

use std::sync::Arc;
use std::time::SystemTime;

use lock_testkit::proxy::Fate;
use polylock_core::layers::LocalQueue;
use polylock_core::{DistributedLock, ErrorKind, FencingToken, LockGuard};
use tokio::task::JoinSet;

use crate::support::{
    Place, SOON, TTL, acquire, attempt, key, ms, request, take, until, waiting, within,
};

fn token(guard: &LockGuard) -> FencingToken {
    guard.fencing_token().expect("it has a token")
}

#[tokio::test]
async fn tokens_grow_over_any_number_of_hand_overs_and_a_counter_that_is_deleted() {
    let place = Place::new();
    let queue = Arc::new(LocalQueue::new(place.client().await).with_max_handovers(10_000));
    let other = place.elsewhere().await;
    let first = take(&other, "a").await;
    let mut last = token(&first);
    let tokens = Arc::<std::sync::Mutex<Vec<FencingToken>>>::default();
    let mut tasks = JoinSet::new();
    for n in 0..150 {
        let (queue, tokens) = (Arc::clone(&queue), Arc::clone(&tokens));
        tasks.spawn(async move {
            let one = within(request("a").with_ttl(TTL * 10), SOON * 4);
            let guard = acquire(&queue, &one).await;
            tokens.lock().expect("no panic").push(token(&guard));
            // Not so fast that a counter that is forgotten could fall behind.
            tokio::time::sleep(ms(1)).await;
            if n == 70 {
                drop(guard);
            } else {
                guard.release().await.expect("it is released");
            }
        });
    }
    place.queued("a", 1).await;
    first.release().await.expect("it is released");
    while tokens.lock().expect("no panic").len() < 50 {
        tokio::task::yield_now().await;
    }
    place.command(&["DEL", "{}:tokens"]);
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    let tokens = tokens.lock().expect("no panic").clone();
    assert_eq!(tokens.len(), 150);
    for token in tokens {
        assert!(token > last, "{token:?} after {last:?}");
        last = token;
    }
    assert!(queue.shutdown(SOON).await);
    let next = take(&other, "a").await;
    assert!(token(&next) > last);
    next.release().await.expect("it is released");
}

#[tokio::test]
async fn a_thousand_keys_leave_one_counter() {
    let place = Place::new();
    let locks = place.client().await;
    for n in 0..1_000 {
        let guard = take(&locks, &format!("shop:{n}")).await;
        guard.release().await.expect("it is released");
    }
    let counter = "{shop}:tokens";
    assert_eq!(place.number(&["DBSIZE"]), 1);
    assert_eq!(
        place.number(&["PTTL", counter]),
        -1,
        "it does not end by itself"
    );
}

/// What a break and the next grant between the commands of an acquisition come to.
#[tokio::test]
async fn a_lock_that_is_broken_before_its_token_is_drawn_is_not_granted() {
    let place = Place::new();
    let (locks, other) = (place.client().await, place.elsewhere().await);
    for round in 0..2 {
        let late = Fate::LateRequest(ms(250));
        let planned = place.proxy().plan(|command| command.is("XADD"), late);
        let first = waiting(&locks, attempt("a"));
        until("it is set", || place.number(&["EXISTS", "a"]) == 1).await;
        let admin = other.admin().expect("it has an administration");
        admin
            .break_lock(&key("a"), "test")
            .await
            .expect("it is broken");
        let guard = take(&other, "a").await;
        if round == 1 {
            other.shutdown(SOON).await;
        }
        let error = first.await.expect("no panic").expect_err("it was broken");
        assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
        assert_eq!(planned.struck(), 1);
        guard.renew().await.expect("the lock is there");
        guard.release().await.expect("it is released");
    }
}

/// Whoever holds the lock is shown with its token, at the latest after the first renewal.
#[tokio::test]
async fn a_token_is_shown_after_the_first_renewal() {
    let place = Place::new();
    let locks = place.client().await;
    let admin = locks.admin().expect("it has an administration");
    let guard = take(&locks, "a").await;
    let took = SystemTime::now();
    guard.renew().await.expect("it is renewed");
    let shown = admin.inspect(&key("a")).await.expect("it answers");
    let holder = &shown.expect("it is held").holders[0];
    assert_eq!(holder.token, guard.fencing_token());
    let since = holder.since.expect("it is known");
    let apart = since.max(took).duration_since(since.min(took));
    assert!(apart.expect("in order") < ms(1_000), "since {since:?}");
    // A second renewal stores nothing more.
    let stored = place.command(&["GET", "a"]);
    guard.renew().await.expect("it is renewed");
    assert_eq!(place.command(&["GET", "a"]), stored);
    guard.release().await.expect("it is released");
}
