//! Tokens grow whatever is forgotten.

use std::sync::Arc;

use lock_core::layers::LocalQueue;
use lock_core::{DistributedLock, FencingToken, LockGuard, Mode, Released};
use tokio::task::JoinSet;

use crate::support::{Place, SOON, TTL, loss, ms, request, take, within};

fn token(guard: &LockGuard) -> FencingToken {
    guard.fencing_token().expect("it has a token")
}

#[tokio::test]
async fn tokens_grow_over_any_number_of_hand_overs_and_a_counter_that_is_deleted() {
    let place = Place::new().await;
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
            let guard = queue.acquire(&one).await.expect("it is granted");
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
    place.command(&["DEL", "{a}:fence"]);
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
async fn tokens_grow_over_all_modes_and_ways() {
    let place = Place::new().await;
    let (locks, other) = (place.client().await, place.elsewhere().await);
    let mut last = token(&take(&locks, "a").await);
    assert!(locks.shutdown(SOON).await);
    for round in 0..60 {
        let client = if round % 2 == 0 { &locks } else { &other };
        let mode = if round % 3 == 0 {
            Mode::Shared
        } else {
            Mode::Exclusive
        };
        let guard = if round % 5 == 0 {
            let both = ["a", "b"].map(|name| within(request(name), SOON));
            client
                .acquire_all(&both)
                .await
                .expect("they are granted")
                .remove(0)
        } else {
            let one = within(request("a").with_mode(mode), SOON);
            client.acquire(&one).await.expect("it is granted")
        };
        assert!(
            token(&guard) > last,
            "round {round}: {:?} after {last:?}",
            token(&guard)
        );
        last = token(&guard);
        match round % 4 {
            0 => drop(guard),
            1 => {
                place.command(&["FLUSHALL"]);
                drop(guard);
            }
            _ => assert_eq!(guard.release().await.expect("released"), Released::Clean),
        }
        assert!(client.shutdown(SOON).await);
    }
}

#[tokio::test]
async fn the_counter_outlives_the_lock() {
    let place = Place::new().await;
    let locks = place.client().await;
    let guard = take(&locks, "a").await;
    let week = 7 * 24 * 60 * 60 * 1_000;
    let left = || place.number(&["PTTL", "{a}:fence"]);
    assert!(left() > week - 60_000 && left() <= week);
    guard.release().await.expect("it is released");
    assert_eq!(place.number(&["EXISTS", "a"]), 0);
    assert!(left() > week - 60_000 && left() <= week);
    // However short it is asked for, requests that come twice are told for a minute.
    let brief = crate::support::open(place.config().with_retention(ms(0))).await;
    let guard = take(&brief, "a").await;
    assert!(left() > 50_000 && left() <= 60_000);
    let lost = async {
        place.command(&["DEL", "a", "{a}:fence"]);
        loss(&guard).await
    };
    assert_eq!(lost.await, lock_core::LostReason::Stolen);
}
