use lock_testkit::locks::until;
use lock_testkit::servers::{MariaDbOptions, MariaDbServer};
use polylock_core::{ErrorKind, Status};

use crate::checks::{MODES, assert_refused, take};
use crate::health::support::{assert_clean, assert_only, check_health, faults, strictly};

const CHECKS: [&str; 5] = ["replica", "galera", "flush", "replication", "clock"];

#[tokio::test]
async fn a_healthy_server_has_no_fault_and_is_left_as_it_is() {
    let server = MariaDbServer::start(MariaDbOptions::new().with_durability(true));
    for mode in MODES {
        let url = format!("{}?mode={mode}&strict=on", server.url());
        assert_clean(&check_health(&url).await, &CHECKS);
    }
    assert_eq!(server.sql("SHOW TABLES"), Vec::<Vec<String>>::new());
    for mode in MODES {
        take(&format!("{}?mode={mode}&strict=on", server.url())).await;
    }
    until("connections are closed", async || server.connections() == 0).await;
    each_variable_is_found_by_itself(&server).await;
}

async fn each_variable_is_found_by_itself(server: &MariaDbServer) {
    let (url, root) = (server.url(), server.admin_url());
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 0");
    assert_only(&faults(&url).await, "flush", "is 0");
    let said = strictly(&url).await;
    assert!(said.contains("at_trx_commit is 0"), "{said}");
    take(&url).await;
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1");

    server.sql("SET GLOBAL read_only = 1");
    let found = faults(&format!("{url}?mode=lease")).await;
    assert_only(&found, "replica", "read_only is on");
    assert_refused(&url, ErrorKind::Unavailable, "read_only is on").await;
    // Root may write; only the operator knows whether it should.
    take(&root).await;
    assert_only(&faults(&root).await, "replica", "may write all the same");
    let said = strictly(&root).await;
    assert!(said.contains("may write all the same"), "{said}");
    server.sql("SET GLOBAL read_only = 0");
    assert_eq!(faults(&url).await, [""; 0]);
}

#[tokio::test]
async fn a_log_that_is_not_flushed_and_a_node_of_galera_are_found() {
    let options = MariaDbOptions::new()
        .with_config("log_bin", "log")
        .with_config("sync_binlog", "1")
        .with_config("binlog_format", "ROW")
        .with_config("wsrep_on", "ON");
    let server = MariaDbServer::start(options);
    let faults_in = async |mode: &str| faults(&format!("{}?mode={mode}", server.url())).await;
    // Leases go by its rows; other locks of the node are its own.
    assert_eq!(faults_in("lease").await, [""; 0]);
    for mode in ["row", "advisory"] {
        assert_only(
            &faults_in(mode).await,
            "galera",
            "a node of a Galera cluster",
        );
    }
    server.sql("SET GLOBAL sync_binlog = 0");
    assert_only(&faults_in("lease").await, "flush", "sync_binlog is 0");
    let found = check_health(&server.url()).await;
    let found = found.iter().find(|found| found.id == "replication");
    let status = found.map(|found| found.status);
    assert_eq!(status, Some(Status::NotChecked), "{found:?}");
}
