//! The figures as tables, for a terminal and for a page.

use super::units::{duration, number};
use super::{Figures, Report, Series, Spread, name_of};

/// The figures of all targets under one workload with the same parameters, or the changes of one.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Table {
    /// What was measured and with what; a name of a target in it may have any characters.
    pub title: String,
    /// Violations of all targets; any makes the run fail.
    pub violations: u64,
    /// What the rows are.
    pub head: &'static str,
    /// Names of the columns; those that no target has a figure for are left out.
    pub columns: Vec<&'static str>,
    /// A line for each target or figure.
    pub rows: Vec<Row>,
}

/// The figures of a target, or what became of a figure.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Row {
    /// The target or the figure; the name of a target may have any characters.
    pub name: String,
    /// A figure for each column, empty if there is none.
    pub cells: Vec<String>,
    /// What a reader of the figures has to know; empty if there is nothing.
    pub notes: String,
}

impl Report {
    /// The figures of all series.
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
        let beside = self.series.iter().filter(|series| series.is_beside(side));
        let figures: Vec<_> = beside
            .map(|s| (s.target.clone(), self.figures(s)))
            .collect();
        let rows = figures.iter().map(|(target, figures)| Row {
            name: target.clone(),
            cells: COLUMNS
                .iter()
                .map(|column| (column.1)(figures).unwrap_or_default())
                .collect(),
            notes: notes(figures),
        });
        let (name, repeats) = (name_of(side.workload), self.plan.repeats);
        let length = humantime::format_duration(self.plan.duration);
        let violations = figures.iter().map(|(_, figures)| figures.violations).sum();
        let parameters = &side.parameters;
        Table {
            title: format!("{name}, {parameters}, {repeats} x {length}: violations {violations}"),
            violations,
            head: "target",
            columns: COLUMNS.iter().map(|(name, _)| *name).collect(),
            rows: rows.collect(),
        }
        .without_empty_columns()
    }
}

impl Table {
    pub(super) fn without_empty_columns(mut self) -> Self {
        for at in (0..self.columns.len()).rev() {
            if self.rows.iter().all(|row| row.cells[at].is_empty()) {
                self.columns.remove(at);
                self.rows
                    .iter_mut()
                    .for_each(|row| drop(row.cells.remove(at)));
            }
        }
        self
    }

