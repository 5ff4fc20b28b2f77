use super::fixture::{report, series};
use crate::plan::Workload::{self, Contended, CrashRecovery, Fairness, Layer, Uncontended};
use crate::report::{Figures, Latencies, Requests, Sample, Series, Spread};

/// The figures of one series of the fixture, after a change to it.
fn figures_of(
    target: &str,
    workload: Workload,
    contenders: u32,
    change: impl Fn(&mut Series),
) -> Figures {
    let mut report = report();
    let series = series(&mut report, target, workload, contenders);
    change(series);
    let series = series.clone();
    report.figures(&series)
}

/// The same, of redis, after a change to each sample by its number.
fn of_samples(workload: Workload, change: impl Fn(usize, &mut Sample)) -> Figures {
    let contenders = if workload == CrashRecovery { 2 } else { 8 };
    figures_of("redis", workload, contenders, |series| {
        let samples = series.samples.iter_mut().enumerate();
        samples.for_each(|(number, sample)| change(number, sample));
    })
}

fn close(found: Option<f64>, expected: f64) -> bool {
    found.is_some_and(|found| (found / expected - 1.0).abs() < 0.01)
}

fn numbers(spread: Option<Spread>) -> Option<[f64; 3]> {
    spread.map(|spread| [spread.median, spread.min, spread.max])
}

#[test]
fn the_median_is_one_of_the_values() {
    let table: [(&[f64], Option<[f64; 3]>); 4] = [
        (&[], None),
        (&[f64::NAN, f64::INFINITY], None),
        (&[3.0, 1.0, 2.0], Some([2.0, 1.0, 3.0])),
        (&[4.0, 1.0, 3.0, 2.0], Some([2.0, 1.0, 4.0])),
    ];
    for (values, expected) in table {
        let found = Spread::of(values.iter().copied());
        assert_eq!(numbers(found), expected, "{values:?}");
    }
}

#[test]
fn medians_within_the_range_of_the_other_are_alike() {
    let spread = |values: [f64; 3]| Spread::of(values).expect("there are values");
    let old = spread([90.0, 100.0, 110.0]);
    assert!(old.is_like(&spread([100.0, 105.0, 120.0])));
    assert!(spread([80.0, 85.0, 101.0]).is_like(&old));
    // The ranges meet, but neither median is usual for the other run.
    assert!(!old.is_like(&spread([75.0, 85.0, 95.0])));
}

#[test]
fn throughput_and_percentiles_are_medians_of_the_repeats() {
    let figures = of_samples(Contended, |number, sample| {
        sample.acquisitions = [300, 100, 200][number];
        sample.duration_ns = 2_000_000_000;
        sample.acquire = Latencies::default();
        let nanos = [10_000, 1_000_000, 20_000][number];
        sample.acquire.record_ns(nanos);
    });
    assert_eq!(numbers(figures.throughput), Some([100.0, 50.0, 150.0]));
    let acquire = figures.acquire.unwrap();
    assert!(close(Some(acquire.p99.median), 20_000.0), "{acquire:?}");
    assert!(close(Some(acquire.p99.max), 1_000_000.0), "{acquire:?}");
    let nothing = figures_of("redis", Contended, 1, |series| series.samples.clear());
    assert_eq!((nothing.throughput, nothing.acquire), (None, None));
}

#[test]
fn a_repeat_without_an_acquisition_counts() {
    for (counts, empty, expected) in [
        ([200, 0, 0], 2, Some([0.0, 0.0, 200.0])),
        ([200, 0, 100], 1, Some([100.0, 0.0, 200.0])),
        ([0, 0, 0], 3, None),
    ] {
        let change = |number: usize, sample: &mut Sample| sample.acquisitions = counts[number];
        let figures = of_samples(Uncontended, change);
        assert_eq!(numbers(figures.throughput), expected, "{counts:?}");
        // Where most repeats are empty, an acquisition has no time.
        let found = (figures.empty_repeats, figures.to_bare.is_some());
        assert_eq!(found, (empty, counts[2] > 0), "{counts:?}");
    }
}

