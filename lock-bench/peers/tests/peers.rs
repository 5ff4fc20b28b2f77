//! Every peer on a real server: it can be measured, alone and contended, and is found to exclude.

use std::process::Command;
use std::time::Duration;

use lock_bench::plan::{ContendersAs, Plan, Workload};
use lock_bench::report::{Report, TargetKind};
use lock_bench::target::Openers;
use lock_bench::{Progress, run, worker};
use lock_bench_peers::openers;
use lock_testkit::servers::{PostgresServer, RedisOptions, RedisServer, ZooKeeperServer};

struct Silence;

impl Progress for Silence {
    fn step(&self, _: u32, _: u32, _: &str) {}
}

fn plan() -> Plan {
    let mut plan = Plan::default();
    plan.workloads = vec![Workload::Uncontended, Workload::Contended];
    plan.contenders = vec![2];
    plan.duration = Duration::from_millis(400);
    plan.warm_up = Duration::from_millis(100);
    plan.repeats = 1;
    plan.with_bare = false;
    plan
}

async fn measured(openers: &Openers, plan: &Plan, url: &str) -> Report {
    let target = openers.target("peer", url).unwrap();
    let report = run(plan, vec![target], &Silence).await.unwrap();
    assert_eq!(report.violations(), Vec::<String>::new());
    for series in &report.series {
        for sample in &series.samples {
            assert!(sample.acquisitions > 0, "{series:?}");
            assert!(sample.errors.is_empty(), "{:?}", sample.errors);
            assert_eq!(sample.per_contender.len(), 2);
        }
    }
    report
}

async fn can_be_measured(url: &str, library: &str) {
    let report = measured(&openers(), &plan(), url).await;
    assert_eq!(report.series.len(), 2);
    let target = &report.targets[0];
    let TargetKind::Peer { library: named } = &target.kind else {
        panic!("{:?}", target.kind);
    };
    assert!(named.starts_with(library), "{named}");
    assert!(target.facts.contains_key("version"), "{:?}", target.facts);
    assert!(target.round_trip.is_some());
}

fn redis() -> RedisServer {
    RedisServer::start(RedisOptions::new())
}

#[tokio::test(flavor = "multi_thread")]
async fn rslock() {
    let server = redis();
    can_be_measured(&format!("rslock+{}", server.url()), "rslock 0.10").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distributed_lock_on_redis() {
    let server = redis();
    let url = format!("distributed-lock+{}", server.url());
    can_be_measured(&url, "distributed-lock-redis 0.2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distributed_lock_on_postgres() {
    let url = format!("distributed-lock+{}", PostgresServer::shared().database());
    can_be_measured(&url, "distributed-lock-postgres 0.2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn advisory_lock_of_sqlx() {
    let url = format!("sqlx-advisory+{}", PostgresServer::shared().database());
    can_be_measured(&url, "sqlx 0.9").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_of_zookeeper_client() {
    let url = format!("zookeeper-client+{}", ZooKeeperServer::shared().url());
    can_be_measured(&url, "zookeeper-client 0.11").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contenders_may_be_processes() {
    let (server, mut plan) = (redis(), plan());
    plan.contenders_as = ContendersAs::Processes;
    let program = env!("CARGO_BIN_EXE_lock-bench-peers");
    let openers = openers().with_worker(program, [worker::ARGUMENT]);
    measured(&openers, &plan, &format!("rslock+{}", server.url())).await;
}

#[tokio::test]
async fn a_wrong_url_is_refused_without_its_password() {
    for url in [
        "rslock+redis:s3cret",
        "distributed-lock+redis://:s3cret@127.0.0.1:1",
        "sqlx-advisory+postgres://test:s3cret@127.0.0.1:1/test",
        "zookeeper-client+zk://test:s3cret@127.0.0.1:1",
    ] {
        let target = openers().target("peer", url).unwrap();
        assert!(!format!("{target:?}").contains("s3cret"), "{target:?}");
    }
    let target = openers().target("peer", "rslock+redis:s3cret").unwrap();
    let refused = run(&plan(), vec![target], &Silence).await.unwrap_err();
    assert!(!refused.to_string().contains("s3cret"), "{refused}");
}

#[test]
fn a_run_of_the_program_has_peers_beside_locks_of_polylock() {
    let server = redis();
    let place = tempfile::tempdir().unwrap();
    let (json, html) = (place.path().join("run.json"), place.path().join("run.html"));
    let done = Command::new(env!("CARGO_BIN_EXE_lock-bench-peers"))
        .arg(format!("polylock={}", server.url()))
        .arg(format!("rslock=rslock+{}", server.url()))
        .args([
            "--workload",
            "uncontended",
            "--contenders",
            "1",
            "--repeat",
            "1",
        ])
        .args(["--duration", "200ms", "--warm-up", "50ms"])
        .arg("--json")
        .arg(&json)
        .arg("--html")
        .arg(&html)
        .output()
        .unwrap();
    let out = String::from_utf8(done.stdout).unwrap();
    assert!(
        done.status.success(),
        "{out}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    for name in ["polylock", "rslock"] {
        assert!(out.lines().any(|line| line.starts_with(name)), "{out}");
    }
    let report = Report::from_json(&std::fs::read_to_string(json).unwrap()).unwrap();
    // With the bare commands of ours.
    assert_eq!(report.targets.len(), 3);
    assert!(std::fs::read_to_string(html).unwrap().contains("rslock"));
}
