//! The figures as tables, for a terminal and for a page.

use super::figures::COLUMNS;
use super::{Figures, Report, Series};
use crate::plan::name_of;

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
        let mut violations = 0;
        let rows = beside.map(|series| {
            let figures = self.figures(series);
            violations += figures.violations;
            let mut cells: Vec<_> = COLUMNS
                .iter()
                .map(|column| (column.of)(&figures).map(|spread| column.text(spread.median)))
                .map(Option::unwrap_or_default)
                .collect();
            cells.insert(1, COLUMNS[0].range(figures.throughput));
            Row {
                name: series.target.clone(),
                cells,
                notes: notes(&figures),
            }
        });
        let rows = rows.collect();
        let mut columns: Vec<_> = COLUMNS.iter().map(|column| column.head).collect();
        columns.insert(1, "min..max");
        let (name, parameters) = (name_of(side.workload), &side.parameters);
        let length = humantime::format_duration(self.plan.duration);
        let repeats = self.plan.repeats;
        Table {
            title: format!("{name}, {parameters}, {repeats} x {length}: violations {violations}"),
            violations,
            head: "target",
            columns,
            rows,
        }
        .without_empty_columns()
    }
}

impl Table {
    pub(super) fn without_empty_columns(mut self) -> Self {
        for at in (0..self.columns.len()).rev() {
            if self.rows.iter().all(|row| row.cells[at].is_empty()) {
                self.columns.remove(at);
                for row in &mut self.rows {
                    row.cells.remove(at);
                }
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
        let column = |at: usize| {
            let cells = self.rows.iter().map(|row| match &*row.cells[at] {
                "" => "-",
                cell => cell,
            });
            let column = std::iter::once(self.columns[at]).chain(cells);
            column.map(str::to_owned).collect()
        };
        let columns: Vec<Vec<_>> = (0..self.columns.len()).map(column).collect();
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

pub(super) fn shortened(name: String) -> String {
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

fn notes(figures: &Figures) -> String {
    let checked = format!("1 of {} slices was checked", figures.checked_of);
    let notes = [
        (figures.checked_of > 1, checked),
        (
            figures.checked_of > 1 && figures.hand_off.is_some(),
            "hand-offs of 8.4 ms and more are left out".to_owned(),
        ),
        (
            figures.is_checked_by_chance,
            "overlaps seen by chance: no token, no hold".to_owned(),
        ),
        (
            figures.unserved > 0,
            format!("unserved {}", figures.unserved),
        ),
        (figures.is_of_the_client, "limited by the client".to_owned()),
    ];
    let notes = notes.into_iter().filter_map(told);
    faults(figures).chain(notes).collect::<Vec<_>>().join(", ")
}

/// Why the figures of a target do not compete with those of others.
pub(super) fn faults(figures: &Figures) -> impl Iterator<Item = String> + use<> {
    let counted = |what: &str, count: u64| (count > 0, format!("{what} {count}"));
    let faults = [
        counted("VIOLATIONS", figures.violations),
        counted("errors", figures.errors),
        counted("repeats without an acquisition", figures.empty_repeats),
        (figures.is_saturated, "saturated".to_owned()),
    ];
    faults.into_iter().filter_map(told)
}

fn told((is_so, note): (bool, String)) -> Option<String> {
    is_so.then_some(note)
}
