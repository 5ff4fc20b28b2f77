//! How long a waiter pauses, and which token it proposes.

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

/// The token that a client proposes to all nodes: the time of its clock, in microseconds.
///
/// If all grant what was proposed, they agree without a second round trip. They do unless their
/// clocks are more than 100 ms off, or one has given a larger token.
pub(super) fn proposal() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}

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
}
