//! A free lock goes to a waiter, and nothing is left at the end.

use crate::span::KeyHistory;
use crate::violation::Violation;

pub(super) fn check(history: &KeyHistory, max_idle: u64, found: &mut Vec<Violation>) {
    if let Some((holders, waiters)) = history.left.filter(|left| *left != (0, 0)) {
        found.push(Violation::LeftBehind { holders, waiters });
    }
    let gaps = gaps(history, max_idle);
    for span in &history.spans {
        let (from, until) = (span.requested, span.resolved.unwrap_or(u64::MAX));
        // If there is any gap in which this one waited too long, the first that ends late enough
        // is one: the later ones begin after it.
        let first = gaps.partition_point(|(_, end)| *end <= from.saturating_add(max_idle));
        let starved = gaps.get(first).is_some_and(|(begin, end)| {
            from.max(*begin).saturating_add(max_idle) < until.min(*end)
        });
        if starved {
            found.push(Violation::Starved {
                waiter: span.attempt,
            });
        }
    }
}

/// Times longer than `max_idle` in which the lock was free and nothing interfered, in order.
fn gaps(history: &KeyHistory, max_idle: u64) -> Vec<(u64, u64)> {
    let mut marks: Vec<_> = history
        .tenures()
        .map(|(span, tenure)| (tenure.from, span.valid_until(tenure)))
        .chain(history.interference.iter().map(|at| (*at, *at)))
        .collect();
    marks.sort_unstable();
    // How long a history went on after its last event is unknown.
    let last = history
        .spans
        .iter()
        .filter_map(|span| span.resolved)
        .max()
        .unwrap_or(0);
    marks.push((last, last));
    let mut gaps = Vec::new();
    let mut free_from = 0;
    for (from, until) in marks {
        if from > free_from && from - free_from > max_idle {
            gaps.push((free_from, from));
        }
        free_from = free_from.max(until);
    }
    gaps
}
