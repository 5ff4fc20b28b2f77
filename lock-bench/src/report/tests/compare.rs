use super::fixture::report;
use crate::plan::Workload;
use crate::report::Report;
use crate::report::compare::{Change, Comparison, Limit, Metric};

/// The report after a change of the throughputs of redis, contended by 8, to these.
fn with_throughputs(counts: [u64; 3]) -> Report {
    let mut report = report();
    let series = report.series.iter_mut().find(|series| {
        series.target == "redis"
            && series.workload == Workload::Contended
            && series.parameters.contenders == 8
    });
    for (sample, count) in series.unwrap().samples.iter_mut().zip(counts) {
        sample.acquisitions = count;
    }
    report
}

fn throughput(comparison: &Comparison) -> &Change {
    let is_it = |change: &&Change| {
        change.target == "redis"
            && change.workload == Workload::Contended
            && change.parameters.contenders == 8
            && change.metric == Metric::Throughput
    };
    comparison.changes.iter().find(is_it).unwrap()
}

#[test]
fn a_change_within_the_spread_is_none() {
    let limits: [Limit; 1] = ["throughput=-10%".parse().unwrap()];
    let old = with_throughputs([800, 1000, 1200]);
    let table = [
        ([850, 850, 850], true, false),
        ([700, 700, 700], false, true),
        ([300, 700, 1100], true, false),
        ([1300, 1400, 1500], false, false),
    ];
    for (counts, is_within_spread, fails) in table {
        let new = with_throughputs(counts);
        let comparison = Comparison::new(&old, &new, &limits);
        let change = throughput(&comparison);
        assert_eq!(change.is_within_spread, is_within_spread, "{counts:?}");
        assert_eq!(change.passes.is_some(), fails, "{counts:?}");
        assert_eq!(
            comparison.failures().count(),
            usize::from(fails),
            "{counts:?}"
        );
    }
}

#[test]
fn a_change_without_a_limit_or_below_it_fails_nothing() {
    let (old, new) = (with_throughputs([1000; 3]), with_throughputs([950; 3]));
    let limit = |text: &str| [text.parse::<Limit>().unwrap()];
    assert_eq!(Comparison::new(&old, &new, &[]).failures().count(), 0);
    let lax = Comparison::new(&old, &new, &limit("throughput=-10%"));
    assert_eq!(lax.failures().count(), 0);
    let strict = Comparison::new(&old, &new, &limit("throughput=-1%"));
    let change = strict.failures().next().unwrap();
    assert_eq!(change.passes.as_deref(), Some("throughput=-1%"));
    assert!((change.change.unwrap() + 0.05).abs() < 1e-9);
}

#[test]
fn a_report_is_like_itself() {
    let limits: Vec<Limit> = Metric::all()
        .flat_map(|metric| ["-0%", "+0%"].map(|change| format!("{metric}={change}")))
        .map(|text| text.parse().unwrap())
        .collect();
    let comparison = Comparison::new(&report(), &report(), &limits);
    assert!(comparison.changes.len() > 100);
    assert_eq!(comparison.failures().count(), 0);
    assert!(comparison.gone.is_empty() && comparison.added.is_empty());
    assert!(comparison.warnings.is_empty(), "{:?}", comparison.warnings);
}

#[test]
fn what_only_one_report_has_is_named() {
    let (old, mut new) = (report(), report());
    new.series
        .retain(|series| series.workload != Workload::OpenLoop);
    new.environment.cores = 64;
    new.plan.repeats = 1;
    let comparison = Comparison::new(&old, &new, &[]);
    assert_eq!(comparison.gone.len(), 3);
    assert_eq!(
        comparison.gone[0],
        "open-loop of redis, 1 contender, 100/s asked for"
    );
    assert_eq!(Comparison::new(&new, &old, &[]).added, comparison.gone);
    assert_eq!(comparison.warnings.len(), 2, "{:?}", comparison.warnings);
}

