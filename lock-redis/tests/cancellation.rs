//! Futures dropped at every poll and at any time leave nothing behind.

mod support;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use lock_core::{DistributedLock, Mode};
use lock_redis::Redis;
use tokio::task::JoinSet;

use support::{Place, SOON, TTL, ms, request, take, within};

/// Drops `future` when it has been polled `polls` times and is not done.
async fn polled<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(|cx| {
        polled += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polled == polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn idle(locks: &Arc<Redis>) {
    assert!(
        locks.shutdown(SOON * 2).await,
        "background work does not end"
    );
}

#[tokio::test]
async fn a_thousand_requests_dropped_at_every_poll_leave_nothing() {
    let place = Place::new().await;
    let (locks, other) = (place.elsewhere().await, place.elsewhere().await);
    for round in 0..1_000 {
        let polls = 1 + round % 12;
        match round % 5 {
            0 => drop(polled(polls, locks.acquire(&request("a"))).await),
            1 => {
                let one = request("a").with_mode(Mode::Shared);
                drop(polled(polls, locks.acquire(&one)).await);
            }
            2 => {
                let many = ["a", "b", "c"].map(request);
                drop(polled(polls, locks.acquire_all(&many)).await);
            }
            3 => {
                // One that waits, about when the lock comes free.
                let guard = take(&other, "a").await;
                let release = tokio::spawn(guard.release());
                drop(polled(polls, locks.acquire(&request("a"))).await);
                release.await.expect("no panic").expect("it is released");
            }
            _ => {
                let guard = take(&locks, "a").await;
                drop(polled(polls, guard.renew()).await);
                drop(polled(polls, guard.release()).await);
            }
        }
        if round % 4 == 0 {
            idle(&locks).await;
            for name in ["a", "b", "c"] {
                assert_eq!(place.remains(name), Vec::<String>::new(), "round {round}");
            }
        }
    }
    place.assert_nothing_left(&[&locks, &other], "a").await;
    place.assert_free("a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_requests_dropped_at_any_time_leave_nothing() {
    let place = Place::new().await;
    let clients = [place.client().await, place.elsewhere().await];
    let mut tasks = JoinSet::new();
    for n in 0..1_000_u64 {
        let locks = Arc::clone(&clients[n as usize % 2]);
        tasks.spawn(async move {
            let patience = std::time::Duration::from_micros(n * 37 % 40_001);
            let one = within(request(&format!("key/{}", n % 7)), TTL);
            if let Ok(Ok(guard)) = tokio::time::timeout(patience, locks.acquire(&one)).await {
                tokio::time::sleep(ms(n % 3)).await;
                drop(guard);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    for n in 0..7 {
        place
            .assert_nothing_left(&[&clients[0], &clients[1]], &format!("key/{n}"))
            .await;
        place.assert_free(&format!("key/{n}")).await;
    }
}
