mod effects;
mod liveness;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::event::HistoryEvent;
use crate::span::{KeyHistory, Write, by_key};
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
            register(&history.writes, &mut found);
            effects::check(&history, signal_delay, &mut found);
            liveness::check(&history, max_idle, &mut found);
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
fn register(writes: &[Write], found: &mut Vec<Violation>) {
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

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