#[test]
fn a_series_that_is_gone_passes_the_limits_on_its_figures() {
    let (old, mut new) = (report(), report());
    new.series
        .retain(|series| series.workload != Workload::OpenLoop || series.target != "redis");
    let compare = |limits: &[&str]| {
        let limits: Vec<Limit> = limits.iter().map(|text| text.parse().unwrap()).collect();
        Comparison::new(&old, &new, &limits)
    };
    let comparison = compare(&["p99=+1000%", "recovery=+1000%"]);
    let failures: Vec<_> = comparison.failures().collect();
    assert_eq!(failures.len(), 1, "the open loop has no recovery");
    let gone = failures[0];
    assert_eq!(
        (gone.workload, gone.metric),
        (Workload::OpenLoop, Metric::P99)
    );
    assert_eq!((gone.target.as_str(), gone.new), ("redis", None));
    assert!(comparison.has_common);
    assert_eq!(compare(&[]).changes.len() + 1, comparison.changes.len());

    new.series.clear();
    let nothing = Comparison::new(&old, &new, &["p99=+1000%".parse().unwrap()]);
    assert!(!nothing.has_common && nothing.failures().count() > 0);
}

#[test]
fn a_limit_on_what_was_never_measured_is_told() {
    let idle = |limits: &[&str]| {
        let limits: Vec<Limit> = limits.iter().map(|text| text.parse().unwrap()).collect();
        Comparison::new(&report(), &report(), &limits).idle_limits
    };
    assert_eq!(idle(&["p99=+10%", "recovery=+1%"]), [""; 0]);
    assert_eq!(idle(&["p99=+10%", "layer=+10%"]), ["layer=+10%"]);
}

#[test]
fn plans_that_differ_are_told() {
    let (old, mut new) = (report(), report());
    new.plan.duration *= 2;
    new.plan.warm_up *= 2;
    new.plan.with_bare = false;
    let warnings = Comparison::new(&old, &new, &[]).warnings;
    assert_eq!(
        warnings,
        [
            "the lengths of a measurement differ: 3s, 6s",
            "the warm-ups differ: 500ms, 1s",
            "only one of the runs measured bare commands",
        ]
    );
}

#[test]
fn what_was_zero_has_no_share() {
    let (mut old, new) = (report(), report());
    for series in &mut old.series {
        series
            .samples
            .iter_mut()
            .for_each(|sample| sample.overtakes = 0);
    }
    let limits: [Limit; 1] = ["overtakes=+50%".parse().unwrap()];
    let comparison = Comparison::new(&old, &new, &limits);
    let change = comparison.failures().next().unwrap();
    assert_eq!((change.metric, change.change), (Metric::Overtakes, None));
}

#[test]
fn a_figure_that_is_gone_passes_every_limit_on_it() {
    let (old, new) = (with_throughputs([1000; 3]), with_throughputs([0; 3]));
    for (text, fails) in [
        ("throughput=-10%", true),
        ("throughput=+10%", true),
        ("p99=+10%", false),
    ] {
        let limits: [Limit; 1] = [text.parse().unwrap()];
        let comparison = Comparison::new(&old, &new, &limits);
        let change = throughput(&comparison);
        assert_eq!((change.new, change.change), (None, None), "{text}");
        assert!(!change.is_within_spread, "{text}");
        assert_eq!(change.passes.as_deref(), fails.then_some(text));
        assert_eq!(comparison.failures().count(), usize::from(fails), "{text}");
    }
}

#[test]
fn a_comparison_fits_80_columns_and_loses_no_figure() {
    let (old, mut new) = (report(), with_throughputs([100, 120, 140]));
    for series in &mut new.series {
        let samples = series.samples.iter_mut();
        samples.for_each(|sample| sample.duration_ns += sample.duration_ns / 3);
    }
    let limits: [Limit; 1] = ["throughput=-10%".parse().unwrap()];
    let comparison = Comparison::new(&old, &new, &limits);
    let (tables, mut figures) = (comparison.tables(), 0);
    for table in &tables {
        let text = table.to_text(str::to_owned);
        let widest = text.lines().map(str::len).max();
        assert!(widest <= Some(80), "{widest:?} columns:\n{text}");
        for row in &table.rows {
            assert!(row.cells.iter().all(|cell| text.contains(cell)), "{text}");
            figures += 1;
        }
    }
    assert_eq!(figures, comparison.changes.len());
    let all: String = tables.iter().map(|t| t.to_text(str::to_owned)).collect();
    assert!(
        all.contains("redis, contended, 8 contenders\nfigure "),
        "{all}"
    );
    assert!(all.contains("FAILS throughput=-10%"), "{all}");
}
