//! What a link is fast enough for: the renewals of a lease, the heartbeats of a session. Pure.

use std::time::Duration;

use polylock::engine::{renewal_interval, renewal_timeout};
use polylock::{HealthCheck, LockLifetime};

use super::round_trip::RoundTrips;
use crate::text::human;

/// What follows from the round trips of a service for what its locks live with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Advice {
    pub(super) bound: LockLifetime,
    /// The slowest exchange that is to be expected again and again.
    slow: Duration,
    /// The shortest ttl, or session time-out; none if no lease could be renewed in time, or locks
    /// live with something else.
    pub(super) min: Option<Duration>,
    pub(super) recommended: Option<Duration>,
}

/// What is judged, of which a lock lives with one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) ttl: Duration,
    pub(super) session_timeout: Duration,
}

impl Advice {
    pub(super) fn of(round_trips: &RoundTrips, bound: LockLifetime) -> Self {
        let slow = round_trips.cycle.p90;
        let (min, usual) = match bound {
            LockLifetime::Connection => (None, Duration::ZERO),
            LockLifetime::Session => (Some(min_session(slow)), DEFAULT_SESSION_TIMEOUT),
            _ => (min_lease(slow), DEFAULT_TTL),
        };
        Self {
            bound,
            slow,
            min,
            recommended: min.map(|min| min.max(usual)),
        }
    }

    /// After which a lease of the recommended length is renewed.
    pub(super) fn renewal(&self) -> Option<Duration> {
        match self.bound {
            LockLifetime::Connection | LockLifetime::Session => None,
            _ => self.recommended.map(renewal_interval),
        }
    }

    /// Whether leases of this length can be renewed in time, or sessions kept.
    pub(super) fn check(&self, asked: Asked, round_trips: &RoundTrips) -> HealthCheck {
        let said = round_trips.to_string();
        match self.bound {
            // The server looks after it, however long an answer takes.
            LockLifetime::Connection => HealthCheck::ok("round-trip", said),
            LockLifetime::Session => self.of_session(asked.session_timeout, said),
            _ => self.of_lease(asked.ttl, said),
        }
    }

    fn of_lease(&self, ttl: Duration, said: String) -> HealthCheck {
        let (slow, allowed) = (exact(self.slow), renewal_timeout(ttl));
        if allowed >= self.slow * ROOM {
            return HealthCheck::ok("round-trip", said);
        }
        let impact = format!(
            "a renewal of a lease of {} is given {}, which should be twice the p90 of {slow}: \
             holders lose locks that nobody wants",
            human(ttl),
            human(allowed),
        );
        let fix = match self.recommended {
            Some(ttl) => format!("use a ttl of {}, or a server that is closer", human(ttl)),
            None => "use a server that is closer: no ttl leaves enough time".to_owned(),
        };
        HealthCheck::warning("round-trip", said, impact, fix)
    }

    fn of_session(&self, timeout: Duration, said: String) -> HealthCheck {
        let (slow, allowed) = (exact(self.slow), heartbeat(timeout));
        if allowed >= self.slow {
            return HealthCheck::ok("round-trip", said);
        }
        let impact = format!(
            "a heartbeat of a session with a time-out of {} has {}, less than the p90 of {slow}: \
             holders lose locks that nobody wants",
            human(timeout),
            exact(allowed),
        );
        let recommended = self.recommended.unwrap_or(DEFAULT_SESSION_TIMEOUT);
        let fix = format!(
            "use session-timeout={}, or a server that is closer",
            human(recommended)
        );
        HealthCheck::warning("round-trip", said, impact, fix)
    }

    /// The recommendation in words, with the arithmetic.
    pub(super) fn text(&self) -> String {
        let slow = exact(self.slow);
        let (Some(time), Some(min)) = (self.recommended, self.min) else {
            return match self.bound {
                LockLifetime::Connection => {
                    "no ttl is recommended: locks live with the connection".to_owned()
                }
                _ => format!(
                    "recommended ttl: none, a renewal is given 5s at most, and the p90 is {slow}"
                ),
            };
        };
        let min = human(min);
        if self.bound == LockLifetime::Session {
            return format!(
                "recommended session-timeout: {}; min {min}. A heartbeat is given an \
                 eighth, into which the p90 of {slow} fits. Below 5s a pause of a busy machine \
                 costs all locks",
                human(time),
            );
        }
        format!(
            "recommended ttl: {}, renewed every {}; min {min}. An attempt to renew is given \
             ttl/30, but 1s to 5s and at most ttl/5: here {}, into which twice the p90 of {slow} \
             fits. Below 5s a pause of a busy machine costs the lock",
            human(time),
            human(renewal_interval(time)),
            human(renewal_timeout(time)),
        )
    }
}

/// How long the answer to a heartbeat may take. One leaves a seventh of the time-out after the last
/// answer, and its own answer proves the one that left two before it: with slower answers a session
/// is over before the next proof.
fn heartbeat(timeout: Duration) -> Duration {
    timeout / 8
}

/// The shortest session whose heartbeats come in time. They are one exchange each, and what was
/// measured is several, so that there is room.
fn min_session(slow: Duration) -> Duration {
    whole(slow * 8).max(SHORT)
}

/// The shortest lease whose renewals have room, in whole seconds.
fn min_lease(slow: Duration) -> Option<Duration> {
    let wanted = slow * ROOM;
    let second = Duration::from_secs(1);
    let ttl = if wanted <= second {
        wanted * 5
    } else if wanted <= second * 5 {
        wanted * 30
    } else {
        return None;
    };
    Some(whole(ttl).max(SHORT))
}