    /// The table for a terminal of 80 columns: what does not fit stands below, and then the notes.
    /// `escape` makes names of targets harmless.
    #[must_use]
    pub fn to_text(&self, escape: impl Fn(&str) -> String) -> String {
        let names = self.rows.iter().map(|row| shortened(escape(&row.name)));
        let names: Vec<_> = std::iter::once(self.head.to_owned()).chain(names).collect();
        let width = |texts: &[String]| texts.iter().map(|text| text.chars().count()).max();
        let first = width(&names).unwrap_or_default();
        let columns: Vec<Vec<_>> = (0..self.columns.len())
            .map(|at| {
                let cells = self.rows.iter().map(|row| match row.cells[at].as_str() {
                    "" => "-".to_owned(),
                    cell => cell.to_owned(),
                });
                std::iter::once(self.columns[at].to_owned())
                    .chain(cells)
                    .collect()
            })
            .collect();
        let mut text = wrapped(&escape(&self.title));
        let mut rest = columns.as_slice();
        while !rest.is_empty() {
            let mut used = first;
            let fits = |column: &&Vec<String>| {
                used += 2 + width(column).unwrap_or_default();
                used <= COLUMNS_OF_TERMINAL
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (block, after) = rest.split_at(count);
            for (at, name) in names.iter().enumerate() {
                if block.iter().all(|column| column[at] == "-") {
                    continue;
                }
                text += &format!("{name:first$}");
                for column in block {
                    text += &format!("  {:>1$}", column[at], width(column).unwrap_or_default());
                }
                text.push('\n');
            }
            rest = after;
        }
        for (name, row) in names[1..].iter().zip(&self.rows) {
            if !row.notes.is_empty() {
                text += &wrapped(&format!("{name}: {}", row.notes));
            }
        }
        text
    }
}

const COLUMNS_OF_TERMINAL: usize = 80;

fn shortened(name: String) -> String {
    match name.char_indices().nth(32) {
        Some((end, _)) => format!("{}..", &name[..end]),
        None => name,
    }
}

/// Breaks a line between words, and indents what follows.
fn wrapped(line: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in line.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > COLUMNS_OF_TERMINAL {
            text += "\n  ";
            width = 2;
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text += word;
        width += length;
    }
    text + "\n"
}

type Column = (&'static str, fn(&Figures) -> Option<String>);

/// What answers the question of a workload comes first.
const COLUMNS: [Column; 23] = [
    ("acq/s", |f| f.throughput.map(|s| number(s.median))),
    ("min..max", |f| f.throughput.and_then(range)),
    ("time/bare", |f| f.to_bare.map(number)),
    ("hand-off p50", |f| {
        f.hand_off.map(|q| duration(q.p50.median))
    }),
    ("hand-off p99", |f| {
        f.hand_off.map(|q| duration(q.p99.median))
    }),
    ("in use", |f| {
        f.efficiency.map(|s| format!("{:.0} %", s.median * 100.0))
    }),
    ("acquire p50", |f| f.acquire.map(|q| duration(q.p50.median))),
    ("p99", |f| f.acquire.map(|q| duration(q.p99.median))),
    ("p99.9", |f| f.acquire.map(|q| duration(q.p999.median))),
    ("cmds/acq", |f| f.commands.map(|s| number(s.median))),
    ("Jain", |f| two(f.jain)),
    ("min/max", |f| two(f.least_share)),
    ("overtakes", |f| two(f.overtakes)),
    ("pair rt", |f| f.pair_round_trips.map(number)),
    ("acquire rt", |f| f.acquire_round_trips.map(number)),
    ("hand-off rt", |f| f.hand_off_round_trips.map(number)),
    ("recovery p50", |f| f.recovery.map(|s| duration(s.median))),
    ("recovery max", |f| f.recovery.map(|s| duration(s.max))),
    ("added", |f| f.layer_adds.map(|s| duration(s.median))),
    ("bytes/lock", |f| f.held_bytes.map(|s| number(s.median))),
    ("bytes/waiter", |f| {
        f.waiting_bytes.map(|s| number(s.median))
    }),
    ("cmds/renewal", |f| {
        f.renewal_commands.map(|s| number(s.median))
    }),
    ("processor", |f| {
        f.renewal_processors
            .map(|s| format!("{:.1} %", s.median * 100.0))
    }),
];

fn two(spread: Option<Spread>) -> Option<String> {
    spread.map(|spread| format!("{:.2}", spread.median))
}

fn range(spread: Spread) -> Option<String> {
    (spread.min != spread.max).then(|| format!("{}..{}", number(spread.min), number(spread.max)))
}

fn notes(figures: &Figures) -> String {
    let counts = [
        (
            figures.violations > 0,
            format!("VIOLATIONS {}", figures.violations),
        ),
        (figures.errors > 0, format!("errors {}", figures.errors)),
        (
            figures.checked_of > 1,
            format!("1 of {} slices was checked", figures.checked_of),
        ),
        (
            figures.is_checked_by_chance,
            "overlaps seen by chance: no token, no hold".to_owned(),
        ),
        (
            figures.unserved > 0,
            format!("unserved {}", figures.unserved),
        ),
        (figures.is_saturated, "saturated".to_owned()),
        (figures.is_of_the_client, "limited by the client".to_owned()),
    ];
    let notes = counts
        .into_iter()
        .filter_map(|(is_so, note)| is_so.then_some(note));
    notes.collect::<Vec<_>>().join(", ")
}
