//! Two reports side by side: what changed by more than chance, and whether it may.

mod limit;
mod metric;

use serde::Serialize;

pub use self::limit::{Limit, LimitError};
pub use self::metric::Metric;
use super::units::change;
use super::{Parameters, Report, Row, Series, Spread, Table};
use crate::plan::{Workload, name_of};

/// What became of the figures from one report to the next.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Figures of the series that both reports have, in the order of the newer one. A figure that
    /// the newer one lacks is among them. Behind them those with a limit of the series that only
    /// the older one has.
    pub changes: Vec<Change>,
    /// Series that only the older report has.
    pub gone: Vec<String>,
    /// Series that only the newer report has.
    pub added: Vec<String>,
    /// What makes the two hard to compare, such as another processor; one sentence each.
    pub warnings: Vec<String>,
    /// Violations in the newer report; any makes it fail.
    pub violations: u64,
    /// Limits on figures that the older report has in none of its series, so that nothing can pass
    /// them.
    #[serde(skip)]
    pub idle_limits: Vec<String>,
    /// Whether there is a figure of a series that both reports have.
    #[serde(skip)]
    pub has_common: bool,
}

/// What became of one figure.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// The target.
    pub target: String,
    /// The workload.
    pub workload: Workload,
    /// With what it was measured.
    pub parameters: Parameters,
    /// The figure.
    pub metric: Metric,
    /// What it was.
    pub old: Spread,
    /// What it is; none where nothing could be measured, such as when all acquisitions failed.
    pub new: Option<Spread>,
    /// The new median divided by the old one, less 1; none where the old one is 0 and the new one
    /// is not, and where there is no new one.
    pub change: Option<f64>,
    /// Whether the median of one report lies between the least and the greatest of the other: then
    /// it is no change that the repeats could tell from chance.
    pub is_within_spread: bool,
    /// The limit that it passes, as it was given.
    pub passes: Option<String>,
}

impl Comparison {
    /// Compares the medians. A limit is passed by a change that exceeds it and is not within the
    /// spread, and by a figure that the newer report lacks, with its series or without.
    #[must_use]
    pub fn new(old: &Report, new: &Report, limits: &[Limit]) -> Self {
        let mut changes = Vec::new();
        let mut added = Vec::new();
        for series in &new.series {
            match counterpart(old, series) {
                Some(before) => changes.extend(compare((old, before), (new, series), limits)),
                None => added.push(series.to_string()),
            }
        }
        let has_common = !changes.is_empty();
        let gone = old.series.iter();
        let gone: Vec<_> = gone
            .filter(|series| counterpart(new, series).is_none())
            .collect();
        for series in &gone {
            changes.extend(missing(old, series, limits));
        }
        let idle = limits.iter().filter(|limit| {
            let mut compared = changes.iter();
            !compared.any(|change| limit.is_on(change.metric))
        });
        let idle_limits = idle.map(ToString::to_string).collect();
        let violations = new
            .series
            .iter()
            .map(|series| new.figures(series).violations);
        Self {
            changes,
            gone: gone.into_iter().map(ToString::to_string).collect(),
            added,
            warnings: warnings(old, new),
            violations: violations.sum(),
            idle_limits,
            has_common,
        }
    }

    /// What became of each figure: a table for each series, with a line for each figure.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let series = self.changes.chunk_by(|a, b| {
            a.workload == b.workload && a.target == b.target && a.parameters == b.parameters
        });
        let tables = series.map(|changes| Table {
            title: changes[0].place(),
            violations: 0,
            head: "figure",
            columns: vec!["old", "new", "change", "verdict", "old range", "new range"],
            rows: changes.iter().map(Change::row).collect(),
        });
        tables.map(Table::without_empty_columns).collect()
    }

    /// The changes that pass a limit.
    pub fn failures(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| change.passes.is_some())
    }
}

impl Change {
    /// What was measured of whom; the name of the target may have any characters.
    #[must_use]
    pub fn place(&self) -> String {
        let (target, workload) = (&self.target, name_of(self.workload));
        format!("{target}, {workload}, {}", self.parameters)
    }

    /// The old median, the new one, and by how much it differs.
    #[must_use]
    pub fn medians(&self) -> [String; 3] {
        let median = |spread: Spread| self.metric.text(spread.median);
        match self.new {
            Some(new) => {
                let by = change(self.change.unwrap_or(f64::INFINITY));
                [median(self.old), median(new), by]
            }
            None => [median(self.old), "none".into(), "not measured".into()],
        }
    }

