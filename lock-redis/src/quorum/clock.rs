//! The time of a node, as far as a client knows it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// The clock of a node. It limits the time of each vote, so that the node refuses a late copy from an
/// abandoned connection. The largest lead that any reply has shown counts.
#[derive(Debug)]
pub(super) struct ServerClock {
    /// By how many milliseconds it is ahead of this process.
    ahead: AtomicI64,
}

/// Added to the timeout of a request, for clocks that drift and differ.
const SLACK: Duration = Duration::from_secs(1);

impl Default for ServerClock {
    fn default() -> Self {
        Self {
            ahead: AtomicI64::new(UNKNOWN),
        }
    }
}

const UNKNOWN: i64 = i64::MIN;

impl ServerClock {
    /// Learns the time of a server, in milliseconds since 1970.
    pub(super) fn learn(&self, millis: u64) {
        self.learn_at(here(), millis);
    }

    /// The server time after which a request sent now with the timeout `within` is refused. 0 if that is
    /// unknown: the server then refuses the request, and its reply has the time.
    pub(super) fn limit(&self, within: Duration) -> String {
        self.limit_at(here(), within).unwrap_or(0).to_string()
    }

    fn learn_at(&self, here: i64, millis: u64) {
        let there = i64::try_from(millis).unwrap_or(i64::MAX);
        self.ahead
            .fetch_max(there.saturating_sub(here), Ordering::Relaxed);
    }

    fn limit_at(&self, here: i64, within: Duration) -> Option<i64> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let within = i64::try_from((within + SLACK).as_millis()).unwrap_or(i64::MAX);
        (ahead != UNKNOWN).then(|| here.saturating_add(ahead).saturating_add(within))
    }
}

/// Milliseconds of this process.
fn here() -> i64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    i64::try_from(START.elapsed().as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_follows_the_answer_that_is_most_ahead() {
        let clock = ServerClock::default();
        let second = Duration::from_secs(1);
        assert_eq!(clock.limit(second), "0");
        clock.learn_at(500, 10_500);
        assert_eq!(clock.limit_at(700, second), Some(12_700));
        clock.learn_at(800, 10_100);
        assert_eq!(clock.limit_at(1_000, second), Some(13_000));
        clock.learn_at(1_000, 21_000);
        assert_eq!(clock.limit_at(1_000, second), Some(23_000));
    }
}
