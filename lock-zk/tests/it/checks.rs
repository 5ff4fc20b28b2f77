//! Requirements for an ensemble, and the errors of one that opens no session.

use std::net::TcpListener;
use std::time::Duration;

use lock_testkit::servers::{
    RedisOptions, RedisServer, ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer,
};
use polylock_core::{Error, ErrorKind, HealthCheck, Registry, Result, Status};
use polylock_zk::{NodeAccess, ZooKeeper, ZooKeeperBackend, ZooKeeperConfig};
use tokio::time::Instant;
use zookeeper_client::Client;

use crate::support::{assert_refused, config, in_time, open, release, take, until};

#[tokio::test]
async fn a_strict_configuration_refuses_what_ends_locks() {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    let config = config(&[server.port()], "/locks");
    let (strict, kind) = (
        config.clone().with_strict_checks(),
        ErrorKind::InvalidConfig,
    );
    let error = assert_refused(strict, kind, "everyone may change").await;
    assert!(!error.message().contains("time-out"), "{error}");

    // The testkit grants half a second to ten.
    let long = config.clone().with_session_timeout(Duration::from_secs(30));
    let long = long.expect("in range").with_strict_checks();
    assert_refused(long, kind, "is 10s, not the requested 30s").await;
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
    let said = config.with_access(NodeAccess::Everybody).with_root("/open");
    let open = ZooKeeper::connect(said.expect("a path")).await;
    open.expect("it is meant to be open");
}

/// Asserts that no server opens a session, and why, which is found out in time.
async fn refused_within(limit: Duration, config: &ZooKeeperConfig, says: &str) -> Error {
    let refused = async || {
        let started = Instant::now();
        let error = assert_refused(config.clone(), ErrorKind::Unavailable, says).await;
        (started.elapsed(), error)
    };
    let (took, error) = in_time(limit, refused).await;
    assert!(took < limit, "{says} after {took:?}");
    error
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
        let config = config.expect("in range");
        let error = refused_within(Duration::from_millis(3_500), &config, says).await;
        assert!(error.is_retryable(), "{error}");
        assert!(error.message().contains("cannot be reached"), "{error}");
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
async fn what_is_no_server_of_zookeeper_is_named_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("bound").port();
    let redis = RedisServer::start(RedisOptions::new());
    let stranger = "is another kind of server, which says \"-ERR unknown command";
    for (ports, connect_timeout, says, within) in [
        // The port has no listener, so it fails at once.
        (&[1, 2][..], 15_000, "127.0.0.1:2 cannot", 2_000),
        (&[silent], 1_000, "does not answer", 1_500),
        // Less than the timeout for a slow server.
        (&[redis.port()], 15_000, stranger, 10_000),
    ] {
        let config = config(ports, "/locks");
        let config = config.with_connect_timeout(Duration::from_millis(connect_timeout));
        let config = config.expect("in range");
        let error = refused_within(Duration::from_millis(within), &config, says).await;
        assert!(!error.is_outcome_unknown(), "{error}");
    }
}

#[tokio::test]
async fn the_root_is_made_with_all_that_is_above_it() {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    for _ in 0..2 {
        let locks = open(config(&[server.port()], "/apps/shop/locks")).await;
        release(take(&locks, "a").await).await;
    }
    let client = Client::connect(&server.address())
        .await
        .expect("it connects");
    let made = client.list_children("/apps/shop").await;
    assert_eq!(made.expect("it answers"), ["locks"]);
}

async fn try_check(url: &str) -> Result<Vec<HealthCheck>> {
    let registry = Registry::new().with(ZooKeeperBackend::default());
    registry.expect("one backend").check_health(url).await
}

#[tokio::test]
async fn an_ensemble_that_is_fit_has_no_fault_and_keeps_nothing() {
    let ensemble = ZooKeeperEnsemble::shared();
    let hosts = ensemble.addresses().join(",");
    let root = format!("/examine-{}", std::process::id());
    let url = format!("zk://me:s3cret@{hosts}{root}?session-timeout=10s");
    let found = try_check(&url).await.expect("it can be looked at");
    let found: Vec<_> = found.iter().map(|check| (check.id, check.status)).collect();
    let expected = ["session-timeout", "access"].map(|id| (id, Status::Ok));
    assert_eq!(found, expected);
    let client = Client::connect(&hosts).await.expect("it connects");
    let made = client.check_stat(&root).await.expect("it answers");
    assert!(made.is_none(), "{root} is there");
}

#[tokio::test]
async fn each_fault_is_found_by_its_name() {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    let address = server.address();
    for (login, params, expected) in [
        ("", "session-timeout=10s&access=everybody", None),
        // A report refuses nothing.
        (
            "",
            "session-timeout=10s&strict=on",
            Some(("access", "everyone may change")),
        ),
        (
            "me:s3cret@",
            "session-timeout=30s",
            Some(("session-timeout", "is 10s, not the requested 30s")),
        ),
        (
            "me:s3cret@",
            "session-timeout=2s",
            Some(("session-timeout", "is 2s")),
        ),
    ] {
        let found = try_check(&format!("zk://{login}{address}/locks?{params}")).await;
        let mut found = found.expect("it can be looked at");
        found.retain(HealthCheck::is_fault);
        assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
        if let Some((id, says)) = expected {
            assert_eq!(found[0].id, id, "{params}");
            assert!(found[0].summary.contains(says), "{}", found[0]);
        }
    }
    until("the sessions are closed", async || {
        server.mntr("zk_num_alive_connections") == Some(1)
    })
    .await;

    let error = try_check("zk://127.0.0.1:1/locks").await;
    let error = error.expect_err("no server listens");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(error.backend(), Some("zookeeper"));
}
