//! A first lease that is shorter than those to come.

use std::time::Duration;

use polylock_core::prelude::*;
use polylock_core::{AcquireRequest, LostReason, Renewal};
use tokio::time::Instant;

use super::fake::{Call, Fake};
use super::lost;
use crate::support::{in_time, key, left, millis, secs, settle, start, try_start};

/// A service that gives each lease 5 s until it is renewed.
fn provisional() -> Fake {
    let fake = Fake::new();
    fake.state().first = Some(secs(5));
    fake
}

#[tokio::test(start_paused = true)]
async fn the_first_lease_counts_and_the_later_ones_are_whole() {
    let locks = provisional();
    let guard = locks.lock("k").await.unwrap();
    assert_eq!(
        left(&guard),
        millis(4_500),
        "what a first lease of 5 s is good for"
    );
    tokio::time::sleep(secs(2)).await;
    assert_eq!(locks.state().renewals, 1);
    let whole = left(&guard);
    assert!(
        whole > secs(26),
        "the renewed lease is not whole, {whole:?} of 27 s are left"
    );
    tokio::time::sleep(secs(7)).await;
    assert_eq!(locks.state().renewals, 1, "the next at a third of 30 s");
    assert_eq!(lost(guard.lost(), secs(100)).await, None);
}

/// A backend that needs several steps for a renewal has to know its deadline.
#[tokio::test(start_paused = true)]
async fn a_renewal_says_how_long_the_lease_in_hand_lets_it_take() {
    let locks = provisional();
    locks.state().first = Some(secs(2));
    let guard = locks.lock("k").await.unwrap();
    guard.renew().await.unwrap();
    let (of_first, fifth) = (locks.state().timeout, Duration::from_millis(360));
    assert_eq!(of_first, fifth, "a fifth of 1.8 s of the first lease");
    guard.renew().await.unwrap();
    let of_next = locks.state().timeout;
    assert_eq!(of_next, secs(1), "a thirtieth of the next one of 30 s");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_released_soon_is_never_renewed() {
    let locks = provisional();
    let guard = locks.lock("k").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_400)).await;
    guard.release().await.unwrap();
    tokio::time::sleep(secs(10)).await;
    assert_eq!(locks.state().renewals, 0);
}

#[tokio::test(start_paused = true)]
async fn a_manual_holder_gets_the_ttl_that_it_was_promised_and_no_more() {
    let locks = provisional();
    let request = locks.request("k").manual_renewal();
    let guard = request.acquire().await.unwrap();
    let began = Instant::now();
    let reason = lost(guard.lost(), secs(60)).await;
    assert_eq!(reason, Some(LostReason::Expired));
    let held = began.elapsed();
    assert!(
        (secs(27)..secs(29)).contains(&held),
        "a manual holder was promised 27 s and a bit, and held the lock for {held:?}"
    );
    assert_eq!(locks.state().renewals, 1);
}

