//! PostgreSQL: one server, a standby, a pooler.

use lock_testkit::servers::{
    PgBouncer, PoolMode, PostgresOptions, PostgresServer, PostgresStandby, ServerCertificate,
    TlsFiles,
};

use super::support::{examine, examine_ahead, expect};
use crate::fixture::{side_by_side, until};

fn durable() -> PostgresOptions {
    PostgresOptions::new().with_durability(true)
}

/// The URL with another user, password or database.
fn at(server: &PostgresServer, login: &str, database: &str) -> String {
    format!("postgres://{login}@127.0.0.1:{}/{database}", server.port())
}

#[test]
fn a_server_as_it_is_shipped_gets_a_clean_bill_in_every_mode() {
    let server = PostgresServer::start(durable());
    let modes = ["", "?mode=row", "?mode=lease", "?mode=advisory"];
    side_by_side(&modes, |mode| {
        examine(&format!("{}{mode}", server.url())).assert_clean();
    });
    side_by_side(&["", "?mode=lease"], |mode| {
        let bill = examine_ahead(&format!("{}{mode}", server.url()));
        match *mode {
            "?mode=lease" => bill.assert_faults(&[("clock", "warning")]),
            _ => assert!(!bill.faults().contains(&("connect", "error")), "{bill}"),
        }
    });
}

#[test]
fn who_is_not_let_in_is_told_why() {
    let server = PostgresServer::start(durable().with_user("guest", "guest"));
    server.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    expect(&[
        (
            "a wrong password",
            at(&server, "test:s3ntinel", "test"),
            &[("login", "error")],
        ),
        (
            "nobody",
            at(&server, "nobody:x", "test"),
            &[("login", "error")],
        ),
        (
            "no database",
            at(&server, "test:test", "nowhere"),
            &[("url", "error")],
        ),
        (
            "may not make the table",
            at(&server, "guest:guest", "test"),
            &[("rights", "error")],
        ),
        (
            "no table, and none is made",
            format!("{}?create-table=off", at(&server, "test:test", "test")),
            &[("table", "error")],
        ),
    ]);
    // Others make the table; a user without rights on it cannot read what is there.
    examine(&server.admin_url()).assert_clean();
    expect(&[(
        "may not read",
        at(&server, "guest:guest", "test"),
        &[("rights", "error")],
    )]);
}

#[test]
fn what_a_server_is_set_up_to_forget_is_found() {
    let unsafe_disk = PostgresServer::shared().database();
    let hasty = PostgresServer::start(durable().with_config("synchronous_commit", "off"));
    expect(&[
        ("fsync", unsafe_disk, &[("flush", "warning")]),
        ("synchronous_commit", hasty.url(), &[("flush", "warning")]),
    ]);
}

#[test]
fn a_standby_and_its_primary_are_found() {
    let primary = PostgresServer::start(durable());
    let standby = PostgresStandby::of(&primary);
    // It serves before it follows.
    let streams = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'";
    until("the standby follows", || !primary.sql(streams).is_empty());
    expect(&[
        ("standby", standby.url(), &[("replica", "error")]),
        ("primary", primary.url(), &[("replication", "warning")]),
    ]);
}

#[test]
fn a_database_that_takes_no_writes_is_found() {
    let server = PostgresServer::start(durable());
    let database = server.database();
    let name = database.rsplit('/').next().expect("a name");
    server.sql(&format!(
        "ALTER DATABASE {name} SET default_transaction_read_only = on"
    ));
    expect(&[("read-only", database, &[("replica", "error")])]);
}

#[test]
fn a_pooler_that_shares_connections_is_found() {
    let server = PostgresServer::start(durable());
    let pooler = PgBouncer::before(&server, PoolMode::Transaction);
    let own = PgBouncer::before(&server, PoolMode::Session);
    expect(&[
        (
            "advisory",
            format!("{}?mode=advisory", pooler.url()),
            &[("pooler", "error")],
        ),
        ("lease", format!("{}?mode=lease", pooler.url()), &[]),
        ("sessions", format!("{}?mode=lease", own.url()), &[]),
    ]);
}

#[test]
fn timeouts_that_end_statements_are_found() {
    let server = PostgresServer::start(durable());
    let limited = |name: &str, mode: &str| {
        let database = server.database();
        let own = database.rsplit('/').next().expect("a name");
        server.sql(&format!("ALTER DATABASE {own} SET {name} = '5s'"));
        format!("{database}?mode={mode}")
    };
    expect(&[(
        "statements",
        limited("statement_timeout", "row"),
        &[("time-limits", "warning")],
    )]);
}

#[test]
fn tls_that_is_not_agreed_on_is_found() {
    let files = TlsFiles::new(ServerCertificate::Valid);
    let server = PostgresServer::start(durable().with_tls(&files));
    let plain = PostgresServer::start(durable());
    let unknown = files.unknown_ca();
    let url = server.url();
    expect(&[
        (
            "trusted",
            format!("{url}?tls=on&tls-ca-file={}", files.ca().display()),
            &[],
        ),
        (
            "untrusted",
            format!("{url}?tls=on&tls-ca-file={}", unknown.display()),
            &[("tls", "error")],
        ),
        ("no TLS on this side", url, &[("tls", "error")]),
        (
            "no TLS on that side",
            format!("{}?tls=on", plain.url()),
            &[("tls", "error")],
        ),
    ]);
}
