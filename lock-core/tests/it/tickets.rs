//! Locks that one process acquires and another one finishes, under virtual time.

use std::sync::Arc;
use std::time::SystemTime;

use polylock_core::admin::LockAdmin;
use polylock_core::layers::{LocalQueue, Migrate, Prefix};
use polylock_core::memory::{Fault, Memory, Reachable, Request};
use polylock_core::prelude::*;
use polylock_core::{AcquireRequest, IntoTicketError, LostReason, Owner, Result, Ticket};
use tokio::time::Instant;

use super::server::fake::{Call, Fake};
use super::support::{
    Log, in_time, is_free, key, left, memory, millis, plan_all, poll_times, queued, secs, settle,
    start, suspendable,
};

/// Another client of a store with the ticket of a lock of 30 s.
async fn ticket() -> (Memory, Ticket) {
    let store = memory();
    let guard = store.lock("k").await.expect("it is free");
    let ticket = guard.into_ticket().expect("it is held");
    (store.client(), ticket)
}

async fn assert_is_worth_nothing(store: &Memory, ticket: &Ticket) {
    assert!(is_free(store).await);
    let error = store.adopt(ticket).await.expect_err("it is not adopted");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_ticket_of_a_lock_that_was_broken_is_worth_nothing() {
    let (store, ticket) = ticket().await;
    store.break_lock(&key(), "test").await.unwrap();
    assert_is_worth_nothing(&store, &ticket).await;
}

#[tokio::test(start_paused = true)]
async fn a_guard_becomes_a_ticket_without_a_request() {
    let server = Fake::new();
    server.state().adopts = true;
    let guard = server.lock("k").await.unwrap();
    // A renewal is due before the lease ends.
    let ticket = guard.into_ticket().unwrap();
    server.control().check();
    tokio::time::sleep(secs(29)).await;
    assert_eq!(server.state().sent, [Call::Acquire]);
    assert!(server.is_taken());
    let error = server.adopt(&ticket).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(server.state().sent, [Call::Acquire]);
}

#[tokio::test(start_paused = true)]
async fn waiters_of_the_process_ask_the_server_instead_of_inheriting_the_lease() {
    let (store, locks) = queued();
    let request = AcquireRequest::new(key()).with_wait(Wait::Forever);
    let guard = locks.acquire(&request).await.unwrap();
    let token = guard.fencing_token();
    let waiter = start(&locks, request);
    settle().await;
    assert_eq!(store.waiters(&key()), 0, "it is in line for a hand-over");
    let ticket = guard.into_ticket().unwrap();
    settle().await;
    assert_eq!(store.waiters(&key()), 1);
    let error = locks.request("k").wait(Wait::Never).acquire().await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Contended);

    // Adopted by the same process, beside its queue.
    let guard = locks.adopt(&ticket).await.unwrap();
    settle().await;
    assert!(!waiter.is_finished(), "a waiter beside the holder");
    let adopted = guard.fencing_token();
    guard.release().await.unwrap();
    let next = in_time("the grant to the waiter", waiter).await.unwrap();
    assert!(token < adopted && adopted < next.fencing_token());
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_cannot_become_a_ticket_stays_one() {
    let store = memory();
    let session = Fake::new();
    session.state().session = true;
    let (old, new) = (Arc::new(memory()), Arc::new(memory()));
    let queue = LocalQueue::new(Arc::new(store.client()));
    let owner = Owner::new();
    let owned = || queue.request("owned").owner(&owner).acquire();
    let (first, second) = (owned().await.unwrap(), owned().await);
    let mut downgraded = store.lock("downgraded").await.unwrap();
    downgraded.downgrade().await.unwrap();
    let table = [
        ("lives with a session", session.lock("k").await),
        ("another process cannot adopt", Fake::new().lock("k").await),
        (
            "only an exclusive",
            store.request("s").shared().acquire().await,
        ),
        ("only an exclusive", Ok(downgraded)),
        ("two backends", Migrate::new(old, new).lock("k").await),
        ("another guard of the owner", second),
    ];
    for (reason, guard) in table {
        let refused = guard.unwrap().into_ticket().unwrap_err();
        let error = refused.error();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.message().contains(reason), "{error}");
        let guard = refused.into_guard();
        assert!(guard.is_held(), "{reason}: the refusal cost the lock");
        assert_eq!(guard.release().await.unwrap(), Released::Clean);
    }
    assert!(first.into_ticket().is_ok(), "the last guard of its owner");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_cannot_become_a_ticket() {
    let (engine, clock) = suspendable();
    let store = Memory::with_engine(engine);
    let guard = store.lock("k").await.unwrap();
    clock.suspend(secs(28));
    let refused = guard.into_ticket().unwrap_err();
    let reason = refused.error().lost_reason();
    assert_eq!(reason, Some(LostReason::Expired), "{refused}");
    let released = refused.into_guard().release().await.unwrap();
    assert_eq!(released, Released::AlreadyLost);
    settle().await;
    assert!(is_free(&store).await);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_passed_on_releases_the_lock() {
    async fn pass(locks: &Memory) -> Result<Ticket> {
        let guard = locks.request("k").shared().acquire().await?;
        Ok(guard.into_ticket()?)
    }
    let store = memory();
    let error = pass(&store).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(is_free(&store).await);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_before_the_request() {
    let (store, ticket) = ticket().await;
    let late = Fault::LateReply(secs(4));
    store.faults().plan(Request::Adopt, late);
    let guard = store.adopt(&ticket).await.unwrap();
    assert_eq!(left(&guard), secs(23), "the lease is valid for");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_out_of_reach_for_longer_than_the_ttl_grants_a_whole_lease() {
    let store = memory();
    let guard = store.lock("k").await.unwrap();
    guard.renew_for(secs(600)).await.unwrap();
    let ticket = guard.into_ticket().unwrap();
    for _ in 0..10 {
        store.faults().plan(Request::Adopt, Fault::Silence);
    }
    let wait = Wait::AtMost(secs(120));
    let request = AcquireRequest::adopting(&ticket).with_wait(wait);
    let began = Instant::now();
    let guard = store.acquire(&request).await.unwrap();
    assert!(began.elapsed() > secs(50), "ten requests of 5 s each");
    assert!(left(&guard) > secs(26), "valid for {:?}", left(&guard));
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_it_ends_and_leaves_nothing() {
    // The request was done, and its undoing has to wait for the server.
    let (store, ticket) = ticket().await;
    let late = Fault::LateReply(secs(600));
    store.faults().plan(Request::Adopt, late);
    plan_all(&store, Request::Adopt, Fault::Silence);
    plan_all(&store, Request::Release, Fault::Silence);
    let began = Instant::now();
    let request = AcquireRequest::adopting(&ticket).with_wait(Wait::AtMost(secs(7)));
    let error = store.acquire(&request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_outcome_unknown());
    assert!(
        began.elapsed() < secs(8),
        "ended after {:?}",
        began.elapsed()
    );
    assert!(!is_free(&store).await);
    store.faults().clear();
    in_time("the release", store.shutdown(secs(60))).await;
    assert_is_worth_nothing(&store, &ticket).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_arrived_costs_no_ticket() {
    let (store, ticket) = ticket().await;
    store.faults().set_reachable(Reachable::Cut);
    let once = AcquireRequest::adopting(&ticket).with_wait(Wait::Never);
    let error = store.acquire(&once).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!error.is_outcome_unknown());

    let client = store.client();
    let adopting = tokio::spawn(async move { client.adopt(&ticket).await });
    tokio::time::sleep(secs(10)).await;
    assert!(!adopting.is_finished());
    store.faults().set_reachable(Reachable::Connected);
    let guard = in_time("the adoption", adopting).await.unwrap().unwrap();
    // None of those before can have been seen by the server.
    assert_eq!(left(&guard), secs(27), "the lease is valid for");
}

#[tokio::test(start_paused = true)]
async fn an_adoption_that_is_dropped_after_each_poll_leaves_nothing_or_a_ticket() {
    let faults = [
        Fault::LateReply(millis(300)),
        Fault::LostReply,
        Fault::Silence,
    ];
    for (fault, polls) in faults.into_iter().flat_map(|f| (0..8).map(move |n| (f, n))) {
        let (store, ticket) = ticket().await;
        store.faults().plan(Request::Adopt, fault);
        let pause = || tokio::time::sleep(millis(100));
        let adopted = poll_times(store.adopt(&ticket), polls, pause).await;
        let is_adopted = adopted.map(|guard| drop(guard.unwrap())).is_some();
        assert!(store.shutdown(secs(10)).await);
        if !is_free(&store).await {
            assert!(!is_adopted, "{fault:?} after {polls} polls");
            let guard = store.adopt(&ticket).await;
            assert!(guard.unwrap().is_held(), "{fault:?} after {polls} polls");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_min_hold_goes_with_the_ticket_and_the_longest_begins_anew() {
    let store = memory();
    let (ttl, least, longest) = (secs(30), secs(100), secs(120));
    let request = store.request("k").ttl(ttl).min_hold(least);
    let guard = request.max_hold(longest).acquire().await.unwrap();
    tokio::time::sleep(secs(80)).await;
    let ticket = guard.into_ticket().unwrap();
    assert_eq!(ticket.min_hold(), secs(20));
    let guard = store.adopt(&ticket).await.unwrap();
    guard.release().await.unwrap();
    tokio::time::sleep(secs(19)).await;
    assert!(!is_free(&store).await);
    tokio::time::sleep(secs(2)).await;
    assert!(is_free(&store).await);

    let request = store.request("k").max_hold(longest);
    let guard = request.acquire().await.unwrap();
    tokio::time::sleep(secs(100)).await;
    let ticket = guard.into_ticket().unwrap();
    let request = AcquireRequest::adopting(&ticket).with_max_hold(longest);
    let guard = store.acquire(&request).await.unwrap();
    let began = Instant::now();
    let reason = in_time("the loss", guard.lost()).await;
    assert_eq!(reason, LostReason::MaxHold);
    assert_eq!(
        began.elapsed().as_secs(),
        longest.as_secs(),
        "seconds until the loss"
    );
}

#[tokio::test(start_paused = true)]
async fn a_min_hold_beyond_the_default_longest_goes_with_the_ticket() {
    let store = memory();
    let least = 2 * AcquireRequest::DEFAULT_MAX_HOLD;
    let request = store.request("k").min_hold(least).max_hold(None);
    let ticket = request.acquire().await.unwrap().into_ticket().unwrap();
    let guard = store.adopt(&ticket).await.unwrap();
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn an_extended_lease_is_a_ticket_for_as_long_and_is_released_for_as_long() {
    for is_answered in [true, false] {
        let store = memory();
        let guard = store.lock("k").await.unwrap();
        guard.renew_for(secs(600)).await.unwrap();
        let ticket = guard.into_ticket().unwrap();
        let left = ticket.valid_until().duration_since(SystemTime::now());
        assert!(left.unwrap() > secs(538), "{ticket:?}");
        tokio::time::sleep(secs(300)).await;
        // The lease on the server outlasts the ttl, and so does what tries to release it.
        store.faults().plan(Request::Release, Fault::Silence);
        if is_answered {
            drop(store.adopt(&ticket).await.unwrap());
        } else {
            store.faults().plan(Request::Adopt, Fault::LostReply);
            let once = AcquireRequest::adopting(&ticket).with_wait(Wait::Never);
            assert!(store.acquire(&once).await.unwrap_err().is_outcome_unknown());
        }
        store.faults().set_reachable(Reachable::Cut);
        tokio::time::sleep(secs(120)).await;
        store.faults().set_reachable(Reachable::Connected);
        tokio::time::sleep(secs(2)).await;
        assert!(is_free(&store).await, "{is_answered}");
    }
}

/// The margin of an extended lease is longer than its last minute, and an extension without an answer may
/// have been done.
#[tokio::test(start_paused = true)]
async fn a_ticket_knows_how_long_its_lease_may_last() {
    let store = memory();
    let guard = store.lock("k").await.unwrap();
    plan_all(&store, Request::Renew, Fault::LostReply);
    guard.renew_for(secs(3_000)).await.unwrap_err();
    store.faults().clear();
    let ticket = guard.into_ticket().unwrap();
    let left = ticket.valid_until().duration_since(SystemTime::now());
    assert!(left.unwrap() <= secs(27), "{ticket:?}");
    // The lease on the server is released for as long as it may last.
    tokio::time::sleep(secs(2_000)).await;
    drop(store.adopt(&ticket).await.unwrap());
    store.faults().set_reachable(Reachable::Cut);
    tokio::time::sleep(secs(600)).await;
    store.faults().set_reachable(Reachable::Connected);
    tokio::time::sleep(secs(2)).await;
    assert!(is_free(&store).await);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_of_another_backend_is_refused_before_anything_is_sent() {
    let (store, ticket) = ticket().await;
    let text = ticket.to_string();
    let other = text.replace("backend=memory", "backend=redis");
    // It would be waited for.
    store.faults().plan(Request::Adopt, Fault::Silence);
    let error = store.adopt(&other.parse().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(error.message(), "the ticket is one of redis");

    store.faults().clear();
    let shared = AcquireRequest::adopting(&ticket).with_mode(Mode::Shared);
    let another = AcquireRequest::adopting(&ticket).with_key(LockKey::new("j").unwrap());
    for request in [shared, another] {
        let error = store.acquire(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    }
    assert!(store.adopt(&ticket).await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_ticket_names_the_key_without_its_namespace() {
    let store = memory();
    let shop = || Prefix::new(Arc::new(store.client()), "shop").unwrap();
    let bank = Prefix::new(Arc::new(store.client()), "bank").unwrap();
    let ticket = shop().lock("k").await.unwrap().into_ticket().unwrap();
    assert_eq!(ticket.key(), &key());
    let error = bank.adopt(&ticket).await.unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::Lost, Some(&key())));
    let guard = shop().adopt(&ticket).await.unwrap();
    assert_eq!(guard.key(), &key());
    // It renews and releases under the stored key.
    tokio::time::sleep(secs(60)).await;
    assert_eq!(guard.release().await.unwrap(), Released::Clean);
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_the_life_of_a_lock_that_was_adopted() {
    let store = memory();
    let log = Log::default();
    let locks = log.of(Arc::new(LocalQueue::new(Arc::new(store.client()))));
    let ticket = locks.lock("k").await.unwrap().into_ticket().unwrap();
    let guard = locks.adopt(&ticket).await.unwrap();
    tokio::time::sleep(secs(11)).await;
    guard.release().await.unwrap();
    locks.adopt(&ticket).await.unwrap_err();
    let heard: Vec<_> = log.take().iter().map(|entry| entry.what).collect();
    let here = "requested held acquired given_up ticket";
    let there = "requested held acquired renewed given_up released";
    let too_late = "requested failed";
    assert_eq!(heard.join(" "), [here, there, too_late].join(" "));
}

#[test]
fn the_error_with_the_guard_is_an_error() {
    fn shared<E: std::error::Error + Send + Sync + 'static>() {}
    shared::<IntoTicketError>();
}
