//! Servers that lose acknowledged writes: documented as unsafe, and shown here.
//!
//! The lock has two holders. The token of the second is larger, because no token is smaller than the
//! server's time.

use std::sync::Arc;

use lock_testkit::servers::{
    MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer, PostgresStandby,
};
use polylock_core::{DistributedLock as _, LockGuard, Released};

use crate::server::support::{Mode, Site, assert_free, request, take, until};

/// The lease of `first` is forgotten: a second client gets the lock while the first one holds it.
async fn a_second_holder_has_a_larger_token(site: &Site, port: u16, first: &LockGuard) {
    let second = take(&site.open_at(port).await, "job").await;
    assert!(first.is_held(), "{:?}", first.lost().reason());
    assert!(second.is_held());
    assert!(second.fencing_token() > first.fencing_token());
    second.release().await.expect("it is released");
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_that_does_not_wait_for_its_disk_forgets_leases() {
    let options = PostgresOptions::new()
        .with_config("synchronous_commit", "off")
        .with_config("wal_writer_delay", "10s");
    let server = Arc::new(PostgresServer::start(options));
    // Once in ten seconds it writes after all.
    for _ in 0..3 {
        // A session that is recorded waits for the disk, and with it for what was written before.
        let sites = [Mode::Row, Mode::Advisory, Mode::Lease];
        let sites = sites.map(|mode| Site::postgres(&server, mode));
        for site in &sites {
            assert_free(site, "job").await;
        }
        // All writes so far are on the disk.
        server.sql("SET synchronous_commit = on; SELECT pg_logical_emit_message(true, '', '')");
        let mut held = Vec::new();
        for site in &sites {
            held.push(take(&site.open().await, "job").await);
        }
        server.restart();
        if holders(&sites[2]).await > 0 {
            continue;
        }
        a_second_holder_has_a_larger_token(&sites[2], server.port(), &held[2]).await;
        for (site, guard) in sites.iter().zip(&held).take(2) {
            // Sessions end with their server, and the tokens go on.
            until("the holder learns it", async || !guard.is_held()).await;
            let after = take(&site.open().await, "job").await;
            assert!(after.fencing_token() > guard.fencing_token());
            after.release().await.expect("it is released");
        }
        return;
    }
    panic!("nothing is ever forgotten");
}

/// How many leases a server has after a restart.
async fn holders(site: &Site) -> u64 {
    let id = "SELECT count(*) FROM {} WHERE kind = 1 AND id IS NOT NULL";
    site.number(id.replace("{}", &site.table)).await
}

/// A crash that undoes a release costs waiters the rest of a ttl, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_of_a_lease_waits_for_no_disk() {
    let server = Arc::new(PostgresServer::start(PostgresOptions::new()));
    let site = Site::postgres(&server, Mode::Lease).with("timeout=1m");
    let locks = site.open().await;
    let reader = request("read").with_mode(polylock_core::Mode::Shared);
    let reader = locks.acquire(&reader).await.expect("it is free");
    let held = [take(&locks, "job").await, reader];
    // A commit that waits for the disk waits for a standby as well, and this one does not come.
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'gone'; SELECT pg_reload_conf()");
    let taking = tokio::spawn({
        let other = site.open().await;
        async move { take(&other, "other").await }
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    until("a grant waits", async || server.sql(waits)[0][0] != "0").await;
    for guard in held {
        let key = guard.key().clone();
        let released = guard.release().await.expect("it is released");
        assert_eq!(released, Released::Clean, "{key}");
    }
    assert!(!taking.is_finished(), "a grant has not waited");
    server.sql("ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()");
    let other = taking.await.expect("no panic");
    other.release().await.expect("it is released");
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_that_does_not_write_its_log_forgets_leases() {
    let options = MariaDbOptions::new().with_config("innodb_flush_log_at_trx_commit", "0");
    let server = Arc::new(MariaDbServer::start(options));
    let site = Site::mariadb(&server, Mode::Lease);
    assert_free(&site, "job").await;
    let locks = site.open().await;
    // Once a second it writes after all.
    for _ in 0..10 {
        server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1; CREATE TABLE x (a int)");
        server.sql("DROP TABLE x; SET GLOBAL innodb_flush_log_at_trx_commit = 0");
        let guard = take(&locks, "job").await;
        server.restart();
        if holders(&site).await == 0 {
            return a_second_holder_has_a_larger_token(&site, server.port(), &guard).await;
        }
        guard.release().await.expect("it is released");
    }
    panic!("nothing is ever forgotten");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_without_the_last_writes_forgets_locks() {
    let primary = Arc::new(PostgresServer::start(PostgresOptions::new()));
    let sites = [Mode::Lease, Mode::Row, Mode::Advisory];
    let sites = sites.map(|mode| Site::postgres(&primary, mode));
    for site in &sites {
        assert_free(site, "job").await;
    }
    let standby = PostgresStandby::of(&primary);
    standby.catch_up(&primary);
    standby.detach();
    let mut held = Vec::new();
    for site in &sites {
        held.push(take(&site.open().await, "job").await);
    }
    standby.promote();
    // The old server goes on, unaware of the new one.
    for (site, guard) in sites.iter().zip(&held) {
        a_second_holder_has_a_larger_token(site, standby.port(), guard).await;
    }
}
