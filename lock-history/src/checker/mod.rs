#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::event::{Access, HistoryEvent};
use crate::span::{AttemptSpan, KeyHistory, Tenure, Write, by_key};
use crate::violation::{Violation, check_holds};

/// Judges histories in O(n log n) time.
///
/// Every rule counts only what events prove: a grant that is noted late can hide a violation, but never
/// causes a false one. The two tolerances are for the delays of a busy machine in a real run; under virtual
/// time both may be small.
#[derive(Clone, Debug)]
pub struct Checker {
    signal_delay: Duration,
    max_idle: Duration,
}

impl Checker {
    /// Tolerates 500 ms from the end of a lease to the event that signals its loss, and 10 s in which
    /// a lock with waiters is free.
    #[must_use]
    pub fn new() -> Self {
        Self {
            signal_delay: Duration::from_millis(500),
            max_idle: Duration::from_secs(10),
        }
    }

    /// Sets how much later than its deadline the loss of a lease may be signaled: 500 ms by default.
    #[must_use]
    pub fn with_signal_delay(mut self, delay: Duration) -> Self {
        self.signal_delay = delay;
        self
    }

    /// Sets how long a lock with waiters may be free: 10 s by default. A crashed holder's TTL,
    /// polling and scheduling add up.
    #[must_use]
    pub fn with_max_idle(mut self, max_idle: Duration) -> Self {
        self.max_idle = max_idle;
        self
    }

    /// Judges the events of one run, of all its processes, in any order.
    #[must_use]
    pub fn check(&self, events: &[HistoryEvent]) -> Verdict {
        let mut verdict = Verdict::default();
        let signal_delay = nanos(self.signal_delay);
        let max_idle = nanos(self.max_idle);
        for (key, history) in by_key(events) {
            verdict.summary.add(&history);
            let mut found = Vec::new();
            found.extend(check_holds(history.holds()));
            check_register(&history.writes, &mut found);
            check_effects(&history, signal_delay, &mut found);
            check_liveness(&history, max_idle, &mut found);
            verdict
                .violations
                .extend(found.into_iter().map(|what| (key.to_owned(), what)));
        }
        verdict
    }
}

impl Default for Checker {
    fn default() -> Self {
        Self::new()
    }
}

/// What a [`Checker`] found.
#[non_exhaustive]
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verdict {
    /// The violations, by key.
    pub violations: Vec<(String, Violation)>,
    /// Counts of what the history consists of.
    pub summary: Summary,
}

impl Verdict {
    /// Returns counts of what the history consists of.
    ///
    /// # Panics
    ///
    /// If anything was violated; the message lists it.
    pub fn assert_clean(&self) -> Summary {
        let shown: Vec<_> = self.violations.iter().take(20).collect();
        let listed = shown
            .iter()
            .map(|(key, what)| format!("\n  {key:?}: {what}"));
        let listed: String = listed.collect();
        let number = self.violations.len();
        assert!(
            number == 0,
            "{number} violations in {:?}:{listed}",
            self.summary
        );
        self.summary
    }
}

/// Counts of what a history consists of; a run in which nothing happened proves nothing.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Summary {
    /// Requests.
    pub requests: usize,
    /// Grants.
    pub grants: usize,
    /// Locks that were lost.
    pub lost: usize,
    /// Writes that the fenced register accepted.
    pub writes: usize,
    /// Writes that it refused.
    pub stale_writes: usize,
}

impl Summary {
    fn add(&mut self, history: &KeyHistory) {
        self.requests += history.spans.len();
        self.grants += history.tenures().count();
        self.lost += history
            .tenures()
            .filter(|(_, tenure)| tenure.lost.is_some())
            .count();
        let accepted = history.writes.iter().filter(|write| write.accepted).count();
        self.writes += accepted;
        self.stale_writes += history.writes.len() - accepted;
    }
}

