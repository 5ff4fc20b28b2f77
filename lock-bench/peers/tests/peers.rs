//! Every peer on a real server: it can be measured, alone and contended, and is found to exclude.

use std::process::Command;
use std::time::Duration;

use lock_bench_peers::openers;
use lock_testkit::servers::{
    EtcdServer, PostgresServer, RedisOptions, RedisServer, ZooKeeperServer,
};
use polylock_bench::plan::{ContendersAs, Plan, Workload};
use polylock_bench::report::{Report, TargetKind};
use polylock_bench::run;
use polylock_bench::target::Openers;

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
    let report = run(plan, vec![target], &|_, _, _| {}).await.unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn every_library_is_measured_and_excludes() {
    let (redis, postgres) = (redis(), PostgresServer::shared());
    let zookeeper = ZooKeeperServer::shared();
    let etcd = format!("etcd://127.0.0.1:{}/locks", EtcdServer::shared()[0]);
    for (scheme, url, library) in [
        ("rslock", redis.url(), "rslock 0.10"),
        (
            "distributed-lock",
            redis.url(),
            "distributed-lock-redis 0.2",
        ),
        (
            "distributed-lock",
            postgres.database(),
            "distributed-lock-postgres 0.2",
        ),
        ("sqlx-advisory", postgres.database(), "sqlx 0.9"),
        ("etcd-client", etcd, "etcd-client 0.21"),
        ("zookeeper-client", zookeeper.url(), "zookeeper-client 0.11"),
    ] {
        let report = measured(&openers(), &plan(), &format!("{scheme}+{url}")).await;
        assert_eq!(report.series.len(), 2, "{library}");
        let target = &report.targets[0];
        let TargetKind::Peer { library: named } = &target.kind else {
            panic!("{:?}", target.kind);
        };
        assert!(named.starts_with(library), "{named}");
        assert!(target.facts.contains_key("version"), "{:?}", target.facts);
        assert!(target.round_trip.is_some(), "{library}");
    }
}

fn redis() -> RedisServer {
    RedisServer::start(RedisOptions::new())
}

#[tokio::test(flavor = "multi_thread")]
async fn contenders_may_be_processes() {
    let (server, mut plan) = (redis(), plan());
    plan.contenders_as = ContendersAs::Processes;
    let program = env!("CARGO_BIN_EXE_lock-bench-peers");
    let openers = openers().with_worker(program);
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
    let refused = run(&plan(), vec![target], &|_, _, _| {}).await.unwrap_err();
    assert!(!refused.to_string().contains("s3cret"), "{refused}");
}

#[test]
fn a_run_of_the_program_has_peers_beside_locks_of_polylock() {
    let server = redis();
    let place = tempfile::tempdir().unwrap();
    let (json, html) = (place.path().join("run.json"), place.path().join("run.html"));
    let options =
        "--workload uncontended --contenders 1 --repeat 1 --duration 200ms --warm-up 50ms";
    let done = Command::new(env!("CARGO_BIN_EXE_lock-bench-peers"))
        .arg(format!("polylock={}", server.url()))
        .arg(format!("rslock=rslock+{}", server.url()))
        .args(options.split(' '))
        .arg("--json")
        .arg(&json)
        .arg("--html")
        .arg(&html)
        .output()
        .unwrap();
    let out = String::from_utf8(done.stdout).unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{out}{errors}");
    for name in ["polylock", "rslock"] {
        assert!(out.lines().any(|line| line.starts_with(name)), "{out}");
    }
    let report = Report::from_json(&std::fs::read_to_string(json).unwrap()).unwrap();
    // With the bare commands of ours.
    assert_eq!(report.targets.len(), 3);
    assert!(std::fs::read_to_string(html).unwrap().contains("rslock"));
}
