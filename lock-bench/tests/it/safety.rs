//! Faults that are planted in locks are in the report, and in that of sound locks there is none.

use std::sync::Arc;
use std::time::Duration;

use lock_bench::plan::Workload;
use lock_bench::target::Runner;
use lock_testkit::doubles::redis_like::{Flaw, RedisLike};
use polylock::memory::Memory;

use crate::support::{self, Fault, faulty, made, plan, sample};

fn flawed(flaw: Flaw) -> Runner {
    Runner::of_locks(Arc::new(RedisLike::flawed(flaw)))
}

fn sound() -> Runner {
    Runner::of_locks(Arc::new(RedisLike::new()))
}

#[tokio::test(flavor = "multi_thread")]
async fn sound_locks_violate_nothing() {
    let sample = sample(&plan(&[Workload::Fairness], 4), made(sound())).await;
    assert!(sample.acquisitions > 0);
    assert_eq!(sample.violations, [""; 0]);
    assert!(sample.errors.is_empty(), "{:?}", sample.failures);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_holders_are_reported() {
    let plan = plan(&[Workload::HandOff], 4);
    let sample = sample(&plan, made(flawed(Flaw::ExcludesNobody))).await;
    let found = sample
        .violations
        .iter()
        .any(|v| v.contains("held it together for"));
    assert!(found, "{:?}", sample.violations);
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
    let plan = plan(&[Workload::Contended, Workload::HandOff], 4);
    let report = support::measure(&plan, faulty(Fault::ExcludesNobody)).await;
    let by_chance = |at: usize| report.figures(&report.series[at]).is_checked_by_chance;
    assert!(
        by_chance(0),
        "nobody holds for a time, and there are no tokens"
    );
    assert!(!by_chance(1), "they hold for a while");
    // Even then a hold has a length, so that chance has something to find.
    assert!(report.series[0].samples[0].held_ns > 0);
    let found = &report.series[1].samples[0].violations;
    assert!(found[0].contains("held it together for"), "{found:?}");
    let report = support::measure(&plan, made(sound())).await;
    assert!(!report.figures(&report.series[0]).is_checked_by_chance);
    assert!(report.series[0].samples[0].with_token > Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_do_not_grow_are_reported() {
    let plan = plan(&[Workload::Contended], 2);
    let sample = sample(&plan, made(flawed(Flaw::TokensRepeat))).await;
    let found = sample.violations.iter().any(|v| v.contains("got token"));
    assert!(found, "{:?}", sample.violations);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfair_queue_is_reported() {
    let mut plan = plan(&[Workload::Fairness], 8);
    // Each has its turn many times, on a machine that is busy too.
    plan.duration = Duration::from_secs(1);
    plan.warm_up = Duration::from_millis(200);
    let mut figures = Vec::new();
    for locks in [flawed(Flaw::LastComeFirstServed), sound()] {
        let report = support::measure(&plan, made(locks)).await;
        let found = report.figures(&report.series[0]);
        figures.push((found.jain.unwrap().median, found.overtakes.unwrap().median));
    }
    let [(jain, overtakes), (fair_jain, fair_overtakes)] = figures[..] else {
        unreachable!("two are measured");
    };
    assert!(jain < 0.6 && fair_jain > 0.9, "{figures:?}");
    assert!(
        overtakes > 1.0 && fair_overtakes < overtakes / 4.0,
        "{figures:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_release_is_in_the_hand_over_and_in_the_release() {
    let plan = plan(&[Workload::HandOff], 2);
    let slow = sample(&plan, faulty(Fault::SlowRelease(Duration::from_millis(20)))).await;
    let delay = 20_000_000;
    assert!(
        slow.hand_off.quantile_ns(0.0) >= Some(delay * 99 / 100),
        "{:?}",
        slow.hand_off
    );
    assert!(
        slow.release.quantile_ns(0.0) >= Some(delay * 99 / 100),
        "{:?}",
        slow.release
    );
    let usual = sample(&plan, made(Runner::of_locks(Arc::new(Memory::new())))).await;
    assert!(
        usual.hand_off.quantile_ns(0.5) < Some(delay / 2),
        "{:?}",
        usual.hand_off
    );
    assert_eq!(slow.violations, [""; 0]);
}
