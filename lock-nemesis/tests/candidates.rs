//! What 1,000 candidates of one election cost a server, and how much longer an election is without a leader than
//! a lock without a holder. Measured and not judged, apart from the ratio; each client has connections of its
//! own. The figures are in docs/coordination.md:
//!
//! ```console
//! $ cargo nextest run -p lock-nemesis --run-ignored only --no-capture candidates
//! ```
#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use lock_testkit::servers::{
    PostgresOptions, PostgresServer, RedisOptions, RedisServer, ServerProcess, ZooKeeperOptions,
    ZooKeeperServer,
};
use polylock::DistributedLock;
use polylock::coordination::{Election, Leadership};
use polylock::prelude::*;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const CANDIDATES: usize = 1_000;
const RESIGNATIONS: usize = 20;
const IDLE: Duration = Duration::from_secs(30);
/// Pairs of hand-offs that are compared.
const ROUNDS: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures, which need a machine without other work"]
async fn candidates_on_redis() {
    let server = RedisServer::start(RedisOptions::new());
    let commands = || {
        let stats = server.command(&["INFO", "stats"]).text().expect("a text");
        field(&stats, "total_commands_processed:")
    };
    measure("redis", &server.url(), &server, commands).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures, which need a machine without other work"]
async fn two_candidates_on_postgres() {
    let server = PostgresServer::start(PostgresOptions::new());
    compare_with_lock("postgres", &format!("{}?mode=lease", server.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures, which need a machine without other work"]
async fn candidates_on_zookeeper() {
    let options = ZooKeeperOptions::new().with_config("maxClientCnxns", "0");
    let server = ZooKeeperServer::start(options);
    let packets = || field(&server.four_letter("srvr"), "Received:");
    measure("zookeeper", &server.url(), &server, packets).await;
}

async fn measure(name: &str, url: &str, server: &ServerProcess, requests: impl Fn() -> u64) {
    compare_with_lock(name, url).await;

    let mut campaigns = JoinSet::new();
    for _ in 0..CANDIDATES {
        let election = Election::new(connect(url).await, "election").expect("a name");
        campaigns.spawn(async move { election.campaign().await });
    }
    let mut leader = next(&mut campaigns).await;
    let asks = connect(url).await;
    let admin = asks.admin().expect("it has one");
    let key = LockKey::new("election").expect("a key");
    let mut waiters = 0;
    for _ in 0..60 {
        let seen = admin.inspect(&key).await.expect("the server answers");
        let seen = seen.and_then(|info| info.waiters);
        waiters = seen.map_or(0, |waiters| waiters.len());
        if waiters == CANDIDATES - 1 {
            break;
        }
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(waiters, CANDIDATES - 1, "all others wait on the server");
    sleep(Duration::from_secs(10)).await;

    let (sent, used) = (requests(), processor_time(server));
    sleep(IDLE).await;
    let per_second = |value: f64| value / IDLE.as_secs_f64();
    let (idle_sent, idle_used) = (requests() - sent, processor_time(server) - used);
    let (idle_sent, idle_used) = (per_second(idle_sent as f64), per_second(idle_used));
    println!(
        "{name}: idle {idle_sent:.1} requests/s, {:.2} % of a processor",
        idle_used * 100.0
    );

    let (sent, used, began) = (requests(), processor_time(server), Instant::now());
    let mut took = Vec::new();
    for _ in 0..RESIGNATIONS {
        let resigned = Instant::now();
        leader.resign().await.expect("the server answers");
        leader = next(&mut campaigns).await;
        took.push(resigned.elapsed());
        sleep(Duration::from_millis(500)).await;
    }
    let idle = began.elapsed().as_secs_f64();
    let each = |value: f64| value / RESIGNATIONS as f64;
    let sent = each((requests() - sent) as f64 - idle_sent * idle);
    let used = each(processor_time(server) - used - idle_used * idle) * 1e3;
    let median = median(took);
    println!("{name}: a resignation {sent:.1} requests, {used:.2} ms of a processor, {median:?}");
}

/// Two clients that hand an election to each other, and in turn a lock: from the call of the release until the
/// other one has it.
async fn compare_with_lock(name: &str, url: &str) {
    let clients = [connect(url).await, connect(url).await];
    let elections = clients.each_ref().map(|client| {
        Election::new(Arc::clone(client), "hand-off/election").expect("it is a name")
    });
    let (mut locks, mut terms) = (Vec::new(), Vec::new());
    let mut leader = elections[0].campaign().await.expect("the election is free");
    let mut guard = clients[0].lock("hand-off/lock").await.expect("it is free");
    for round in 1..=ROUNDS {
        let election = elections[round % 2].clone();
        let campaign = tokio::spawn(async move { election.campaign().await });
        let client = Arc::clone(&clients[round % 2]);
        let waiting = tokio::spawn(async move { client.lock("hand-off/lock").await });
        // Both wait on the server.
        sleep(Duration::from_millis(20)).await;
        let began = Instant::now();
        let released = tokio::spawn(guard.release());
        guard = waiting.await.expect("no panic").expect("it is released");
        locks.push(began.elapsed());
        drop(released.await);
        sleep(Duration::from_millis(5)).await;
        let began = Instant::now();
        let released = tokio::spawn(leader.resign());
        leader = campaign.await.expect("no panic").expect("it is elected");
        terms.push(began.elapsed());
        drop(released.await);
    }
    let (lock, term) = (median(locks), median(terms));
    let ratio = term.as_secs_f64() / lock.as_secs_f64();
    println!("{name}: hand-off of a lock {lock:?}, of the lead {term:?}: {ratio:.2}");
    assert!(
        ratio <= 1.3,
        "an election hands off in {ratio:.2} times the time of a lock"
    );
}

async fn connect(url: &str) -> Arc<dyn DistributedLock> {
    polylock::connect(url).await.expect("the server is there")
}

async fn next(campaigns: &mut JoinSet<polylock::Result<Leadership>>) -> Leadership {
    let elected = campaigns.join_next().await.expect("one campaigns");
    elected.expect("no panic").expect("it is elected")
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value
        .expect("the server counts")
        .trim()
        .parse()
        .expect("a number")
}

/// Seconds of a processor that the server and the processes that it has started have used.
fn processor_time(server: &ServerProcess) -> f64 {
    let mut family = HashSet::from([server.pid().to_string()]);
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").expect("Linux").flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // Behind the name, which may contain anything.
        let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let fields: Vec<_> = rest.split(' ').collect();
        let pid = entry.file_name().to_string_lossy().into_owned();
        if family.contains(&pid) || fields.get(1).is_some_and(|parent| family.contains(*parent)) {
            family.insert(pid);
            let used = fields[11..13]
                .iter()
                .filter_map(|ticks| ticks.parse::<u64>().ok());
            ticks += used.sum::<u64>();
        }
    }
    ticks as f64 / 100.0
}
