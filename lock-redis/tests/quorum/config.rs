//! Ensembles that are refused.

use std::time::Duration;

use lock_testkit::servers::{RedisNodes, RedisOptions};
use polylock_core::{DistributedLock, ErrorKind, Fencing, Mode};
use polylock_redis::{RedisConfig, Redlock};

use super::nodes::{open, open_with_delay};
use super::support::{
    TTL, assert_error, assert_refused, break_lock, client, ms, release, request, start, take, to,
    within,
};
use crate::support::{admin, rights};

async fn refusal(config: RedisConfig) -> String {
    let error = Redlock::connect(config).await.expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    error.message().to_owned()
}

#[tokio::test]
async fn what_is_no_quorum_is_refused() {
    let quorum = |ports: &[u16]| RedisConfig::quorum(ports.iter().map(|port| ("127.0.0.1", *port)));
    assert!(refusal(quorum(&[1, 2])).await.contains("at least 3"));
    assert!(refusal(quorum(&[1, 2, 1])).await.contains("twice"));
    let one = RedisConfig::new("127.0.0.1", 1);
    assert!(refusal(one).await.contains("RedisConfig::quorum"));
    let acks = quorum(&[1, 2, 3]).with_replica_acks(1, ms(100));
    let acks = acks.expect("it is in range");
    assert!(refusal(acks).await.contains("min-replica-acks"));
}

/// A class that requires strong fencing refuses an ensemble.
#[tokio::test(flavor = "multi_thread")]
async fn fencing_is_best_effort() {
    let nodes = start(3);
    let fencing = client(&nodes).await.capabilities().fencing;
    assert_eq!(fencing, Fencing::BestEffort);
}

#[tokio::test]
async fn strict_checks_name_the_node() {
    let nodes = start(3);
    let said = refusal(to(&nodes).with_strict_checks()).await;
    assert!(said.starts_with("127.0.0.1:"), "{said}");
    assert!(said.contains("persists nothing"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_no_outage() {
    let options = RedisOptions::new().with_password("right");
    let nodes = RedisNodes::start(3, &options);
    for config in [
        to(&nodes).with_password("wrong"),
        to(&nodes),
        to(&nodes).with_resp2(),
    ] {
        let error = Redlock::connect(config).await;
        let error = error.expect_err("no node accepts the login");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
    let connected = Redlock::connect(to(&nodes).with_password("right")).await;
    connected.expect("all nodes accept the login");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_listed_rights_are_enough() {
    let rules = rights::user("secret", "lock:*") + " ~{polylock:age}:notes:notes";
    let nodes = RedisNodes::start(3, &RedisOptions::new().with_user("locks", &rules));
    // With a delay, so that INFO is needed as well.
    let locks = open_with_delay(to(&nodes).with_login("locks", "secret"), TTL).await;
    let (exclusive, reader) = (request("lock:a"), request("lock:a").with_mode(Mode::Shared));
    let first = take(&locks, "lock:a").await;
    assert_refused(&locks, reader.clone(), ErrorKind::Contended).await;
    first.renew().await.expect("it is renewed");
    release(first).await;
    let readers = [
        locks.acquire(&reader).await.expect("it is free"),
        locks.acquire(&reader).await.expect("readers hold together"),
    ];
    assert_error(&locks, &within(exclusive, ms(300)), ErrorKind::Contended).await;
    for guard in readers {
        release(guard).await;
    }
    let mut guard = take(&locks, "lock:a").await;
    guard.downgrade().await.expect("it is held");
    let listed = admin(&locks).list("lock:").await;
    assert_eq!(listed.expect("it is allowed").len(), 1);
    break_lock(&locks, "lock:a").await;
}

/// The nodes could not store so late an expiry.
#[tokio::test(flavor = "multi_thread")]
async fn a_retention_without_end_keeps_no_lock_from_being_acquired() {
    let nodes = start(3);
    let locks = open(to(&nodes).with_retention(Duration::MAX)).await;
    release(take(&locks, "a").await).await;
}
