//! The arithmetic of a lease: when it is valid, when to renew it, when to try again. Pure.

use std::time::Duration;

use crate::engine::Moment;

/// Durations that follow from a ttl.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LeaseTiming {
    ttl: Duration,
}

/// Min margin at the end of a lease.
const MIN_MARGIN: Duration = Duration::from_millis(50);

impl LeaseTiming {
    pub(crate) const fn new(ttl: Duration) -> Self {
        Self { ttl }
    }

    pub(crate) const fn ttl(self) -> Duration {
        self.ttl
    }

    /// Time at the end of a lease that is never relied on, because the server's clock may run
    /// faster than ours, up to what a time daemon slews.
    pub(crate) fn margin(self) -> Duration {
        (self.ttl / 10).max(MIN_MARGIN)
    }

    /// Last moment of a lease whose request left at `sent`.
    pub(crate) fn valid_until(self, sent: Moment) -> Moment {
        sent + self.ttl.saturating_sub(self.margin())
    }

    /// When to renew a lease whose request left at `sent`: at a third of the ttl, earlier by up to
    /// a tenth of that so that leases taken together drift apart. `jitter` is in `0.0..1.0`.
    pub(crate) fn renew_at(self, sent: Moment, jitter: f64) -> Moment {
        sent + renewal_interval(self.ttl).mul_f64(1.0 - 0.1 * jitter)
    }

    /// When to extend a first lease that is shorter than later ones, granted by `now`: as late as
    /// is safe, because a lock that is released before that costs no renewal.
    pub(crate) fn extend_at(self, sent: Moment, now: Moment, jitter: f64) -> Moment {
        let left = self.valid_until(sent).since(now);
        self.renew_at(sent, jitter).max(now + left / 3)
    }

    /// When to try again after a renewal that began at `sent` failed by `now`.
    pub(crate) fn retry_at(self, now: Moment) -> Moment {
        now + self.pause()
    }

    /// Least validity that a lease is handed over with: less leaves no time to renew it.
    pub(crate) fn min_handed_over(self) -> Duration {
        self.pause()
    }

    fn pause(self) -> Duration {
        (self.ttl / 15).min(Duration::from_secs(1))
    }

    /// Longest time that one renewal may take, so that a hanging one leaves room for others.
    pub(crate) fn attempt_timeout(self) -> Duration {
        renewal_timeout(self.ttl)
    }

    /// How much earlier than due a lease is renewed when another one of its server is: an eighth of
    /// the period, so that any number of leases of one length costs about eight requests per period.
    pub(crate) fn batch_window(self) -> Duration {
        self.ttl / 3 / 8
    }
}

/// Time after which a lease of this length is renewed, at the latest.
#[must_use]
pub fn renewal_interval(ttl: Duration) -> Duration {
    ttl / 3
}

/// Time that one attempt to renew a lease of this length may take.
#[must_use]
pub fn renewal_timeout(ttl: Duration) -> Duration {
    (ttl / 30)
        .clamp(Duration::from_secs(1), Duration::from_secs(5))
        .min(ttl / 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn validity_counts_from_the_request_and_ends_before_the_lease() {
        let sent = Moment::from_nanos(0) + secs(100);
        for (ttl, valid) in [(30_000, 27_000), (1_000, 900), (200, 150)] {
            let [ttl, valid] = [ttl, valid].map(Duration::from_millis);
            assert_eq!(LeaseTiming::new(ttl).valid_until(sent), sent + valid);
        }
    }

    #[test]
    fn renewal_is_due_at_a_third_and_never_later() {
        let sent = Moment::from_nanos(0);
        let timing = LeaseTiming::new(secs(30));
        assert_eq!(timing.renew_at(sent, 0.0), sent + secs(10));
        assert_eq!(timing.renew_at(sent, 1.0), sent + secs(9));
    }

    #[test]
    fn a_first_lease_is_extended_at_a_third_of_what_is_left_of_it() {
        let sent = Moment::from_nanos(0);
        let timing = LeaseTiming::new(secs(10));
        let third = sent + secs(10) / 3;
        assert_eq!(timing.extend_at(sent, sent, 0.0), third);
        assert_eq!(timing.extend_at(sent, sent + secs(6), 0.0), sent + secs(7));
    }

    #[test]
    fn several_attempts_fit_into_every_lease() {
        for ttl in [1, 2, 5, 10, 30, 60, 600, 86_400].map(secs) {
            let timing = LeaseTiming::new(ttl);
            let left = ttl - timing.margin() - ttl / 3;
            let failed = Moment::from_nanos(0);
            let pause = timing.retry_at(failed).since(failed);
            let round = timing.attempt_timeout() + pause;
            assert!(
                left >= 2 * round,
                "{ttl:?}: {left:?} for rounds of {round:?}"
            );
        }
    }

    #[test]
    fn a_lease_beyond_all_time_is_still_a_moment() {
        let late = LeaseTiming::new(Duration::MAX).valid_until(Moment::from_nanos(1));
        assert_eq!(late, Moment::NEVER);
    }
}
