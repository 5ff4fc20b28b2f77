use std::time::Duration;

use lock_testkit::servers::{RedisOptions, RedisServer};
use polylock_core::{Error, ErrorKind, Status};

use super::facts::Offset;
use super::*;
use crate::topology::tests::{config as plain, open};

fn offset(millis: u64) -> Option<Offset> {
    let least = Duration::from_millis(millis);
    let most = least + Duration::from_millis(1);
    Some(Offset { least, most })
}

fn good() -> ServerFacts {
    ServerFacts {
        clock: offset(900),
        fsync: Some("everysec".to_owned()),
        has_aof: Some(true),
        has_snapshots: Some(false),
        maxmemory: Some(1 << 30),
        policy: Some("noeviction".to_owned()),
        replicas: Some(0),
        role: Some("master".to_owned()),
        ..ServerFacts::default()
    }
}

/// A configuration that waits for so many replicas.
fn waiting_for(replica_acks: u32) -> RedisConfig {
    RedisConfig {
        replica_acks,
        ..RedisConfig::new("a", 1)
    }
}

fn faults(facts: &ServerFacts, config: RedisConfig) -> Vec<HealthCheck> {
    let mut found = HealthRule::check_all(RULES, &(facts.clone(), config));
    found.retain(HealthCheck::is_fault);
    found
}

#[test]
fn each_fault_is_found_by_itself() {
    type Change = fn(&mut ServerFacts);
    // Checks of single or combined server settings are in `tests/health.rs`.
    let cases: [(Change, &str); 8] = [
        (|_| (), ""),
        (
            |f| (f.maxmemory, f.policy) = (Some(0), Some("allkeys-lru".to_owned())),
            "",
        ),
        (|f| f.fsync = Some("always".to_owned()), ""),
        (|f| f.fsync = None, ""),
        (
            |f| (f.has_aof, f.has_snapshots) = (Some(false), None),
            "persistence: no append-only file",
        ),
        (|f| f.replicas = Some(1), "replication: min-replica-acks=1"),
        (|f| f.clock = offset(3_000), "clock: by 3 s"),
        (|f| f.clock = offset(1_000), ""),
    ];
    for (change, expected) in cases {
        let mut facts = good();
        change(&mut facts);
        let found = faults(&facts, waiting_for(0));
        match expected.split_once(": ") {
            None => assert_eq!(found, []),
            Some((id, says)) => {
                assert_eq!(found.len(), 1, "{found:?}");
                assert_eq!(found[0].id, id);
                assert!(found[0].to_string().contains(says), "{}", found[0]);
            }
        }
    }
}

#[test]
fn a_grant_and_its_server_wait_for_replicas() {
    let mut facts = good();
    facts.replicas = Some(2);
    for (least, lag, says) in [
        (None, None, None),
        (Some(2), Some(10), None),
        (Some(3), Some(1), None),
        (Some(0), Some(10), Some("takes writes with 0")),
        (Some(1), Some(10), Some("takes writes with 1")),
        (Some(2), Some(0), Some("takes writes with 0")),
        (Some(2), Some(60), Some("min-replicas-max-lag is 60 s")),
    ] {
        (facts.min_replicas, facts.max_lag) = (least, lag);
        let found = faults(&facts, waiting_for(2));
        let summary = found.first().map(|health| health.summary.as_ref());
        let is_so = summary.map(|summary| summary.contains(says.unwrap_or("-")));
        assert_eq!(is_so, says.map(|_| true), "{least:?} {lag:?}: {found:?}");
    }
    let found = faults(&facts, waiting_for(3));
    assert!(found[0].summary.contains("has 2 replicas"));
    assert_eq!(found[0].status, Status::Error);
    let found = faults(&facts, RedisConfig::quorum([("a", 1)]));
    assert!(found[0].fix.contains("promote no replica"));
}

#[tokio::test]
async fn a_strict_configuration_refuses_a_server_that_persists_nothing() {
    let server =
        RedisServer::start(RedisOptions::new().with_user("few", "on >pw ~* &* +eval +evalsha"));
    let strict = plain(&server).with_strict_checks();
    let (topology, _) = open(&plain(&server)).await;
    let error = Error::from(check(&*topology, &strict).await.unwrap_err());
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.message().contains("persists nothing"), "{error}");
    check(&*topology, &plain(&server)).await.unwrap();

    server.command(&["CONFIG", "SET", "appendonly", "yes"]);
    check(&*topology, &strict).await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1gb"]);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let error = Error::from(check(&*topology, &strict).await.unwrap_err());
    assert!(error.message().contains("allkeys-lru"), "{error}");

    // A user without rights learns nothing.
    let few = strict.clone().with_login("few", "pw");
    let (topology, _) = open(&plain(&server).with_login("few", "pw")).await;
    check(&*topology, &few).await.unwrap();
}

#[test]
fn what_is_true_of_all_is_said_once() {
    let [first, good] = ["eviction", "clock"].map(|check| HealthCheck::ok(check, "right"));
    let bad = HealthCheck::warning("clock", "wrong", "impact", "way out");
    let of = |name: &str, second: &HealthCheck| (name.into(), vec![first.clone(), second.clone()]);
    let texts = |found: Vec<HealthCheck>| -> Vec<String> {
        let text = |health: HealthCheck| format!("{} {}", health.id, health.summary);
        found.into_iter().map(text).collect()
    };
    let servers = vec![of("x:1", &good), of("y:2", &bad), of("z:3", &good)];
    let expected = [
        "eviction right",
        "clock x:1, z:3: right",
        "clock y:2: wrong",
    ];
    assert_eq!(texts(merged(servers)), expected);
    let alone = vec![of("x:1", &bad)];
    assert_eq!(texts(merged(alone)), ["eviction right", "clock wrong"]);
    assert_eq!(merged(Vec::new()), []);
}
