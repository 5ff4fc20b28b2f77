//! What each workload measures, on locks that need no server, and what becomes of subjects that
//! fail, hang or panic.

use std::time::Duration;

use polylock_bench::plan::{Plan, Workload};
use polylock_bench::report::Series;
use polylock_bench::target::Openers;

use crate::support::{self, Fault, faulty, memory, memory_dir, plan, run, sample};

const ALL_WITHOUT_CRASHES: [Workload; 8] = [
    Workload::Uncontended,
    Workload::Contended,
    Workload::HandOff,
    Workload::Fairness,
    Workload::HoldSweep,
    Workload::OpenLoop,
    Workload::Layer,
    Workload::Http,
];

#[tokio::test(flavor = "multi_thread")]
async fn every_workload_is_measured_on_memory_and_sqlite() {
    let dir = memory_dir();
    let mut plan = plan(&ALL_WITHOUT_CRASHES, 2);
    // Several times as long as the longest hold of the sweep.
    plan.duration = Duration::from_millis(350);
    plan.warm_up = Duration::from_millis(10);
    plan.rate = 500.0;
    let targets = vec![memory(), support::sqlite(&dir)];
    let mut report = run(&plan, targets.clone()).await.unwrap();
    // A busy machine may stall the process for most of a measurement.
    for _ in 0..2 {
        if report.series.iter().any(is_empty) {
            report = run(&plan, targets.clone()).await.unwrap();
        }
    }
    let names: Vec<_> = report.targets.iter().map(|target| &*target.name).collect();
    assert_eq!(names, ["memory", "sqlite"]);
    assert_eq!(report.series.len(), 2 * (ALL_WITHOUT_CRASHES.len() + 3));
    for series in &report.series {
        let (is_open, is_layer) = (
            series.workload == Workload::OpenLoop,
            [Workload::Layer, Workload::Http].contains(&series.workload),
        );
        let [sample] = &series.samples[..] else {
            panic!("{series}: {} samples", series.samples.len());
        };
        let of = format!("{series}: {:?} {:?}", sample.failures, sample.per_contender);
        assert_eq!(sample.duration_ns, 350_000_000, "{of}");
        assert!(
            sample.errors.is_empty() && sample.violations.is_empty(),
            "{of}"
        );
        assert_eq!(sample.per_contender.len(), 2, "{of}");
        let sum: u64 = sample.per_contender.iter().sum();
        assert!(sum > 0 && sample.acquisitions == sum, "{of}");
        let cut_short = if is_open { sample.unserved } else { 0 };
        assert_eq!(sum + cut_short, sample.acquire.len(), "{of}");
        assert!(sample.held_ns <= 2 * sample.duration_ns, "{of}");
        match series.workload {
            Workload::HandOff | Workload::Fairness => assert!(!sample.hand_off.is_empty(), "{of}"),
            Workload::Uncontended | Workload::Layer | Workload::Http => {
                assert!(sample.hand_off.is_empty(), "{of}");
            }
            _ => {}
        }
        assert_eq!(series.parameters.rate.is_some(), is_open, "{of}");
        let has_requests = sample
            .layer
            .as_ref()
            .map(|l| !l.with.is_empty() && !l.without.is_empty());
        assert_eq!(has_requests, is_layer.then_some(true), "{of}");
    }
}

