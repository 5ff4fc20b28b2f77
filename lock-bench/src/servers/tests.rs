//! Bare commands on real servers: they exclude and are counted, and what is made for them goes.

use std::time::Duration;

use lock_testkit::servers::{
    Fsync, MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer, RedisOptions,
    RedisServer, ZooKeeperOptions, ZooKeeperServer,
};

use super::*;
use crate::clock;
use crate::measure::{Window, sample};
use crate::subject::LOST;
use crate::target::Runner;
use crate::workloads::{Job, Task};

const RUN: u64 = 0xb;
const TTL: Duration = Duration::from_secs(30);

async fn limit(url: &str) -> Runner {
    let bare = bare(&LockUrl::parse(url).unwrap(), RUN).await.unwrap();
    bare.expect("it has bare commands").runner
}

async fn asker(url: &str) -> Arc<dyn Probe> {
    let probe = probe(&LockUrl::parse(url).unwrap()).await.unwrap();
    probe.expect("it has a server")
}

async fn facts(url: &str) -> BTreeMap<String, String> {
    let asker = asker(url).await;
    asker.ping().await.unwrap();
    asker.facts().await.unwrap()
}

/// What contenders have done, each with a hold of so long.
#[derive(Default)]
struct Done {
    acquisitions: u64,
    held_ns: u64,
    windows: u64,
}

/// Lets them contend in short windows until they had the lock often enough.
async fn contended(limit: &Runner, contenders: u32, hold: Duration) -> Done {
    let (mut done, deadline) = (Done::default(), Instant::now() + Duration::from_secs(60));
    while done.acquisitions < 50 {
        let count = done.acquisitions;
        assert!(Instant::now() < deadline, "{count} in a minute");
        let start = clock::now();
        let window = Window {
            start,
            from: start,
            end: start + 500_000_000,
        };
        let job = Job {
            task: Task::Closed { has_own_key: false },
            contenders: 0..contenders,
            prefix: format!("contended-{}", unique()),
            hold,
            ttl: TTL,
            most_spans: 1_000_000,
            seed: 1,
        };
        let recorded = limit.contend(job, window).await.unwrap();
        let sample = sample(recorded, contenders, window, false);
        assert_eq!(sample.violations, [""; 0]);
        let mut kinds = sample.errors.keys();
        // Of a slow server.
        assert!(
            kinds.all(|kind| kind == "unserved"),
            "{:?}",
            sample.failures
        );
        done.acquisitions += sample.acquisitions;
        done.held_ns += sample.held_ns;
        done.windows += 1;
    }
    done
}

/// Two contenders never have the lock at a time, and a third that does not wait is refused.
async fn excludes(url: &str) {
    let limit = limit(url).await;
    let done = contended(&limit, 2, Duration::from_millis(1)).await;
    assert!(done.held_ns > 20_000_000, "{url}: holds have a length");
    let take = |wait| limit.take("held".to_owned(), TTL, wait);
    let held = take(SOON).await.unwrap().unwrap();
    let refused = take(Duration::from_millis(20)).await.unwrap();
    assert!(refused.is_none(), "{url}");
    held.release.await.unwrap();
    // The statement of a waiter that gave up may be granted first, until its server sees that its
    // connection is closed.
    let next = take(SOON).await.unwrap().unwrap();
    next.release.await.unwrap();
}

/// Compares what the server counts with that for each pair.
async fn check_commands(url: &str, of_a_pair: u64) {
    let (asker, limit) = (asker(url).await, limit(url).await);
    // Connects, and makes what others find.
    contended(&limit, 1, Duration::ZERO).await;
    let before = asker.commands().await.unwrap().unwrap();
    let done = contended(&limit, 1, Duration::ZERO).await;
    // The questions count, each once.
    let used = asker.commands().await.unwrap().unwrap() - before - 1;
    let least = of_a_pair * done.acquisitions;
    // One pair in each window may end behind it; a new key may need a row, and sessions heartbeats.
    let most = least + done.windows * (of_a_pair + 3);
    let pairs = done.acquisitions;
    assert!(
        (least..=most).contains(&used),
        "{url}: {used} of {pairs} pairs"
    );
}

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn bare_commands_of_redis_exclude_and_are_counted() {
    let server = RedisServer::start(RedisOptions::new());
    let url = server.url();
    // Two of the client, and two inside of the script.
    check_commands(&url, 4).await;
    excludes(&url).await;

    let limit = limit(&url).await;
    let take = |name: &str| limit.take(name.to_owned(), TTL, Duration::ZERO);
    let held = take("stolen").await.unwrap().unwrap();
    server.command(&["SET", "lock-bench-bare:stolen", "of another holder"]);
    assert_eq!(held.release.await.unwrap_err().kind(), LOST);
    assert!(
        take("stolen").await.unwrap().is_none(),
        "the other one still has it"
    );
    let held = take("forgotten").await.unwrap().unwrap();
    server.command(&["SCRIPT", "FLUSH"]);
    held.release.await.unwrap();
}

