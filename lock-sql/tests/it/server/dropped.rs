//! Public futures that are dropped after each poll leave nothing on the server.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lock_testkit::locks::waiting;
use lock_testkit::polled_once;
use polylock_core::layers::acquire_all;
use polylock_core::{DistributedLock, ErrorKind, Mode, Released, Wait};
use polylock_sql::SqlLock;

use crate::server::support::{
    SOON, Site, assert_free, everywhere, key, ms, on, request, take, until,
};

/// Polls a future this often, and drops it then.
async fn polled<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for poll in 0..polls {
        if poll > 0 {
            // Others get their turn, so that the next poll finds more than the last one.
            tokio::task::yield_now().await;
            if poll % 4 == 0 {
                tokio::time::sleep(ms(1)).await;
            }
        }
        if let Poll::Ready(output) = polled_once(future.as_mut()).await {
            return Some(output);
        }
    }
    None
}

const POLLS: std::ops::RangeInclusive<u32> = 0..=40;

async fn what_is_dropped_leaves_nothing(site: Site) {
    let site = site.with_connections(2);
    let locks = Arc::new(site.open().await);
    let admin = locks.admin().expect("there is one");
    let has_shared = locks.capabilities().shared;
    let both = [request("a"), request("b")];
    for polls in POLLS {
        let url = site.url();
        polled(polls, Box::pin(SqlLock::open(&url))).await;
        let free = request("free");
        polled(polls, locks.acquire(&free)).await;
        polled(polls, locks.acquire(&free.clone().with_wait(Wait::Never))).await;
        if has_shared {
            polled(polls, locks.acquire(&free.clone().with_mode(Mode::Shared))).await;
        }
        polled(polls, acquire_all(&*locks, &both)).await;
        let mut guard = take(&locks, "held").await;
        polled(polls, guard.renew()).await;
        polled(polls, guard.downgrade()).await;
        polled(polls, admin.list("")).await;
        polled(polls, admin.inspect(&key("held"))).await;
        polled(polls, admin.watch("")).await;
        polled(polls, guard.release()).await;
        let guard = take(&locks, "broken").await;
        polled(polls, admin.break_lock(&key("broken"), "a test")).await;
        drop(guard);
        polled(polls, locks.shutdown(SOON)).await;
    }
    assert!(locks.shutdown(SOON).await, "background work does not end");
    for name in ["free", "a", "b", "held", "broken"] {
        assert_free(&site, name).await;
    }
    site.assert_unlocked().await;
    let few = async || site.connections().await <= 2 * CLIENTS;
    until("connections are closed", few).await;
}

everywhere!(what_is_dropped_leaves_nothing);

/// The first one goes on in the background.
async fn a_downgrade_that_is_repeated_at_once_leaves_nothing(site: Site) {
    let locks = site.open().await;
    // Its session, which other locks may share, outlasts them.
    let other = take(&locks, "other").await;
    let mut repeated = 0;
    for n in 0..40 {
        let name = format!("job {n}");
        let mut guard = take(&locks, &name).await;
        polled(1, guard.downgrade()).await;
        match guard.downgrade().await {
            Ok(()) => repeated += 1,
            // It was done.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
        }
        let released = guard.release().await.expect("it is released");
        assert_eq!(released, Released::Clean);
        assert_free(&site, &name).await;
    }
    assert!(repeated > 0, "each was done when it was repeated");
    other.release().await.expect("it is released");
}

on!(
    a_downgrade_that_is_repeated_at_once_leaves_nothing:
        postgres_lease, postgres_advisory, mariadb_lease
);

/// Twenty wait on few connections, and all of them give up, each at another time.
async fn waiters_that_give_up_leave_nothing(site: Site) {
    let holder = site.open().await;
    let guard = take(&holder, "job").await;
    let few = Arc::new(site.clone().with_connections(2).open().await);
    for round in 0..4_u64 {
        let waiters: Vec<_> = (0..20_u64)
            .map(|n| {
                let few = Arc::clone(&few);
                tokio::spawn(async move {
                    let forever = request("job").with_wait(Wait::Forever);
                    if n % 2 == 0 {
                        let polls = u32::try_from(round * 10 + n / 2).expect("it is small");
                        let wait = polled(polls, few.acquire(&forever)).await;
                        assert!(!matches!(wait, Some(Ok(_))), "two holders");
                    } else {
                        let timeout = Duration::from_millis(7 * n + round);
                        let wait = tokio::time::timeout(timeout, few.acquire(&forever)).await;
                        // There may be no connection left for so many.
                        assert!(!matches!(wait, Ok(Ok(_))), "two holders");
                    }
                })
            })
            .collect();
        for waiter in waiters {
            waiter.await.expect("no panic");
        }
        assert!(guard.is_held());
    }
    assert!(few.shutdown(SOON).await, "background work does not end");
    guard.release().await.expect("it is released");
    assert_free(&site, "job").await;
    assert!(holder.shutdown(SOON).await, "background work does not end");
    site.assert_unlocked().await;
}

everywhere!(waiters_that_give_up_leave_nothing);

/// A waiter is dropped and the lock is released at once, so that the server may grant it to a wait
/// that is being cancelled. After a shutdown one attempt gets the lock.
async fn a_shutdown_waits_for_a_cancelled_wait(site: Site) {
    let (holder, next) = (site.open().await, site.open().await);
    for round in 0..20 {
        let waiter = Arc::new(site.open().await);
        let guard = take(&holder, "job").await;
        let waiting = waiting(&waiter, request("job"));
        tokio::time::sleep(ms(10 + 2 * round)).await;
        waiting.abort();
        assert!(waiting.await.is_err(), "two holders");
        let (released, is_over) = tokio::join!(guard.release(), waiter.shutdown(SOON));
        released.expect("it is released");
        assert!(is_over, "background work does not end");
        let attempt = next.acquire(&request("job").with_wait(Wait::Never)).await;
        let guard = attempt.unwrap_or_else(|error| panic!("round {round}: {error}"));
        guard.release().await.expect("it is released");
    }
}

everywhere!(a_shutdown_waits_for_a_cancelled_wait);

/// What uses the table at the end of a test, each with its own connections and one that listens.
const CLIENTS: u64 = 8;
