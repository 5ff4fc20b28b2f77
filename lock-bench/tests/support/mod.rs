//! Short plans, targets without a URL, and figures of what came out.

#![expect(dead_code, reason = "each test program needs some of it")]

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use lock_bench::plan::{Plan, Workload};
use lock_bench::report::{Report, Sample, TargetKind};
use lock_bench::subject::Failure;
use lock_bench::target::{Opened, Opener, Openers, Runner, Target};
use lock_bench::{Progress, run};

pub(crate) struct Silent;

impl Progress for Silent {
    fn step(&self, _done: u32, _of: u32, _what: &str) {}
}

/// One short measurement of each workload.
pub(crate) fn plan(workloads: &[Workload], contenders: u32) -> Plan {
    let mut plan = Plan::default();
    plan.workloads = workloads.to_vec();
    plan.contenders = vec![contenders];
    plan.duration = Duration::from_millis(200);
    plan.warm_up = Duration::from_millis(20);
    plan.repeats = 1;
    plan
}

/// A target that is made here.
pub(crate) fn made(runner: Runner) -> Target {
    let openers = Openers::compiled_in().with(Made(runner));
    openers
        .target("made", "made:here")
        .expect("it is opened here")
}

#[derive(Debug)]
struct Made(Runner);

#[async_trait]
impl Opener for Made {
    fn schemes(&self) -> Vec<&'static str> {
        vec!["made"]
    }

    async fn open(&self, _url: &str) -> Result<Opened, Failure> {
        let kind = TargetKind::Lock {
            backend: "made".to_owned(),
        };
        Ok(Opened::new(kind, self.0.clone()))
    }
}

pub(crate) fn memory() -> Target {
    let openers = Openers::compiled_in();
    openers
        .target("memory", "memory:")
        .expect("it is compiled in")
}

pub(crate) async fn measure(plan: &Plan, target: Target) -> Report {
    let report = run(plan, vec![target], &Silent).await;
    report.expect("nothing is wrong with the plan or the target")
}

/// The only sample of the only series.
pub(crate) async fn sample(plan: &Plan, target: Target) -> Sample {
    let mut report = measure(plan, target).await;
    assert_eq!(
        (report.series.len(), report.series[0].samples.len()),
        (1, 1)
    );
    report.series.remove(0).samples.remove(0)
}

/// Jain's index: 1 if all got the same, 1/n if one got all.
pub(crate) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Openers whose contenders are processes of the example.
pub(crate) fn openers_with_processes() -> Openers {
    Openers::compiled_in().with_worker(worker(), [lock_bench::worker::ARGUMENT])
}

/// The example, which cargo builds with the tests.
pub(crate) fn worker() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let target = test
        .ancestors()
        .nth(2)
        .expect("a test lies in target/*/deps");
    let program = target.join("examples/worker");
    assert!(program.exists(), "`cargo build -p lock-bench --examples`");
    program
}
