//! A first lease that is shorter than those to come.

use std::sync::Arc;
use std::time::Duration;

use lock_core::LostReason;
use lock_core::layers::LocalQueue;
use lock_core::prelude::*;
use tokio::time::Instant;

use super::fake::Fake;
use super::{lost, secs};

/// A service that gives each lease 5 s until it is renewed.
fn provisional() -> Fake {
    let fake = Fake::new();
    fake.state().first = Some(secs(5));
    fake
}

fn left(guard: &LockGuard) -> Duration {
    guard.valid_until().expect("has a limit") - Instant::now()
}

#[tokio::test(start_paused = true)]
async fn the_first_lease_counts_and_the_later_ones_are_whole() {
    let locks = provisional();
    let guard = locks.lock("k").await.unwrap();
    assert_eq!(left(&guard), Duration::from_millis(4_500));
    tokio::time::sleep(secs(2)).await;
    assert_eq!(locks.state().renewals, 1);
    assert!(left(&guard) > secs(26), "{:?}", left(&guard));
    tokio::time::sleep(secs(7)).await;
    assert_eq!(locks.state().renewals, 1, "the next at a third of 30 s");
    assert_eq!(lost(guard.lost(), secs(100)).await, None);
}

/// A backend that needs several steps for a renewal has to know when nobody waits any more.
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
    assert_eq!(
        lost(guard.lost(), secs(60)).await,
        Some(LostReason::Expired)
    );
    let held = began.elapsed();
    assert!((secs(27)..secs(29)).contains(&held), "{held:?}");
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
async fn the_next_of_the_process_renews_what_it_is_handed() {
    let server = provisional();
    let locks = Arc::new(LocalQueue::new(Arc::new(server.clone())));
    let first = locks.lock("k").await.unwrap();
    let next = tokio::spawn({
        let locks = Arc::clone(&locks);
        async move { locks.lock("k").await }
    });
    tokio::time::sleep(secs(1)).await;
    drop(first);
    let next = next.await.unwrap().unwrap();
    assert_eq!(lost(next.lost(), secs(60)).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_first_lease_is_no_longer_than_the_ttl() {
    let locks = Fake::new();
    locks.state().first = Some(secs(60));
    let guard = locks.lock("k").await.unwrap();
    assert_eq!(left(&guard), secs(27));
}
