//! Faults that are planted in locks are in the report, and in that of sound locks there is none.

use std::sync::Arc;
use std::time::Duration;

use lock_testkit::mutants::Mutation;
use lock_testkit::sim::SimBackend;
use polylock::memory::Memory;
use polylock_bench::plan::Workload;
use polylock_bench::target::Target;

use crate::support::{self, Fault, faulty, locks, plan, sample};

fn flawed(mutation: Mutation) -> Target {
    locks(SimBackend::new(Some(mutation)).connect())
}

fn sound() -> Target {
    locks(Arc::new(Memory::new()))
}

#[tokio::test(flavor = "multi_thread")]
async fn flaws_are_reported_and_sound_locks_violate_nothing() {
    for (workload, contenders, target, expected) in [
        (Workload::Fairness, 4, sound(), ""),
        (
            Workload::HandOff,
            4,
            flawed(Mutation::ExcludesNobody),
            "held it together for",
        ),
        (
            Workload::Contended,
            2,
            flawed(Mutation::TokenReused),
            "got token",
        ),
    ] {
        let mut plan = plan(&[workload], contenders);
        plan.duration = Duration::from_secs(1);
        let sample = sample(&plan, target).await;
        assert!(sample.acquisitions > 0);
        let found = sample.violations.join("; ");
        assert!(found.contains(expected), "{expected}: {found}");
        assert_eq!(found.is_empty(), expected.is_empty(), "{found}");
        if expected.is_empty() {
            assert!(sample.errors.is_empty(), "{:?}", sample.failures);
        }
    }
}

/// On one thread: nobody else draws a token before the clock is read.
#[tokio::test]
async fn two_holders_in_the_order_of_their_tokens_are_reported() {
    let mut plan = plan(&[Workload::HoldSweep], 4);
    plan.duration = Duration::from_millis(300);
    let report = support::measure(&plan, faulty(Fault::ExcludesNobodyInOrder)).await;
    for series in report.series.iter().filter(|s| s.parameters.hold_ns > 0) {
        let found = &series.samples[0].violations;
        assert_eq!(found.len(), 1, "{:?}: {found:?}", series.parameters);
        assert!(found[0].contains("held it together for"), "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_overlaps_are_seen_by_chance_alone_that_is_said() {
    let mut plan = plan(&[Workload::Contended, Workload::HandOff], 4);
    plan.duration = Duration::from_secs(1);
    let report = support::measure(&plan, faulty(Fault::ExcludesNobody)).await;
    let by_chance = |at: usize| report.figures(&report.series[at]).is_checked_by_chance;
    assert!(by_chance(0), "no hold and no tokens");
    assert!(!by_chance(1), "they hold for a while");
    // Even then a hold has a length, so that chance has something to find.
    assert!(report.series[0].samples[0].held_ns > 0);
    let found = &report.series[1].samples[0].violations;
    assert!(found[0].contains("held it together for"), "{found:?}");
    let report = support::measure(&plan, sound()).await;
    assert!(!report.figures(&report.series[0]).is_checked_by_chance);
    assert!(report.series[0].samples[0].with_token > Some(0));
    // The order of tokens does not tell all.
    assert!(report.series[0].samples[0].held_ns > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfair_queue_is_reported() {
    let mut plan = plan(&[Workload::Fairness], 8);
    // Each has its turn many times, on a machine that is busy too.
    plan.duration = Duration::from_secs(1);
    plan.warm_up = Duration::from_millis(200);
    let mut figures = Vec::new();
    for target in [flawed(Mutation::LastComeFirstServed), sound()] {
        let report = support::measure(&plan, target).await;
        let found = report.figures(&report.series[0]);
        figures.push([found.jain, found.overtakes].map(|spread| spread.unwrap().median));
    }
    let ([jain, overtakes], [fair_jain, fair_overtakes]) = (figures[0], figures[1]);
    assert!(jain < 0.6 && fair_jain > 0.9, "{figures:?}");
    assert!(
        overtakes > 1.0 && fair_overtakes < overtakes / 4.0,
        "{figures:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_release_is_in_the_hand_over_and_in_the_release() {
    let mut plan = plan(&[Workload::HandOff], 2);
    plan.duration = Duration::from_secs(1);
    let slow = sample(&plan, faulty(Fault::SlowRelease(Duration::from_millis(20)))).await;
    let least = Some(20_000_000 * 99 / 100);
    for times in [&slow.hand_off, &slow.release] {
        assert!(times.quantile_ns(0.0) >= least, "{times:?}");
    }
    assert_eq!(slow.violations, [""; 0]);
    let usual = sample(&plan, sound()).await;
    assert!(
        usual.hand_off.quantile_ns(0.5) < Some(10_000_000),
        "{:?}",
        usual.hand_off
    );
}
