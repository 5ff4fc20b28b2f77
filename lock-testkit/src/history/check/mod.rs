//! The judge: what a history proves to be wrong.

mod effects;
mod liveness;
mod overlap;
#[cfg(test)]
mod tests;
mod tokens;
mod violation;

use std::time::Duration;

use super::event::Event;
use super::span::{KeyHistory, by_key};

pub use self::violation::Violation;

/// Judges histories, in time that grows as n log n.
///
/// Every rule counts only what events prove; times that are noted late or early make it miss a
/// violation rather than see one where there is none. The two tolerances are for what a busy
/// machine adds to the times of a real run; under virtual time both may be tight.
#[derive(Clone, Debug)]
pub struct Checker {
    signal_delay: Duration,
    patience: Duration,
}

impl Checker {
    /// Tolerates 500 ms between the end of a lease and the note that its loss was signalled, and
    /// 10 s in which a free lock is not granted to somebody who waits.
    #[must_use]
    pub fn new() -> Self {
        Self {
            signal_delay: Duration::from_millis(500),
            patience: Duration::from_secs(10),
        }
    }

    /// Sets how much later than the deadline the loss of a lease may be noted.
    #[must_use]
    pub fn with_signal_delay(mut self, delay: Duration) -> Self {
        self.signal_delay = delay;
        self
    }

    /// Sets how long a lock may stay free while somebody waits: ttl, polling and scheduling
    /// together.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Judges the events of one run, in any order, of all its processes.
    #[must_use]
    pub fn check(&self, events: &[Event]) -> Verdict {
        let mut verdict = Verdict::default();
        let signal_delay = nanos(self.signal_delay);
        let patience = nanos(self.patience);
        for (key, history) in by_key(events) {
            verdict.summary.add(&history);
            let mut found = Vec::new();
            overlap::check(&history, &mut found);
            tokens::check(&history, &mut found);
            effects::check(&history, signal_delay, &mut found);
            liveness::check(&history, patience, &mut found);
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
    /// What was violated on which key.
    pub violations: Vec<(String, Violation)>,
    /// What the history consists of.
    pub summary: Summary,
}

impl Verdict {
    /// Returns what the history consists of if nothing was violated.
    ///
    /// # Panics
    ///
    /// If something was; the message lists it.
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
    /// Writes that the fenced register took.
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

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
