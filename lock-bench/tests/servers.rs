//! What servers tell the benchmark of themselves, and what a run leaves there.

#![cfg(all(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zk"
))]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lock_bench::plan::Workload;
use lock_bench::servers;
use lock_bench::target::{Openers, Probe};
use lock_testkit::servers::{
    Fsync, MariaDbServer, PostgresServer, RedisOptions, RedisServer, ZooKeeperServer,
};
use polylock::LockUrl;

use self::support::{measure, plan};

async fn open(url: &str) -> Arc<dyn Probe> {
    let url = LockUrl::parse(url).expect("a URL");
    let probe = servers::probe(&url).await.expect("it serves");
    probe.expect("it has a server")
}

async fn has_bare(url: &str) -> bool {
    let url = LockUrl::parse(url).expect("a URL");
    let bare = servers::bare(&url, 1).await.expect("it serves");
    assert!(!format!("{bare:?}").contains("s3cret"));
    bare.is_some()
}

async fn facts(server: &Arc<dyn Probe>) -> BTreeMap<String, String> {
    server.ping().await.expect("it answers");
    server.facts().await.expect("it tells")
}

#[tokio::test]
async fn redis_tells_its_version_and_what_it_keeps() {
    let options = RedisOptions::new()
        .with_aof(Fsync::EverySecond)
        .with_password("s3cret-of-redis");
    let server = RedisServer::start(options);
    let url = format!("redis://:s3cret-of-redis@127.0.0.1:{}/3", server.port());
    let socket = format!("{}?password=s3cret-of-redis", server.socket_url());
    for url in [url, socket] {
        let server = open(&url).await;
        let facts = facts(&server).await;
        assert!(facts["version"].starts_with("Redis "), "{facts:?}");
        assert_eq!(facts["appendonly"], "yes");
        assert_eq!(facts["appendfsync"], "everysec");
        assert_eq!(facts["save"], "none");
        assert_eq!(facts["maxmemory-policy"], "noeviction");
        assert!(has_bare(&url).await);
        assert!(!format!("{server:?} {facts:?}").contains("s3cret"));
    }
    let wrong = format!("redis://:s3cret-and-wrong@127.0.0.1:{}", server.port());
    let wrong = LockUrl::parse(&wrong).unwrap();
    let failure = servers::probe(&wrong).await.unwrap_err();
    assert!(!failure.to_string().contains("s3cret"), "{failure}");
    let failure = servers::bare(&wrong, 1).await.unwrap_err();
    assert!(!failure.to_string().contains("s3cret"), "{failure}");
}

#[tokio::test]
async fn zookeeper_tells_its_version_and_its_sessions() {
    let server = ZooKeeperServer::shared();
    let url = format!("{}/bench-facts?session-timeout=8s", server.url());
    let facts = facts(&open(&url).await).await;
    assert!(facts["version"].starts_with("ZooKeeper 3."), "{facts:?}");
    assert_eq!(facts["servers"], "1");
    assert_eq!(facts["session-timeout"], "8s");
}

#[tokio::test]
async fn databases_tell_their_versions_and_what_they_keep() {
    let postgres = open(&PostgresServer::shared().database()).await;
    let told = facts(&postgres).await;
    assert!(told["version"].starts_with("PostgreSQL "), "{told:?}");
    for name in ["fsync", "synchronous_commit"] {
        assert!(["on", "off"].contains(&told[name].as_str()), "{told:?}");
    }
    // No figure rather than a wrong one, where statements are not counted.
    assert!(told["commands"].starts_with("not counted"), "{told:?}");
    assert_eq!(postgres.commands().await.unwrap(), None);

    let told = facts(&open(&MariaDbServer::shared().database()).await).await;
    assert!(told["version"].starts_with("MariaDB "), "{told:?}");
    for name in ["innodb_flush_log_at_trx_commit", "sync_binlog"] {
        assert!(told[name].parse::<u32>().is_ok(), "{told:?}");
    }
}