/// The next whole seconds.
fn whole(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
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
/// Below it a pause of a busy machine costs what is held.
const SHORT: Duration = Duration::from_secs(5);
const DEFAULT_TTL: Duration = polylock::AcquireRequest::DEFAULT_TTL;
/// That of ZooKeeper, whose locks are the only ones that live with a session.
#[cfg(feature = "zk")]
pub(super) const DEFAULT_SESSION_TIMEOUT: Duration =
    polylock::zk::ZooKeeperConfig::DEFAULT_SESSION_TIMEOUT;
#[cfg(not(feature = "zk"))]
pub(super) const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use polylock::Status;

    use super::*;
    use crate::commands::doctor::round_trip::Quantiles;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn measured(p90: u64) -> RoundTrips {
        let quantiles = Quantiles {
            count: 100,
            p50: millis(p90 / 2),
            p90: millis(p90),
            p99: millis(p90 * 9),
        };
        RoundTrips {
            cycle: quantiles,
            refused: quantiles,
        }
    }

    fn ttl(ttl: Duration) -> Asked {
        Asked {
            ttl,
            session_timeout: Duration::ZERO,
        }
    }

    fn session(session_timeout: Duration) -> Asked {
        Asked {
            ttl: Duration::ZERO,
            session_timeout,
        }
    }

    #[test]
    fn the_shortest_lease_has_room_for_its_renewals_and_a_shorter_one_has_not() {
        for slow in [1, 100, 499, 500, 501, 800, 1000, 2499, 2500] {
            let min = min_lease(millis(slow)).unwrap();
            assert!(renewal_timeout(min) >= millis(slow) * ROOM, "{slow}");
            let shorter = min - Duration::from_secs(1);
            assert!(
                min == SHORT || renewal_timeout(shorter) < millis(slow) * ROOM,
                "{slow}"
            );
        }
        assert_eq!(min_lease(millis(2501)), None);
    }

    #[test]
    fn a_close_server_is_recommended_the_usual_lease() {
        let round_trips = measured(2);
        let advice = Advice::of(&round_trips, LockLifetime::Lease);
        assert_eq!(advice.recommended, Some(DEFAULT_TTL));
        assert_eq!(advice.min, Some(SHORT));
        assert_eq!(
            advice.check(ttl(DEFAULT_TTL), &round_trips).status,
            Status::Ok
        );
        assert!(
            advice
                .text()
                .starts_with("recommended ttl: 30s, renewed every 10s; min 5s. ")
        );
    }

    #[test]
    fn a_lease_that_is_too_short_for_the_link_is_a_warning() {
        let round_trips = measured(800);
        let advice = Advice::of(&round_trips, LockLifetime::Lease);
        assert_eq!(advice.recommended, Some(Duration::from_secs(48)));
        let found = advice.check(ttl(DEFAULT_TTL), &round_trips);
        assert_eq!(found.status, Status::Warning);
        assert!(
            found
                .impact
                .starts_with("a renewal of a lease of 30s is given 1s"),
            "{found}"
        );
        assert!(found.fix.starts_with("use a ttl of 48s"), "{found}");
        let longer = advice.check(ttl(Duration::from_secs(48)), &round_trips);
        assert_eq!(longer.status, Status::Ok);
    }

    #[test]
    fn a_link_that_is_too_slow_has_no_lease() {
        let round_trips = measured(4000);
        let advice = Advice::of(&round_trips, LockLifetime::Lease);
        assert_eq!(advice.recommended, None);
        let found = advice.check(ttl(Duration::from_secs(600)), &round_trips);
        assert!(found.fix.contains("no ttl"), "{found}");
    }

    #[test]
    fn a_lock_that_lives_with_its_connection_has_no_lease() {
        let round_trips = measured(4000);
        let advice = Advice::of(&round_trips, LockLifetime::Connection);
        let found = advice.check(ttl(Duration::from_secs(1)), &round_trips);
        assert_eq!(found.status, Status::Ok, "{found}");
        assert_eq!(
            (advice.min, advice.recommended, advice.renewal()),
            (None, None, None)
        );
        let text = advice.text();
        assert_eq!(
            text,
            "no ttl is recommended: locks live with the connection"
        );
    }

    #[test]
    fn a_lock_that_lives_with_its_session_is_judged_for_that() {
        for (slow, timeout, status, recommended) in [
            (1, 1, Status::Ok, 20),
            (499, 4, Status::Ok, 20),
            (600, 4, Status::Warning, 20),
            (2500, 20, Status::Ok, 20),
            (2501, 20, Status::Warning, 21),
            (4000, 32, Status::Ok, 32),
        ] {
            let round_trips = measured(slow);
            let advice = Advice::of(&round_trips, LockLifetime::Session);
            let found = advice.check(session(Duration::from_secs(timeout)), &round_trips);
            assert_eq!(found.status, status, "{slow} {found}");
            let recommended = Duration::from_secs(recommended);
            assert_eq!(advice.recommended, Some(recommended), "{slow}");
            let longer = advice.check(session(recommended), &round_trips);
            assert_eq!(longer.status, Status::Ok, "{slow} {longer}");
        }
        let round_trips = measured(2501);
        let advice = Advice::of(&round_trips, LockLifetime::Session);
        let found = advice.check(session(Duration::from_secs(20)), &round_trips);
        assert!(
            found.impact.contains("time-out of 20s has 2.50s, less"),
            "{found}"
        );
        assert!(found.fix.starts_with("use session-timeout=21s,"), "{found}");
        assert_eq!(
            (advice.min, advice.renewal()),
            (Some(Duration::from_secs(21)), None)
        );
        let text = advice.text();
        assert!(
            text.starts_with("recommended session-timeout: 21s; min 21s. "),
            "{text}"
        );
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