#[tokio::test(start_paused = true)]
async fn a_manual_holder_that_renews_first_is_left_alone() {
    let locks = provisional();
    let request = locks.request("k").manual_renewal();
    let guard = request.acquire().await.unwrap();
    guard.renew().await.unwrap();
    tokio::time::sleep(secs(20)).await;
    assert!(guard.is_held());
    assert_eq!(locks.state().renewals, 1);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_leaves_room_for_another_in_a_short_first_lease() {
    for seconds in [1, 2, 5] {
        let locks = Fake::new();
        locks.state().first = Some(secs(seconds));
        let request = locks.request("k").ttl(secs(86_400));
        let guard = request.acquire().await.unwrap();
        locks.state().delay = secs(1_000);
        tokio::time::sleep(secs(seconds) / 2).await;
        locks.state().delay = Duration::ZERO;
        assert_eq!(lost(guard.lost(), secs(60)).await, None, "{seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_handed_over_provisionally_is_known_to_be_short() {
    let (server, locks) = provisional().queued();
    let acquire = || start(&locks, AcquireRequest::new(key()).with_ttl(secs(86_400)));
    let first = acquire().await.unwrap();
    let next = acquire();
    settle().await;
    drop(first);
    let next = next.await.unwrap();
    assert_eq!(
        server.state().sent,
        [Call::Acquire, Call::HandOver],
        "the lease was not handed over"
    );
    // The first renewal hangs, and leaves time for a second one only if it is bounded by the 5 s
    // that the lease has and not by the day that it will have.
    server.state().delay = secs(1_000);
    tokio::time::sleep(millis(2_500)).await;
    server.state().delay = Duration::ZERO;
    assert_eq!(
        lost(next.lost(), secs(60)).await,
        None,
        "the successor forgot that its lease is provisional: its renewal took all of the first 5 s"
    );
}

#[tokio::test(start_paused = true)]
async fn a_provisional_lease_that_is_inherited_is_extended_for_a_manual_holder() {
    let (server, locks) = provisional().queued();
    let held = server.lock("k").await.unwrap();
    let request = || AcquireRequest::new(key());
    let impatient = try_start(&locks, request().with_wait(Wait::AtMost(secs(1))));
    settle().await;
    let manual = request().with_renewal(Renewal::Manual);
    let heir = start(&locks, manual.with_wait(Wait::AtMost(secs(60))));
    impatient.await.unwrap().unwrap_err();
    drop(held);
    let heir = in_time("the grant", heir).await.unwrap();
    let began = Instant::now();
    let reason = in_time("the end of the lease", heir.lost()).await;
    assert_eq!(reason, LostReason::Expired);
    let held = began.elapsed();
    assert!(
        (secs(26)..secs(29)).contains(&held),
        "the heir was promised 30 s less a tenth, and held the lock for {held:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_first_lease_is_no_longer_than_the_ttl() {
    let locks = Fake::new();
    locks.state().first = Some(secs(60));
    let guard = locks.lock("k").await.unwrap();
    assert_eq!(
        left(&guard),
        secs(27),
        "what a lease with a ttl of 30 s is good for"
    );
}

#[tokio::test(start_paused = true)]
async fn a_first_lease_that_is_extended_is_not_warned_of() {
    let locks = provisional();
    locks.state().first = Some(secs(3));
    let guard = locks.lock("k").await.unwrap();
    let warning = tokio::time::timeout(secs(60), guard.expiring(secs(5)));
    assert!(warning.await.is_err(), "warned of {guard:?}");
    assert!(locks.state().renewals > 1);

    let (_, locks) = provisional().queued();
    let first = locks.lock("k").await.unwrap();
    let next = start(&locks, AcquireRequest::new(key()));
    settle().await;
    drop(first);
    let next = next.await.unwrap();
    let warning = tokio::time::timeout(secs(60), next.expiring(secs(6)));
    assert!(warning.await.is_err(), "warned of {next:?}");
}

#[tokio::test(start_paused = true)]
async fn a_first_lease_whose_extension_hangs_is_warned_of_in_time() {
    let locks = provisional();
    locks.state().first = Some(secs(3));
    let guard = locks.lock("k").await.unwrap();
    locks.state().delay = secs(1_000);
    in_time("the warning", guard.expiring(secs(5))).await;
    assert!(guard.is_held(), "warned after the loss");
    let left = left(&guard);
    assert!(left > secs(1), "{left:?} of 2.7 s are left");
}

#[tokio::test(start_paused = true)]
async fn the_max_hold_of_a_first_lease_is_warned_of_in_time() {
    let locks = provisional();
    let request = locks.request("k").max_hold(secs(4));
    let guard = request.acquire().await.unwrap();
    let began = Instant::now();
    in_time("the warning", guard.expiring(secs(3))).await;
    let after = began.elapsed();
    assert!(
        (secs(1)..millis(1_100)).contains(&after),
        "warned after {after:?}"
    );
}
