//! What an ensemble must be like, and what is said of one that opens no session.

use std::net::TcpListener;
use std::time::Duration;

use lock_core::{Error, ErrorKind};
use lock_testkit::servers::{ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer};
use lock_zk::{Access, ZooKeeper, ZooKeeperConfig};
use tokio::time::Instant;

use crate::support::config;

async fn refusal(config: ZooKeeperConfig) -> Error {
    ZooKeeper::connect(config).await.expect_err("it is refused")
}

#[tokio::test]
async fn a_strict_configuration_refuses_a_server_that_is_alone() {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    let config = config(&[server.port()], "/locks");
    let error = refusal(config.clone().with_strict_checks()).await;
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    for says in ["one server", "everyone may change"] {
        assert!(error.message().contains(says), "{error}");
    }
    assert!(!error.message().contains("time-out"), "{error}");

    // The testkit grants half a second to ten.
    let long = config.clone().with_session_timeout(Duration::from_secs(30));
    let error = refusal(long.expect("in range").with_strict_checks()).await;
    assert!(
        error.message().contains("is 10s, not the requested 30s"),
        "{error}"
    );
    ZooKeeper::connect(config).await.expect("warned of only");
}

#[tokio::test]
async fn a_strict_configuration_takes_an_ensemble_of_three() {
    let ensemble = ZooKeeperEnsemble::start(3, &ZooKeeperOptions::new());
    let ports = ensemble.servers().iter().map(|server| server.port());
    let config = config(&ports.collect::<Vec<_>>(), "/locks").with_strict_checks();
    let closed = config.clone().with_digest_login("me", "pw");
    let closed = ZooKeeper::connect(closed.expect("a user")).await;
    closed.expect("nothing is wrong with it");
    let said = config.with_access(Access::Everybody).with_root("/open");
    let open = ZooKeeper::connect(said.expect("a path")).await;
    open.expect("it is meant to be open");
}

#[tokio::test]
async fn an_ensemble_without_a_majority_opens_no_session() {
    for (read_only, says) in [("false", "majority"), ("true", "takes no writes")] {
        let options = ZooKeeperOptions::new().with_property("readonlymode.enabled", read_only);
        let ensemble = ZooKeeperEnsemble::start(3, &options);
        let [left, gone, lost] = ensemble.servers() else {
            panic!("three servers");
        };
        gone.kill();
        lost.kill();
        tokio::time::sleep(Duration::from_secs(4)).await;
        let ports = [left.port(), gone.port(), lost.port()];
        let config = config(&ports, "/locks").with_connect_timeout(Duration::from_secs(3));
        let started = Instant::now();
        let error = refusal(config.expect("in range")).await;
        assert!(started.elapsed() < Duration::from_millis(3_500));
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.is_retryable(), "{error}");
        for says in [says, "cannot be reached"] {
            assert!(error.message().contains(says), "{error}");
        }
    }
}

#[tokio::test]
async fn one_server_of_those_named_is_enough() {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("bound").port();
    let config = config(&[1, silent, server.port()], "/locks");
    for _ in 0..3 {
        let locks = ZooKeeper::connect(config.clone()).await;
        locks.expect("the third server serves");
    }
}

#[tokio::test]
async fn servers_that_are_not_there_are_unavailable_at_once() {
    let started = Instant::now();
    let error = refusal(config(&[1, 2], "/locks")).await;
    assert!(started.elapsed() < Duration::from_secs(2));
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!error.is_outcome_unknown());
    assert!(error.message().contains("127.0.0.1:2 cannot"), "{error}");
}
