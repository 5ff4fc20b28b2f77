use std::time::Duration;

use lock_core::{Error, ErrorKind};
use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};
use tokio::time::Instant;

use super::*;

/// The client of a session that is opened.
async fn open_session(config: &ZooKeeperConfig) -> Result<Client, Failure> {
    let connect_config = super::open_session(config, &Engine::of_this_process("test")).await?;
    Ok(connect_config.client)
}

fn plain(server: &ZooKeeperServer) -> ZooKeeperConfig {
    ZooKeeperConfig::new([("127.0.0.1", server.port())])
}

async fn refusal(config: &ZooKeeperConfig) -> Error {
    open_session(config).await.expect_err("no session").into()
}

#[tokio::test]
async fn makes_the_root_and_all_above_it() {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    let config = plain(&server).with_root("/apps/shop/locks").unwrap();
    for _ in 0..2 {
        let client = open_session(&config).await.unwrap();
        assert_eq!(client.path(), "/apps/shop/locks");
        assert!(client.check_stat("/").await.unwrap().is_some());
    }
    let top = open_session(&config.clone().with_root("/").unwrap())
        .await
        .unwrap();
    assert_eq!(top.list_children("/apps/shop").await.unwrap(), ["locks"]);
}

#[tokio::test]
async fn what_does_not_answer_is_given_up_in_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let config = ZooKeeperConfig::new([("127.0.0.1", port)]);
    let config = config.with_connect_timeout(Duration::from_secs(1)).unwrap();
    let started = Instant::now();
    let error = refusal(&config).await;
    assert!(started.elapsed() < Duration::from_millis(1_500));
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("does not answer"), "{error}");
}

#[cfg(feature = "sasl")]
#[tokio::test]
async fn sasl_knows_its_users() {
    let options = ZooKeeperOptions::new().with_sasl_user("me", "pw");
    let server = ZooKeeperServer::start(options);
    let client = open_session(&plain(&server).with_sasl_login("me", "pw").unwrap()).await;
    let (acls, _) = client.unwrap().get_acl("/").await.unwrap();
    assert_eq!((acls[0].scheme(), acls[0].id()), ("sasl", "me"));
    // ZooKeeper takes an unknown user with the password of the one before.
    for (user, password) in [("me", "wrong"), ("you", "other")] {
        let error = refusal(&plain(&server).with_sasl_login(user, password).unwrap()).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.message().contains("password"), "{error}");
    }
}

#[cfg(feature = "sasl")]
#[tokio::test]
async fn a_server_may_insist_on_sasl() {
    let options = ZooKeeperOptions::new().with_sasl_user("me", "pw");
    let server = ZooKeeperServer::start(
        options
            .with_property("zookeeper.enforce.auth.enabled", "true")
            .with_property("zookeeper.enforce.auth.schemes", "sasl"),
    );
    let error = refusal(&plain(&server)).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.message().contains("asks for a login"), "{error}");
    open_session(&plain(&server).with_sasl_login("me", "pw").unwrap())
        .await
        .unwrap();
}

#[cfg(feature = "sasl")]
#[tokio::test]
async fn a_server_without_users_takes_no_sasl() {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    let config = plain(&server).with_sasl_login("me", "pw").unwrap();
    let config = config.with_connect_timeout(Duration::from_secs(3)).unwrap();
    let error = refusal(&config).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[cfg(feature = "tls")]
mod tls {
    use lock_testkit::servers::{ClientCertificate, ServerCertificate, TlsFiles};

    use super::*;

    fn server(clients: ClientCertificate) -> (TlsFiles, ZooKeeperServer) {
        let files = TlsFiles::new(ServerCertificate::Valid);
        let options = ZooKeeperOptions::new().with_tls(&files, clients);
        let server = ZooKeeperServer::start(options);
        (files, server)
    }

    /// The first handshake of a server that has just started takes seconds on a busy machine.
    fn secure(server: &ZooKeeperServer) -> ZooKeeperConfig {
        let minute = Duration::from_secs(60);
        let config = ZooKeeperConfig::new([("127.0.0.1", server.secure_port())]);
        let config = config.with_session_timeout(minute).unwrap();
        config.with_connect_timeout(minute).unwrap()
    }

    #[tokio::test]
    async fn a_certificate_is_an_identity() {
        let (files, server) = server(ClientCertificate::Required);
        let config = secure(&server).with_tls_ca(files.ca());
        let config = config.with_tls_identity(files.client_certificate(), files.client_key());
        let client = open_session(&config).await.unwrap();
        let (acls, _) = client.get_acl("/").await.unwrap();
        assert_eq!(acls[0].scheme(), "x509");
    }

    #[tokio::test]
    async fn wrong_files_are_named() {
        let files = TlsFiles::new(ServerCertificate::Valid);
        let config = ZooKeeperConfig::new([("127.0.0.1", 1)]);
        let key = files.client_key();
        for (config, says) in [
            (config.clone().with_tls(), "tls-ca-file"),
            (config.clone().with_tls_ca("/nowhere"), "/nowhere"),
            (config.clone().with_tls_ca(&key), "of no use"),
            (
                config.with_tls_ca(files.ca()).with_tls_identity(&key, &key),
                "of no use",
            ),
            (
                ZooKeeperConfig::new([("no name", 1)]).with_tls_ca(files.ca()),
                "no name that",
            ),
        ] {
            let error = refusal(&config).await;
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(error.message().contains(says), "{error}");
        }
    }
}
