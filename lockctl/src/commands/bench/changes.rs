//! Two reports side by side, for people and for programs.

use polylock_bench::report::compare::{Change, Comparison};
use serde_json::Value;

use crate::output::{Escaped, escaped};

pub(super) fn json(comparison: &Comparison) -> Value {
    let mut value = serde_json::to_value(comparison).expect("BUG: it is JSON");
    value["schema"] = "lock-bench-comparison/1".into();
    value
}

/// A line for each figure, and what only one of the reports has.
pub(super) fn table(comparison: &Comparison) -> String {
    let tables = comparison.tables();
    let tables: Vec<_> = tables.iter().map(|table| table.to_text(escaped)).collect();
    let mut text = tables.join("\n");
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
    let [old, new, by] = change.medians();
    let (place, limit) = (change.place(), change.passes.as_deref().unwrap_or_default());
    let metric = change.metric;
    format!("{metric} of {place}: {old} to {new} ({by}), limit {limit}")
}
