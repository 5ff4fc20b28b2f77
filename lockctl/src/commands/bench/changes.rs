//! Two reports side by side, for people and for programs.

use comfy_table::CellAlignment;
use lock_bench::report::compare::{Change, Comparison, Metric};
use lock_bench::report::units::{change, duration, number};
use lock_bench::report::{Spread, name_of};
use serde_json::{Value, json};

use crate::output::{flush_left, plain_table};
use crate::text::{Escaped, escaped};

pub(super) fn json(comparison: &Comparison) -> Value {
    let mut value = json!({ "schema": "lock-bench-comparison/1" });
    if let Value::Object(parts) = serde_json::to_value(comparison).expect("BUG: it is JSON") {
        for (name, part) in parts {
            value[name] = part;
        }
    }
    value
}

/// A line for each figure, and what only one of the reports has.
pub(super) fn table(comparison: &Comparison) -> String {
    let mut table = plain_table();
    table.set_header(["workload", "target", "figure", "old", "new", "change", ""]);
    for change in &comparison.changes {
        table.add_row([
            format!("{}, {}", name_of(change.workload), change.parameters),
            escaped(&change.target),
            change.metric.to_string(),
            with_range(change.metric, change.old),
            change
                .new
                .map_or_else(|| NONE.to_owned(), |new| with_range(change.metric, new)),
            by(change),
            verdict(change),
        ]);
    }
    for column in [3, 4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = flush_left(&mut table);
    let alone = [("old", &comparison.gone), ("new", &comparison.added)];
    for (which, series) in alone {
        for series in series {
            text += &format!("only in the {which} report: {}\n", Escaped(series));
        }
    }
    text
}

/// Why a change makes the comparison fail.
pub(super) fn sentence(change: &Change) -> String {
    let median = |spread: Spread| value(change.metric, spread.median);
    let old = median(change.old);
    let new = change.new.map_or_else(|| NONE.to_owned(), median);
    let limit = change.passes.as_deref().unwrap_or_default();
    format!(
        "{} of {}, {}, {}: {old} to {new} ({}), limit {limit}",
        change.metric,
        Escaped(&change.target),
        name_of(change.workload),
        change.parameters,
        by(change),
    )
}

fn verdict(change: &Change) -> String {
    match &change.passes {
        Some(limit) => format!("FAILS {limit}"),
        None if change.is_within_spread => "within the spread".to_owned(),
        None => String::new(),
    }
}

fn by(what: &Change) -> String {
    match what.new {
        Some(_) => change(what.change.unwrap_or(f64::INFINITY)),
        None => "not measured".to_owned(),
    }
}

/// A figure that the newer report lacks.
const NONE: &str = "none";

fn with_range(metric: Metric, spread: Spread) -> String {
    let median = value(metric, spread.median);
    match spread.min == spread.max {
        true => median,
        false => format!(
            "{median} ({}..{})",
            value(metric, spread.min),
            value(metric, spread.max)
        ),
    }
}

fn value(metric: Metric, value: f64) -> String {
    match metric.is_duration() {
        true => duration(value),
        false => number(value),
    }
}
