//! Time: the zone of a session, and transactions that have begun long ago.

use std::sync::Arc;

use lock_core::{DistributedLock, Renewal, Wait};
use lock_testkit::servers::{MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer};
use tokio::time::Instant;

use crate::support::{Mode, SOON, Site, assert_free, assert_taken, ms, on, request, take};

/// A lease in a server of this time zone lasts as long as elsewhere.
async fn a_lease_lasts_for_its_time(site: Site) {
    let ttl = ms(1_500);
    let lease = request("job").with_ttl(ttl).with_renewal(Renewal::Manual);
    let locks = site.open().await;
    let began = Instant::now();
    let guard = locks.acquire(&lease).await.expect("it is granted");
    assert!(guard.valid_until().is_some_and(|end| end <= began + ttl));
    assert_taken(&site, "job").await;
    let next = take(&site.open().await, "job").await;
    let after = began.elapsed();
    assert!(after >= ttl && after < ttl + SOON, "{after:?}");
    assert!(!guard.is_held());
    next.release().await.expect("it is released");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_zone_of_postgres_changes_nothing() {
    let options = PostgresOptions::new().with_config("timezone", "Asia/Kathmandu");
    let server = Arc::new(PostgresServer::start(options));
    a_lease_lasts_for_its_time(Site::postgres(&server, Mode::Lease)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_zone_of_mariadb_changes_nothing() {
    let options = MariaDbOptions::new().with_config("default_time_zone", "+05:45");
    let server = Arc::new(MariaDbServer::start(options));
    a_lease_lasts_for_its_time(Site::mariadb(&server, Mode::Lease)).await;
}

/// A transaction that has locked the row keeps the statement waiting that takes the lease: what is
/// granted counts from before the wait, and nobody else gets it before it is over.
async fn a_lease_that_was_waited_for_is_not_too_long(site: Site) {
    assert_free(&site, "job").await;
    let lock = format!(
        "BEGIN; SELECT 1 FROM {} WHERE kind = 1 AND lock_key = {} FOR UPDATE; SELECT {}; COMMIT",
        site.table,
        site.bytes(b"job"),
        match site.kind() {
            crate::support::Kind::MariaDb => "SLEEP(1)",
            crate::support::Kind::Postgres => "pg_sleep(1)",
        }
    );
    let (holder, other) = (site.open().await, site.open().await);
    let blocking = tokio::spawn({
        let site = site.clone();
        async move { site.sql(lock).await }
    });
    tokio::time::sleep(ms(300)).await;
    let ttl = ms(2_000);
    let lease = request("job").with_ttl(ttl).with_renewal(Renewal::Manual);
    let began = Instant::now();
    let guard = holder.acquire(&lease).await.expect("it is granted");
    assert!(began.elapsed() >= ms(400), "it did not wait");
    assert!(guard.valid_until().is_some_and(|end| end <= began + ttl));
    blocking.await.expect("no panic");
    let next = request("job").with_wait(Wait::AtMost(SOON * 2));
    let next = other.acquire(&next).await.expect("it is granted");
    assert!(!guard.is_held(), "two hold the lock");
    assert!(began.elapsed() < ttl + SOON);
    next.release().await.expect("it is released");
}

on!(
    a_lease_that_was_waited_for_is_not_too_long: postgres_lease, mariadb_lease
);
