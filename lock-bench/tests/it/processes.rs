//! Contenders that are processes.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use lock_testkit::servers::{PostgresOptions, PostgresServer, RedisOptions, RedisServer};
use polylock_bench::plan::{ContendersAs, Plan, Workload};
use polylock_bench::target::Openers;

use crate::support::{
    self, memory, memory_dir, openers_with_processes, plan, redis, run, sqlite, worker,
};

fn plan_of_processes(workloads: &[Workload], contenders: u32) -> Plan {
    let mut plan = plan(workloads, contenders);
    plan.contenders_as = ContendersAs::Processes;
    plan
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_exclude_each_other_and_hand_over() {
    let dir = memory_dir();
    let server = RedisServer::start(RedisOptions::default());
    let mut plan = plan_of_processes(&[Workload::HandOff], 3);
    // Each has its turn, on a machine that is busy too.
    plan.duration = Duration::from_secs(1);
    plan.warm_up = Duration::from_millis(200);
    let targets = vec![memory(), sqlite(&dir), redis(&server)];
    let report = run(&plan, targets).await.unwrap();
    let warnings = report.environment.warnings.join("\n");
    assert!(warnings.contains("memory is left out"), "{warnings}");
    assert_eq!(report.series.len(), 2);
    for series in &report.series {
        let sample = &series.samples[0];
        assert!(sample.errors.is_empty(), "{series}: {:?}", sample.failures);
        assert_eq!(sample.violations, [""; 0], "{series}");
        assert_eq!(sample.per_contender.len(), 3, "{series}");
        let is_measured = sample.acquisitions > 0 && sample.client_processors > 0.0;
        assert!(is_measured, "{series}: {sample:?}");
        // The server has a queue, in which the others stand already.
        if series.target == "redis" {
            let shares = &sample.per_contender;
            assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
            let hand_offs = sample.hand_off.len();
            assert!(hand_offs > sample.acquisitions / 2, "{shares:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_holders_free_their_lock() {
    let dir = memory_dir();
    let server = RedisServer::start(RedisOptions::default());
    tokio::join!(check_recovery(sqlite(&dir)), check_recovery(redis(&server)));
}

async fn check_recovery(target: polylock_bench::target::Target) {
    let mut report = support::measure(&plan(&[Workload::CrashRecovery], 1), target).await;
    let series = report.series.remove(0);
    assert_eq!(series.parameters.ttl_ms, 1_000);
    let sample = &series.samples[0];
    assert_eq!(sample.violations, [""; 0]);
    assert!(sample.errors.is_empty(), "{:?}", sample.failures);
    assert_eq!(sample.recovery_ns.len(), 3);
    // The last renewal may have been at any time in the lease before the kill.
    let usual = 100_000_000..4_000_000_000;
    let mut times = sample.recovery_ns.iter();
    assert!(times.all(|time| usual.contains(time)), "{sample:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_processes_contend_for_a_lock_in_redis() {
    let server = RedisServer::start(RedisOptions::default());
    let target = redis(&server);
    let mut plan = plan_of_processes(&[Workload::Contended, Workload::Uncontended], 64);
    // All of them open their first connection at a time.
    plan.warm_up = Duration::from_secs(1);
    plan.duration = Duration::from_secs(1);
    let report = support::measure(&plan, target).await;
    for (series, least) in report.series.iter().zip([1, 64]) {
        let sample = &series.samples[0];
        assert!(sample.errors.is_empty(), "{:?}", sample.failures);
        assert_eq!(sample.violations, [""; 0]);
        assert_eq!(sample.per_contender.len(), 64);
        assert!(sample.acquisitions >= least, "{:?}", sample.per_contender);
        assert!(sample.commands > Some(0), "the server counts");
    }
    assert!(report.targets[0].round_trip.is_some());
}

/// Three connections for each of them would be more than a server grants to one host by default.
#[cfg(feature = "zk")]
#[tokio::test(flavor = "multi_thread")]
async fn a_process_opens_no_more_than_what_it_measures() {
    use lock_testkit::servers::{ZooKeeperOptions, ZooKeeperServer};

    let options = ZooKeeperOptions::new().with_config("maxClientCnxns", "60");
    let server = ZooKeeperServer::start(options);
    let target = openers_with_processes().target("zk", server.url()).unwrap();
    let mut plan = plan_of_processes(&[Workload::Uncontended], 24);
    plan.with_bare = true;
    plan.warm_up = Duration::from_secs(1);
    plan.duration = Duration::from_secs(1);
    let report = support::measure(&plan, target).await;
    let names: Vec<_> = report.series.iter().map(|series| &*series.target).collect();
    assert_eq!(names, ["zk", "zk (bare)"]);
    for series in &report.series {
        let sample = &series.samples[0];
        assert!(sample.errors.is_empty(), "{:?}", sample.failures);
        assert_eq!(sample.per_contender.len(), 24);
        assert!(sample.acquisitions > 0, "{sample:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_footprint_has_memory_renewals_and_waiters() {
    let mut plan = plan(&[Workload::Footprint], 1);
    plan.ttl = Duration::from_secs(3);
    plan.duration = Duration::from_secs(2);
    let report = support::measure(&plan, memory()).await;
    let sample = &report.series[0].samples[0];
    assert!(sample.errors.is_empty(), "{:?}", sample.failures);
    let footprint = sample.footprint.as_ref().unwrap();
    assert_eq!((sample.acquisitions, footprint.locks), (1_000, 1_000));
    assert!(
        footprint.served_ns > 0 && footprint.used_once > 0,
        "{footprint:?}"
    );
    let figures = report.figures(&report.series[0]);
    let [held, waiting, processors] = [
        figures.held_bytes,
        figures.waiting_bytes,
        figures.renewal_processors,
    ]
    .map(|spread| spread.unwrap().median);
    // A lock takes a kilobyte or so, and a debug build not a hundred times as much.
    assert!((100.0..100_000.0).contains(&held), "{held} bytes");
    assert!(waiting < 100_000.0, "{footprint:?}");
    assert!(processors < 2.0, "{sample:?}");
    assert_eq!((figures.throughput, figures.commands), (None, None));
}

/// Each row lock has a connection for itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_footprint_has_as_many_locks_as_there_are_connections() {
    let server = PostgresServer::start(PostgresOptions::new());
    let url = format!("{}?mode=row&connections=4", server.url());
    let target = openers_with_processes().target("rows", url).unwrap();
    let report = support::measure(&plan_of_processes(&[Workload::Footprint], 1), target).await;
    let sample = &report.series[0].samples[0];
    assert_eq!(sample.errors, [("not held".to_owned(), 1)].into());
    let footprint = sample.footprint.as_ref().unwrap();
    assert_eq!(footprint.locks, 4);
    assert!(footprint.served_ns > 0, "{footprint:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_no_contender_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", dir.path().join("secret.db").display());
    for program in ["/bin/true", "/bin/echo"] {
        let openers = Openers::compiled_in().with_worker(program);
        let target = openers.target("sqlite", &*file).unwrap();
        let plan = plan_of_processes(&[Workload::Contended], 1);
        let failure = run(&plan, vec![target]).await.unwrap_err();
        assert_eq!(failure.kind(), "processes", "{program}");
        assert!(!failure.message().contains("secret"), "{failure}");
    }
}

#[test]
fn a_contender_ends_with_its_parent_and_says_nothing_of_what_it_read() {
    for text in ["", "redis://:secret@host\n"] {
        let mut child = Command::new(worker())
            .arg(polylock_bench::worker::ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the example starts");
        let mut input = child.stdin.take().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        assert!(!output.status.success(), "{text}");
        let said = [output.stdout, output.stderr].concat();
        assert!(!String::from_utf8_lossy(&said).contains("secret"));
    }
}
