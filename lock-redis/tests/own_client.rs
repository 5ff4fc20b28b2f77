//! Locks at the server of a client that the application has.

use lock_testkit::servers::{
    ClientCertificate, RedisOptions, RedisServer, ServerCertificate, TestCertificates,
};
use polylock_core::{DistributedLockExt as _, ErrorKind, LockUrl};
use polylock_redis::{Redis, RedisConfig};
use redis::{Client, ClientTlsConfig, TlsCertificates};

use crate::support::SOON;

#[tokio::test]
async fn a_client_is_followed_to_its_server_database_and_user() {
    let server = RedisServer::start(RedisOptions::new());
    server.command(&[
        "ACL", "SETUSER", "locks", "on", ">s3cret", "~*", "&*", "+@all",
    ]);
    let at = |database: u32| {
        let port = server.port();
        format!("redis://locks:s3cret@127.0.0.1:{port}/{database}")
    };
    let client = Client::open(at(3)).expect("a URL");
    let config = RedisConfig::from_client(&client).expect("it is known");
    assert!(!format!("{config:?}").contains("s3cret"));
    let locks = Redis::connect(config).await.expect("it gets in");
    let guard = locks.try_lock("job").await.expect("it answers");
    let guard = guard.expect("it is free");
    let clients = server.command(&["CLIENT", "LIST"]).text();
    let clients = clients.expect("a text");
    let ours = clients.lines().find(|line| line.contains(" db=3 "));
    assert!(
        ours.is_some_and(|line| line.contains(" user=locks ")),
        "{clients}"
    );

    let by_url = async |database| {
        let url = LockUrl::parse(&at(database)).expect("a URL");
        let config = RedisConfig::from_url(&url).expect("it is right");
        Redis::connect(config).await.expect("it gets in")
    };
    let same = by_url(3).await;
    assert!(same.try_lock("job").await.expect("it answers").is_none());
    let other = by_url(0).await;
    assert!(other.try_lock("job").await.expect("it answers").is_some());
    guard.release().await.expect("it is held");
}

#[test]
fn a_database_below_zero_is_refused() {
    let info = redis::IntoConnectionInfo::into_connection_info("redis://127.0.0.1");
    let info = info.expect("a URL");
    let negative = info.redis_settings().clone().set_db(-1);
    let client = Client::open(info.set_redis_settings(negative)).expect("it is not looked at");
    let error = RedisConfig::from_client(&client).expect_err("there is none");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
    assert!(error.to_string().contains("-1"), "{error}");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_client_brings_its_certificates() {
    let files = TestCertificates::new(ServerCertificate::Valid);
    let options = RedisOptions::new().with_tls(&files, ClientCertificate::Required);
    let server = RedisServer::start(options);
    let read = |path| std::fs::read(path).expect("it is there");
    let certificates = |client_tls| TlsCertificates {
        client_tls,
        root_cert: Some(read(files.ca())),
    };
    let shown = ClientTlsConfig {
        client_cert: read(files.client_certificate()),
        client_key: read(files.client_key()),
    };
    let client = Client::build_with_tls(server.url(), certificates(Some(shown)));
    let config = |client: &Client| {
        let config = RedisConfig::from_client(client).expect("it is known");
        let config = config.with_timeout(SOON).expect("it is in range");
        config.with_connect_timeout(SOON).expect("it is in range")
    };
    let locks = Redis::connect(config(&client.expect("they are valid"))).await;
    let locks = locks.expect("it gets in");
    assert!(locks.try_lock("job").await.expect("it answers").is_some());

    let client = Client::build_with_tls(server.url(), certificates(None));
    let refused = Redis::connect(config(&client.expect("they are valid"))).await;
    let error = refused.expect_err("the server asks for a certificate");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
}
