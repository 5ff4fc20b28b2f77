//! The number of requests of a lock.

use std::sync::Arc;
use std::time::Duration;

use polylock_core::admin::Record;
use polylock_core::layers::LocalQueue;
use polylock_core::memory::{Fault, Request};
use polylock_core::{DistributedLock, FencingToken, LockGuard, Mode, Renewal, Result};
use polylock_etcd::Etcd;
use tokio::time::{Instant, timeout};

use crate::support::{
    EtcdOptions, EtcdServer, Place, SOON, acquire, admin, granted, is_creation, is_grant, is_read,
    is_revocation, key, long, ms, permits, release, request, token, until, waiting,
};

/// A free lock is two transactions: one creates the key and lists the line, one deletes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_free_lock_is_acquired_and_released_in_two_requests() {
    let place = Place::new().await;
    let locks = place.counted().await;
    release(acquire(&locks, "warm").await).await;
    let count =
        || [Request::Acquire, Request::Release, Request::Renew].map(|kind| place.count(kind));
    let before = count();
    for _ in 0..5 {
        release(acquire(&locks, "a").await).await;
    }
    let after = count();
    assert_eq!([0, 1].map(|kind| after[kind] - before[kind]), [5, 5]);
    assert!(after[2] - before[2] <= 1, "renewed while it was free");
}

