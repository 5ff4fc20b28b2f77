//! TLS, with a real server.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lock_testkit::servers::{
    ClientCertificate, ServerCertificate, TestCertificates, ZooKeeperOptions, ZooKeeperServer,
};
use polylock_core::memory::Memory;
use polylock_core::{DistributedLock as _, ErrorKind};
use polylock_zk::{ZooKeeper, ZooKeeperConfig};
use zookeeper_client::{Client, Connector, TlsOptions};

use crate::support::{SOON, assert_refused, config, ms, open, release, request, take};

fn server(
    certificate: ServerCertificate,
    clients: ClientCertificate,
) -> (TestCertificates, ZooKeeperServer) {
    let files = TestCertificates::new(certificate);
    let options = ZooKeeperOptions::new().with_tls(&files, clients);
    let server = ZooKeeperServer::start(options);
    (files, server)
}

fn secure(server: &ZooKeeperServer) -> ZooKeeperConfig {
    patient(config(&[server.secure_port()], "/locks"))
}

/// The first handshake of a server that has just started takes seconds on a busy machine: 24 s are two
/// fifths of the session, and time to find out why a server refuses is left.
fn patient(config: ZooKeeperConfig) -> ZooKeeperConfig {
    let config = config.with_session_timeout(Duration::from_secs(60));
    let config = config.and_then(|config| config.with_connect_timeout(Duration::from_secs(60)));
    config.expect("in range")
}

#[tokio::test]
async fn a_lock_is_taken_by_tls() {
    let (files, server) = server(ServerCertificate::Valid, ClientCertificate::Required);
    let config = secure(&server).with_tls_ca(files.ca());
    let config = config.with_tls_identity(files.client_certificate(), files.client_key());
    let locks = open(config).await;
    release(take(&locks, "a").await).await;
}

#[tokio::test]
async fn a_connector_brings_its_tls_options() {
    let (files, server) = server(ServerCertificate::Valid, ClientCertificate::Required);
    let pem = |path: PathBuf| std::fs::read_to_string(path).expect("it is there");
    let (cert, key) = (files.client_certificate(), files.client_key());
    let (cert, key) = (pem(cert), pem(key));
    let options = |ca: PathBuf| {
        let options = TlsOptions::new()
            .with_pem_ca(&pem(ca))
            .expect("an authority");
        let options = options.with_pem_identity(&cert, &key);
        Client::connector().with_tls(options.expect("a certificate"))
    };
    let by = |connector: Connector, config: ZooKeeperConfig| {
        let config = config.with_connector(connector);
        config.expect("it is fit for locks").with_tls()
    };
    let locks = open(by(options(files.ca()), secure(&server))).await;
    release(take(&locks, "a").await).await;

    let bare = by(Client::connector(), secure(&server));
    assert_refused(bare, ErrorKind::InvalidConfig, "").await;
    let brief = secure(&server).with_connect_timeout(Duration::from_secs(3));
    let unknown = options(files.unknown_ca());
    let unknown = by(unknown, brief.expect("in range"));
    assert_refused(unknown, ErrorKind::Unavailable, "of the connector").await;
}

#[tokio::test]
async fn a_server_that_cannot_be_trusted_is_denied() {
    let names = "not valid for name";
    for (certificate, trusts_it, says) in [
        (ServerCertificate::Valid, false, "UnknownIssuer"),
        (ServerCertificate::Expired, true, "expired"),
        (ServerCertificate::WrongHost, true, names),
    ] {
        let (files, server) = server(certificate, ClientCertificate::Ignored);
        let ca = if trusts_it {
            files.ca()
        } else {
            files.unknown_ca()
        };
        assert_refused(secure(&server).with_tls_ca(ca), ErrorKind::Denied, says).await;
    }
}

#[tokio::test]
async fn a_server_denies_clients_without_a_certificate() {
    let (files, server) = server(ServerCertificate::Valid, ClientCertificate::Required);
    let bare = secure(&server).with_tls_ca(files.ca());
    let (cert, key) = (
        files.unknown_client_certificate(),
        files.unknown_client_key(),
    );
    for config in [bare.clone(), bare.with_tls_identity(cert, key)] {
        assert_refused(config, ErrorKind::Denied, "alert").await;
    }
}

#[tokio::test]
async fn both_sides_have_to_speak_it() {
    let (files, server) = server(ServerCertificate::Valid, ClientCertificate::Ignored);
    let secure_port = config(&[server.secure_port()], "/locks");
    let plain_port = config(&[server.port()], "/locks").with_tls_ca(files.ca());
    for (config, says) in [
        (secure_port, "takes TLS only"),
        (plain_port, "takes no TLS"),
    ] {
        // A second of it is left to find out what the server speaks.
        let config = config.with_connect_timeout(Duration::from_secs(8));
        assert_refused(config.expect("in range"), ErrorKind::Unavailable, says).await;
    }
}

#[tokio::test]
async fn wrong_files_are_named() {
    let files = TestCertificates::new(ServerCertificate::Valid);
    let (config, key) = (config(&[1], "/locks"), files.client_key());
    let odd = ZooKeeperConfig::new([("no name", 1)]);
    let swapped = config.clone().with_tls_ca(files.ca());
    for (config, says) in [
        (config.clone().with_tls(), "tls-ca-file"),
        (config.clone().with_tls_ca("/nowhere"), "/nowhere"),
        (config.with_tls_ca(&key), "of no use"),
        (swapped.with_tls_identity(&key, &key), "of no use"),
        (odd.with_tls_ca(files.ca()), "no name that"),
    ] {
        assert_refused(config, ErrorKind::InvalidConfig, says).await;
    }
}

/// As on a file system whose server is away. The thread that opens sessions renews the leases of all backends.
#[tokio::test]
async fn a_file_that_hangs_stops_no_renewal_and_no_timeout() {
    let directory = tempfile::tempdir().expect("a directory");
    let hanging = directory.path().join("ca.pem");
    let made = Command::new("mkfifo").arg(&hanging).status();
    assert!(made.expect("it runs").success());
    let short = request("a").with_ttl(ms(2_000));
    let held = Memory::new().acquire(&short).await.expect("it is free");
    let config = config(&[1], "/locks").with_tls_ca(&hanging);
    let config = config.with_connect_timeout(ms(6_000)).expect("in range");
    let connected = tokio::time::timeout(SOON * 2, ZooKeeper::connect(config)).await;
    let is_held = held.is_held();
    // It is read to its end now.
    drop(File::options().read(true).write(true).open(&hanging));
    let connected = connected.expect("the timeout ends it");
    let error = connected.expect_err("the file has no end");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("TLS files"), "{error}");
    assert!(is_held, "lost: {:?}", held.lost().reason());
}
