//! The figures as tables, for a terminal and for a page.

use super::units::{duration, number};
use super::{Figures, Quantiles, Report, Series, Spread, name_of};

/// The figures of all targets under one workload with the same parameters.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Table {
    /// What was measured and with what.
    pub title: String,
    /// Violations of all targets; any makes the run fail.
    pub violations: u64,
    /// What stands in the columns; those that nobody has a figure for are left out.
    pub columns: Vec<&'static str>,
    /// A line for each target.
    pub rows: Vec<Row>,
}

/// The figures of a target.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Row {
    /// The target; its name may have any characters.
    pub target: String,
    /// A figure for each column, empty if there is none.
    pub cells: Vec<String>,
}

impl Report {
    /// The figures of all series. With more than one repeat a throughput has the least and the
    /// greatest behind it.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let mut sides: Vec<&Series> = Vec::new();
        for series in &self.series {
            if !sides.iter().any(|side| side.is_beside(series)) {
                sides.push(series);
            }
        }
        sides.into_iter().map(|side| self.table(side)).collect()
    }

    fn table(&self, side: &Series) -> Table {
        let series = self.series.iter().filter(|series| series.is_beside(side));
        let figures: Vec<_> = series
            .map(|s| (s.target.clone(), self.figures(s)))
            .collect();
        let has_any = |column: &&Column| figures.iter().any(|(_, f)| (column.1)(f).is_some());
        let columns: Vec<_> = COLUMNS.iter().filter(has_any).collect();
        let rows = figures.iter().map(|(target, figures)| Row {
            target: target.clone(),
            cells: columns
                .iter()
                .map(|(_, cell)| cell(figures).unwrap_or_default())
                .collect(),
        });
        let (repeats, length) = (self.plan.repeats, self.plan.duration);
        let length = humantime::format_duration(length);
        let name = name_of(side.workload);
        Table {
            title: format!("{name}, {}, {repeats} x {length}", side.parameters),
            violations: figures.iter().map(|(_, figures)| figures.violations).sum(),
            columns: columns.iter().map(|(name, _)| *name).collect(),
            rows: rows.collect(),
        }
    }
}

type Column = (&'static str, fn(&Figures) -> Option<String>);

const COLUMNS: [Column; 18] = [
    ("acq/s", |f| f.throughput.map(with_range)),
    ("x bare", |f| f.to_bare.map(number)),
    ("pair rt", |f| f.pair_round_trips.map(number)),
    ("efficiency", |f| f.efficiency.map(|s| percent(s.median))),
    ("acquire p50", |f| f.acquire.map(|q| duration(q.p50.median))),
    ("p99", |f| f.acquire.map(|q| duration(q.p99.median))),
    ("p99.9", |f| f.acquire.map(|q| duration(q.p999.median))),
    ("acquire rt", |f| f.acquire_round_trips.map(number)),
    ("hand-off p50", |f| hand_off(f, |q| q.p50)),
    ("hand-off p99", |f| hand_off(f, |q| q.p99)),
    ("hand-off rt", |f| f.hand_off_round_trips.map(number)),
    ("Jain", |f| f.jain.map(|s| format!("{:.2}", s.median))),
    ("min/max", |f| {
        f.least_share.map(|s| format!("{:.2}", s.median))
    }),
    ("overtakes", |f| {
        f.overtakes.map(|s| format!("{:.2}", s.median))
    }),
    ("cmds/acq", |f| f.commands.map(|s| number(s.median))),
    ("recovery p50", |f| f.recovery.map(|s| duration(s.median))),
    ("recovery max", |f| f.recovery.map(|s| duration(s.max))),
    ("notes", notes),
];

fn hand_off(figures: &Figures, of: fn(&Quantiles) -> Spread) -> Option<String> {
    figures
        .hand_off
        .map(|quantiles| duration(of(&quantiles).median))
}

fn with_range(spread: Spread) -> String {
    let (median, min, max) = (
        number(spread.median),
        number(spread.min),
        number(spread.max),
    );
    match min == max {
        true => median,
        false => format!("{median} ({min}..{max})"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn notes(figures: &Figures) -> Option<String> {
    let mut notes = Vec::new();
    if let Some(adds) = figures.layer_adds {
        notes.push(format!("layer adds {}", duration(adds.median)));
    }
    if figures.violations > 0 {
        notes.push(format!("VIOLATIONS {}", figures.violations));
    }
    if figures.errors > 0 {
        notes.push(format!("errors {}", figures.errors));
    }
    if figures.checked_of > 1 {
        notes.push(format!("1 of {} slices was checked", figures.checked_of));
    }
    if figures.is_checked_by_chance {
        notes.push("overlaps seen by chance: no token, no hold".to_owned());
    }
    if figures.unserved > 0 {
        notes.push(format!("unserved {}", figures.unserved));
    }
    if figures.is_saturated {
        notes.push("saturated".to_owned());
    }
    if figures.is_of_the_client {
        notes.push("limited by the client".to_owned());
    }
    (!notes.is_empty()).then(|| notes.join(", "))
}
