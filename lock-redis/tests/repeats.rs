//! Requests and replies that come twice, late or out of order.

use std::time::Duration;

use lock_core::memory::{Fault, Request};
use lock_core::{AcquireRequest, DistributedLock, ErrorKind, Released, Wait};
use lock_testkit::proxy::{Answer, Command, Fate};
use tokio::time::Instant;

use crate::support::{
    ALIVE, Place, SOON, TTL, assert_took, key, lease, ms, open, request, take, waiting, within,
};

fn attempt(name: &str) -> AcquireRequest {
    request(name).with_wait(Wait::Never)
}

#[tokio::test]
async fn a_request_that_comes_twice_counts_once() {
    let place = Place::new().await;
    let locks = place.client().await;
    for answer in [Answer::First, Answer::Second] {
        let twice = Fate::Duplicated {
            after: Duration::ZERO,
            answer,
        };
        for kind in [Request::Acquire, Request::Renew, Request::Release] {
            let planned = place.proxy().plan(place.kinds.is(kind), twice);
            let guard = locks
                .acquire(&attempt("a"))
                .await
                .expect("a free lock is granted");
            let first = guard.fencing_token();
            guard.renew().await.expect("it is renewed");
            let released = guard.release().await.expect("it is released");
            if (kind, answer) != (Request::Release, Answer::Second) {
                assert_eq!(released, Released::Clean, "{kind:?} {answer:?}");
            }
            assert_eq!(planned.struck(), 1, "{kind:?}");
            place.assert_nothing_left(&[&locks], "a").await;
            let next = locks
                .acquire(&attempt("a"))
                .await
                .expect("a free lock is granted");
            assert!(next.fencing_token() > first);
            next.release().await.expect("it is released");
        }
        // All of several locks, in one request.
        let many = |command: &Command| command.has("many/1") && command.has("many/2");
        let planned = place.proxy().plan(many, twice);
        let requests = ["many/1", "many/2"].map(attempt);
        let guards = locks
            .acquire_all(&requests)
            .await
            .expect("free locks are granted");
        assert_eq!((planned.struck(), guards.len()), (1, 2), "{answer:?}");
        for guard in guards {
            assert_eq!(
                guard.release().await.expect("it is released"),
                Released::Clean
            );
        }
        place.assert_nothing_left(&[&locks], "many/1").await;
        place.assert_nothing_left(&[&locks], "many/2").await;
    }
}

#[tokio::test]
async fn a_request_that_comes_again_much_later_hurts_nobody() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.elsewhere().await);
    let all = place.proxy().watch(|command| command.has("a"));
    let guard = take(&locks, "a").await;
    let acquire = all.seen().pop().expect("it was sent");
    guard.renew().await.expect("it is renewed");
    let renew = all.seen().pop().expect("it was sent");
    // The answer says what it said before.
    let token = u64::from(guard.fencing_token().expect("it has a token"));
    let again = place.proxy().replay(&acquire).expect("it is answered");
    assert_eq!(again.integer(), i64::try_from(token).ok(), "{again:?}");
    guard.release().await.expect("it is released");
    let release = all.seen().pop().expect("it was sent");
    // After the release it takes nothing.
    for late in [&acquire, &renew, &release] {
        place.proxy().replay(late).expect("it is answered");
        place.assert_nothing_left(&[&locks], "a").await;
    }
    // While another one holds the lock it does not harm.
    let guard = take(&other, "a").await;
    for late in [&acquire, &renew, &release] {
        place.proxy().replay(late).expect("it is answered");
        guard.renew().await.expect("the lock is there");
        assert_eq!(place.look(&key("a")).waiters, 0);
    }
    assert_eq!(
        guard.release().await.expect("it is released"),
        Released::Clean
    );
    // Forgotten after another grant, it costs one lease at most.
    place.proxy().replay(&acquire).expect("it is answered");
    let began = Instant::now();
    take(&other, "a")
        .await
        .release()
        .await
        .expect("it is released");
    assert_took("the lease of a late copy", began, ..TTL + ms(1_500));
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

