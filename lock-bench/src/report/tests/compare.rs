use super::fixture::{report, series};
use crate::plan::Workload;
use crate::report::compare::{Change, Comparison, Limit};
use crate::report::{Report, Series};

/// The report after a change of the throughputs of redis, contended by 8, to these.
fn with_throughputs(counts: [u64; 3]) -> Report {
    let mut report = report();
    let samples = &mut series(&mut report, "redis", Workload::Contended, 8).samples;
    for (sample, count) in samples.iter_mut().zip(counts) {
        sample.acquisitions = count;
    }
    report
}

fn throughput(comparison: &Comparison) -> &Change {
    let is_it = |change: &&Change| {
        change.place() == "redis, contended, 8 contenders" && change.metric == "throughput"
    };
    comparison.changes.iter().find(is_it).unwrap()
}

fn limits(texts: &[&str]) -> Vec<Limit> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// What docs/bench-json.md lists.
const METRICS: &str = "throughput p50 p99 p99.9 hand-off hand-off-p99 efficiency jain overtakes \
                       commands recovery layer";

#[test]
fn limits_are_passed_by_changes_that_exceed_them_beyond_the_spread() {
    let limit = "throughput=-10%";
    let table = [
        ([800, 1000, 1200], [850, 850, 850], limit, true, false),
        ([800, 1000, 1200], [700, 700, 700], limit, false, true),
        ([800, 1000, 1200], [300, 700, 1100], limit, true, false),
        // The sign is the bad direction.
        ([800, 1000, 1200], [1300, 1400, 1500], limit, false, false),
        ([1000; 3], [950; 3], limit, false, false),
        ([1000; 3], [950; 3], "throughput=-1%", false, true),
        ([1000; 3], [1001; 3], "throughput=+0%", false, true),
        ([1000; 3], [950; 3], "p99=-0%", false, false),
        // A figure that is gone passes every limit on it.
        ([1000; 3], [0; 3], limit, false, true),
        ([1000; 3], [0; 3], "throughput=+10%", false, true),
        ([1000; 3], [0; 3], "p99=+10%", false, false),
    ];
    for (old, new, limit, is_within_spread, fails) in table {
        let [old, new] = [old, new].map(|counts| {
            let mut report = with_throughputs(counts);
            let is_it = |s: &Series| s.target == "redis" && s.workload == Workload::Contended;
            report.series.retain(is_it);
            report
        });
        let comparison = Comparison::new(&old, &new, &limits(&[limit]));
        let change = throughput(&comparison);
        let found = (change.is_within_spread, change.passes.as_deref());
        assert_eq!(
            found,
            (is_within_spread, fails.then_some(limit)),
            "{change:?}"
        );
        assert_eq!(
            comparison.failures().count(),
            usize::from(fails),
            "{change:?}"
        );
        let unlimited = Comparison::new(&old, &new, &[]);
        assert_eq!(unlimited.failures().count(), 0);
    }
    let gone = Comparison::new(&report(), &with_throughputs([0; 3]), &[]);
    let gone = throughput(&gone);
    assert_eq!((gone.new, gone.change), (None, None));
}

#[test]
fn a_limit_reads_as_it_was_written() {
    for metric in METRICS.split(' ') {
        for change in ["-10%", "+2.5%", "-0%"] {
            let text = format!("{metric}={change}");
            assert_eq!(text.parse::<Limit>().unwrap().to_string(), text);
        }
    }
    let form = "write METRIC=CHANGE";
    for (wrong, why) in [
        ("p99", form),
        ("p99=", form),
        ("p99=+15", form),
        ("p99=+x%", form),
        ("p99=+inf%", form),
        ("p99=15%", "p99=+10% if it rises"),
        ("p98=+1%", "is none of throughput, hand-off"),
    ] {
        let refused = wrong.parse::<Limit>().unwrap_err();
        assert!(refused.contains(why), "{wrong}: {refused}");
    }
}

#[test]
fn a_report_is_like_itself() {
    let all = METRICS
        .split(' ')
        .map(|metric| format!("{metric}=-0%").parse().unwrap());
    let comparison = Comparison::new(&report(), &report(), &all.collect::<Vec<_>>());
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
    let comparison = Comparison::new(&old, &new, &[]);
    assert_eq!(comparison.gone.len(), 3);
    let first = "open-loop of redis, 1 contender, 100/s asked for";
    assert_eq!(comparison.gone[0], first);
    assert_eq!(Comparison::new(&new, &old, &[]).added, comparison.gone);
}

#[test]
fn machines_and_plans_that_differ_are_told_and_so_are_more_errors() {
    let (mut old, mut new) = (report(), report());
    let mut with_errors = |before: u64, after: u64, workload| {
        for (report, errors) in [(&mut old, before), (&mut new, after)] {
            let samples = &mut series(report, "redis", workload, 8).samples;
            samples[1].errors = [("unavailable".to_owned(), errors)].into();
        }
    };
    with_errors(1, 2, Workload::Contended);
    with_errors(2, 1, Workload::HandOff);
    new.environment.cores = 64;
    new.plan.duration *= 2;
    new.plan.warm_up *= 2;
    new.plan.with_bare = false;
    new.plan.repeats = 1;
    assert_eq!(
        Comparison::new(&old, &new, &[]).warnings,
        [
            "the numbers of cores differ: 2, 64",
            "the lengths of a measurement differ: 3s, 6s",
            "the warm-ups differ: 500ms, 1s",
            "only one of the runs measured bare commands",
            "fewer than 3 repeats tell little about the spread",
            "contended of redis, 8 contenders has more errors than before: \
             2 of 15898 requests, 1 of 15897 requests before",
        ]
    );
}

#[test]
fn what_was_zero_has_no_share() {
    let (mut old, new) = (report(), report());
    let samples = old.series.iter_mut().flat_map(|series| &mut series.samples);
    samples.for_each(|sample| sample.overtakes = 0);
    let comparison = Comparison::new(&old, &new, &limits(&["overtakes=+50%"]));
    let change = comparison.failures().next().unwrap();
    assert_eq!((change.metric, change.change), ("overtakes", None));
}

#[test]
fn a_comparison_fits_80_columns_and_loses_no_figure() {
    let (old, mut new) = (report(), with_throughputs([100, 120, 140]));
    for sample in new.series.iter_mut().flat_map(|series| &mut series.samples) {
        sample.duration_ns += sample.duration_ns / 3;
    }
    let comparison = Comparison::new(&old, &new, &limits(&["throughput=-10%"]));
    let (mut all, mut figures) = (String::new(), 0);
    for table in &comparison.tables() {
        let text = table.to_text(str::to_owned);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let mut cells = table.rows.iter().flat_map(|row| &row.cells);
        assert!(cells.all(|cell| text.contains(cell)), "{text}");
        figures += table.rows.len();
        all += &text;
    }
    assert_eq!(figures, comparison.changes.len());
    assert!(
        all.contains("redis, contended, 8 contenders\nfigure "),
        "{all}"
    );
    assert!(all.contains("FAILS throughput=-10%"), "{all}");
}
