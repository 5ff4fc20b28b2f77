//! What a link is fast enough for: the renewals of a lease, the heartbeats of a session. Pure.

#[cfg(test)]
mod tests;

use std::time::Duration;

use polylock::{Finding, LockLifetime};

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
    pub(super) least: Option<Duration>,
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
        let (least, usual) = match bound {
            LockLifetime::Connection => (None, Duration::ZERO),
            LockLifetime::Session => (Some(least_session(slow)), USUAL_SESSION),
            _ => (least(slow), USUAL),
        };
        Self {
            bound,
            slow,
            least,
            recommended: least.map(|least| least.max(usual)),
        }
    }

    /// After which a lease of the recommended length is renewed.
    pub(super) fn renewal(&self) -> Option<Duration> {
        match self.bound {
            LockLifetime::Connection | LockLifetime::Session => None,
            _ => self.recommended.map(renewal),
        }
    }

    /// Whether leases of this length can be renewed in time, or sessions kept.
    pub(super) fn finding(&self, asked: Asked, round_trips: &RoundTrips) -> Finding {
        let said = round_trips.to_string();
        match self.bound {
            // The server looks after it, however long an answer takes.
            LockLifetime::Connection => Finding::good("round-trip", said),
            LockLifetime::Session => self.of_session(asked.session_timeout, said),
            _ => self.of_lease(asked.ttl, said),
        }
    }

    fn of_lease(&self, ttl: Duration, said: String) -> Finding {
        let (slow, allowed) = (exact(self.slow), attempt(ttl));
        if allowed >= self.slow * ROOM {
            return Finding::good("round-trip", said);
        }
        let why = format!(
            "a renewal of a lease of {} is given {}, which should be twice the p90 of {slow}: \
             holders lose locks that nobody wants",
            human(ttl),
            human(allowed),
        );
        let way_out = match self.recommended {
            Some(ttl) => format!("use a ttl of {}, or a server that is closer", human(ttl)),
            None => "use a server that is closer: no ttl leaves enough time".to_owned(),
        };
        Finding::warning("round-trip", said, why, way_out)
    }

    fn of_session(&self, timeout: Duration, said: String) -> Finding {
        let (slow, allowed) = (exact(self.slow), heartbeat(timeout));
        if allowed >= self.slow {
            return Finding::good("round-trip", said);
        }
        let why = format!(
            "a heartbeat of a session with a time-out of {} has {}, less than the p90 of {slow}: \
             holders lose locks that nobody wants",
            human(timeout),
            exact(allowed),
        );
        let recommended = self.recommended.unwrap_or(USUAL_SESSION);
        let way_out = format!(
            "use session-timeout={}, or a server that is closer",
            human(recommended)
        );
        Finding::warning("round-trip", said, why, way_out)
    }

    /// The recommendation in words, with the arithmetic.
    pub(super) fn text(&self) -> String {
        let slow = exact(self.slow);
        let (Some(time), Some(least)) = (self.recommended, self.least) else {
            return match self.bound {
                LockLifetime::Connection => {
                    "no ttl is recommended: locks live with the connection".to_owned()
                }
                _ => format!(
                    "recommended ttl: none, a renewal is given 5s at most, and the p90 is {slow}"
                ),
            };
        };
        let least = human(least);
        if self.bound == LockLifetime::Session {
            return format!(
                "recommended session-timeout: {}; at least {least}. A heartbeat is given an \
                 eighth, into which the p90 of {slow} fits. Below 5s a pause of a busy machine \
                 costs all locks",
                human(time),
            );
        }
        format!(
            "recommended ttl: {}, renewed every {}; at least {least}. An attempt to renew is given \
             ttl/30, but 1s to 5s and at most ttl/5: here {}, into which twice the p90 of {slow} \
             fits. Below 5s a pause of a busy machine costs the lock",
            human(time),
            human(renewal(time)),
            human(attempt(time)),
        )
    }
}

/// After which a lease is renewed.
fn renewal(ttl: Duration) -> Duration {
    ttl / 3
}

/// Time that the scheduler gives one attempt to renew a lease.
fn attempt(ttl: Duration) -> Duration {
    let second = Duration::from_secs(1);
    (ttl / 30).clamp(second, second * 5).min(ttl / 5)
}

/// How long the answer to a heartbeat may take. One leaves a seventh of the time-out after the last
/// answer, and its own answer proves the one that left two before it: with slower answers a session
/// is over before the next proof.
fn heartbeat(timeout: Duration) -> Duration {
    timeout / 8
}

/// The shortest session whose heartbeats come in time. They are one exchange each, and what was
/// measured is several, so that there is room.
fn least_session(slow: Duration) -> Duration {
    whole(slow * 8).max(SHORTEST)
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
    Some(whole(ttl).max(SHORTEST))
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
const SHORTEST: Duration = Duration::from_secs(5);
/// What requests have that say nothing.
const USUAL: Duration = polylock::AcquireRequest::DEFAULT_TTL;
/// What sessions of ZooKeeper have, the only locks that live with one, if the URL says nothing.
pub(super) const USUAL_SESSION: Duration = Duration::from_secs(20);