#[tokio::test]
async fn a_place_in_the_queue_that_comes_again_costs_little() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.elsewhere().await);
    let all = place.proxy().watch(place.kinds.is(Request::Acquire));
    let guard = take(&other, "a").await;
    let next = waiting(&locks, request("a"));
    place.queued("a", 1).await;
    let acquire = all.seen().pop().expect("it was sent");
    guard.release().await.expect("it is released");
    next.await
        .expect("no panic")
        .expect("it is granted")
        .release()
        .await
        .expect("released");
    let guard = take(&other, "a").await;
    place.proxy().replay(&acquire).expect("it is answered");
    let next = waiting(&locks, request("a"));
    place.queued("a", 2).await;
    let began = Instant::now();
    guard.release().await.expect("it is released");
    let next = next.await.expect("no panic").expect("it is granted");
    assert_took("passing over a late copy", began, ..ALIVE + ms(1_500));
    next.release().await.expect("it is released");
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

#[tokio::test]
async fn an_acquisition_that_its_undo_overtakes_takes_nothing() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.elsewhere().await);
    for round in 0..4 {
        let late = Fate::LateRequest(ms(900));
        let planned = place.proxy().plan(place.kinds.is(Request::Acquire), late);
        let began = Instant::now();
        let error = locks
            .acquire(&attempt("a"))
            .await
            .expect_err("nobody answered");
        assert!(error.is_outcome_unknown(), "{error:?}");
        assert_eq!(planned.struck(), 1);
        assert!(locks.shutdown(SOON).await, "the undo does not end");
        // With somebody in between, and without.
        if round % 2 == 0 {
            take(&other, "a")
                .await
                .release()
                .await
                .expect("it is released");
        }
        assert!(began.elapsed() < ms(900), "too slow to see anything");
        tokio::time::sleep_until(began + ms(1_000)).await;
        place.assert_nothing_left(&[&locks], "a").await;
    }
}

#[tokio::test]
async fn a_renewal_that_its_release_overtakes_revives_nothing() {
    let place = Place::new().await;
    let locks = place.client().await;
    let guard = take(&locks, "a").await;
    place
        .proxy()
        .plan(place.kinds.is(Request::Renew), Fate::LateRequest(ms(600)));
    drop(tokio::time::timeout(ms(20), guard.renew()).await);
    place.command(&["DEL", "a"]);
    tokio::time::sleep(ms(800)).await;
    place.assert_nothing_left(&[], "a").await;
    drop(guard);
    place.assert_nothing_left(&[&locks], "a").await;
}

#[tokio::test]
async fn no_reply_is_taken_for_that_of_another_request() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.elsewhere().await);
    let held = take(&other, "held").await;
    for round in 0..6 {
        place.proxy().plan(
            |command| command.has("late"),
            Fate::LateReply(ms(300 + 100 * (round % 3))),
        );
        let late = attempt("late");
        if round < 3 {
            // The time-out of the request, or a late answer.
            drop(locks.acquire(&late).await);
        } else {
            // The caller gives up, the connection stays.
            drop(tokio::time::timeout(ms(20), locks.acquire(&late)).await);
        }
        let refused = locks.acquire(&attempt("held")).await;
        if let Err(error) = refused {
            assert!(
                matches!(error.kind(), ErrorKind::Contended | ErrorKind::Unavailable),
                "{error}"
            );
        } else {
            panic!("granted by the answer to another request");
        }
        let began = Instant::now();
        let free = within(request("free"), SOON);
        let guard = locks.acquire(&free).await.expect("a free lock is granted");
        let token = u64::from(guard.fencing_token().expect("it has a token"));
        let fence = place
            .command(&["GET", "{free}:fence"])
            .text()
            .expect("a counter");
        assert!(
            fence.starts_with(&format!("{:016}", token + 31)),
            "{fence} {token}"
        );
        assert_took("a grant after late replies", began, ..SOON);
        guard.release().await.expect("it is released");
        for name in ["late", "free"] {
            place.assert_nothing_left(&[&locks], name).await;
        }
    }
    held.release().await.expect("it is released");
}

