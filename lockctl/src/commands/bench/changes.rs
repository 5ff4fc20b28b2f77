//! Two reports side by side, for people and for programs.

use lock_bench::report::compare::{Change, Comparison};
use serde_json::{Value, json};

use crate::output::{Escaped, escaped};

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
    let (metric, place) = (change.metric, Escaped(&place));
    format!("{metric} of {place}: {old} to {new} ({by}), limit {limit}")
}
