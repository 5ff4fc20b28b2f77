use lock_core::LockUrl;
use lock_sql::Schema;
use lock_testkit::servers::{MariaDbOptions, MariaDbServer};

use crate::health::support::{
    MODES, assert_clean, assert_only, check_health, faults, faults_ahead, until,
};

const CHECKS: [&str; 7] = [
    "version", "replica", "galera", "flush", "clock", "rights", "table",
];

async fn make(url: &str) {
    let schema = Schema::of(&LockUrl::parse(url).expect("a URL")).expect("of a database");
    schema.apply().await.expect("it is made");
}

#[tokio::test]
async fn a_healthy_server_has_no_fault_and_is_left_as_it_is() {
    let server = MariaDbServer::start(MariaDbOptions::new().with_durability(true));
    for mode in MODES {
        let url = format!("{}?mode={mode}&strict=on", server.url());
        assert_clean(&check_health(&url).await, &CHECKS);
    }
    assert_eq!(server.sql("SHOW TABLES"), Vec::<Vec<String>>::new());
    make(&server.url()).await;
    let found = check_health(&server.url()).await;
    assert_clean(&found, &CHECKS);
    let says = |what: &str| found.iter().any(|found| found.summary.contains(what));
    for what in ["MariaDB 10.", "is there, with layout 2"] {
        assert!(says(what), "{what}: {found:?}");
    }
    until("connections are closed", || server.connections() == 0).await;
    each_variable_is_found_by_itself(&server).await;
}

async fn each_variable_is_found_by_itself(server: &MariaDbServer) {
    for (name, bad, good, parameters, check, says) in [
        (
            "innodb_flush_log_at_trx_commit",
            0,
            1,
            "mode=row",
            "flush",
            "is 0",
        ),
        (
            "read_only",
            1,
            0,
            "mode=lease",
            "replica",
            "read_only is on",
        ),
    ] {
        let url = format!("{}?{parameters}", server.url());
        server.sql(&format!("SET GLOBAL {name} = {bad}"));
        assert_only(&faults(&url).await, check, says);
        server.sql(&format!("SET GLOBAL {name} = {good}"));
        assert_eq!(faults(&url).await, [""; 0], "{name}");
    }
}

#[tokio::test]
async fn a_log_that_is_not_flushed_is_found() {
    let options = MariaDbOptions::new()
        .with_config("log_bin", "log")
        .with_config("sync_binlog", "1")
        .with_config("binlog_format", "MIXED");
    let server = MariaDbServer::start(options);
    assert_eq!(faults(&server.url()).await, [""; 0]);
    server.sql("SET GLOBAL sync_binlog = 0");
    assert_only(&faults(&server.url()).await, "flush", "sync_binlog is 0");
}

#[tokio::test]
async fn a_node_of_galera_is_found_where_locks_are_its_own() {
    let options = MariaDbOptions::new()
        .with_config("binlog_format", "ROW")
        .with_config("wsrep_on", "ON");
    let server = MariaDbServer::start(options);
    for mode in ["row", "advisory"] {
        let found = faults(&format!("{}?mode={mode}", server.url())).await;
        assert_only(&found, "galera", "a node of a Galera cluster");
    }
    assert_eq!(
        faults(&format!("{}?mode=lease", server.url())).await,
        [""; 0]
    );
}

#[tokio::test]
async fn another_time_is_found_where_locks_go_by_it() {
    let url = MariaDbServer::shared().database();
    let found = faults_ahead(&format!("{url}?mode=lease"));
    assert_only(&found, "clock", "differs by");
    for others in ["mode=row", "mode=advisory"] {
        assert_eq!(
            faults_ahead(&format!("{url}?{others}")),
            [""; 0],
            "{others}"
        );
    }
}

#[tokio::test]
async fn each_fault_of_a_table_is_found_by_itself() {
    let server = MariaDbServer::shared();
    let url = server.database();
    let strict = format!("{url}?create-table=off");
    assert_only(&faults(&strict).await, "table", "create-table=off");
    make(&url).await;
    assert_eq!(faults(&strict).await, [""; 0]);
    let table = "polylock_locks";
    for (spoil, says, mend) in [
        (
            format!("UPDATE {table} SET token = 7 WHERE kind = 0"),
            "has layout 7",
            format!("UPDATE {table} SET token = 2 WHERE kind = 0"),
        ),
        (
            format!("ALTER TABLE {table} CHANGE label name_tag VARCHAR(4000)"),
            "has no columns label",
            format!("ALTER TABLE {table} CHANGE name_tag label VARCHAR(4000)"),
        ),
    ] {
        server.sql(&url, &spoil);
        assert_only(&faults(&url).await, "table", says);
        server.sql(&url, &mend);
    }
}

#[tokio::test]
async fn missing_rights_are_found() {
    let server = MariaDbServer::shared();
    let url = server.database();
    let name = url.rsplit('/').next().expect("a name");
    let guest = format!("guest_{name}");
    let grant = |what: &str| {
        server.sql(
            &url,
            &format!("GRANT {what} ON {name}.polylock_locks TO {guest}"),
        );
    };
    server.sql(&url, &format!("CREATE USER {guest} IDENTIFIED BY 'guest'"));
    server.sql(&url, &format!("CREATE TABLE {name}.others (a INT)"));
    server.sql(&url, &format!("GRANT SELECT ON {name}.others TO {guest}"));
    let own = url.replace("test:test@", &format!("{guest}:guest@"));
    // The server does not tell this user whether there is a table.
    assert_only(
        &faults(&own).await,
        "rights",
        "no right to SELECT, INSERT, UPDATE",
    );
    make(&url).await;
    assert_only(
        &faults(&own).await,
        "rights",
        "no right to SELECT, INSERT, UPDATE",
    );
    grant("SELECT");
    assert_only(&faults(&own).await, "rights", "no right to INSERT, UPDATE");
    grant("INSERT");
    assert_only(&faults(&own).await, "rights", "no right to UPDATE");
    grant("UPDATE");
    assert_only(&faults(&own).await, "rights", "draw no tokens");
    let tokens = format!("GRANT SELECT, INSERT ON {name}.polylock_locks_token TO {guest}");
    server.sql(&url, &tokens);
    assert_eq!(faults(&own).await, [""; 0]);
    // With a right to the table that is none to make it.
    server.sql(&url, "DROP TABLE polylock_locks");
    assert_only(&faults(&own).await, "rights", "may not make it");
    grant("CREATE");
    assert_eq!(faults(&own).await, [""; 0]);
}
