//! Health checks of servers with and without faults.

use lock_testkit::servers::{Fsync, RedisCluster, RedisOptions, RedisSentinels, RedisServer};
use polylock_core::{ErrorKind, HealthCheck, Registry, Result, Status};
use polylock_redis::RedisBackend;

use crate::support::{info, rights, until};

pub(crate) async fn try_check(url: &str) -> Result<Vec<HealthCheck>> {
    let registry = Registry::new().with(RedisBackend::default());
    registry.expect("one backend").check_health(url).await
}

pub(crate) async fn check_health(url: &str) -> Vec<HealthCheck> {
    let found = try_check(url).await.expect("it can be looked at");
    assert!(found.iter().any(|health| health.id == "eviction"));
    found
}

/// The faults, each with its check.
pub(crate) async fn faults(url: &str) -> Vec<String> {
    let mut found = check_health(url).await;
    found.retain(HealthCheck::is_fault);
    let text = |health: &HealthCheck| format!("{} {health}", health.id);
    found.iter().map(text).collect()
}

/// Asserts that there is one fault, of this check and with these words.
#[track_caller]
pub(crate) fn assert_one(found: &[String], check: &str, says: &str) {
    let [one] = found else {
        panic!("{check}: {found:#?}");
    };
    assert!(one.starts_with(&format!("{check} ")), "{check}: {one}");
    assert!(one.contains(says), "{says}: {one}");
}

fn fit() -> RedisOptions {
    RedisOptions::new().with_aof(Fsync::EverySecond)
}

fn set(server: &RedisServer, name: &str, value: &str) {
    let reply = server.command(&["CONFIG", "SET", name, value]);
    assert!(!reply.is_error(), "{name} {value}: {reply:?}");
}

#[tokio::test]
async fn a_server_that_is_fit_has_no_fault_and_keeps_nothing() {
    let server = RedisServer::start(fit());
    let found = check_health(&server.url()).await;
    for health in &found {
        assert_eq!(health.status, Status::Ok, "{health:?}");
    }
    let checks: Vec<_> = found.iter().map(|health| health.id).collect();
    let expected = [
        "replica",
        "eviction",
        "persistence",
        "flush",
        "replication",
        "clock",
    ];
    assert_eq!(checks, expected);
    assert_eq!(server.command(&["DBSIZE"]).integer(), Some(0));
    until("its connections are closed", || {
        // The connection of the check itself.
        info(&server, "connected_clients") == "1"
    })
    .await;
}

/// Settings, and the check that reports them with its message; `None` if they are fit.
type Case = (
    &'static [(&'static str, &'static str)],
    &'static str,
    &'static str,
);

#[tokio::test]
async fn each_setting_that_costs_locks_is_found_by_its_name() {
    let server = RedisServer::start(fit());
    let cases: [Case; 7] = [
        (&[("appendonly", "no")], "persistence", "persists nothing"),
        (
            &[("appendonly", "no"), ("save", "3600 1")],
            "persistence",
            "snapshots only",
        ),
        (&[("appendfsync", "no")], "flush", "half minute"),
        (
            &[
                ("appendfsync", "always"),
                ("no-appendfsync-on-rewrite", "yes"),
            ],
            "flush",
            "no-appendfsync-on-rewrite is yes",
        ),
        (
            &[("maxmemory", "1gb"), ("maxmemory-policy", "allkeys-lru")],
            "eviction",
            "allkeys-lru",
        ),
        (
            &[("maxmemory", "1gb"), ("maxmemory-policy", "volatile-ttl")],
            "eviction",
            "volatile-ttl",
        ),
        (
            &[("maxmemory", "1gb"), ("maxmemory-policy", "noeviction")],
            "",
            "",
        ),
    ];
    for (settings, check, says) in cases {
        for (name, value) in settings {
            set(&server, name, value);
        }
        let found = faults(&server.url()).await;
        if check.is_empty() {
            assert!(found.is_empty(), "{found:?}");
        } else {
            assert_one(&found, check, says);
        }
        for (name, value) in DEFAULTS {
            set(&server, name, value);
        }
    }
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let found = faults(&server.url()).await;
    assert_one(&found, "replica", "takes no writes");
    server.command(&["REPLICAOF", "NO", "ONE"]);
    assert!(faults(&server.url()).await.is_empty());
}

