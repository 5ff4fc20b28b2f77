use lock_testkit::servers::{MariaDbOptions, MariaDbServer};

use crate::health::support::{MODES, assert_clean, assert_only, check_health, faults};
use crate::until::until;

const CHECKS: [&str; 4] = ["replica", "galera", "flush", "clock"];

#[tokio::test]
async fn a_healthy_server_has_no_fault_and_is_left_as_it_is() {
    let server = MariaDbServer::start(MariaDbOptions::new().with_durability(true));
    for mode in MODES {
        let url = format!("{}?mode={mode}&strict=on", server.url());
        assert_clean(&check_health(&url).await, &CHECKS);
    }
    assert_eq!(server.sql("SHOW TABLES"), Vec::<Vec<String>>::new());
    until("connections are closed", async || server.connections() == 0).await;
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
