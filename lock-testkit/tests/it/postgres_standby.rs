//! Standbys of a private PostgreSQL server.

use lock_testkit::servers::{PostgresOptions, PostgresServer, PostgresStandby};

#[test]
fn a_standby_follows_and_takes_writes_when_it_is_promoted() {
    let primary = PostgresServer::start(PostgresOptions::new());
    let standby = PostgresStandby::of(&primary);
    assert_ne!(standby.url(), primary.url());
    primary.sql("CREATE TABLE t AS SELECT 1 AS a");
    standby.catch_up(&primary);
    assert_eq!(standby.sql("SELECT a FROM t"), [["1"]]);
    assert!(standby.try_sql("INSERT INTO t VALUES (2)").is_err());
    primary.kill();
    standby.promote();
    standby.sql("INSERT INTO t VALUES (2)");
    standby.restart();
    assert_eq!(standby.sql("SELECT count(*) FROM t"), [["2"]]);
}

#[test]
fn a_standby_that_was_detached_lacks_what_was_committed_since() {
    let primary = PostgresServer::start(PostgresOptions::new());
    let standby = PostgresStandby::of(&primary);
    primary.sql("CREATE TABLE t (a int)");
    standby.catch_up(&primary);
    standby.detach();
    primary.sql("INSERT INTO t VALUES (1)");
    standby.promote();
    assert_eq!(standby.sql("SELECT count(*) FROM t"), [["0"]]);
    assert_eq!(primary.sql("SELECT count(*) FROM t"), [["1"]]);
}