#[test]
fn times_are_told_in_round_trips_and_next_to_the_bare_commands() {
    // A pair takes 180 us and 9 us more in each repeat; the round trip is 99 us.
    let figures = figures_of("redis", Uncontended, 8, |_| {});
    assert!(close(figures.pair_round_trips, 189.0 / 99.0), "{figures:?}");
    assert!(close(figures.to_bare, 189.0 / 115.5), "{figures:?}");
    // The bare commands have the round trip of their target, and no limit of their own.
    let bare = figures_of("redis bare", Uncontended, 8, |_| {});
    assert!(close(bare.pair_round_trips, 115.5 / 99.0), "{bare:?}");
    assert_eq!(bare.to_bare, None);
    let memory = figures_of("memory", Uncontended, 8, |_| {});
    assert_eq!((memory.pair_round_trips, memory.to_bare), (None, None));
}

#[test]
fn held_time_is_no_cost() {
    let figures = figures_of("redis", Fairness, 8, |_| {});
    assert!(close(figures.to_bare, 189.0 / 115.5), "{figures:?}");
    let efficiency = figures.efficiency.map(|s| s.median);
    assert!(close(efficiency, 1_000.0 / 1_189.0), "{figures:?}");
    let none = figures_of("redis", Contended, 8, |_| {});
    assert_eq!(none.efficiency, None);
}

#[test]
fn fairness_has_an_index_and_a_least_share() {
    let table: [(&[u64], f64, f64); 3] = [
        (&[5, 5, 5, 5], 1.0, 1.0),
        (&[20, 0, 0, 0], 0.25, 0.0),
        (&[1, 2, 3], 36.0 / 42.0, 1.0 / 3.0),
    ];
    for (counts, jain, least) in table {
        let figures = of_samples(Fairness, |_, sample| {
            sample.per_contender = counts.to_vec();
            (sample.overtakes, sample.acquisitions) = (5, 10);
        });
        let found = [figures.jain, figures.least_share, figures.overtakes];
        for (found, expected) in found.into_iter().zip([jain, least, 0.5]) {
            let differs = found.is_none_or(|found| (found.median - expected).abs() > 1e-9);
            assert!(!differs, "{counts:?}: {found:?}");
        }
    }
    for (workload, contenders) in [(Contended, 1), (Uncontended, 8)] {
        let alone = figures_of("redis", workload, contenders, |_| {});
        let found = (alone.jain, alone.least_share, alone.overtakes);
        assert_eq!(found, (None, None, None));
    }
}

#[test]
fn recovery_is_taken_over_all_kills() {
    let figures = of_samples(CrashRecovery, |number, sample| {
        sample.recovery_ns = [[1, 9], [2, 8], [3, 7]][number].into();
    });
    assert_eq!(numbers(figures.recovery), Some([3.0, 1.0, 9.0]));
}

#[test]
fn counts_of_the_server_failures_and_violations_are_told() {
    let figures = of_samples(Contended, |number, sample| match number {
        0 => (sample.is_saturated, sample.client_processors) = (true, 1.7),
        1 => sample.violations = vec!["a".to_owned(), "b".to_owned()],
        _ => sample.errors = [("unavailable".to_owned(), 3)].into(),
    });
    assert_eq!(figures.commands.unwrap().median, 2.0);
    assert_eq!((figures.violations, figures.errors), (2, 3));
    assert!(figures.is_saturated && figures.is_of_the_client);
    let unknown = of_samples(Contended, |_, sample| sample.commands = None);
    assert_eq!(unknown.commands, None);
    assert!(!unknown.is_saturated && !unknown.is_of_the_client);
}

#[test]
fn the_layer_is_what_it_adds() {
    let figures = figures_of("redis", Contended, 8, |series| {
        series.workload = Layer;
        let mut requests = Requests::default();
        requests.with.record_ns(5_000);
        requests.without.record_ns(2_000);
        series.samples.truncate(1);
        series.samples[0].acquisitions = 0;
        series.samples[0].layer = Some(requests);
    });
    let added = figures.layer_adds.map(|s| s.median);
    assert!(close(added, 3_000.0), "{figures:?}");
    assert_eq!(figures.throughput, None);
}