#[tokio::test]
async fn a_reply_that_comes_after_its_lease_is_no_guard() {
    let place = Place::new().await;
    let patient = place
        .config()
        .with_timeout(TTL * 3)
        .expect("it is in range");
    let (locks, other) = (open(patient).await, place.elsewhere().await);
    place.plan(Request::Acquire, Fault::LateReply(TTL.mul_f64(1.6)));
    let late = waiting(&locks, lease("a").with_wait(Wait::Never));
    tokio::time::sleep(TTL.mul_f64(1.1)).await;
    let guard = take(&other, "a").await;
    let error = late
        .await
        .expect("no panic")
        .expect_err("two hold the lock");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(locks.shutdown(SOON).await, "the undo does not end");
    guard
        .renew()
        .await
        .expect("the undo of another hurts nobody");
    guard.release().await.expect("it is released");
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

#[tokio::test]
async fn a_request_that_comes_again_after_its_time_is_granted_to_nobody() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.elsewhere().await);
    let all = place.proxy().watch(place.kinds.is(Request::Acquire));
    let mut late = Vec::new();
    // In one request, as a waiter, and with others.
    take(&locks, "a")
        .await
        .release()
        .await
        .expect("it is released");
    late.extend(all.seen());
    let guard = take(&other, "a").await;
    let next = waiting(&locks, request("a"));
    place.queued("a", 1).await;
    guard.release().await.expect("it is released");
    let next = next.await.expect("no panic").expect("it is granted");
    next.release().await.expect("it is released");
    late.extend(all.seen());
    let many = place.proxy().watch(|command| command.has("many/1"));
    let requests = ["many/1", "many/2"].map(attempt);
    for guard in locks.acquire_all(&requests).await.expect("they are free") {
        guard.release().await.expect("it is released");
    }
    late.extend(many.seen().into_iter().next());
    assert!(late.len() >= 4, "fewer requests than expected: {late:?}");
    // Others have the locks after that.
    for name in ["a", "many/1", "many/2"] {
        let guard = take(&other, name).await;
        guard.release().await.expect("it is released");
    }
    // The time-out of a request, and a second.
    tokio::time::sleep(ms(1_500)).await;
    for request in &late {
        place.proxy().replay(request).expect("it is answered");
        for name in ["a", "many/1", "many/2"] {
            place.assert_nothing_left(&[], name).await;
            place.assert_free(name).await;
        }
    }
}

/// After the clock of the server was ahead and is right again, tokens are ahead of it.
#[tokio::test]
async fn tokens_ahead_of_the_clock_let_no_late_request_in() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.elsewhere().await);
    for name in ["a", "b"] {
        let guard = take(&other, name).await;
        let ahead = guard.fencing_token().expect("it has one").value() + 3_600_000_000;
        guard.release().await.expect("it is released");
        let fence = format!("{ahead}|{}", "0".repeat(32));
        place.command(&["SET", &format!("{{{name}}}:fence"), &fence]);
        // Its client sees a token that is an hour ahead, of a lock that is free and of one that is not.
        let holder = (name == "b").then(|| take(&other, name));
        let holder = match holder {
            Some(holder) => Some(holder.await),
            None => None,
        };
        let next = waiting(&locks, request(name));
        if let Some(holder) = holder {
            place.queued(name, 1).await;
            holder.release().await.expect("it is released");
        }
        let guard = next.await.expect("no panic").expect("it is granted");
        assert!(guard.fencing_token().expect("it has one").value() > ahead);
        guard.release().await.expect("it is released");
        let all = place.proxy().watch(place.kinds.is(Request::Acquire));
        let guard = take(&locks, name).await;
        guard.release().await.expect("it is released");
        let late = all.seen().into_iter().next().expect("it was sent");
        // Others have the lock after that.
        let guard = take(&other, name).await;
        guard.release().await.expect("it is released");
        // The timeout of a request, and a second.
        tokio::time::sleep(ms(1_500)).await;
        place.proxy().replay(&late).expect("it is answered");
        place.assert_nothing_left(&[], name).await;
        place.assert_free(name).await;
    }
}

#[tokio::test]
async fn a_copy_of_a_request_that_was_repeated_is_granted_to_nobody() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.elsewhere().await);
    let all = place.proxy().watch(place.kinds.is(Request::Acquire));
    // The waiter gets no answer, and asks again.
    place.plan(Request::Acquire, Fault::LostReply);
    let guard = take(&locks, "a").await;
    let first = all.seen().into_iter().next().expect("it was sent");
    guard.release().await.expect("it is released");
    // Somebody had the lock since, and the copy is not late yet.
    take(&other, "a")
        .await
        .release()
        .await
        .expect("it is released");
    place.proxy().replay(&first).expect("it is answered");
    place.assert_nothing_left(&[&locks], "a").await;
    place.assert_free("a").await;
}
