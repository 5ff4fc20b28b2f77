//! Leases shorter than a second, and leases that are extended.

use std::time::Duration;

use lock_testkit::proxy::{Fate, Then};
use polylock_core::memory::Request;
use polylock_core::{DistributedLock as _, ErrorKind, LockGuard, Mode};
use polylock_redis::Redis;
use tokio::time::Instant;

use crate::support::{
    LONG_TTL, Place, SOON, acquire, assert_error, attempt, granted, is_kind, ms, release, request,
    take_long, until, waiting, within,
};

const SHORTEST: Duration = Duration::from_millis(500);

/// A busy machine that stops this process for longer than 280 ms costs such a lease, which is no mistake:
/// then it is taken again.
const ROUNDS: usize = 10;

/// Whether a lease is kept for several times its length.
async fn is_kept(guard: &LockGuard, place: &Place, other: &Redis) -> bool {
    let deadline = Instant::now() + 5 * SHORTEST;
    while Instant::now() < deadline {
        let left = place.number(&["PTTL", "a"]);
        let answer = other.acquire(&attempt("a")).await;
        if !guard.is_held() {
            return false;
        }
        assert!((0..=500).contains(&left), "the key expires in {left} ms");
        let error = answer.expect_err("two holders");
        assert_eq!(error.kind(), ErrorKind::Contended, "{error}");
        tokio::time::sleep(ms(20)).await;
    }
    true
}

#[tokio::test]
async fn a_lease_of_half_a_second_is_renewed_and_ends_by_itself() {
    let (place, locks, other) = Place::with_clients().await;
    let short = within(request("a").with_ttl(SHORTEST), SOON);
    let mut rounds = 0..ROUNDS;
    let guard = loop {
        rounds.next().expect("it is lost each time");
        let guard = acquire(&locks, &short).await;
        if is_kept(&guard, &place, &other).await {
            break guard;
        }
    };
    guard.abandon();
    let next = within(request("a").with_ttl(LONG_TTL), SOON);
    release(acquire(&other, &next).await).await;

    let shorter = request("a").with_ttl(ms(499));
    let error = assert_error(&locks, &shorter, ErrorKind::InvalidRequest).await;
    assert!(error.message().contains("between 500ms"));
}

/// The retry of its renewal needs another connection, and has it in time.
#[tokio::test]
async fn a_lease_of_half_a_second_is_kept_when_a_connection_stops_replying() {
    let (place, locks, other) = Place::with_clients().await;
    let short = within(request("a").with_ttl(SHORTEST), SOON);
    let mut rounds = 0..ROUNDS;
    loop {
        rounds.next().expect("it is lost each time");
        place.proxy().clear();
        let guard = acquire(&locks, &short).await;
        let silent = Fate::LostRequest(Then::Silent);
        let planned = place.proxy().plan(is_kind(Request::Renew), silent);
        until("it is renewed, or lost", || {
            planned.struck() == 1 || !guard.is_held()
        })
        .await;
        let kept = planned.struck() == 1 && is_kept(&guard, &place, &other).await;
        if kept && guard.release().await.is_ok() {
            break;
        }
    }
}

#[tokio::test]
async fn a_waiter_for_half_a_second_is_granted_a_lease_that_it_keeps() {
    let place = Place::new();
    let (locks, other) = (place.elsewhere().await, place.elsewhere().await);
    for mode in [Mode::Exclusive, Mode::Shared] {
        let mut rounds = 0..ROUNDS;
        loop {
            rounds.next().expect("it is lost each time");
            let holder = take_long(&locks, "a").await;
            let short = request("a").with_ttl(SHORTEST).with_mode(mode);
            let waiter = waiting(&other, within(short, 2 * SOON));
            place.queued("a", 1).await;
            tokio::time::sleep(3 * SHORTEST).await;
            release(holder).await;
            let next = granted(waiter).await;
            tokio::time::sleep(3 * SHORTEST).await;
            if next.is_held() && next.release().await.is_ok() {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_holder_that_is_done_within_its_min_hold_keeps_no_extension() {
    let place = Place::new();
    let locks = place.client().await;
    let short = Duration::from_secs(5);
    let guard = acquire(&locks, &request("a").with_min_hold(short)).await;
    guard.renew_for(LONG_TTL).await.expect("it is held");
    release(guard).await;
    until("the lease is what is left of the min hold", || {
        (0..=5_000).contains(&place.number(&["PTTL", "a"]))
    })
    .await;
}