/// A lock that passes from task to task inside a process sends nothing, and its tokens grow.
///
/// On one thread, a task that is spawned is in the queue before the test goes on.
#[tokio::test]
async fn a_hand_over_sends_nothing() {
    let place = Place::new().await;
    let locks = place.counted().await;
    let queue = LocalQueue::new(locks as Arc<dyn DistributedLock>);
    let queue = Arc::new(queue.with_max_handovers(300));
    let before = place.count(Request::Acquire) + place.count(Request::Release);
    let mut guard = queue.acquire(&request("a")).await.expect("it is free");
    for _ in 0..255 {
        let (mut next, last) = (waiting(&queue, request("a")), token(&guard));
        tokio::task::yield_now().await;
        drop(timeout(ms(5), &mut next).await);
        release(guard).await;
        guard = granted(next).await;
        assert_eq!(token(&guard), last + 1);
    }
    assert_eq!(
        place.count(Request::Acquire) + place.count(Request::Release),
        before + 1
    );
    // The tokens of the key are used up: the next one creates a key of its own.
    let last = token(&guard);
    let mut next = waiting(&queue, request("a"));
    drop(timeout(ms(50), &mut next).await);
    release(guard).await;
    let guard = granted(next).await;
    assert!(token(&guard) > last + 1);
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_wakes_one_waiter() {
    let place = Place::new().await;
    let (holder, waiters) = (place.client().await, place.counted().await);
    let guard = acquire(&holder, "a").await;
    // They list again of themselves after a third of their ttl, which is later than the test waits.
    let mut waiting_for_it = Vec::new();
    for _ in 0..4 {
        waiting_for_it.push(place.waiter(&waiters, long("a")).await);
    }
    let before = place.counter().seen(is_read);
    release(guard).await;
    let mut next = granted(waiting_for_it.remove(0)).await;
    // Its watch tells all that it needs to know.
    let lists = place.counter().seen(is_read) - before;
    assert!(lists <= 2, "{lists} lists");
    for waiter in waiting_for_it {
        release(next).await;
        next = granted(waiter).await;
    }
    release(next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_wakes_readers() {
    let place = Place::new().await;
    let mut guard = acquire(&*place.client().await, "a").await;
    // It lists again of itself after a third of its ttl, which is later than the test waits.
    let reader = long("a").with_mode(Mode::Shared);
    let reader = place.waiter(&place.client().await, reader).await;
    guard.downgrade().await.expect("it is downgraded");
    let next = timeout(SOON, granted(reader)).await;
    release(next.expect("it hears of the downgrade")).await;
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_waiter_is_not_woken_by_those_behind_it() {
    let place = Place::new().await;
    let permit = request("a").with_mode(permits(1));
    let (locks, counted) = (place.client().await, place.counted().await);
    let guard = locks.acquire(&permit).await.expect("it is free");
    let first = place
        .waiter(&counted, long("a").with_mode(permits(1)))
        .await;
    let lists = place.counter().seen(is_read);
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(place.waiter(&locks, permit.clone()).await);
    }
    release(guard).await;
    let mut next = granted(first).await;
    assert_eq!(place.counter().seen(is_read) - lists, 1);
    for other in others {
        release(next).await;
        next = granted(other).await;
    }
    release(next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_waited_for_has_its_whole_ttl() {
    let place = Place::new().await;
    let locks = place.client().await;
    let guard = acquire(&locks, "a").await;
    let manual = request("a").with_ttl(SOON).with_renewal(Renewal::Manual);
    let waiter = place.waiter(&locks, manual).await;
    // Not so old that it is renewed while it waits.
    tokio::time::sleep(SOON / 5).await;
    release(guard).await;
    let next = granted(waiter).await;
    let left = |guard: &LockGuard| guard.valid_until().map(|until| until - Instant::now());
    assert!(
        left(&next) > Some(SOON * 4 / 5),
        "valid for {:?}",
        left(&next)
    );
    release(next).await;
}

/// A permit whose creation was retried writes that it is granted as well: another waiter has seen it wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_is_granted_by_a_retry_wakes_the_next_one() {
    let place = Place::new().await;
    let (locks, retried) = (place.client().await, place.counted().await);
    // They list again of themselves after a third of their ttl, which is later than the test waits.
    let permit = long("a").with_mode(permits(2));
    let one = locks.acquire(&permit).await.expect("it is free");
    let two = locks.acquire(&permit).await.expect("it is free");
    place.counter().plan(Request::Acquire, Fault::LostReply);
    place.counter().hold(is_creation);
    let first = place.waiter(&retried, permit.clone()).await;
    place.held().await;
    let second = place.waiter(&locks, permit).await;
    release(one).await;
    place.counter().pass();
    let first = granted(first).await;
    release(two).await;
    let second = timeout(SOON, granted(second)).await;
    release(second.expect("it is woken")).await;
    release(first).await;
}

/// A permit waiter writes that it is granted, which wakes the next one.
#[tokio::test(flavor = "multi_thread")]
async fn permits_are_granted_one_after_the_other() {
    let place = Place::new().await;
    let locks = place.client().await;
    // They list again of themselves after a third of their ttl, which is later than the test waits.
    let permit = long("a").with_mode(permits(2));
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(locks.acquire(&permit).await.expect("it is free"));
    }
    let mut waiters = Vec::new();
    for _ in 0..4 {
        waiters.push(place.waiter(&locks, permit.clone()).await);
    }
    for guard in held.drain(..) {
        release(guard).await;
    }
    let first = timeout(SOON, granted(waiters.remove(0))).await;
    let first = first.expect("it is next");
    let second = timeout(SOON, granted(waiters.remove(0))).await;
    let second = second.expect("it is woken by the first");
    assert!(token(&first) < token(&second));
    release(first).await;
    release(granted(waiters.remove(0)).await).await;
    release(second).await;
    release(granted(waiters.remove(0)).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_has_one_lease() {
    let server = EtcdServer::start(EtcdOptions::default());
    let place = Place::of(&server).await;
    let locks = place.counted().await;
    for token in 1..=10 {
        assert!(write(&locks, token).await.expect("it answers"));
    }
    let before = place.counter().seen(is_grant);
    let is_written = write(&locks, 9).await.expect("it answers");
    assert!(!is_written, "a smaller token replaces no record");
    let grants = place.counter().seen(is_grant) - before;
    assert_eq!(grants, 0, "a record that is not written needs no lease");
    until("the leases of former records are revoked", async || {
        let leases = place.tree().client().leases().await;
        leases.expect("it answers").leases().len() == 1
    })
    .await;
    assert_stored(&locks, 10).await;
}

/// Stores a record of the key `a` for a week.
async fn write(locks: &Etcd, token: u64) -> Result<bool> {
    let record = Record::new(FencingToken::new(token), format!("page {token}"));
    let keep = Duration::from_secs(7 * 24 * 60 * 60);
    admin(locks).write_record(&key("a"), &record, keep).await
}

async fn assert_stored(locks: &Etcd, token: u64) {
    let stored = admin(locks).record(&key("a")).await;
    let stored = stored.expect("it answers").expect("it is stored");
    assert_eq!(stored.token, FencingToken::new(token));
}

/// A record whose write crosses that of another client leaves no lease, even if the next read fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_crosses_another_leaves_no_lease() {
    let place = Place::new().await;
    let (locks, counted) = (place.client().await, place.counted().await);
    let revocations = || place.counter().seen(is_revocation);
    place
        .counter()
        .hold(|_, kind| kind == Some(Request::Record));
    let crossing = async {
        place.held().await;
        let written = write(&locks, 2).await;
        assert!(written.expect("it answers"));
        // Reads are refused from here on.
        place.counter().fill(is_read);
        place.counter().pass();
        until("the lease is revoked", async || revocations() == 1).await;
        place.counter().make_space();
    };
    let (written, ()) = tokio::join!(write(&counted, 1), crossing);
    // It has a time limit, in which the reads may have been refused.
    assert!(!written.unwrap_or_default(), "a smaller token replaces it");
    assert_stored(&locks, 2).await;
}

/// The lease of a record lasts for as long as the record is kept. Whether the record was written is not known, or
/// nobody waits for that any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_may_not_be_written_leaves_no_lease_without_it() {
    for (what, fault, is_written) in [
        ("lost reply", Fault::LostReply, true),
        ("lost request", Fault::LostRequest, false),
        ("dropped", Fault::Silence, false),
    ] {
        let server = EtcdServer::start(EtcdOptions::default());
        let place = Place::of(&server).await;
        let locks = place.counted().await;
        let (record_key, keep) = (key("a"), Duration::from_secs(600));
        let record = |token| Record::new(FencingToken::new(token), format!("page {token}"));
        let (former, record) = (record(1), record(2));
        let admin = admin(&*locks);
        let written = admin.write_record(&record_key, &former, keep).await;
        assert!(written.expect("it answers"), "{what}");
        place.counter().plan(Request::Record, fault);
        let write = admin.write_record(&record_key, &record, keep);
        // Nobody waits longer for the one that is dropped.
        let limit = if what == "dropped" { ms(700) } else { SOON };
        let written = timeout(limit, write).await;
        match (what, written) {
            ("dropped", written) => assert!(written.is_err(), "{what}"),
            (_, written) => {
                let error = written
                    .expect("it fails soon")
                    .expect_err("its reply is lost");
                assert!(error.is_outcome_unknown(), "{what}: {error}");
            }
        }
        assert!(locks.shutdown(Duration::from_secs(20)).await, "{what}");
        let leases = place.tree().client().leases().await.expect("it answers");
        assert_eq!(leases.leases().len(), 1, "{what}");
        let stored = admin.record(&record_key).await.expect("it answers");
        let expected = if is_written { record } else { former };
        assert_eq!(stored, Some(expected), "{what}");
    }
}

/// The database executes the grant that reaches its quota, and answers that it is full.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_whose_grant_has_no_reply_is_used_or_revoked() {
    for has_space_later in [true, false] {
        let server = EtcdServer::start(EtcdOptions::default());
        let place = Place::of(&server).await;
        let locks = place.counted().await;
        place.counter().fill(is_grant);
        let (record, keep) = (
            Record::new(FencingToken::new(1), "page 1"),
            Duration::from_secs(600),
        );
        let (admin, record_key) = (admin(&*locks), key("a"));
        let make_space = async {
            if has_space_later {
                until("it is repeated", async || {
                    place.counter().seen(is_grant) > 1
                })
                .await;
                place.counter().make_space();
            }
        };
        let write = admin.write_record(&record_key, &record, keep);
        let (written, ()) = tokio::join!(write, make_space);
        assert_eq!(written.is_ok_and(|written| written), has_space_later);
        assert!(locks.shutdown(Duration::from_secs(20)).await);
        let leases = place.tree().client().leases().await.expect("it answers");
        assert_eq!(leases.leases().len(), usize::from(has_space_later));
    }
}
