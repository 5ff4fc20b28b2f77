use lock_testkit::servers::{
    ClientCertificate, RedisOptions, RedisServer, ServerCertificate, TestCertificates,
};
use polylock_core::ErrorKind;

use super::*;

fn start(files: &TestCertificates, clients: ClientCertificate) -> RedisServer {
    RedisServer::start(RedisOptions::new().with_tls(files, clients))
}

#[tokio::test]
async fn a_certificate_that_does_not_hold_is_refused() {
    for (certificate, trusts) in [
        (ServerCertificate::Valid, false),
        (ServerCertificate::Expired, true),
        (ServerCertificate::WrongHost, true),
    ] {
        let files = TestCertificates::new(certificate);
        let server = start(&files, ClientCertificate::Ignored);
        let ca = if trusts {
            files.ca()
        } else {
            files.unknown_ca()
        };
        let error = refused(&config(&server).with_tls_ca(ca)).await;
        assert_eq!(
            error.kind(),
            ErrorKind::Denied,
            "{certificate:?}: {error:?}"
        );
        assert!(error.message().contains("certificate"), "{error:?}");
    }
    // Nor does the server accept the certificate of a client that another authority has signed.
    let files = TestCertificates::new(ServerCertificate::Valid);
    let server = start(&files, ClientCertificate::Required);
    let stranger = config(&server).with_tls_ca(files.ca()).with_tls_identity(
        files.unknown_client_certificate(),
        files.unknown_client_key(),
    );
    let error = refused(&stranger).await;
    assert!(!error.is_outcome_unknown(), "{error:?}");
    // That of the system knows neither.
    let files = TestCertificates::new(ServerCertificate::Valid);
    let server = start(&files, ClientCertificate::Ignored);
    let error = refused(&config(&server).with_tls()).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
}

#[tokio::test]
async fn files_that_are_no_use_are_named() {
    let files = TestCertificates::new(ServerCertificate::Valid);
    let server = start(&files, ClientCertificate::Ignored);
    let error = refused(&config(&server).with_tls_ca("/nowhere/ca.pem")).await;
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
    assert!(error.message().contains("/nowhere/ca.pem"), "{error}");
    let swapped = config(&server).with_tls_identity(files.client_key(), files.client_certificate());
    let error = refused(&swapped).await;
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
}
