//! The arithmetic of a session: until when its locks are held. Pure.

use std::time::Duration;

use lock_core::engine::Moment;

/// Durations that follow from the session time-out that was negotiated.
///
/// A server ends a session one time-out after it heard from the client last. What the leader knows of
/// that is up to half a tick old when the server that heard it dies, and a time-out is two ticks at
/// least: a quarter of it is never relied on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SessionTerms {
    timeout: Duration,
}

impl SessionTerms {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout }
    }

    /// Until when the locks are held if the last request that was answered left at `sent`.
    pub(super) fn valid_until(self, sent: Moment) -> Moment {
        sent + self.timeout * 3 / 4
    }

    /// Until when an answer is worth to be relied on anew.
    pub(super) fn recent_until(self, sent: Moment) -> Moment {
        sent + self.timeout / 2
    }

    /// Until when they are held once the connection has broken, at `now`.
    pub(super) fn doubted_until(self, now: Moment, valid_until: Moment) -> Moment {
        (now + self.timeout / 2).min(valid_until)
    }

    /// Time between two heartbeats; less than the client takes before it pings by itself.
    pub(super) fn beat(self) -> Duration {
        self.timeout / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_lock_is_lost_before_its_session_can_end() {
        let terms = SessionTerms::new(Duration::from_secs(20));
        assert_eq!(terms.valid_until(at(1000)), at(16_000));
        // Broken right after a heartbeat: half a time-out from then.
        assert_eq!(terms.doubted_until(at(1500), at(16_000)), at(11_500));
        // Broken after a long silence: what was heard last counts.
        assert_eq!(terms.doubted_until(at(9000), at(16_000)), at(16_000));
    }

    #[test]
    fn several_heartbeats_fit_into_the_validity_of_one() {
        let terms = SessionTerms::new(Duration::from_millis(1000));
        let left = terms.valid_until(at(0)).since(at(0));
        assert!(left >= terms.beat() * 5);
    }
}