/// A fenced register accepts a write unless it has seen a larger token.
fn check_register(writes: &[Write], found: &mut Vec<Violation>) {
    let mut largest = None;
    for write in writes {
        let token = write.token;
        match largest {
            Some(largest) if write.accepted && token < largest => {
                found.push(Violation::RegisterWentBack { token, largest });
            }
            _ if !write.accepted && Some(token) >= largest => {
                found.push(Violation::RefusedFreshToken { token });
            }
            _ => {}
        }
        if write.accepted {
            largest = largest.max(Some(token));
        }
    }
}

/// No client touches another holder's lock, and a holder that loses its lock is notified in time.
fn check_effects(history: &KeyHistory, signal_delay: u64, found: &mut Vec<Violation>) {
    let order = GrantOrder::of(history);
    for (span, tenure) in history.tenures() {
        let holder = span.attempt;
        if tenure.rose_again.is_some() {
            found.push(Violation::HeldAfterLoss { holder });
        }
        if let Some(by) = lateness(span, tenure).filter(|by| *by > signal_delay) {
            found.push(Violation::LateSignal { holder, by });
        }
        if was_robbed(tenure) {
            found.push(Violation::LostWithoutCause { holder });
        }
        if order.released_foreign(span, tenure) {
            found.push(Violation::ForeignRelease { by: holder });
        }
    }
}

/// How much later than the deadline the loss was signaled.
fn lateness(span: &AttemptSpan, tenure: &Tenure) -> Option<u64> {
    let (at, _) = tenure.lost.as_ref()?;
    at.checked_sub(span.exact_deadline()?)
}

/// Whether the server took the lock from a valid holder although no client had broken it.
fn was_robbed(tenure: &Tenure) -> bool {
    let told = |(at, reason): &(u64, String)| {
        let taken = matches!(reason.as_str(), "broken" | "session_ended" | "stolen");
        taken.then_some(*at)
    };
    let found_out = match (tenure.releasing, tenure.released) {
        (Some((_, true)), Some((at, Some(false)))) => {
            // A lock that expired while the release was in flight was not taken.
            tenure.until.is_none_or(|until| at < until).then_some(at)
        }
        _ => None,
    };
    let known = tenure.lost.as_ref().and_then(told).or(found_out);
    known.is_some_and(|at| tenure.interfered.is_none_or(|interfered| interfered > at))
}

/// When which kind of holder was granted the lock, sorted.
struct GrantOrder {
    all: Vec<u64>,
    exclusive: Vec<u64>,
}

impl GrantOrder {
    fn of(history: &KeyHistory) -> Self {
        let sorted = |wanted: fn(Access) -> bool| {
            let wanted = history.tenures().filter(|(span, tenure)| {
                // A grant that is noted after its lease has ended was made at an unknown time before.
                wanted(span.access) && tenure.until.is_none_or(|until| until > tenure.from)
            });
            let mut times: Vec<_> = wanted.map(|(_, tenure)| tenure.from).collect();
            times.sort_unstable();
            times
        };
        Self {
            all: sorted(|_| true),
            exclusive: sorted(|access| access == Access::Exclusive),
        }
    }

    /// Whether the server says that a holder had the lock until its release, although a holder that it
    /// excludes was granted it before.
    fn released_foreign(&self, span: &AttemptSpan, tenure: &Tenure) -> bool {
        let (Some((releasing, _)), Some((_, Some(true)))) = (tenure.releasing, tenure.released)
        else {
            return false;
        };
        let others = match span.access {
            Access::Exclusive => &self.all,
            Access::Permit(_) | Access::Shared => &self.exclusive,
        };
        let until = |moment: u64| others.partition_point(|at| *at <= moment);
        until(releasing) > until(tenure.from)
    }
}

/// A free lock goes to a waiter, and nothing is left at the end.
fn check_liveness(history: &KeyHistory, max_idle: u64, found: &mut Vec<Violation>) {
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

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