/// Whether a measurement has nothing of what it is about.
fn is_empty(series: &Series) -> bool {
    let has_hand_offs = [Workload::HandOff, Workload::Fairness].contains(&series.workload);
    series.samples.iter().any(|sample| {
        let layer = sample.layer.as_ref();
        sample.acquisitions == 0
            || has_hand_offs && sample.hand_off.is_empty()
            || layer.is_some_and(|l| l.with.is_empty() || l.without.is_empty())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_open_loop_counts_from_the_intended_start() {
    let mut plan = plan(&[Workload::OpenLoop], 1);
    plan.duration = Duration::from_millis(500);
    plan.rate = 400.0;
    // 100 of them come through in a second: most of the time of a request is that in the queue.
    let slow = faulty(Fault::SlowRelease(Duration::from_millis(10)));
    let sample = sample(&plan, slow).await;
    assert!(sample.is_saturated, "{sample:?}");
    assert!(
        sample.acquire.quantile_ns(0.9) > Some(100_000_000),
        "{sample:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_over_the_end_is_in_the_latencies_of_the_open_loop() {
    let mut plan = plan(&[Workload::OpenLoop], 1);
    plan.duration = Duration::from_millis(600);
    plan.rate = 400.0;
    for stalls in [Fault::StallsUntilAfterTheEnd, Fault::StallsForEver] {
        let sample = sample(&plan, faulty(stalls)).await;
        // Those of the last 450 ms or so, of 240.
        assert!(sample.unserved >= 20, "{stalls:?}: {sample:?}");
        assert_eq!(sample.acquire.len(), sample.acquisitions + sample.unserved);
        assert!(
            sample.acquire.quantile_ns(0.99) > Some(80_000_000),
            "{stalls:?}: {sample:?}"
        );
        let is_stuck = sample.errors.contains_key("stuck");
        assert_eq!(is_stuck, stalls == Fault::StallsForEver, "{sample:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_loop_that_keeps_up_is_not_saturated() {
    let mut plan = plan(&[Workload::OpenLoop], 2);
    plan.rate = 60.0;
    // A busy machine may stall the process for a part of it.
    plan.duration = Duration::from_secs(1);
    let mut found = sample(&plan, memory()).await;
    // A stall over the end looks like an overload.
    for _ in 0..2 {
        if found.is_saturated {
            found = sample(&plan, memory()).await;
        }
    }
    assert!(!found.is_saturated, "{found:?}");
    // 60 are expected, with a deviation of 8.
    assert!((20..=120).contains(&found.acquisitions), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_holds_is_measured() {
    let mut plan = plan(&[Workload::Uncontended], 1);
    plan.hold = Duration::from_millis(5);
    plan.duration = Duration::from_secs(1);
    let sample = sample(&plan, memory()).await;
    let each = sample.held_ns / sample.acquisitions;
    assert!(each >= 4_500_000, "held for {each} ns each");
    assert!(
        sample.held_ns <= sample.duration_ns,
        "held for {} ns",
        sample.held_ns
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_counted_by_kind_and_no_hang_keeps_the_run_from_ending() {
    let mut plan = plan(&[Workload::Contended], 2);
    plan.duration = Duration::from_secs(1);
    let cases = [
        (Fault::Fails, "unavailable", 3..=u64::MAX),
        // Nobody was to give up.
        (Fault::GivesUp, "contended", 3..=u64::MAX),
        (Fault::Hangs, "stuck", 2..=2),
    ];
    for (fault, kind, expected) in cases {
        let sample = sample(&plan, faulty(fault)).await;
        assert_eq!(sample.acquisitions, 0, "{fault:?}");
        assert!(
            expected.contains(&sample.errors[kind]),
            "{fault:?}: {:?}",
            sample.errors
        );
        assert_eq!(sample.failures.len(), 1, "{fault:?}: {:?}", sample.failures);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_a_failure_of_the_run() {
    let plan = plan(&[Workload::Contended], 2);
    let failed = run(&plan, vec![faulty(Fault::Panics)]).await;
    let failure = failed.unwrap_err();
    assert_eq!(failure.kind(), "panic");
    assert!(failure.message().contains("as it was told to"), "{failure}");
}

#[tokio::test]
async fn plans_that_cannot_be_carried_out_are_refused() {
    type Change = fn(&mut Plan);
    let cases: &[(Change, &str)] = &[
        (|plan| plan.workloads.clear(), "no workload"),
        (|plan| plan.contenders.clear(), "contenders"),
        (|plan| plan.contenders = vec![0], "contenders"),
        (|plan| plan.repeats = 0, "repeats"),
        (|plan| plan.duration = Duration::ZERO, "measurement"),
        (|plan| plan.hold = Duration::from_secs(9), "hold"),
        (|plan| plan.rate = f64::NAN, "rate"),
        (
            |plan| plan.workloads = vec![Workload::CrashRecovery],
            "other processes do not see",
        ),
    ];
    let refused = async |change: Change, targets| {
        let mut plan = plan(&[Workload::Contended], 2);
        change(&mut plan);
        run(&plan, targets).await.unwrap_err().to_string()
    };
    for (change, expected) in cases {
        let refused = refused(*change, vec![memory()]).await;
        assert!(refused.contains(expected), "{refused}");
    }
    let twice = refused(|_| {}, vec![memory(), memory()]).await;
    assert!(twice.contains("two targets have the name"), "{twice}");
    let none = refused(|_| {}, Vec::new()).await;
    assert!(none.contains("no target"), "{none}");
}

#[test]
fn an_unknown_scheme_is_refused_without_the_url() {
    let target = |url| Openers::compiled_in().target("x", url);
    let failure = target("gopher://user:secret@host").unwrap_err().to_string();
    assert!(failure.contains("unknown scheme \"gopher\""), "{failure}");
    assert!(!failure.contains("secret"), "{failure}");
    let target = target("redis://user:secret@host").unwrap();
    assert!(!format!("{target:?}").contains("secret"));
}
