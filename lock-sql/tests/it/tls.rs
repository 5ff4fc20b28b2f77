//! TLS, with real servers.

use std::error::Error as _;
use std::path::Path;

use lock_testkit::servers::{
    MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer, ServerCertificate,
    TestCertificates,
};
use polylock_core::{DistributedLock as _, Error, ErrorKind, Wait};
use polylock_sql::SqlLock;

use crate::checks::{assert_says, take};
use crate::server::support::{ReplyChanger, request, take_and_release};

/// A server of each kind that takes connections with TLS only.
struct Servers {
    files: TestCertificates,
    postgres: PostgresServer,
    mariadb: MariaDbServer,
}

impl Servers {
    fn start(certificate: ServerCertificate) -> Self {
        let files = TestCertificates::new(certificate);
        Self {
            postgres: PostgresServer::start(PostgresOptions::new().with_tls(&files)),
            mariadb: MariaDbServer::start(MariaDbOptions::new().with_tls(&files)),
            files,
        }
    }

    /// A busy machine takes its time for certificates, and an answer that is late is none that refuses.
    fn urls(&self) -> [String; 2] {
        [self.postgres.url(), self.mariadb.url()].map(|url| format!("{url}?timeout=30s"))
    }
}

async fn refusal(url: &str) -> Error {
    let error = crate::checks::refusal(url).await;
    let said = format!("{error:?}");
    assert!(!said.contains("test:test"), "{said}");
    error
}

/// What an error says, and what caused it.
fn said(error: &Error) -> String {
    let cause = error.source().map(ToString::to_string);
    format!("{error}: {}", cause.unwrap_or_default())
}

#[tokio::test]
async fn tls_is_spoken_by_both_sides_or_the_server_is_refused() {
    let servers = Servers::start(ServerCertificate::Valid);
    a_lock_is_taken_by_tls(&servers).await;
    for url in servers.urls() {
        assert_denied(&url, &servers.files.unknown_ca(), "UnknownIssuer").await;
        assert_says(&refusal(&url).await, ErrorKind::Denied, "write tls=on");
    }
    for server in [PostgresServer::shared(), MariaDbServer::shared()] {
        let (url, ca) = (server.database(), servers.files.ca());
        let url = format!("{url}?timeout=30s&tls=on&tls-ca-file={}", ca.display());
        assert_says(&refusal(&url).await, ErrorKind::InvalidConfig, "no TLS");
    }
}

async fn a_lock_is_taken_by_tls(servers: &Servers) {
    let (ca, cert) = (servers.files.ca(), servers.files.client_certificate());
    let key = servers.files.client_key();
    let (cert, key) = (cert.display(), key.display());
    let own = format!("&tls-cert-file={cert}&tls-key-file={key}");
    // MariaDB knows no authority of clients here, and refuses all that show a certificate.
    for (url, own) in servers.urls().iter().zip([own.as_str(), ""]) {
        for mode in ["row", "lease", "advisory"] {
            let url = format!("{url}&mode={mode}&tls=on&tls-ca-file={}{own}", ca.display());
            take(&url).await;
        }
    }
    let sessions = "SELECT count(*) > 0 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE usename = 'test' AND ssl";
    assert_eq!(servers.postgres.sql(sessions), [["t"]]);
}

#[tokio::test]
async fn a_server_whose_certificate_is_not_good_is_denied() {
    for (certificate, says) in [
        (ServerCertificate::Expired, "expired"),
        (ServerCertificate::WrongHost, "not valid for name"),
    ] {
        let servers = Servers::start(certificate);
        for url in servers.urls() {
            assert_denied(&url, &servers.files.ca(), says).await;
        }
    }
}

async fn assert_denied(url: &str, ca: &Path, says: &str) {
    let error = refusal(&format!("{url}&tls=on&tls-ca-file={}", ca.display())).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", said(&error));
    assert!(said(&error).contains(says), "{}", said(&error));
}

/// What arrives damaged in the middle of a connection says nothing of the certificate.
#[tokio::test]
async fn a_grant_whose_reply_is_damaged_is_released() {
    let servers = Servers::start(ServerCertificate::Valid);
    let ports = [servers.postgres.port(), servers.mariadb.port()];
    for (url, port) in servers.urls().into_iter().zip(ports) {
        let url = format!(
            "{url}&mode=lease&tls=on&tls-ca-file={}",
            servers.files.ca().display()
        );
        let url = match url.starts_with("postgres") {
            true => url + "&notify=off",
            false => url,
        };
        let changer = ReplyChanger::start(port).await;
        let (before, after) = (format!(":{port}/"), format!(":{}/", changer.port()));
        let locks = SqlLock::open(&url.replace(&before, &after)).await;
        let locks = locks.expect("the server takes it");
        // The row of the key is there, and its statements are prepared.
        take_and_release(&locks, "job").await;
        changer.change_next(|reply| *reply.last_mut().expect("it has bytes") ^= 1);
        let attempt = request("job").with_wait(Wait::Never);
        let error = locks.acquire(&attempt).await.map(drop);
        let error = error.expect_err("it is not known that it is granted");
        assert!(changer.has_changed(), "{}", said(&error));
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", said(&error));
        assert!(error.is_outcome_unknown(), "{}", said(&error));
        let other = SqlLock::open(&url).await.expect("the server takes it");
        // Long before the end of the lease.
        take_and_release(&other, "job").await;
    }
}

#[tokio::test]
async fn files_that_cannot_be_read_are_named() {
    let url = "postgres://test:test@127.0.0.1:1/test?tls=on&tls-ca-file=/no/such/file";
    let error = refusal(url).await;
    assert_says(&error, ErrorKind::InvalidConfig, "/no/such/file");
}
