//! Bare commands on real servers: they exclude, and what is made for them goes.

use std::time::Duration;

use lock_testkit::servers::{
    Fsync, MariaDbServer, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
    ZooKeeperServer,
};

use super::names::unique;
use super::*;
use crate::clock;
use crate::measure::{Window, sample};
use crate::subject::LOST;
use crate::workloads::ContenderJob;

const RUN: u64 = 0xb;
const TTL: Duration = Duration::from_secs(30);

async fn bare_of(url: &str) -> Result<Option<Opened>, Failure> {
    bare(&LockUrl::parse(url).unwrap(), RUN, "locks").await
}

async fn limit(url: &str) -> Opened {
    let bare = bare_of(url).await.unwrap();
    bare.expect("it has bare commands")
}

async fn asker(url: &str) -> Arc<dyn Probe> {
    let probe = probe(&LockUrl::parse(url).unwrap()).await.unwrap();
    probe.expect("it has a server")
}

/// Two contenders want one lock for a while, and never hold it at a time.
async fn contend(limit: &Opened, url: &str) {
    let start = clock::now();
    let window = Window {
        start,
        from: start,
        end: start + 1_000_000_000,
    };
    let job = ContenderJob {
        contenders: 0..2,
        keys: 1,
        rate: None,
        prefix: unique(),
        hold: Duration::from_millis(1),
        ttl: TTL,
        max_spans: 1_000_000,
        seed: 1,
    };
    let recorded = limit.contend(job, window).await.unwrap();
    let sample = sample(recorded, 2, window, false);
    assert_eq!(sample.violations, [""; 0], "{url}");
    assert!(
        sample.acquisitions > 0 && sample.held_ns > 0,
        "{url}: {sample:?}"
    );
}

#[tokio::test]
async fn bare_commands_exclude() {
    let redis = RedisServer::start(RedisOptions::new());
    let mut urls = vec![
        "memory:".to_owned(),
        redis.url(),
        ZooKeeperServer::shared().url(),
    ];
    for database in [
        PostgresServer::shared().database(),
        MariaDbServer::shared().database(),
    ] {
        urls.extend(["advisory", "lease", "row"].map(|mode| format!("{database}?mode={mode}")));
    }
    for url in urls {
        let limit = limit(&url).await;
        contend(&limit, &url).await;
        let acquire = |wait| limit.acquire("held".to_owned(), TTL, wait);
        let held = acquire(SOON).await.unwrap().unwrap();
        let refused = acquire(Duration::from_millis(20)).await.unwrap();
        assert!(refused.is_none(), "{url}");
        held.release.await.unwrap();
        // The statement of a waiter that gave up may be granted first, until its server sees that
        // its connection is closed.
        let next = acquire(SOON).await.unwrap().unwrap();
        next.release.await.unwrap();
    }
}

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn bare_commands_of_redis_release_what_is_theirs() {
    let server = RedisServer::start(RedisOptions::new());
    let limit = limit(&server.url()).await;
    let acquire = |name: &str| limit.acquire(name.to_owned(), TTL, Duration::ZERO);
    let held = acquire("stolen").await.unwrap().unwrap();
    server.command(&["SET", "lock-bench-bare:stolen", "of another holder"]);
    assert_eq!(held.release.await.unwrap_err().kind(), LOST);
    let other = acquire("stolen").await.unwrap();
    assert!(other.is_none(), "the other one still has it");
    let held = acquire("forgotten").await.unwrap().unwrap();
    server.command(&["SCRIPT", "FLUSH"]);
    held.release.await.unwrap();
}

#[tokio::test]
async fn tables_are_of_one_run_and_go_with_it() {
    let of_postgres = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'polylock_bench%'";
    for (server, tables) in [
        (PostgresServer::shared(), of_postgres),
        (
            MariaDbServer::shared(),
            "SHOW TABLES LIKE 'polylock_bench%'",
        ),
    ] {
        let text = server.database();
        let tables = || server.sql(&text, tables).concat();
        let url = LockUrl::parse(&format!("{text}?mode=lease")).unwrap();
        // The last one as another process of a run does.
        for run in [0x1a, 0x1b, 0x1a] {
            assert!(bare(&url, run, "locks").await.unwrap().is_some());
        }
        clear(&url, 0x1a).await.unwrap();
        assert_eq!(tables(), ["polylock_bench_1b"]);
        clear(&url, 0x1b).await.unwrap();
        clear(&url, 0x1b).await.unwrap();
        assert_eq!(tables(), [""; 0]);
    }
}

