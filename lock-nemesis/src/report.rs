//! What a run prints.

use std::collections::BTreeMap;
use std::fmt::Display;

use lock_testkit::history::{HistoryEvent, What};

use crate::backend::BackendKind;
use crate::judge::{Attempts, FoundViolation, Judgment, Struck};

/// A table of what happened, and the shortest violating history if there is any.
pub(crate) fn render(
    backend: BackendKind,
    seed: u64,
    began: u64,
    events: &[HistoryEvent],
    faults: &[Struck],
    judgment: &Judgment,
) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: &dyn Display| {
        text.push_str(&format!("{name:<34} {value}\n"));
    };
    row("backend", &backend);
    row("seed", &seed);
    let last = events.iter().map(|event| event.at).max().unwrap_or(began);
    row("seconds", &format_args!("{:.0}", seconds(last, began)));
    let mut injected: BTreeMap<&str, usize> = BTreeMap::new();
    for fault in faults {
        *injected.entry(fault.name).or_default() += 1;
    }
    for (name, count) in &injected {
        row(&format!("fault {name}"), count);
    }
    let summary = &judgment.summary;
    row("acquisitions", &summary.grants);
    row("refused", &(summary.requests - summary.grants));
    row("leases lost", &summary.lost);
    row("writes", &summary.writes);
    row("stale writes stopped by tokens", &summary.stale_writes);
    let recovery = judgment.recovery.as_secs_f64();
    row("longest recovery", &format_args!("{recovery:.1} s"));
    row("terms of leaders", &judgment.terms);
    let leaderless = judgment.leaderless.as_secs_f64();
    row(
        "longest without leader or fault",
        &format_args!("{leaderless:.1} s"),
    );
    for (why, count) in &judgment.explained {
        row("two holders, documented", &format_args!("{count}: {why}"));
    }
    row("violations", &judgment.violations.len());
    if let Some(found) = judgment.violations.first() {
        text.push_str(&history(found, began, events, faults));
    }
    text
}

/// The events of the acquisitions that a violation is about, and the faults in between.
fn history(
    found: &FoundViolation,
    began: u64,
    events: &[HistoryEvent],
    faults: &[Struck],
) -> String {
    let attempts = Attempts::of(events);
    let mut lines = Vec::new();
    let (mut from, mut until) = found.gap.unwrap_or((u64::MAX, 0));
    for (party, name) in found.parties.iter().zip(["A", "B", "C"]) {
        let events = attempts.events(*party);
        for (place, event) in events.iter().enumerate() {
            from = from.min(event.at);
            until = until.max(event.at);
            let next = events.get(place + 1).map(|next| &next.what);
            let goes_on = matches!(next, Some(What::Held { .. }));
            if !goes_on || !matches!(event.what, What::Held { .. }) {
                let process = event.process;
                let what = describe(&event.what, began);
                lines.push((event.at, format!("{name} (process {process}) {what}")));
            }
        }
    }
    for fault in faults {
        let over = fault.healed.unwrap_or(u64::MAX);
        if fault.injected <= until && over.saturating_add(FAULT_CONTEXT) >= from {
            let name = fault.name;
            lines.push((fault.injected, format!("fault {name}: {}", fault.met)));
            lines.extend(fault.healed.map(|at| (at, format!("fault {name} ends"))));
        }
    }
    lines.sort();
    let mut text = format!("\nkey {}: {}", found.key, found.what);
    if let Some(overlap) = found.overlap {
        text.push_str(&format!(" ({:.3} s)", overlap.as_secs_f64()));
    }
    if let Some((from, until)) = found.gap {
        let (from, until) = (seconds(from, began), seconds(until, began));
        text.push_str(&format!(" (no leader from {from:.3} s until {until:.3} s)"));
    }
    text.push('\n');
    for (at, line) in lines {
        text.push_str(&format!("{:>9.3} s  {line}\n", seconds(at, began)));
    }
    text
}

fn describe(what: &What, began: u64) -> String {
    let until = |until: &Option<u64>| match until {
        Some(until) => format!("until {:.3} s", seconds(*until, began)),
        None => "without a deadline".to_owned(),
    };
    match what {
        What::Cancelled => "gives up".to_owned(),
        What::Granted { token, until: end } => {
            let token =
                token.map_or_else(|| "no token".to_owned(), |token| format!("token {token}"));
            format!("acquires, {token}, valid {}", until(end))
        }
        What::Held { until: end } => format!("holds, valid {}", until(end)),
        What::Lost { reason } => format!("loses the lock: {reason}"),
        What::Refused { error } => format!("is refused: {error}"),
        What::Released { clean } => match clean {
            Some(true) => "has released".to_owned(),
            Some(false) => "had lost it before its release".to_owned(),
            None => "does not know whether it has released".to_owned(),
        },
        What::Releasing { .. } => "releases, or is killed".to_owned(),
        What::Requested { .. } => "requests".to_owned(),
        other => format!("{other:?}"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a run is short")]
fn seconds(at: u64, began: u64) -> f64 {
    (at as f64 - began as f64) / 1e9
}

/// Faults that ended this many nanoseconds before the history begins are shown.
const FAULT_CONTEXT: u64 = 10_000_000_000;
