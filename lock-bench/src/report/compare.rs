//! Two reports side by side: what changed by more than chance, and whether it may.

use std::fmt;
use std::str::FromStr;

use humantime::format_duration;
use serde::Serialize;

use super::figures::FigureColumn;
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
    /// What makes the two hard to compare, such as another processor, and series that fail more often
    /// than before; one sentence each.
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
    pub metric: &'static str,
    #[serde(skip)]
    column: &'static FigureColumn,
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
        let (mut changes, mut added, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for series in &new.series {
            match counterpart(old, series) {
                Some(before) => changes.extend(compare((old, before), Some((new, series)), limits)),
                None => added.push(series.to_string()),
            }
        }
        let has_common = !changes.is_empty();
        for series in &old.series {
            if counterpart(new, series).is_none() {
                changes.extend(compare((old, series), None, limits));
                gone.push(series.to_string());
            }
        }
        let is_idle = |limit: &&Limit| changes.iter().all(|c: &Change| c.metric != limit.metric);
        let idle = limits.iter().filter(is_idle);
        let idle_limits = idle.map(ToString::to_string).collect();
        Self {
            idle_limits,
            changes,
            gone,
            added,
            warnings: warnings(old, new),
            violations: new.violations().len() as u64,
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
        let old = self.column.text(self.old.median);
        match self.new {
            Some(new) => {
                let by = change(self.change.unwrap_or(f64::INFINITY));
                [old, self.column.text(new.median), by]
            }
            None => [old, "none".into(), "not measured".into()],
        }
    }

    fn row(&self) -> Row {
        let verdict = match &self.passes {
            Some(limit) => format!("FAILS {limit}"),
            None if self.is_within_spread => "within the spread".to_owned(),
            None => String::new(),
        };
        let ranges = [Some(self.old), self.new].map(|spread| self.column.range(spread));
        let cells = self.medians().into_iter().chain([verdict]).chain(ranges);
        Row {
            name: self.metric.to_owned(),
            cells: cells.collect(),
            notes: String::new(),
        }
    }
}

/// Of a series that is not measured any more, only figures with a limit.
fn compare(
    (old, before): (&Report, &Series),
    new: Option<(&Report, &Series)>,
    limits: &[Limit],
) -> Vec<Change> {
    let after = new.map_or(before, |(_, after)| after);
    let before = old.figures(before);
    let figures = new.map(|(new, after)| new.figures(after));
    let changes = FigureColumn::metrics().filter_map(|column| {
        let old = (column.of)(&before)?;
        let new = figures.as_ref().and_then(column.of);
        let ratio = new.map(|new| match old.median == new.median {
            true => 0.0,
            false => new.median / old.median - 1.0,
        });
        let is_within_spread = new.is_some_and(|new| old.is_like(&new));
        let mut limits = limits.iter().filter(|limit| limit.metric == column.metric);
        // A figure that can no longer be measured is worse than any value.
        let passed = limits.find(|limit| {
            ratio.is_none_or(|ratio| !is_within_spread && limit.is_exceeded_by(ratio))
        });
        if figures.is_none() && passed.is_none() {
            return None;
        }
        Some(Change {
            target: after.target.clone(),
            workload: after.workload,
            parameters: after.parameters.clone(),
            metric: column.metric,
            column,
            old,
            new,
            change: ratio.filter(|ratio| ratio.is_finite()),
            is_within_spread,
            passes: passed.map(ToString::to_string),
        })
    });
    changes.collect()
}

fn counterpart<'a>(report: &'a Report, series: &Series) -> Option<&'a Series> {
    let mut others = report.series.iter();
    others.find(|other| other.target == series.target && other.is_beside(series))
}

fn warnings(old: &Report, new: &Report) -> Vec<String> {
    let facts = |report: &Report| {
        let (place, plan) = (&report.environment, &report.plan);
        [
            ("processors", place.processor.clone()),
            ("kernels", place.kernel.clone()),
            ("builds", place.build.clone()),
            ("numbers of cores", place.cores.to_string()),
            (
                "lengths of a measurement",
                format_duration(plan.duration).to_string(),
            ),
            ("warm-ups", format_duration(plan.warm_up).to_string()),
        ]
    };
    let pairs = facts(old).into_iter().zip(facts(new));
    let differing = pairs.filter(|(old, new)| old != new);
    let mut warnings: Vec<_> = differing
        .map(|((what, old), (_, new))| format!("the {what} differ: {old}, {new}"))
        .collect();
    if old.plan.with_bare != new.plan.with_bare {
        warnings.push("only one of the runs measured bare commands".to_owned());
    }
    if old.plan.repeats.min(new.plan.repeats) < 3 {
        warnings.push("fewer than 3 repeats tell little about the spread".to_owned());
    }
    let more_errors = new.series.iter().filter_map(|series| {
        let [before, after] = [counterpart(old, series)?, series].map(errors);
        let share = |(errors, requests): (u64, u64)| errors as f64 / requests.max(1) as f64;
        let counts = |(errors, requests): (u64, u64)| format!("{errors} of {requests} requests");
        (share(after) > share(before)).then(|| {
            let [before, after] = [before, after].map(counts);
            format!("{series} has more errors than before: {after}, {before} before")
        })
    });
    warnings.extend(more_errors);
    warnings
}

/// Errors in all repeats, and of how many requests.
fn errors(series: &Series) -> (u64, u64) {
    let samples = series.samples.iter();
    let errors: u64 = samples.clone().flat_map(|s| s.errors.values()).sum();
    let served: u64 = samples.map(|s| s.acquisitions).sum();
    (errors, errors + served)
}

/// How far a figure may change, such as `throughput=-10%` or `p99=+15%`: the sign says which
/// direction is the bad one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    metric: &'static str,
    percent: f64,
}

impl Limit {
    fn is_exceeded_by(&self, change: f64) -> bool {
        let percent = change * 100.0;
        match self.percent.is_sign_negative() {
            true => percent < self.percent,
            false => percent > self.percent,
        }
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write METRIC=CHANGE, such as throughput=-10% or p99=+15%";
        let parts = text.strip_suffix('%').and_then(|text| text.split_once('='));
        let (name, change) = parts.ok_or(form)?;
        let known = || FigureColumn::metrics().map(|column| column.metric);
        let metric = known().find(|metric| *metric == name).ok_or_else(|| {
            let known: Vec<_> = known().collect();
            format!("{name:?} is none of {}", known.join(", "))
        })?;
        if !change.starts_with(['+', '-']) {
            return Err(format!(
                "the change needs a sign: {metric}=-10% fails if it falls, {metric}=+10% if it rises"
            ));
        }
        match change.parse::<f64>() {
            Ok(percent) if percent.is_finite() => Ok(Self { metric, percent }),
            _ => Err(form.to_owned()),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:+}%", self.metric, self.percent)
    }
}