#[tokio::test]
async fn what_is_no_single_server_is_not_asked() {
    for url in [
        "redis-sentinel://a,b/master",
        "redis-cluster://a,b",
        "redlock://a,b,c",
        "rediss://cache",
        "postgres://user@db/locks?tls=on",
    ] {
        let server = open(url).await;
        assert!(server.ping().await.is_err());
        assert_eq!(server.commands().await.unwrap(), None);
        let facts = server.facts().await.unwrap();
        assert!(facts["server"].contains("not asked"), "{facts:?}");
        assert!(!has_bare(url).await);
    }
    for url in ["memory:", "sqlite:locks.db"] {
        let server = servers::probe(&LockUrl::parse(url).unwrap()).await;
        assert!(server.unwrap().is_none());
        assert!(!has_bare(url).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_leaves_no_table_of_its_bare_statements() {
    let mut plan = plan(&[Workload::Uncontended], 1);
    // A commit of a busy disk takes its time.
    plan.duration = Duration::from_secs(2);
    let server = PostgresServer::shared();
    for (mode, with_bare) in [("lease", true), ("row", true), ("row", false)] {
        plan.with_bare = with_bare;
        let database = server.database();
        let target = Openers::compiled_in().target("db", format!("{database}?mode={mode}"));
        let report = measure(&plan, target.unwrap()).await;
        assert_eq!(report.series.len(), 1 + usize::from(with_bare));
        for series in &report.series {
            assert!(series.samples[0].acquisitions > 0, "{series:?}");
        }
        let warned = report.environment.warnings.iter();
        let stays: Vec<_> = warned.filter(|w| w.contains("keeps what")).collect();
        assert!(stays.is_empty(), "{stays:?}");
        let tables = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'polylock_bench%'";
        assert_eq!(server.sql(&database, tables).concat(), [""; 0], "{mode}");
    }
}

/// What docs/backends/redis.md lists.
const RIGHTS: &str = "resetchannels &polylock:* -@all +hello +eval +evalsha +get +set +append +del \
     +exists +time +pttl +pexpire +pexpireat +pexpiretime +hget +hset +hdel +hexists +hkeys +zadd \
     +zcard +zrange +zrangebyscore +zrank +zrem +zscore +publish +subscribe";

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_user_with_no_more_rights_than_locks_need_can_be_measured() {
    let keys = |prefix: &str| format!("resetkeys ~{prefix} ~{{{prefix} ~{{*}}:{{{prefix}");
    let options = RedisOptions::new()
        .with_user("least", &format!("on >secret {} {RIGHTS}", keys("lock:*")))
        .with_user(
            "less",
            &format!("on >secret {} {RIGHTS}", keys("lock:lock-bench/*")),
        );
    let server = RedisServer::start(options);
    for (user, has_limit) in [("least", true), ("less", false)] {
        let at = format!("127.0.0.1:{}", server.port());
        let url = format!("redis://{user}:secret@{at}?namespace=lock");
        let target = Openers::compiled_in().target("redis", url).unwrap();
        let mut plan = plan(&[Workload::Uncontended], 1);
        plan.duration = Duration::from_secs(1);
        let report = measure(&plan, target).await;
        assert_eq!(report.series.len(), 1 + usize::from(has_limit), "{user}");
        for series in &report.series {
            let sample = &series.samples[0];
            assert!(
                sample.acquisitions > 0 && sample.errors.is_empty(),
                "{sample:?}"
            );
        }
        let warnings = report.environment.warnings.join("\n");
        assert!(
            warnings.contains("redis has no figures in round trips"),
            "{warnings}"
        );
        assert_eq!(
            warnings.contains("redis is measured without its limit"),
            !has_limit,
            "{warnings}"
        );
        assert!(!warnings.contains("secret"), "{warnings}");
    }
}