    fn row(&self) -> Row {
        let verdict = match &self.passes {
            Some(limit) => format!("FAILS {limit}"),
            None if self.is_within_spread => "within the spread".to_owned(),
            None => String::new(),
        };
        let range = |spread: Option<Spread>| {
            let spread = spread.filter(|spread| spread.min != spread.max);
            let text = |value| self.metric.text(value);
            spread.map_or_else(String::new, |s| format!("{}..{}", text(s.min), text(s.max)))
        };
        let ranges = [verdict, range(Some(self.old)), range(self.new)];
        Row {
            name: self.metric.to_string(),
            cells: self.medians().into_iter().chain(ranges).collect(),
            notes: String::new(),
        }
    }
}

fn compare(
    (old, before): (&Report, &Series),
    (new, after): (&Report, &Series),
    limits: &[Limit],
) -> Vec<Change> {
    let (before, figures) = (old.figures(before), new.figures(after));
    let changes = Metric::all().filter_map(|metric| {
        let (old, new) = (metric.of(&before)?, metric.of(&figures));
        let ratio = new.map(|new| ratio(old, new));
        let is_within_spread = new.is_some_and(|new| old.is_like(&new));
        let passed = limits.iter().find(|limit| match ratio {
            Some(ratio) => !is_within_spread && limit.is_passed(metric, ratio),
            // What cannot be measured any more is worse than any figure.
            None => limit.is_on(metric),
        });
        Some(Change {
            target: after.target.clone(),
            workload: after.workload,
            parameters: after.parameters.clone(),
            metric,
            old,
            new,
            change: ratio.filter(|ratio| ratio.is_finite()),
            is_within_spread,
            passes: passed.map(ToString::to_string),
        })
    });
    changes.collect()
}

/// The limited figures of a series that is not measured any more.
fn missing(old: &Report, series: &Series, limits: &[Limit]) -> Vec<Change> {
    let figures = old.figures(series);
    let changes = Metric::all().filter_map(|metric| {
        let limit = limits.iter().find(|limit| limit.is_on(metric))?;
        Some(Change {
            target: series.target.clone(),
            workload: series.workload,
            parameters: series.parameters.clone(),
            metric,
            old: metric.of(&figures)?,
            new: None,
            change: None,
            is_within_spread: false,
            passes: Some(limit.to_string()),
        })
    });
    changes.collect()
}

fn ratio(old: Spread, new: Spread) -> f64 {
    match old.median == new.median {
        true => 0.0,
        false => new.median / old.median - 1.0,
    }
}

fn counterpart<'a>(report: &'a Report, series: &Series) -> Option<&'a Series> {
    let mut others = report.series.iter();
    others.find(|other| other.target == series.target && other.is_beside(series))
}

fn warnings(old: &Report, new: &Report) -> Vec<String> {
    let (a, b) = (&old.environment, &new.environment);
    let facts = [
        ("processors", &a.processor, &b.processor),
        ("kernels", &a.kernel, &b.kernel),
        ("builds", &a.build, &b.build),
    ];
    let differing = facts.iter().filter(|(_, a, b)| a != b);
    let mut warnings: Vec<_> = differing
        .map(|(what, a, b)| format!("the {what} differ: {a}, {b}"))
        .collect();
    if a.cores != b.cores {
        warnings.push(format!(
            "the numbers of cores differ: {}, {}",
            a.cores, b.cores
        ));
    }
    let (plan, later) = (&old.plan, &new.plan);
    for (what, before, now) in [
        ("lengths of a measurement", plan.duration, later.duration),
        ("warm-ups", plan.warm_up, later.warm_up),
    ] {
        if before != now {
            let [before, now] = [before, now].map(humantime::format_duration);
            warnings.push(format!("the {what} differ: {before}, {now}"));
        }
    }
    if plan.with_bare != later.with_bare {
        warnings.push("only one of the runs measured bare commands".to_owned());
    }
    let repeats = old.plan.repeats.min(new.plan.repeats);
    if repeats < 3 {
        warnings.push("fewer than 3 repeats tell little about the spread".to_owned());
    }
    warnings
}
