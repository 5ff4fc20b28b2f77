//! Tokens grow even if the server loses its data.

use std::time::SystemTime;

use lock_testkit::proxy::Fate;
use polylock_core::{DistributedLock, ErrorKind, Fencing};

use crate::support::{
    LONG_TTL, Place, SOON, attempt, break_lock, inspect, ms, pass, renewed, take_long, until,
    waiting,
};

/// Redis can lose writes that it has acknowledged, so a class that requires strong fencing refuses it.
#[tokio::test]
async fn fencing_is_best_effort() {
    let place = Place::new();
    let fencing = place.client().await.capabilities().fencing;
    assert_eq!(fencing, Fencing::BestEffort);
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
