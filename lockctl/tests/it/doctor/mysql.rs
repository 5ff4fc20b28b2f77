//! MariaDB, and by its protocol MySQL.

use lock_testkit::servers::{MariaDbOptions, MariaDbServer, ServerCertificate, TlsFiles};

use super::support::{examine, examine_ahead, expect};
use crate::fixture::side_by_side;

fn durable() -> MariaDbOptions {
    MariaDbOptions::new().with_durability(true)
}

fn at(server: &MariaDbServer, login: &str, database: &str) -> String {
    format!("mysql://{login}@127.0.0.1:{}/{database}", server.port())
}

#[test]
fn a_server_as_it_is_shipped_gets_a_clean_bill_in_every_mode() {
    let server = MariaDbServer::start(durable());
    let modes = ["", "?mode=row", "?mode=lease", "?mode=advisory"];
    side_by_side(&modes, |mode| {
        examine(&format!("{}{mode}", server.url())).assert_clean();
    });
    let bill = examine_ahead(&format!("{}?mode=lease", server.url()));
    bill.assert_faults(&[("clock", "warning")]);
}

#[test]
fn who_is_not_let_in_is_told_why() {
    let server = MariaDbServer::start(durable());
    server.sql("CREATE USER guest IDENTIFIED BY 'guest'");
    server.sql("GRANT USAGE ON *.* TO guest");
    server.sql("CREATE USER reader IDENTIFIED BY 'reader'");
    server.sql("GRANT SELECT ON test.* TO reader");
    expect(&[
        (
            "a wrong password",
            at(&server, "test:s3ntinel", "test"),
            &[("login", "error")],
        ),
        (
            "another's database",
            at(&server, "guest:guest", "test"),
            &[("login", "error")],
        ),
        (
            "may not make the table",
            at(&server, "reader:reader", "test"),
            &[("rights", "error")],
        ),
    ]);
}

#[test]
fn what_a_server_is_set_up_to_forget_is_found() {
    let server = MariaDbServer::start(durable());
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 0");
    expect(&[
        ("0", server.url(), &[("flush", "warning")]),
        (
            "2",
            MariaDbServer::shared().database(),
            &[("flush", "warning")],
        ),
    ]);
}

#[test]
fn a_server_that_takes_no_writes_is_found() {
    let server = MariaDbServer::start(durable().with_config("read_only", "ON"));
    let bill = examine(&server.url());
    bill.assert_faults(&[("replica", "error")]);
}

#[test]
fn tls_that_is_not_agreed_on_is_found() {
    let files = TlsFiles::new(ServerCertificate::Valid);
    let server = MariaDbServer::start(durable().with_tls(&files));
    let url = server.url();
    let unknown = files.unknown_ca();
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
    ]);
    // MariaDB has the same words for a wrong password.
    let bill = examine(&url);
    let faults = bill.faults();
    let is_told = faults == [("login", "error")] || faults == [("tls", "error")];
    assert!(is_told && bill.ended.stdout.contains("tls=on"), "{bill}");
}
