//! Requests and replies that come twice, late or out of order.

use std::time::Duration;

use lock_testkit::proxy::Fate;
use polylock_core::admin::Record;
use polylock_core::memory::{Fault, Request};
use polylock_core::{DistributedLock, ErrorKind, FencingToken, Mode, Released};
use tokio::time::Instant;

use crate::support::{
    ALIVE, Place, SOON, TTL, acquire, any_id, assert_error, assert_took, attempt, granted, is_kind,
    key, lease, ms, pass, release, renewed, request, take, take_long, token, until, waiting,
    within,
};

#[tokio::test]
async fn a_request_that_comes_again_much_later_affects_no_client() {
    let (place, locks, other) = Place::with_clients().await;
    let kinds = [Request::Acquire, Request::Renew, Request::Release];
    let all = kinds.map(|kind| place.proxy().watch(is_kind(kind)));
    let guard = take_long(&locks, "a").await;
    renewed(&guard).await;
    let [acquire, renew, _] = all.each_ref().map(|watch| watch.seen().pop());
    let (acquire, renew) = (acquire.expect("it was sent"), renew.expect("it was sent"));
    // The holder stays the same.
    place.proxy().replay(&acquire).expect("it is answered");
    renewed(&guard).await;
    guard.release().await.expect("it is released");
    let released = all[2].seen().pop().expect("it was sent");
    // After the release these do nothing.
    for late in [&renew, &released] {
        place.proxy().replay(late).expect("it is answered");
        place.assert_nothing_left(&[&locks], "a").await;
    }
    // While another client holds the lock, these do no harm.
    let guard = take_long(&other, "a").await;
    for late in [&acquire, &renew, &released] {
        place.proxy().replay(late).expect("it is answered");
        renewed(&guard).await;
        assert_eq!(place.look(&key("a")).waiters, 0);
    }
    release(guard).await;
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

#[tokio::test]
async fn an_adoption_that_comes_again_much_later_affects_no_client() {
    let (place, locks, other) = Place::with_clients().await;
    let watch = place.proxy().watch(is_kind(Request::Adopt));
    let guard = acquire(&other, &lease("a").with_ttl(SOON)).await;
    let (id, new) = (guard.lease_id().expect("a lease"), any_id());
    let admin = locks.admin().expect("it has an administration");
    let adopted = admin.adopt_lease(&key("a"), id, new, SOON).await;
    assert!(adopted.expect("it is adopted") > guard.fencing_token());
    let released = admin.release_lease(&key("a"), new).await;
    assert_eq!(released.expect("it is released"), Released::Clean);
    drop(guard);
    let late = watch.seen().pop().expect("it was sent");
    place.proxy().replay(&late).expect("it is answered");
    place.assert_nothing_left(&[&locks, &other], "a").await;
    let guard = take_long(&other, "a").await;
    place.proxy().replay(&late).expect("it is answered");
    renewed(&guard).await;
    release(guard).await;
}

#[tokio::test]
async fn a_record_that_comes_again_much_later_replaces_no_later_one() {
    let place = Place::new();
    let locks = place.client().await;
    let admin = locks.admin().expect("it has an administration");
    let writes = place.proxy().watch(|command| command.has(RECORD_OF_A));
    let record = |text: &str| Record::new(FencingToken::new(7), text);
    for text in ["first", "second"] {
        let written = admin.write_record(&key("a"), &record(text), SOON * 6).await;
        assert!(written.expect("it is stored"), "{text}");
    }
    let first = writes.seen().remove(0);
    place.proxy().replay(&first).expect("it is answered");
    let found = admin.record(&key("a")).await.expect("it is answered");
    assert_eq!(found, Some(record("second")));
}

/// It is stored above a version that is ahead, and kept for its whole time.
#[tokio::test]
async fn a_record_replaces_one_of_a_writer_whose_clock_is_ahead() {
    let place = Place::new();
    let locks = place.client().await;
    let admin = locks.admin().expect("it has an administration");
    let ahead = format!("{:020}|{:020}|first", 7, u64::MAX / 2);
    place.command(&["SET", RECORD_OF_A, &ahead, "PX", "5000"]);
    let record = Record::new(FencingToken::new(7), "second");
    let written = admin.write_record(&key("a"), &record, SOON * 6).await;
    assert!(written.expect("it is stored"));
    let found = admin.record(&key("a")).await.expect("it is answered");
    assert_eq!(found, Some(record));
    let kept = place.number(&["PTTL", RECORD_OF_A]);
    assert!(kept > 5_000, "a record for 30 s ends in {kept} ms");
}

const RECORD_OF_A: &str = "{a}:record";

/// Its second place is granted nothing: that would shorten the lease that it has.
#[tokio::test]
async fn a_place_that_comes_again_shortens_no_lease() {
    let (place, locks, other) = Place::with_clients().await;
    let all = place.proxy().watch(is_kind(Request::Acquire));
    let holder = take(&other, "a").await;
    let shared = request("a").with_mode(Mode::Shared).with_ttl(TTL * 30);
    let reader = waiting(&locks, shared);
    place.queued("a", 1).await;
    let acquire = all.seen().pop().expect("it was sent");
    let writer = place.waiter(&other, request("a")).await;
    place.proxy().replay(&acquire).expect("it is answered");
    place.queued("a", 3).await;
    holder.release().await.expect("it is released");
    let reader = granted(reader).await;
    renewed(&reader).await;
    writer.abort();
    // The second place is reached, or its waiter counts as dead.
    place.queued("a", 0).await;
    let lease = place.number(&["PTTL", "a"]);
    assert!(lease > 20_000, "a lease of 30 s ends in {lease} ms");
    release(reader).await;
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

/// A heartbeat that is late finds the lease of its holder, which has extended it meanwhile.
#[tokio::test]
async fn a_heartbeat_that_comes_again_cuts_no_extension() {
    let (place, locks, other) = Place::with_clients().await;
    for mode in [Mode::Exclusive, Mode::Shared] {
        let all = place.proxy().watch(is_kind(Request::Acquire));
        let holder = take_long(&other, "a").await;
        let next = request("a").with_mode(mode).with_ttl(TTL * 3);
        let next = place.waiter(&locks, next).await;
        until("its heartbeat is sent", || all.seen().len() > 2).await;
        let heartbeat = all.seen().pop().expect("it was sent");
        release(holder).await;
        let guard = granted(next).await;
        let extend = async || guard.renew_for(Duration::from_secs(60)).await.is_ok();
        lock_testkit::locks::until("it is extended", extend).await;
        place.proxy().replay(&heartbeat).expect("it is answered");
        let lease = place.number(&["PTTL", "a"]);
        assert!(
            lease > 40_000,
            "{mode:?}: a lease of 60 s ends in {lease} ms"
        );
        release(guard).await;
        place.assert_nothing_left(&[&locks, &other], "a").await;
    }
}

/// A request to join the queue arrives behind its undo, which is sent on another connection.
#[tokio::test]
async fn a_waiter_that_was_dropped_before_its_request_arrived_leaves_no_place() {
    let (place, locks, other) = Place::with_clients().await;
    for mode in [Mode::Exclusive, Mode::Shared] {
        let guard = take(&other, "a").await;
        // The client knows that there is a queue, and joins by a plain command if it is exclusive.
        let first = place.waiter(&locks, request("a")).await;
        let late = Fate::LateRequest(ms(200));
        let planned = place.proxy().plan(is_kind(Request::Acquire), late);
        let dropped = request("a").with_mode(mode);
        let dropped = waiting(&locks, dropped);
        until("its request is on its way", || planned.struck() == 1).await;
        dropped.abort();
        // The second release is sent a second later.
        tokio::time::sleep(ms(800)).await;
        assert_eq!(place.waiters("a"), 1, "{mode:?}");
        guard.release().await.expect("it is released");
        release(granted(first).await).await;
        place.assert_nothing_left(&[&locks, &other], "a").await;
    }
}

#[tokio::test]
async fn an_acquisition_that_its_undo_overtakes_takes_nothing() {
    let (place, locks, other) = Place::with_clients().await;
    for round in 0..4 {
        let late = Fate::LateRequest(ms(900));
        let planned = place.proxy().plan(is_kind(Request::Acquire), late);
        let began = Instant::now();
        let error = assert_error(&locks, &attempt("a"), ErrorKind::Unavailable).await;
        assert!(error.is_outcome_unknown(), "{error:?}");
        assert_eq!(planned.struck(), 1);
        // With another holder in between, and without.
        if round % 2 == 0 {
            pass(&other, "a").await;
        }
        tokio::time::sleep_until(began + ms(1_000)).await;
        // It is released once more, a second after the first time.
        until("the late one is undone", || place.remains("a").is_empty()).await;
        assert_took("undoing a late request", began, ..ms(400) + TTL + ms(1_000));
    }
}

#[tokio::test]
async fn no_reply_is_taken_for_that_of_another_request() {
    let (place, locks, other) = Place::with_clients().await;
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
        let error = refused.expect_err("granted by the answer to another request");
        let kinds = [ErrorKind::Contended, ErrorKind::Unavailable];
        assert!(kinds.contains(&error.kind()), "{error}");
        let began = Instant::now();
        let free = within(request("free"), SOON);
        let guard = acquire(&locks, &free).await;
        assert_eq!(last_token(&place), token(&guard));
        assert_took("a grant after late replies", began, ..SOON);
        guard.release().await.expect("it is released");
        for name in ["late", "free"] {
            place.assert_nothing_left(&[&locks], name).await;
        }
    }
    held.release().await.expect("it is released");
}

/// The last token of all locks without a namespace.
fn last_token(place: &Place) -> u64 {
    let stream = place.command(&["XINFO", "STREAM", "{}:tokens"]);
    let fields = stream.items();
    let at = fields
        .iter()
        .position(|f| f.text().as_deref() == Some("last-generated-id"));
    let id = fields[at.expect("a stream") + 1].text().expect("an id");
    let (ms, number) = id.split_once('-').expect("an id");
    ms.parse::<u64>().expect("ms") * 1_000 + number.parse::<u64>().expect("a number")
}

/// Commands have no date: one that arrives after its client gave it up takes a free lock for a ttl,
/// and no client believes that it holds it.
#[tokio::test]
async fn a_late_copy_of_an_acquisition_costs_a_lease_at_most() {
    let (place, locks, other) = Place::with_clients().await;
    let all = place.proxy().watch(is_kind(Request::Acquire));
    // By plain commands, as a waiter, and after a lost reply.
    release(take(&locks, "a").await).await;
    let guard = take(&other, "a").await;
    let next = place.waiter(&locks, request("a")).await;
    guard.release().await.expect("it is released");
    release(granted(next).await).await;
    place.plan(Request::Acquire, Fault::LostReply);
    release(take(&locks, "a").await).await;
    place.assert_nothing_left(&[&locks], "a").await;
    let late = all.seen();
    assert!(late.len() >= 4, "fewer requests than expected: {late:?}");
    let mut last = take(&other, "a").await.fencing_token();
    assert!(other.shutdown(SOON).await);
    for copy in &late {
        place.proxy().replay(copy).expect("it is answered");
        let began = Instant::now();
        let guard = take_long(&other, "a").await;
        assert_took("the lease of a late copy", began, ..TTL + ms(1_500));
        assert!(guard.fencing_token() > last, "after {copy:?}");
        last = guard.fencing_token();
        // Nor does a copy become one of the holders.
        place.proxy().replay(copy).expect("it is answered");
        renewed(&guard).await;
        guard.release().await.expect("it is released");
        tokio::time::sleep(ALIVE).await;
        place.assert_free("a").await;
    }
}

/// After the clock of the server was ahead and is right again, tokens are ahead of it.
#[tokio::test]
async fn tokens_grow_although_they_are_ahead_of_the_clock() {
    let (place, locks, other) = Place::with_clients().await;
    let guard = take(&other, "a").await;
    let ahead = token(&guard) + 3_600_000_000;
    guard.release().await.expect("it is released");
    let id = format!("{}-{}", ahead / 1_000, ahead % 1_000);
    place.command(&["XADD", "{}:tokens", &id, "t", ""]);
    let mut last = ahead;
    // Of a free lock, of a held one, and for another client.
    for round in 0..3 {
        let holder = match round {
            1 => Some(take(&other, "a").await),
            _ => None,
        };
        let fresh = place.client().await;
        let next = waiting(if round == 2 { &fresh } else { &locks }, request("a"));
        if let Some(holder) = holder {
            place.queued("a", 1).await;
            last = last.max(token(&holder));
            holder.release().await.expect("it is released");
        }
        let guard = granted(next).await;
        let next = token(&guard);
        assert!(next > last, "round {round}: {next} after {last}");
        last = next;
        guard.release().await.expect("it is released");
    }
    assert!(last < ahead + 1_000, "it was drawn from another counter");
}
