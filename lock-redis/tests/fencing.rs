//! Tokens grow even if the server loses its data.

use std::sync::Arc;
use std::time::SystemTime;

use lock_testkit::proxy::Fate;
use polylock_core::layers::LocalQueue;
use polylock_core::{DistributedLock, ErrorKind, Fencing, FencingToken};

use crate::support::{
    LONG_TTL, Place, SOON, acquire, attempt, break_lock, granted, inspect, ms, pass, release,
    renewed, request, take_long, until, waiting, within,
};

/// Redis can lose writes that it has acknowledged, so a class that requires strong fencing refuses it.
#[tokio::test]
async fn fencing_is_best_effort() {
    let place = Place::new();
    let fencing = place.client().await.capabilities().fencing;
    assert_eq!(fencing, Fencing::BestEffort);
}

/// Also within the millisecond of the last token, and after a block that reaches into the next one.
#[tokio::test]
async fn a_counter_that_is_lost_gives_no_token_again() {
    let place = Place::new();
    let (locks, other) = (place.client().await, place.elsewhere().await);
    let queue = Arc::new(LocalQueue::new(Arc::clone(&locks) as _).with_max_handovers(10_000));
    let mut last = None;
    let mut is_larger = |token: Option<FencingToken>, how: &str| {
        assert!(token > last, "{how}: {token:?} after {last:?}");
        last = token;
    };
    for round in 0..100 {
        let guard = take_long(&locks, "a").await;
        is_larger(guard.fencing_token(), "alone");
        place.command(&["DEL", "{}:tokens", "a"]);
        guard.abandon();
        // The hand-over reserves a block.
        let (first, next) = (
            acquire(&queue, &attempt("b")).await,
            waiting(&queue, within(request("b"), SOON)),
        );
        is_larger(first.fencing_token(), "first of two");
        if round % 2 == 0 {
            place.command(&["DEL", "{}:tokens"]);
        }
        release(first).await;
        let next = granted(next).await;
        is_larger(next.fencing_token(), "after a hand-over");
        place.command(&["DEL", "{}:tokens", "b"]);
        next.abandon();
        let guard = take_long(&other, "b").await;
        is_larger(guard.fencing_token(), "another client");
        release(guard).await;
    }
}

#[tokio::test]
async fn a_thousand_keys_leave_one_counter() {
    let place = Place::new();
    let locks = place.patient_client().await;
    for n in 0..1_000 {
        pass(&locks, &format!("shop:{n}")).await;
    }
    let counter = "{shop}:tokens";
    assert_eq!(place.number(&["DBSIZE"]), 1);
    let entries = place.number(&["XLEN", counter]);
    assert!(entries < 300, "{entries} draws did not clear the counter");
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
    let (locks, other) = (place.patient_client().await, place.elsewhere().await);
    for round in 0..2 {
        let late = Fate::LateRequest(ms(1_000));
        let planned = place.proxy().plan(|command| command.is("XADD"), late);
        let first = waiting(&locks, attempt("a").with_ttl(LONG_TTL));
        until("it is set", || place.number(&["EXISTS", "a"]) == 1).await;
        break_lock(&other, "a").await;
        let guard = take_long(&other, "a").await;
        if round == 1 {
            other.shutdown(SOON).await;
        }
        let error = first.await.expect("no panic").expect_err("it was broken");
        assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
        assert_eq!(planned.struck(), 1);
        renewed(&guard).await;
        guard.release().await.expect("it is released");
    }
}

#[tokio::test]
async fn a_token_is_shown_after_the_first_renewal() {
    let place = Place::new();
    let locks = place.patient_client().await;
    let guard = take_long(&locks, "a").await;
    let took = SystemTime::now();
    renewed(&guard).await;
    let holder = &inspect(&locks, "a").await.holders[0];
    assert_eq!(holder.token, guard.fencing_token());
    let since = holder.since.expect("it is known");
    let apart = since.max(took).duration_since(since.min(took));
    assert!(apart.expect("in order") < ms(1_000), "since {since:?}");
    // A second renewal stores nothing more.
    let stored = place.command(&["GET", "a"]);
    renewed(&guard).await;
    assert_eq!(place.command(&["GET", "a"]), stored);
    guard.release().await.expect("it is released");
}