const DEFAULTS: [(&str, &str); 6] = [
    ("appendonly", "yes"),
    ("appendfsync", "everysec"),
    ("no-appendfsync-on-rewrite", "no"),
    ("save", ""),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
];

#[tokio::test]
async fn what_a_user_may_not_ask_is_unknown_and_no_fault() {
    let least = rights::user("s3cret", "lock:*");
    let server = RedisServer::start(fit().with_user("locks", &format!("{least} -info -config")));
    let url = format!("redis://locks:s3cret@127.0.0.1:{}", server.port());
    let found = check_health(&url).await;
    let (good, unknown): (Vec<_>, Vec<_>) =
        found.iter().partition(|health| health.status == Status::Ok);
    let names = |found: Vec<&HealthCheck>| found.iter().map(|f| f.id).collect::<Vec<_>>();
    assert!(unknown.iter().all(|f| f.status == Status::NotChecked));
    assert_eq!(names(good), ["clock"]);
    assert_eq!(unknown.len(), 4, "{unknown:?}");
}

#[tokio::test]
async fn servers_that_cannot_be_looked_at_are_errors_without_secrets() {
    let server = RedisServer::start(fit().with_password("right"));
    let wrong = format!("redis://:s3ntinel@127.0.0.1:{}", server.port());
    let error = try_check(&wrong).await.expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert_eq!(error.backend(), Some("redis"));
    assert!(!format!("{error:?} {error}").contains("s3ntinel"));
    let error = try_check("redis://127.0.0.1:1").await;
    let error = error.expect_err("nothing listens");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // The checks cannot see anything here, so strict ones refuse nothing.
    let strict = RedisServer::start(RedisOptions::new());
    let found = faults(&format!("{}?strict=on", strict.url())).await;
    assert_one(&found, "persistence", "persists nothing");
}

#[tokio::test]
async fn replicas_that_no_write_waits_for_are_found() {
    let master = RedisServer::start(fit());
    let of = format!("127.0.0.1 {}", master.port());
    let _replica = RedisServer::start(RedisOptions::new().with_config("replicaof", &of));
    let is_there = || info(&master, "connected_slaves") == "1";
    until("the replica is there", is_there).await;
    let with = |acks: u32| format!("{}?min-replica-acks={acks}", master.url());
    let found = faults(&master.url()).await;
    assert_one(&found, "replication", "min-replica-acks=1");
    let found = faults(&with(1)).await;
    assert_one(&found, "replication", "takes writes with 0");
    set(&master, "min-replicas-to-write", "1");
    let counts = || info(&master, "min_slaves_good_slaves") == "1";
    until("the replica counts", counts).await;
    assert!(faults(&with(1)).await.is_empty());
    set(&master, "min-replicas-max-lag", "60");
    let found = faults(&with(1)).await;
    assert_one(&found, "replication", "min-replicas-max-lag is 60 s");
    assert_one(&faults(&with(2)).await, "replication", "has 1 replicas");
}

#[tokio::test]
async fn the_master_of_sentinels_is_looked_at() {
    let sentinels = RedisSentinels::start_light();
    let found = faults(&sentinels.url()).await;
    assert_one(&found, "persistence", "persists nothing");
    set(sentinels.master(), "appendonly", "yes");
    assert!(faults(&sentinels.url()).await.is_empty());
}

#[tokio::test]
async fn each_master_of_a_cluster_is_looked_at() {
    let cluster = RedisCluster::start(3, 0);
    for node in cluster.iter() {
        set(node, "appendonly", "yes");
    }
    let url = cluster.url();
    assert!(faults(&url).await.is_empty());
    for node in cluster.iter() {
        assert_eq!(node.command(&["DBSIZE"]).integer(), Some(0));
    }

    let odd = &cluster[1];
    set(odd, "maxmemory", "1gb");
    set(odd, "maxmemory-policy", "allkeys-lfu");
    let found = faults(&url).await;
    let named = format!("127.0.0.1:{}: maxmemory-policy", odd.port());
    assert_one(&found, "eviction", &named);
    set(odd, "maxmemory-policy", "noeviction");
}
