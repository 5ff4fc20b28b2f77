//! Which leases a link can renew in time. Pure.

use std::time::Duration;

use polylock::{Bound, Finding};

use super::round_trip::RoundTrips;
use crate::text::human;

/// What follows from the round trips of a service for its leases.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Advice {
    pub(super) bound: Bound,
    /// The slowest exchange that is to be expected.
    slow: Duration,
    /// None if no lease could be renewed in time.
    pub(super) least: Option<Duration>,
    pub(super) recommended: Option<Duration>,
}

impl Advice {
    pub(super) fn of(round_trips: &RoundTrips, bound: Bound) -> Self {
        let slow = round_trips.cycle.p99;
        let least = least(slow);
        Self {
            bound,
            slow,
            least,
            recommended: least.map(|least| least.max(USUAL)),
        }
    }

    /// Whether leases of this length can be renewed in time.
    pub(super) fn finding(&self, ttl: Duration, round_trips: &RoundTrips) -> Finding {
        let (slow, allowed) = (exact(self.slow), attempt(ttl));
        if allowed >= self.slow * ROOM {
            return Finding::good("round-trip", round_trips.to_string());
        }
        let why = format!(
            "a renewal of a lease of {} is given {}, which should be twice the p99 of {slow}: \
             holders lose locks that nobody wants",
            human(ttl),
            human(allowed),
        );
        let way_out = match self.recommended {
            Some(ttl) => format!("use a ttl of {}, or a server that is closer", human(ttl)),
            None => "use a server that is closer: no ttl leaves enough time".to_owned(),
        };
        Finding::warning("round-trip", round_trips.to_string(), why, way_out)
    }

    /// The recommendation in words, with the arithmetic.
    pub(super) fn text(&self) -> String {
        let slow = exact(self.slow);
        let (Some(ttl), Some(least)) = (self.recommended, self.least) else {
            return format!("none: a renewal is given 5s at most, and the p99 is {slow}");
        };
        let least_ms = human(least);
        match self.bound {
            Bound::Connection => {
                format!("locks live with the connection, and the ttl plays no part; p99 {slow}")
            }
            Bound::Session => format!(
                "locks live with the session, and session-timeout takes the place of the ttl: at \
                 least {least_ms}, the larger of 5s and what the p99 of {slow} asks for"
            ),
            _ => format!(
                "{}, renewed every {}; at least {least_ms}. An attempt to renew is given ttl/30, \
                 but 1s to 5s and at most ttl/5: here {}, into which twice the p99 of {slow} \
                 fits. Below 5s a pause of a busy machine costs the lock",
                human(ttl),
                human(renewal(ttl)),
                human(attempt(ttl)),
            ),
        }
    }
}

/// After which a lease is renewed.
pub(super) fn renewal(ttl: Duration) -> Duration {
    ttl / 3
}

/// Time that the keeper gives one attempt to renew a lease.
fn attempt(ttl: Duration) -> Duration {
    let second = Duration::from_secs(1);
    (ttl / 30).clamp(second, second * 5).min(ttl / 5)
}

/// The shortest lease whose renewals have room, in whole seconds.
fn least(slow: Duration) -> Option<Duration> {
    let wanted = slow * ROOM;
    let second = Duration::from_secs(1);
    let ttl = if wanted <= second {
        wanted * 5
    } else if wanted <= second * 5 {
        wanted * 30
    } else {
        return None;
    };
    let whole = Duration::from_secs(ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0));
    Some(whole.max(SHORTEST))
}

/// A time with the digits that matter.
pub(super) fn exact(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    match millis {
        ..1.0 => format!("{millis:.3}ms"),
        ..10.0 => format!("{millis:.2}ms"),
        ..100.0 => format!("{millis:.1}ms"),
        ..1000.0 => format!("{millis:.0}ms"),
        _ => format!("{:.2}s", millis / 1e3),
    }
}

/// How many times an exchange of the slow kind fits into an attempt.
const ROOM: u32 = 2;
/// Below it a pause of a busy machine costs the lock.
const SHORTEST: Duration = Duration::from_secs(5);
/// What requests have that say nothing.
const USUAL: Duration = polylock::AcquireRequest::DEFAULT_TTL;

#[cfg(test)]
mod tests {
    use polylock::Verdict;

    use super::*;
    use crate::commands::doctor::round_trip::Quantiles;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn measured(p99: u64) -> RoundTrips {
        let quantiles = Quantiles {
            count: 100,
            p50: millis(p99 / 2),
            p99: millis(p99),
        };
        RoundTrips {
            cycle: quantiles,
            refused: quantiles,
        }
    }

    #[test]
    fn the_shortest_lease_has_room_for_its_renewals_and_a_shorter_one_has_not() {
        for p99 in [1, 100, 499, 500, 501, 800, 1000, 2499, 2500] {
            let least = least(millis(p99)).unwrap();
            assert!(attempt(least) >= millis(p99) * ROOM, "{p99}");
            let shorter = least - Duration::from_secs(1);
            assert!(
                least == SHORTEST || attempt(shorter) < millis(p99) * ROOM,
                "{p99}"
            );
        }
        assert_eq!(least(millis(2501)), None);
    }

    #[test]
    fn a_close_server_is_recommended_the_usual_lease() {
        let round_trips = measured(2);
        let advice = Advice::of(&round_trips, Bound::Lease);
        assert_eq!(advice.recommended, Some(USUAL));
        assert_eq!(advice.least, Some(SHORTEST));
        assert_eq!(advice.finding(USUAL, &round_trips).verdict, Verdict::Good);
        assert!(
            advice
                .text()
                .starts_with("30s, renewed every 10s; at least 5s. ")
        );
    }

    #[test]
    fn a_lease_that_is_too_short_for_the_link_is_a_warning() {
        let round_trips = measured(800);
        let advice = Advice::of(&round_trips, Bound::Lease);
        assert_eq!(advice.recommended, Some(Duration::from_secs(48)));
        let found = advice.finding(USUAL, &round_trips);
        assert_eq!(found.verdict, Verdict::Warning);
        assert!(
            found
                .why
                .starts_with("a renewal of a lease of 30s is given 1s"),
            "{found}"
        );
        assert!(found.way_out.starts_with("use a ttl of 48s"), "{found}");
        let longer = advice.finding(Duration::from_secs(48), &round_trips);
        assert_eq!(longer.verdict, Verdict::Good);
    }

    #[test]
    fn a_link_that_is_too_slow_has_no_lease() {
        let round_trips = measured(4000);
        let advice = Advice::of(&round_trips, Bound::Lease);
        assert_eq!(advice.recommended, None);
        let found = advice.finding(Duration::from_secs(600), &round_trips);
        assert!(found.way_out.contains("no ttl"), "{found}");
    }

    #[test]
    fn short_times_keep_their_digits() {
        for (micros, text) in [
            (42, "0.042ms"),
            (1234, "1.23ms"),
            (12_340, "12.3ms"),
            (250_000, "250ms"),
        ] {
            assert_eq!(exact(Duration::from_micros(micros)), text);
        }
    }
}
