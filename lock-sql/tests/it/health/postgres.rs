use lock_testkit::locks::until;
use lock_testkit::servers::{
    PgBouncer, PoolMode, PostgresOptions, PostgresServer, PostgresStandby, SharedPostgres,
};
use polylock_core::ErrorKind;
use polylock_core::prelude::*;
use polylock_sql::SqlLock;

use crate::checks::{MODES, assert_refused, assert_says, take};
use crate::health::support::{assert_clean, assert_only, check_health, faults, strictly};

const CHECKS: [&str; 6] = [
    "pooler",
    "replica",
    "flush",
    "replication",
    "table",
    "clock",
];

#[tokio::test]
async fn a_healthy_server_has_no_fault_and_is_left_as_it_is() {
    let server = PostgresServer::start(PostgresOptions::new().with_durability(true));
    let strict = MODES.map(|mode| format!("{}?mode={mode}&strict=on", server.url()));
    for url in &strict {
        assert_clean(&check_health(url).await, &CHECKS);
    }
    let tables = "SELECT count(*) FROM pg_tables WHERE tablename = 'polylock_locks'";
    assert_eq!(server.sql(tables), [["0"]]);
    for url in &strict {
        take(url).await;
    }
    assert_eq!(server.sql(tables), [["1"]]);
    assert_clean(&check_health(&server.url()).await, &CHECKS);
    assert_lost_writes_are_found(&server).await;
    server.sql("ALTER TABLE polylock_locks SET UNLOGGED");
    assert_only(&faults(&server.url()).await, "table", "is unlogged");
    until("connections are closed", async || server.connections() == 0).await;
}

/// Turns off each setting alone that makes commits survive a crash.
async fn assert_lost_writes_are_found(server: &PostgresServer) {
    for name in ["fsync", "full_page_writes"] {
        let shows = |value: &str| server.sql(&format!("SHOW {name}")) == [[value]];
        server.sql(&format!("ALTER SYSTEM SET {name} = off"));
        server.sql("SELECT pg_reload_conf()");
        until(name, async || shows("off")).await;
        let found = check_health(&server.url()).await;
        let faults = found.iter().filter(|found| found.is_fault());
        let faults: Vec<_> = faults.map(|fault| (fault.id, &*fault.summary)).collect();
        assert_eq!(faults, [("flush", &*format!("{name} is off"))]);
        server.sql(&format!("ALTER SYSTEM RESET {name}"));
        server.sql("SELECT pg_reload_conf()");
        until(name, async || shows("on")).await;
    }
}

/// Sets what connections to a database begin with.
fn alter(server: &SharedPostgres, url: &str, what: &str) {
    let name = url.rsplit('/').next().expect("a name");
    let anyway = "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE";
    server.sql(url, &format!("{anyway}; ALTER DATABASE {name} {what}"));
}

#[tokio::test]
async fn each_setting_of_a_database_is_found_by_itself() {
    let server = PostgresServer::shared();
    let url = server.database();
    let assert_found = async |check: &str, says: &str| {
        for mode in MODES {
            let found = faults(&format!("{url}?mode={mode}")).await;
            assert_only(&found, check, says);
        }
    };
    alter(&server, &url, "SET synchronous_commit = off");
    assert_found("flush", "synchronous_commit is off").await;
    let said = strictly(&url).await;
    for says in ["synchronous_commit is off", "fsync is off"] {
        assert!(said.contains(says), "{said}");
    }
    take(&url).await;
    alter(&server, &url, "RESET synchronous_commit");

    assert_eq!(faults(&url).await, [""; 0]);
}

/// The sessions of locks write all the same, but for those of a pooler, whose settings are left alone.
#[tokio::test]
async fn a_database_whose_transactions_are_read_only_by_default_grants_locks() {
    let server = PostgresServer::shared();
    let url = server.database();
    take(&url).await;
    alter(&server, &url, "SET default_transaction_read_only = on");
    for mode in MODES {
        take(&format!("{url}?mode={mode}")).await;
    }
    let pooler = PgBouncer::before_shared(&server, PoolMode::Transaction);
    let (_, database) = url.rsplit_once('/').expect("a database");
    let port = pooler.port();
    let pooled = format!("postgres://test:test@127.0.0.1:{port}/{database}");
    let locks = SqlLock::open(&format!("{pooled}?mode=lease&pooler=transaction")).await;
    let refused = locks.expect("it answers").lock("k").await;
    let error = refused.expect_err("it is read-only");
    assert_says(&error, ErrorKind::Unavailable, "takes no writes");
}

#[tokio::test]
async fn a_standby_takes_no_locks_and_its_primary_is_warned_of_it() {
    let primary = PostgresServer::start(PostgresOptions::new().with_durability(true));
    let standby = PostgresStandby::of(&primary);
    for mode in MODES {
        let url = format!("{}?mode={mode}", standby.url());
        assert_only(&faults(&url).await, "replica", "is a standby");
        assert_refused(&url, ErrorKind::Unavailable, "is a standby").await;
        let found = faults(&format!("{}?mode={mode}", primary.url())).await;
        assert_only(&found, "replication", "does not wait for them");
    }
    let said = strictly(&primary.url()).await;
    assert!(said.contains("does not wait for them"), "{said}");
    // A promoted server waits for possible holders of the former server's locks.
    let shortly = |url: String| format!("{url}?session-timeout=2s");
    take(&shortly(primary.url())).await;
    standby.promote();
    take(&shortly(standby.url())).await;
}
