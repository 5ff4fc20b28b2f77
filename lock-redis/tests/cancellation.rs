//! Futures dropped at every poll leave nothing behind.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use crate::support::{Place, SOON, request, take};
use lock_core::{DistributedLock, Mode};
use lock_redis::Redis;

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

/// What the conformance suite does not drop.
#[tokio::test]
async fn requests_dropped_at_every_poll_leave_nothing() {
    let place = Place::new().await;
    let locks = place.elsewhere().await;
    for polls in 1..=16 {
        for _ in 0..4 {
            let shared = request("a").with_mode(Mode::Shared);
            drop(polled(polls, locks.acquire(&shared)).await);
            idle(&locks).await;
            assert_eq!(
                place.remains("a"),
                Vec::<String>::new(),
                "after {polls} polls"
            );

            let many = ["a", "b", "c"].map(request);
            drop(polled(polls, lock_core::layers::acquire_all(&*locks, &many)).await);
            idle(&locks).await;
            for name in ["a", "b", "c"] {
                assert_eq!(
                    place.remains(name),
                    Vec::<String>::new(),
                    "after {polls} polls"
                );
            }

            let guard = take(&locks, "a").await;
            drop(polled(polls, guard.renew()).await);
            drop(guard);
            idle(&locks).await;
            assert_eq!(
                place.remains("a"),
                Vec::<String>::new(),
                "after {polls} polls"
            );
        }
    }
    place.assert_free("a").await;
}
