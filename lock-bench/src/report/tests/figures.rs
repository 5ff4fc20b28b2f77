use super::fixture::report;
use crate::plan::Workload;
use crate::report::{Figures, Latencies, Report, Requests, Sample, Series};

/// The figures of one series of the fixture, after a change to it.
fn figures_of(
    target: &str,
    workload: Workload,
    contenders: u32,
    change: impl Fn(&mut Series),
) -> Figures {
    let mut report = report();
    let at = position(&report, target, workload, contenders);
    change(&mut report.series[at]);
    report.figures(&report.series[at])
}

fn position(report: &Report, target: &str, workload: Workload, contenders: u32) -> usize {
    let is_it = |series: &Series| {
        (
            series.target.as_str(),
            series.workload,
            series.parameters.contenders,
        ) == (target, workload, contenders)
    };
    report
        .series
        .iter()
        .position(is_it)
        .expect("the fixture has it")
}

fn close(found: Option<f64>, expected: f64) -> bool {
    found.is_some_and(|found| (found / expected - 1.0).abs() < 0.01)
}

#[test]
fn throughput_is_the_median_of_the_repeats() {
    let figures = figures_of("redis", Workload::Contended, 1, |series| {
        for (sample, count) in series.samples.iter_mut().zip([300, 100, 200]) {
            sample.acquisitions = count;
            sample.duration_ns = 2_000_000_000;
        }
    });
    let throughput = figures.throughput.unwrap();
    assert_eq!(
        (throughput.median, throughput.min, throughput.max),
        (100.0, 50.0, 150.0)
    );
    let nothing = figures_of("redis", Workload::Contended, 1, |series| {
        series.samples.clear();
    });
    assert_eq!(nothing.throughput, None);
    assert_eq!(nothing.acquire, None);
}

#[test]
fn percentiles_are_those_of_a_repeat_and_not_of_their_mean() {
    let figures = figures_of("redis", Workload::Contended, 1, |series| {
        for (sample, micros) in series.samples.iter_mut().zip([10, 1000, 20]) {
            sample.acquire = Latencies::default();
            sample.acquire.record_ns(micros * 1000);
        }
    });
    let acquire = figures.acquire.unwrap();
    assert!(close(Some(acquire.p99.median), 20_000.0), "{acquire:?}");
    assert!(close(Some(acquire.p99.max), 1_000_000.0), "{acquire:?}");
}

#[test]
fn times_are_told_in_round_trips_and_next_to_the_bare_commands() {
    // A pair takes 180 us and 9 us more in each repeat; the round trip is 99 us.
    let figures = figures_of("redis", Workload::Uncontended, 8, |_| {});
    assert!(close(figures.pair_round_trips, 189.0 / 99.0), "{figures:?}");
    assert!(close(figures.to_bare, 189.0 / 115.5), "{figures:?}");
    // The bare commands have the round trip of their target, and no limit of their own.
    let bare = figures_of("redis bare", Workload::Uncontended, 8, |_| {});
    assert!(close(bare.pair_round_trips, 115.5 / 99.0), "{bare:?}");
    assert_eq!(bare.to_bare, None);
    let memory = figures_of("memory", Workload::Uncontended, 8, |_| {});
    assert_eq!((memory.pair_round_trips, memory.to_bare), (None, None));
}

#[test]
fn held_time_is_no_cost() {
    let figures = figures_of("redis", Workload::Fairness, 8, |_| {});
    assert!(close(figures.to_bare, 189.0 / 115.5), "{figures:?}");
    assert!(
        close(figures.efficiency.map(|s| s.median), 1_000.0 / 1_189.0),
        "{figures:?}"
    );
    let none = figures_of("redis", Workload::Contended, 8, |_| {});
    assert_eq!(none.efficiency, None);
}

#[test]
fn fairness_has_an_index_and_a_least_share() {
    let table: [(&[u64], f64, f64); 4] = [
        (&[5, 5, 5, 5], 1.0, 1.0),
        (&[20, 0, 0, 0], 0.25, 0.0),
        (&[3, 1], 0.8, 1.0 / 3.0),
        (&[1, 2, 3], 36.0 / 42.0, 1.0 / 3.0),
    ];
    for (counts, jain, least) in table {
        let figures = figures_of("redis", Workload::Fairness, 8, |series| {
            for sample in &mut series.samples {
                sample.per_contender = counts.to_vec();
                sample.overtakes = 5;
                sample.acquisitions = 10;
            }
        });
        let found = (
            figures.jain.unwrap().median,
            figures.least_share.unwrap().median,
        );
        assert!((found.0 - jain).abs() < 1e-9, "{counts:?}: {found:?}");
        assert!((found.1 - least).abs() < 1e-9, "{counts:?}: {found:?}");
        assert_eq!(figures.overtakes.unwrap().median, 0.5);
    }
    let alone = figures_of("redis", Workload::Contended, 1, |_| {});
    assert_eq!((alone.jain, alone.overtakes), (None, None));
    let apart = figures_of("redis", Workload::Uncontended, 8, |_| {});
    assert_eq!((apart.jain, apart.least_share), (None, None));
}

#[test]
fn recovery_is_taken_over_all_kills() {
    let figures = figures_of("redis", Workload::CrashRecovery, 2, |series| {
        for (sample, times) in series.samples.iter_mut().zip([[1, 9], [2, 8], [3, 7]]) {
            sample.recovery_ns = times.to_vec();
        }
    });
    let recovery = figures.recovery.unwrap();
    assert_eq!(
        (recovery.median, recovery.min, recovery.max),
        (3.0, 1.0, 9.0)
    );
}

#[test]
fn counts_of_the_server_failures_and_violations_are_told() {
    let figures = figures_of("redis", Workload::Contended, 8, |series| {
        series.samples[1].violations = vec!["a".to_owned(), "b".to_owned()];
        series.samples[2].errors = [("unavailable".to_owned(), 3)].into();
        series.samples[0].is_saturated = true;
        series.samples[0].client_processors = 1.7;
    });
    assert_eq!(figures.commands.unwrap().median, 2.0);
    assert_eq!((figures.violations, figures.errors), (2, 3));
    assert!(figures.is_saturated && figures.is_of_the_client);
    let unknown = figures_of("redis", Workload::Contended, 8, |series| {
        series
            .samples
            .iter_mut()
            .for_each(|sample| sample.commands = None);
    });
    assert_eq!(unknown.commands, None);
    assert!(!unknown.is_saturated && !unknown.is_of_the_client);
}

#[test]
fn the_layer_is_what_it_adds() {
    let figures = figures_of("redis", Workload::Contended, 8, |series| {
        series.workload = Workload::Layer;
        let mut requests = Requests::default();
        requests.with.record_ns(5_000);
        requests.without.record_ns(2_000);
        series.samples = vec![Sample {
            layer: Some(requests),
            ..Sample::default()
        }];
    });
    assert!(
        close(figures.layer_adds.map(|s| s.median), 3_000.0),
        "{figures:?}"
    );
    assert_eq!(figures.throughput, None);
}
