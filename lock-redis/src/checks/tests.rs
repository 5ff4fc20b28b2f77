use std::time::Duration;

use lock_core::{Error, ErrorKind, Status};
use lock_testkit::servers::{RedisOptions, RedisServer};

use super::facts::Offset;
use super::*;
use crate::topology::tests::{config as plain, open};

fn offset(millis: u64) -> Option<Offset> {
    let least = Duration::from_millis(millis);
    let most = least + Duration::from_millis(1);
    Some(Offset { least, most })
}

fn good() -> Facts {
    Facts {
        clock: offset(900),
        fsync: Some("everysec".to_owned()),
        has_aof: Some(true),
        has_snapshots: Some(false),
        is_cluster: Some(false),
        maxmemory: Some(1 << 30),
        policy: Some("noeviction".to_owned()),
        replicas: Some(0),
        role: Some("master".to_owned()),
        used_memory: Some(1 << 20),
        version: Some((7, 0)),
        ..Facts::default()
    }
}

const ALONE: Wanted = Wanted {
    cluster: false,
    quorum: false,
    replica_acks: 0,
};

fn all(facts: &Facts, wanted: &Wanted) -> Vec<HealthCheck> {
    let mut found = startup_checks(facts, wanted);
    found.extend(deep_checks(facts, wanted));
    found
}

fn faults(facts: &Facts, wanted: &Wanted) -> Vec<HealthCheck> {
    let mut found = all(facts, wanted);
    found.retain(HealthCheck::is_fault);
    found
}

type Change = fn(&mut Facts);

#[test]
fn each_fault_is_found_by_itself() {
    assert_eq!(faults(&good(), &ALONE), []);
    let cases: [(Change, &str, &str); 13] = [
        (|f| f.version = Some((5, 9)), "version", "Redis 5.9"),
        (|f| f.version = Some((4, 0)), "version", "6.0 or later"),
        (|f| f.role = Some("slave".to_owned()), "replica", "replica"),
        (|f| f.is_cluster = Some(true), "cluster", "redis-cluster://"),
        (
            |f| f.policy = Some("allkeys-lru".to_owned()),
            "eviction",
            "evicted",
        ),
        (
            |f| f.policy = Some("volatile-ttl".to_owned()),
            "eviction",
            "volatile-ttl",
        ),
        (|f| f.fsync = Some("no".to_owned()), "flush", "half minute"),
        (
            |f| f.has_aof = Some(false),
            "persistence",
            "persists nothing",
        ),
        (
            |f| (f.has_aof, f.has_snapshots) = (Some(false), Some(true)),
            "persistence",
            "snapshots only",
        ),
        (
            |f| (f.has_aof, f.has_snapshots) = (Some(false), None),
            "persistence",
            "no append-only file",
        ),
        (
            |f| f.replicas = Some(1),
            "replication",
            "min-replica-acks=1",
        ),
        (|f| f.clock = offset(3_000), "clock", "by 3 s"),
        (|f| f.used_memory = Some(1 << 30), "memory", "100 %"),
    ];
    for (change, check, says) in cases {
        let mut facts = good();
        change(&mut facts);
        let found = faults(&facts, &ALONE);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].id, check);
        assert!(found[0].to_string().contains(says), "{}", found[0]);
    }
}

#[test]
fn what_is_harmless_is_not_found() {
    let cases: [Change; 5] = [
        |f| (f.maxmemory, f.policy) = (Some(0), Some("allkeys-lru".to_owned())),
        |f| f.fsync = Some("always".to_owned()),
        |f| f.fsync = None,
        |f| f.version = Some((6, 0)),
        |f| (f.version, f.valkey) = (Some((7, 2)), Some("8.0.1".to_owned())),
    ];
    for change in cases {
        let mut facts = good();
        change(&mut facts);
        assert_eq!(faults(&facts, &ALONE), []);
    }
    let mut facts = good();
    (facts.replicas, facts.is_cluster) = (Some(2), Some(true));
    let wanted = |replica_acks| Wanted {
        cluster: true,
        replica_acks,
        ..ALONE
    };
    assert_eq!(faults(&facts, &wanted(2)), []);
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
        let found = faults(&facts, &wanted(2));
        let summary = found.first().map(|health| health.summary.as_ref());
        let is_so = summary.map(|summary| summary.contains(says.unwrap_or("-")));
        assert_eq!(is_so, says.map(|_| true), "{least:?} {lag:?}: {found:?}");
    }
    let found = faults(&facts, &wanted(3));
    assert!(found[0].summary.contains("has 2 replicas"));
    assert_eq!(found[0].status, Status::Error);
    facts.is_cluster = Some(false);
    let of_quorum = Wanted {
        quorum: true,
        ..ALONE
    };
    let found = faults(&facts, &of_quorum);
    assert!(found[0].fix.contains("promote no replica"));
}

#[test]
fn what_is_not_told_is_unknown() {
    let found = all(&Facts::default(), &ALONE);
    assert_eq!(found.len(), 8);
    for health in found {
        assert_eq!(health.status, Status::NotChecked, "{health:?}");
    }
    let mut facts = good();
    facts.fsync = None;
    let found = all(&facts, &ALONE);
    let unknown = found.iter().filter(|f| f.status == Status::NotChecked);
    assert_eq!(unknown.map(|f| f.id).collect::<Vec<_>>(), ["flush"]);
}

#[test]
fn a_full_server_that_evicts_has_one_fault() {
    let mut facts = good();
    facts.used_memory = facts.maxmemory;
    facts.policy = Some("allkeys-lru".to_owned());
    let found = faults(&facts, &ALONE);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].id, "eviction");
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
