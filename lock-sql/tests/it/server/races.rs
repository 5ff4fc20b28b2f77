//! Waits that end in the moment in which the lock becomes free, and waits that the server ends.

use std::time::Duration;

use polylock_core::{DistributedLock, ErrorKind, Wait};

use crate::server::support::{
    Site, assert_free, assert_taken, everywhere, ms, request, sessions, take, until,
};

/// A lock that was granted although the time was over is given back.
async fn a_grant_at_the_end_of_the_wait_is_a_guard_or_undone(site: Site) {
    let (holder, waiter) = (site.open().await, site.open().await);
    let (mut granted, mut refused) = (0, 0);
    for round in 0..24_u64 {
        let guard = take(&holder, "job").await;
        let wait = ms(120);
        let timed = request("job").with_wait(Wait::AtMost(wait));
        let waiting = waiter.acquire(&timed);
        let release = async {
            let early = Duration::from_micros(500 * (round % 12));
            tokio::time::sleep(wait + ms(2) - early).await;
            guard.release().await
        };
        let (taken, released) = tokio::join!(waiting, release);
        released.expect("it is released");
        match taken {
            Ok(guard) => {
                granted += 1;
                assert!(guard.is_held());
                guard.release().await.expect("it is released");
            }
            Err(error) => {
                refused += 1;
                // Unknown if a busy server has not answered at all.
                let is_known = !error.is_outcome_unknown();
                assert!(!is_known || error.kind() == ErrorKind::Contended, "{error}");
            }
        }
        let next = take(&holder, "job").await;
        next.release().await.expect("it is released");
    }
    assert_eq!(granted + refused, 24);
    assert!(waiter.shutdown(ms(5_000)).await && holder.shutdown(ms(5_000)).await);
    assert_free(&site, "job").await;
    site.assert_unlocked().await;
}

everywhere!(a_grant_at_the_end_of_the_wait_is_a_guard_or_undone);

/// A statement that is cancelled while it waits grants nothing: MariaDB answers `GET_LOCK` with NULL.
async fn a_wait_that_the_server_cancels_grants_nothing(site: Site) {
    let (holder, waiter) = (site.open().await, site.open().await);
    let guard = take(&holder, "job").await;
    let waiting = tokio::spawn(async move {
        let acquired = waiter.acquire(&request("job")).await;
        (acquired, waiter)
    });
    for _ in 0..2 {
        until("it waits", async || {
            site.waiters().await > 0 || waiting.is_finished()
        })
        .await;
        site.cancel_waiters().await;
        tokio::time::sleep(ms(100)).await;
    }
    assert_taken(&site, "job").await;
    assert!(guard.is_held());
    guard.release().await.expect("it is released");
    let (acquired, waiter) = waiting.await.expect("no panic");
    match acquired {
        Ok(next) => drop(next.release().await.expect("it is released")),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
    }
    assert!(waiter.shutdown(ms(5_000)).await);
    assert_free(&site, "job").await;
    site.assert_unlocked().await;
}

sessions!(a_wait_that_the_server_cancels_grants_nothing);
