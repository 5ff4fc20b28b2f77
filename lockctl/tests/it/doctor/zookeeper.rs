//! ZooKeeper: an ensemble, one server, one with TLS.

use lock_testkit::servers::{
    ClientCertificate, ServerCertificate, TlsFiles, ZooKeeperEnsemble, ZooKeeperOptions,
    ZooKeeperServer,
};

use super::support::{examine, expect};

/// A directory that no other test has, with this login.
fn at(addresses: &[String], login: &str, test: &str, params: &str) -> String {
    let process = std::process::id();
    let hosts = addresses.join(",");
    format!("zk://{login}{hosts}/doctor-{test}-{process}?session-timeout=8s{params}")
}

#[test]
fn an_ensemble_of_three_with_a_login_gets_a_clean_bill() {
    let addresses = ZooKeeperEnsemble::shared().addresses();
    let bill = examine(&at(&addresses, "me:pw@", "clean", ""));
    bill.assert_clean();
    bill.assert_status("token-order", "ok");
    let closed = [
        addresses[0].clone(),
        addresses[1].clone(),
        "127.0.0.1:1".to_owned(),
    ];
    let bill = examine(&at(&closed, "me:pw@", "clean", ""));
    bill.assert_faults(&[("quorum", "warning")]);
}

#[test]
fn what_costs_locks_in_an_ensemble_is_found() {
    let three = ZooKeeperEnsemble::shared().addresses();
    let one = [ZooKeeperServer::shared().address()];
    let short = at(&three, "me:pw@", "short", "").replace("=8s", "=2s");
    let long = at(&three, "me:pw@", "long", "").replace("=8s", "=60s");
    expect(&[
        (
            "a short session time-out",
            short,
            &[("session-timeout", "warning")],
        ),
        (
            "one server",
            at(&one, "me:pw@", "one", ""),
            &[("ensemble", "warning")],
        ),
        (
            "open to all",
            at(&three, "", "open", ""),
            &[("access", "warning")],
        ),
        (
            "meant to be open",
            at(&three, "", "meant", "&access=everybody"),
            &[],
        ),
        (
            "another session time-out",
            long,
            &[("session-timeout", "warning")],
        ),
    ]);
}

#[test]
fn a_directory_of_somebody_else_is_found() {
    let addresses = ZooKeeperEnsemble::shared().addresses();
    let url = at(&addresses, "me:pw@", "own", "");
    examine(&url).assert_clean();
    let bill = examine(&url.replace("me:pw@", "me:s3ntinel@"));
    assert_eq!(bill.ended.code, 1, "{bill}");
    assert!(bill.faults().contains(&("rights", "error")), "{bill}");
    bill.ended.says_nothing_of(&["s3ntinel"]);
}

#[test]
fn tls_that_is_not_agreed_on_is_found() {
    let files = TlsFiles::new(ServerCertificate::Valid);
    let options = ZooKeeperOptions::new().with_tls(&files, ClientCertificate::Ignored);
    let server = ZooKeeperServer::start(options);
    let secure = [format!("127.0.0.1:{}", server.secure_port())];
    let plain = [server.address()];
    let ca = |path: std::path::PathBuf| format!("&tls=on&tls-ca-file={}", path.display());
    // A handshake that fails is begun again until this is over.
    let soon = "&connect-timeout=2s";
    let (trusted, untrusted) = (ca(files.ca()), ca(files.unknown_ca()) + soon);
    expect(&[
        (
            "trusted",
            at(&secure, "me:pw@", "a", &trusted),
            &[("ensemble", "warning")],
        ),
        (
            "untrusted",
            at(&secure, "me:pw@", "b", &untrusted),
            &[("tls", "error")],
        ),
        (
            "no TLS on this side",
            at(&secure, "me:pw@", "c", soon),
            &[("tls", "error")],
        ),
    ]);
    let bill = examine(&at(&plain, "me:pw@", "d", &(trusted + soon)));
    let faults = bill.faults();
    let is_told = faults == [("connect", "error")] || faults == [("tls", "error")];
    assert!(is_told, "{bill}");
}
