//! Time: the zone of a session, transactions that have begun long ago, and clocks that jump.

use std::sync::Arc;

use lock_testkit::locks::assert_error;
use lock_testkit::servers::{MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer};
use polylock_core::{DistributedLock, ErrorKind, LockGuard, LostReason, Renewal, Wait};
use tokio::time::Instant;

use crate::server::support::{
    Kind, Mode, SOON, Site, assert_free, leases, loss, ms, request, take, until,
};

/// A lease in a server of this time zone lasts as long as elsewhere.
async fn a_lease_lasts_for_its_time(site: Site) {
    // Longer than a busy machine needs for a few requests.
    let ttl = SOON;
    let lease = request("job").with_ttl(ttl).with_renewal(Renewal::Manual);
    let (locks, other) = (site.open().await, site.open().await);
    // It is connected then; a busy machine may take longer for that than the lease lasts.
    let connected = take(&other, "other job").await;
    connected.release().await.expect("it is released");
    let began = Instant::now();
    let guard = locks.acquire(&lease).await.expect("it is granted");
    assert!(guard.valid_until().is_some_and(|end| end <= began + ttl));
    let attempt = request("job").with_wait(Wait::Never);
    assert_error(&other, &attempt, ErrorKind::Contended).await;
    let next = take(&other, "job").await;
    let after = began.elapsed();
    assert!(
        after >= ttl && after < ttl + SOON,
        "a lease of {ttl:?} ended after {after:?}"
    );
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

/// A transaction has locked the row, so the statement of the acquisition waits. The lease counts from
/// before the wait, and no other client gets the lock before it expires.
async fn a_lease_that_was_waited_for_is_not_too_long(site: Site) {
    assert_free(&site, "job").await;
    let lock = format!(
        "BEGIN; SELECT 1 FROM {} WHERE kind = 1 AND lock_key = {} FOR UPDATE; SELECT {}; COMMIT",
        site.table,
        site.bytes(b"job"),
        match site.kind() {
            Kind::MariaDb => "SLEEP(2)",
            Kind::Postgres => "pg_sleep(2)",
        }
    );
    let unlocked = format!(
        "SELECT 1 FROM {} WHERE kind = 1 AND lock_key = {} FOR UPDATE SKIP LOCKED",
        site.table,
        site.bytes(b"job"),
    );
    let (holder, other) = (site.open().await, site.open().await);
    let blocking = tokio::spawn({
        let site = site.clone();
        async move { site.sql(lock).await }
    });
    until("the row is locked", async || {
        site.sql(&unlocked).await.is_empty()
    })
    .await;
    let ttl = ms(4_000);
    let lease = request("job").with_ttl(ttl).with_renewal(Renewal::Manual);
    let began = Instant::now();
    let guard = holder.acquire(&lease).await.expect("it is granted");
    assert!(began.elapsed() >= ms(400), "it did not wait");
    assert!(guard.valid_until().is_some_and(|end| end <= began + ttl));
    blocking.await.expect("no panic");
    let next = take(&other, "job").await;
    assert!(!guard.is_held(), "two holders");
    assert!(
        began.elapsed() < ttl + SOON,
        "granted after {:?}",
        began.elapsed()
    );
    next.release().await.expect("it is released");
}

leases!(a_lease_that_was_waited_for_is_not_too_long);

/// Two servers of the test's own, with clocks that it can set.
fn with_clocks() -> [Site; 2] {
    let postgres = PostgresServer::start(PostgresOptions::new().with_clock());
    let mariadb = MariaDbServer::start(MariaDbOptions::new().with_clock());
    [
        Site::postgres(&Arc::new(postgres), Mode::Lease),
        Site::mariadb(&Arc::new(mariadb), Mode::Lease),
    ]
}

fn set_clock(site: &Site, seconds: i64) {
    site.server.own().set_clock_offset(seconds);
}

/// A write to a resource that takes it unless one with a larger token came before.
async fn write(site: &Site, guard: &LockGuard, value: &str) -> String {
    let token = guard.fencing_token().expect("there are tokens").value();
    let text = format!(
        "UPDATE resource SET token = {token}, value = '{value}' WHERE token <= {token};
         SELECT value FROM resource"
    );
    site.sql(text).await.concat().concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_clock_that_jumps_forward_ends_leases_early_and_tokens_stop_stale_writes() {
    for site in with_clocks() {
        site.sql("CREATE TABLE resource (token BIGINT, value VARCHAR(9))")
            .await;
        site.sql("INSERT INTO resource VALUES (0, '')").await;
        let lease = request("job").with_ttl(ms(9_000));
        let first = site.open().await.acquire(&lease).await;
        let first = first.expect("it is granted");
        assert_eq!(write(&site, &first, "first").await, "first");
        set_clock(&site, 3_600);
        let second = take(&site.open().await, "job").await;
        assert!(first.is_held(), "the next renewal tells the holder");
        assert!(second.fencing_token() > first.fencing_token());
        assert_eq!(write(&site, &second, "second").await, "second");
        assert_eq!(write(&site, &first, "stale").await, "second");
        // A third of the lease, at most.
        let (reason, _) = loss(&first, ms(3_000) + SOON).await;
        assert_eq!(reason, LostReason::Stolen);
        assert!(second.is_held());
        second.release().await.expect("it is released");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_clock_that_jumps_back_keeps_the_lease_of_a_dead_holder_for_as_long() {
    for site in with_clocks() {
        let (locks, ttl) = (site.open().await, ms(1_000));
        let lives = take(&locks, "lives").await;
        // A renewal would count from the new clock.
        let lease = request("job").with_ttl(ttl).with_renewal(Renewal::Manual);
        let dead = locks.acquire(&lease).await.expect("it is granted");
        set_clock(&site, -3_600);
        dead.abandon();
        let waits = request("job").with_wait(Wait::AtMost(ttl * 3));
        let refused = site.open().await.acquire(&waits).await;
        assert!(refused.is_err(), "two holders");
        let admin = locks.admin().expect("it has one");
        let info = admin.inspect(lease.key()).await.expect("it answers");
        let left = info.expect("it is held").holders[0].time_left;
        assert!(
            left.is_some_and(|left| left > ms(3_500_000)),
            "it has {left:?} left"
        );
        // A renewal counts from the clock as it is.
        lives.renew().await.expect("it is renewed");
        lives.release().await.expect("it is released");
        assert_free(&site, "lives").await;
        set_clock(&site, 0);
        assert_free(&site, "job").await;
    }
}