#[tokio::test]
async fn bare_requests_of_zookeeper_exclude_and_are_counted() {
    let server = ZooKeeperServer::start(ZooKeeperOptions::new());
    check_commands(&server.url(), 3).await;
    excludes(&server.url()).await;
}

#[tokio::test]
async fn bare_statements_exclude_and_are_counted() {
    let options =
        PostgresOptions::new().with_config("shared_preload_libraries", "pg_stat_statements");
    let postgres = PostgresServer::start(options);
    postgres.sql("CREATE EXTENSION pg_stat_statements");
    postgres.sql("GRANT pg_read_all_stats TO test");
    let mariadb = MariaDbServer::start(MariaDbOptions::new());
    for url in [postgres.url(), mariadb.url()] {
        for (mode, statements) in [("advisory", 2), ("lease", 2), ("row", 3)] {
            let url = format!("{url}?mode={mode}");
            check_commands(&url, statements).await;
            excludes(&url).await;
        }
    }
}

#[tokio::test]
async fn tables_are_of_one_run_and_go_with_it() {
    let (postgres, mariadb) = (PostgresServer::shared(), MariaDbServer::shared());
    let of_postgres = |url: &str| {
        let tables = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'polylock_bench%'";
        postgres.sql(url, tables).concat()
    };
    let of_mariadb = |url: &str| {
        let tables = "SHOW TABLES LIKE 'polylock_bench%'";
        mariadb.sql(url, tables).concat()
    };
    type Tables<'a> = &'a dyn Fn(&str) -> Vec<String>;
    let tables_of: [(String, Tables<'_>); 2] = [
        (postgres.database(), &of_postgres),
        (mariadb.database(), &of_mariadb),
    ];
    for (text, tables) in tables_of {
        let url = LockUrl::parse(&format!("{text}?mode=lease")).unwrap();
        // The last one as another process of a run does.
        for run in [0x1a, 0x1b, 0x1a] {
            assert!(bare(&url, run).await.unwrap().is_some());
        }
        clear(&url, 0x1a).await.unwrap();
        assert_eq!(tables(&text), ["polylock_bench_1b"]);
        clear(&url, 0x1b).await.unwrap();
        clear(&url, 0x1b).await.unwrap();
        assert_eq!(tables(&text), [""; 0]);
    }
}

#[tokio::test]
async fn without_leave_to_make_a_table_there_is_no_limit() {
    let server = PostgresServer::start(PostgresOptions::new().with_user("reader", "s3cret"));
    let text = format!("{}?create-table=off", server.url());
    let url = LockUrl::parse(&text).unwrap();
    assert!(bare(&url, RUN).await.unwrap().is_none());
    let url = format!("postgres://reader:s3cret@127.0.0.1:{}/test", server.port());
    asker(&url).await.ping().await.unwrap();
    let refused = bare(&LockUrl::parse(&url).unwrap(), RUN).await.unwrap_err();
    assert_eq!(refused.kind(), "refused", "{refused}");
    assert!(!refused.to_string().contains("s3cret"), "{refused}");
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
        let facts = facts(url).await;
        for (name, begin) in expected {
            let is_told = facts.get(*name).is_some_and(|fact| fact.starts_with(begin));
            assert!(is_told, "{name} of {url}: {facts:?}");
        }
        let shown = format!("{:?} {facts:?} {:?}", asker(url).await, limit(url).await);
        assert!(!shown.contains("s3cret"), "{shown}");
    }
    let wrong = LockUrl::parse(&tcp.replace("s3cret@", "s3cret-and-wrong@")).unwrap();
    let refused = [
        probe(&wrong).await.unwrap_err(),
        bare(&wrong, RUN).await.unwrap_err(),
    ];
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
        let bare = bare(&LockUrl::parse(url).unwrap(), RUN).await.unwrap();
        assert!(bare.is_none(), "{url}");
    }
    let sqlite = LockUrl::parse("sqlite:locks.db").unwrap();
    assert!(probe(&sqlite).await.unwrap().is_none());
    assert!(bare(&sqlite, RUN).await.unwrap().is_none());
}

#[tokio::test]
async fn mutexes_are_the_limit_of_memory() {
    excludes("memory:").await;
}

#[test]
fn a_node_watches_the_last_one_before_it() {
    let all = ["b-0000000007", "a-0000000012", "c-0000000003"].map(str::to_owned);
    let before = |number| zookeeper::before(number, &all);
    assert_eq!(before("0000000003"), None);
    assert_eq!(before("0000000007"), Some("c-0000000003"));
    assert_eq!(before("0000000012"), Some("b-0000000007"));
}
