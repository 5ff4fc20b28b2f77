//! How long a waiter pauses, and which token it proposes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest pause after so many attempts in vain.
///
/// Every pause is drawn between nothing and this: two that took votes from each other part with a
/// probability that grows with each attempt.
pub(super) fn longest_pause(attempts: u32, took: Duration, is_held: bool) -> Duration {
    let first = if is_held {
        WHEN_HELD
    } else {
        2 * took.max(LEAST)
    };
    let grown = first.saturating_mul(1 << attempts.min(10));
    grown.min(LONGEST)
}

const LEAST: Duration = Duration::from_millis(1);
const WHEN_HELD: Duration = Duration::from_millis(10);
pub(super) const LONGEST: Duration = Duration::from_millis(200);

/// By how much the proposed tokens are ahead of the clock of this machine, in microseconds.
///
/// A node grants no token below its clock, and the proposal if nothing is larger. If all nodes grant
/// what was proposed, they agree without a second round trip, so the proposals run a little ahead of
/// the clocks of all nodes.
#[derive(Debug)]
pub(super) struct Lead(AtomicU64);

impl Default for Lead {
    fn default() -> Self {
        Self(AtomicU64::new(SPARE))
    }
}

impl Lead {
    pub(super) fn proposal(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0));
        now + self.0.load(Ordering::Relaxed)
    }

    /// Learns that a proposal was too small.
    pub(super) fn learn(&self, proposal: u64, token: u64) {
        if token > proposal {
            let lead = self.0.load(Ordering::Relaxed) + (token - proposal) + SPARE;
            self.0.store(lead.min(MOST), Ordering::Relaxed);
        }
    }
}

/// Longer than a request takes to arrive, mostly.
const SPARE: u64 = 10_000;

/// Clocks that are further apart cost a second round trip.
const MOST: u64 = 5_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        let took = Duration::from_millis(3);
        let pauses = [0, 1, 4, 10, 1_000].map(|n| longest_pause(n, took, false).as_millis());
        assert_eq!(pauses, [6, 12, 96, 200, 200]);
        let pauses = [0, 1, 4, 10].map(|n| longest_pause(n, took, true).as_millis());
        assert_eq!(pauses, [10, 20, 160, 200]);
        assert!(longest_pause(0, Duration::ZERO, false) > Duration::ZERO);
    }

    #[test]
    fn proposals_follow_the_clock_that_is_ahead() {
        let lead = Lead::default();
        let first = lead.proposal();
        lead.learn(first, first - 1);
        lead.learn(first, first);
        assert!(lead.proposal() < first + 1_000_000, "nothing was learnt");
        lead.learn(first, first + 2_000_000);
        assert!(lead.proposal() > first + 2_000_000);
        lead.learn(first, first + 3_600_000_000);
        assert!(lead.proposal() < first + 60_000_000, "an hour is too much");
    }
}
