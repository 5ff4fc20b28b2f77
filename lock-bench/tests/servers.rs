//! What servers tell the benchmark of themselves.

#![cfg(all(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zk"
))]

use std::collections::BTreeMap;

use lock_bench::servers::{self, Server};
use lock_testkit::servers::{
    Fsync, MariaDbServer, PostgresServer, RedisOptions, RedisServer, ZooKeeperServer,
};
use polylock::LockUrl;

async fn open(url: &str) -> Server {
    let url = LockUrl::parse(url).expect("a URL");
    let server = servers::of(&url).await.expect("it serves");
    server.expect("it has a server")
}

async fn facts(server: &Server) -> BTreeMap<String, String> {
    server.probe().ping().await.expect("it answers");
    server.probe().facts().await.expect("it tells")
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
        assert!(server.bare().is_some());
        assert!(!format!("{server:?} {facts:?}").contains("s3cret"));
    }
    let wrong = format!("redis://:s3cret-and-wrong@127.0.0.1:{}", server.port());
    let failure = servers::of(&LockUrl::parse(&wrong).unwrap()).await;
    let failure = failure.unwrap_err();
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
    assert_eq!(postgres.probe().commands().await.unwrap(), None);

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
        assert!(server.probe().ping().await.is_err());
        assert_eq!(server.probe().commands().await.unwrap(), None);
        let facts = server.probe().facts().await.unwrap();
        assert!(facts["server"].contains("not asked"), "{facts:?}");
        assert!(server.bare().is_none());
    }
    for url in ["memory:", "sqlite:locks.db"] {
        let server = servers::of(&LockUrl::parse(url).unwrap()).await;
        assert!(server.unwrap().is_none());
    }
}