#[tokio::test]
async fn without_leave_to_make_a_table_there_is_no_limit() {
    let server = PostgresServer::start(PostgresOptions::new().with_user("reader", "s3cret"));
    let url = format!("{}?create-table=off", server.url());
    assert!(bare_of(&url).await.unwrap().is_none());
    let url = format!("postgres://reader:s3cret@127.0.0.1:{}/test", server.port());
    asker(&url).await.ping().await.unwrap();
    let refused = bare_of(&url).await.unwrap_err();
    assert_eq!(refused.kind(), "refused", "{refused}");
    assert!(!refused.to_string().contains("s3cret"), "{refused}");
}

#[tokio::test]
async fn without_the_right_to_nodes_there_is_no_limit() {
    let server = ZooKeeperServer::shared().url();
    let hosts = server.trim_start_matches("zk://").trim_end_matches('/');
    let client = zookeeper_client::Client::connect(hosts).await.unwrap();
    let read_only =
        zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_read());
    let root = format!("/{}", unique());
    client
        .create(&format!("{root}-bare"), &[], &read_only)
        .await
        .unwrap();
    let refused = bare_of(&format!("zk://{hosts}{root}")).await.unwrap_err();
    assert_eq!(refused.kind(), "refused", "{refused}");
}

#[tokio::test]
async fn servers_tell_their_versions_and_what_they_keep() {
    let options = RedisOptions::new()
        .with_aof(Fsync::EverySecond)
        .with_password("s3cret");
    let redis = RedisServer::start(options);
    let tcp = format!("redis://:s3cret@127.0.0.1:{}/3", redis.port());
    let socket = format!("{}?password=s3cret", redis.socket_url());
    let zookeeper = ZooKeeperServer::shared().url();
    let zookeeper = format!("{zookeeper}/bench-facts?session-timeout=8s");
    let redis_facts: &[_] = &[
        ("version", "Redis "),
        ("appendonly", "yes"),
        ("appendfsync", "everysec"),
        ("save", "none"),
        ("maxmemory-policy", "noeviction"),
    ];
    let zookeeper_facts: &[_] = &[
        ("version", "ZooKeeper 3."),
        ("servers", "1"),
        ("session-timeout", "8s"),
    ];
    // No figure rather than a wrong one, where statements are not counted.
    let postgres_facts: &[_] = &[
        ("version", "PostgreSQL "),
        ("fsync", "o"),
        ("synchronous_commit", "o"),
        ("commands", "not counted"),
    ];
    let mariadb_facts: &[_] = &[
        ("version", "MariaDB "),
        ("innodb_flush_log_at_trx_commit", ""),
        ("sync_binlog", ""),
    ];
    for (url, expected) in [
        (&tcp, redis_facts),
        (&socket, redis_facts),
        (&zookeeper, zookeeper_facts),
        (&PostgresServer::shared().database(), postgres_facts),
        (&MariaDbServer::shared().database(), mariadb_facts),
    ] {
        let asker = asker(url).await;
        asker.ping().await.unwrap();
        let facts = asker.facts().await.unwrap();
        for (name, begin) in expected {
            let is_told = facts.get(*name).is_some_and(|fact| fact.starts_with(begin));
            assert!(is_told, "{name} of {url}: {facts:?}");
        }
        let shown = format!("{facts:?} {:?}", limit(url).await);
        assert!(!shown.contains("s3cret"), "{shown}");
    }
    let wrong = tcp.replace("s3cret@", "s3cret-and-wrong@");
    let probed = probe(&LockUrl::parse(&wrong).unwrap()).await.err();
    let refused = [probed.unwrap(), bare_of(&wrong).await.unwrap_err()];
    assert!(!format!("{refused:?}").contains("s3cret"), "{refused:?}");
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
        let server = asker(url).await;
        assert!(server.ping().await.is_err());
        assert_eq!(server.commands().await.unwrap(), None);
        let facts = server.facts().await.unwrap();
        assert!(facts["server"].contains("not asked"), "{facts:?}");
        assert!(bare_of(url).await.unwrap().is_none(), "{url}");
    }
    let sqlite = LockUrl::parse("sqlite:locks.db").unwrap();
    assert!(probe(&sqlite).await.unwrap().is_none());
    assert!(bare_of("sqlite:locks.db").await.unwrap().is_none());
}

#[test]
fn a_node_watches_the_last_one_before_it() {
    let all = ["b-0000000007", "a-0000000012", "c-0000000003"].map(str::to_owned);
    let before = |number| zookeeper::before(number, &all);
    assert_eq!(before("0000000003"), None);
    assert_eq!(before("0000000007"), Some("c-0000000003"));
    assert_eq!(before("0000000012"), Some("b-0000000007"));
}
