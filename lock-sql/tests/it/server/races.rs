//! Waits that end in the moment in which the lock becomes free, and waits that the server ends.

use std::time::Duration;

use polylock_core::{DistributedLock, ErrorKind, Mode, Wait};

use crate::server::support::{
    Kind, Site, assert_free, assert_taken, everywhere, leases, ms, request, sessions, take,
    take_and_release, until,
};

/// A lock that was granted after the deadline is released.
async fn a_grant_at_the_end_of_the_wait_is_a_guard_or_undone(site: Site) {
    let (holder, waiter) = (site.open().await, site.open().await);
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
                assert!(guard.is_held());
                guard.release().await.expect("it is released");
            }
            Err(error) => {
                // Unknown if a busy server has not answered at all.
                let is_known = !error.is_outcome_unknown();
                assert!(!is_known || error.kind() == ErrorKind::Contended, "{error}");
            }
        }
        take_and_release(&holder, "job").await;
    }
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
    let next = acquired.expect("it waits on");
    next.release().await.expect("it is released");
    assert!(waiter.shutdown(ms(5_000)).await);
    assert_free(&site, "job").await;
    site.assert_unlocked().await;
}

sessions!(a_wait_that_the_server_cancels_grants_nothing);

/// Both lock the first row of the key and that of the lease, in the same order.
async fn renewals_and_releases_of_shared_leases_do_not_deadlock(site: Site) {
    // Its deadlocks are counted.
    let site = site.alone();
    let before = deadlocks(&site).await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..4 {
        let (holder, operator) = (site.open().await, site.open().await);
        tasks.spawn(async move {
            let admin = operator.admin().expect("there is one");
            let name = format!("job-{task}");
            for _ in 0..100 {
                let shared = request(&name).with_mode(Mode::Shared);
                let guard = holder.acquire(&shared).await.expect("it is shared");
                let id = guard.lease_id().expect("leases have one");
                let key = guard.key().clone();
                let renewal = admin.renew_lease(&key, id, shared.ttl());
                let (renewed, released) = tokio::join!(renewal, guard.release());
                renewed.expect("it is known whether it is renewed");
                released.expect("it is released");
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
    assert_eq!(deadlocks(&site).await - before, 0, "deadlocks");
}

leases!(renewals_and_releases_of_shared_leases_do_not_deadlock);

/// How many the server has ended, whose statements were repeated.
async fn deadlocks(site: &Site) -> u64 {
    if site.kind() == Kind::Postgres {
        let counted = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        // A connection reports what it has counted a second later at most, or at its end.
        tokio::time::sleep(ms(1_500)).await;
        return site.number(counted).await;
    }
    let status = site.sql("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").await;
    status[0][1].parse().expect("it is a number")
}
