use lock_testkit::servers::{PostgresOptions, PostgresServer, PostgresStandby, SharedPostgres};
use polylock_core::ErrorKind;
use polylock_sql::SqlLock;

use crate::health::support::{MODES, assert_clean, assert_only, check_health, faults, refusal};
use crate::until::until;

const CHECKS: [&str; 7] = [
    "pooler",
    "replica",
    "flush",
    "replication",
    "time-limits",
    "table",
    "clock",
];

#[tokio::test]
async fn a_healthy_server_has_no_fault_and_is_left_as_it_is() {
    let server = PostgresServer::start(PostgresOptions::new().with_durability(true));
    for mode in MODES {
        let url = format!("{}?mode={mode}&strict=on", server.url());
        assert_clean(&check_health(&url).await, &CHECKS);
    }
    let tables = "SELECT count(*) FROM pg_tables WHERE tablename = 'polylock_locks'";
    assert_eq!(server.sql(tables), [["0"]]);
    SqlLock::open(&server.url()).await.expect("it starts");
    assert_eq!(server.sql(tables), [["1"]]);
    assert_clean(&check_health(&server.url()).await, &CHECKS);
    server.sql("ALTER TABLE polylock_locks SET UNLOGGED");
    assert_only(&faults(&server.url()).await, "table", "is unlogged");
    until("connections are closed", async || server.connections() == 0).await;
}

#[tokio::test]
async fn a_server_that_writes_nothing_down_is_found() {
    let server = PostgresServer::start(PostgresOptions::new().with_durability(true));
    for name in ["fsync", "full_page_writes"] {
        let shows = |value: &str| server.sql(&format!("SHOW {name}")) == [[value]];
        server.sql(&format!("ALTER SYSTEM SET {name} = off"));
        server.sql("SELECT pg_reload_conf()");
        until(name, async || shows("off")).await;
        let found = check_health(&server.url()).await;
        let bad: Vec<_> = found.iter().filter(|found| found.is_fault()).collect();
        let [fault] = bad[..] else {
            panic!("{name}: {bad:?}");
        };
        assert_eq!(
            (fault.id, &*fault.summary),
            ("flush", &*format!("{name} is off"))
        );
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
    for (name, value, check, says) in [
        (
            "synchronous_commit",
            "off",
            "flush",
            "synchronous_commit is off",
        ),
        (
            "default_transaction_read_only",
            "on",
            "read-only",
            "read-only",
        ),
    ] {
        alter(&server, &url, &format!("SET {name} = {value}"));
        for mode in MODES {
            let found = faults(&format!("{url}?mode={mode}")).await;
            assert_only(&found, check, says);
        }
        alter(&server, &url, &format!("RESET {name}"));
    }
    assert_eq!(faults(&url).await, [""; 0]);
}

#[tokio::test]
async fn a_standby_is_found_and_so_is_who_does_not_wait_for_it() {
    let primary = PostgresServer::start(PostgresOptions::new().with_durability(true));
    let standby = PostgresStandby::of(&primary);
    for mode in MODES {
        let found = faults(&format!("{}?mode={mode}", standby.url())).await;
        assert_only(&found, "replica", "is a standby");
        let found = faults(&format!("{}?mode={mode}", primary.url())).await;
        assert_only(&found, "replication", "does not wait for them");
    }
}

#[tokio::test]
async fn what_cannot_be_looked_at_is_an_error_without_the_password() {
    let url = PostgresServer::shared().database();
    let error = refusal(&url.replace("test:test@", "test:wr0ng@")).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!format!("{error:?}").contains("wr0ng"), "{error:?}");
    let error = refusal(&format!("{url}?tls=on")).await;
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    let (_, database) = url.rsplit_once('/').expect("a database");
    let nowhere = format!("postgres://test:test@127.0.0.1:1/{database}");
    assert_eq!(refusal(&nowhere).await.kind(), ErrorKind::Unavailable);
}
