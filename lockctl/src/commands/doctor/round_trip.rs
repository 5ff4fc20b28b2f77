//! Measures how long a service takes to reply, and what that is fast enough for.

use std::time::{Duration, Instant};

use polylock::engine::{renewal_interval, renewal_timeout};
use polylock::prelude::*;
use polylock::{AcquireRequest, Error, ErrorKind, HealthCheck, LockLifetime};

use crate::output::human;

/// What the exchanges with a service took.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct RoundTrips {
    /// An acquisition and its release.
    pub(super) cycle: RoundTripQuantiles,
    /// An attempt to acquire what another connection holds: the cheapest answer there is.
    pub(super) refused: RoundTripQuantiles,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct RoundTripQuantiles {
    pub(super) count: usize,
    pub(super) p50: Duration,
    /// Never the slowest of several: one hiccup of a machine decides nothing.
    pub(super) p90: Duration,
    pub(super) p99: Duration,
}

/// Measures on this key, one exchange after the other.
pub(super) async fn measure(
    first: &dyn DistributedLock,
    second: &dyn DistributedLock,
    key: &str,
) -> Result<RoundTrips, Error> {
    let cycles = sample(|| async {
        let guard = first.try_lock(key).await?.ok_or_else(taken)?;
        guard.release().await.map(drop)
    });
    let cycle = RoundTripQuantiles::of(cycles.await?);
    let guard = first.try_lock(key).await?.ok_or_else(taken)?;
    // Whether it is refused is judged elsewhere.
    let refusals = sample(|| async { second.try_lock(key).await.map(drop) });
    let refused = RoundTripQuantiles::of(refusals.await?);
    guard.release().await?;
    Ok(RoundTrips { cycle, refused })
}

fn taken() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "a key that no other client knows is held",
    )
}

const WARM_UP: usize = 3;
const MIN_COUNT: usize = 5;
const MAX_COUNT: usize = 200;
const MAX_TIME: Duration = Duration::from_millis(500);

/// What an exchange takes, again and again.
async fn sample<F>(exchange: impl Fn() -> F + Send) -> Result<Vec<Duration>, Error>
where
    F: Future<Output = Result<(), Error>> + Send,
{
    // The first ones pay for connections and for what a server remembers.
    for _ in 0..WARM_UP {
        exchange().await?;
    }
    let (began, mut times) = (Instant::now(), Vec::new());
    while times.len() < MIN_COUNT || (times.len() < MAX_COUNT && began.elapsed() < MAX_TIME) {
        let sent = Instant::now();
        exchange().await?;
        times.push(sent.elapsed());
    }
    Ok(times)
}

impl RoundTripQuantiles {
    /// By the nearest rank; of at least one time.
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let rank = |percent: usize| (times.len() * percent).div_ceil(100);
        let at = |rank: usize| times.get(rank.max(1) - 1).copied().unwrap_or_default();
        Self {
            count: times.len(),
            p50: at(rank(50)),
            p90: at(rank(90).min(times.len().saturating_sub(1))),
            p99: at(rank(99)),
        }
    }
}

/// What follows from the round trips of a service for what its locks live with. Pure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Advice {
    pub(super) round_trips: RoundTrips,
    pub(super) bound: LockLifetime,
    /// The shortest ttl, or session timeout; none if none is long enough, or locks live with a
    /// connection.
    pub(super) min: Option<Duration>,
    pub(super) recommended: Option<Duration>,
}

impl Advice {
    pub(super) fn of(round_trips: RoundTrips, bound: LockLifetime) -> Self {
        let usual = match bound {
            LockLifetime::Session => DEFAULT_SESSION_TIMEOUT,
            _ => AcquireRequest::DEFAULT_TTL,
        };
        // Below that, a pause of a busy machine costs what is held.
        let seconds = AcquireRequest::SHORT_TTL.as_secs()..=AcquireRequest::MAX_TTL.as_secs();
        // The p90 is the slowest exchange that is to be expected again and again.
        let fits =
            |time: &Duration| room(bound, *time).is_some_and(|room| room >= round_trips.cycle.p90);
        let min = seconds.map(Duration::from_secs).find(fits);
        Self {
            round_trips,
            bound,
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

    /// Whether leases of this length can be renewed in time, or sessions of this length kept.
    pub(super) fn check(&self, ttl: Duration, session_timeout: Duration) -> HealthCheck {
        let RoundTrips { cycle, refused } = &self.round_trips;
        let summary = format!(
            "acquire and release take {} (p50), {} (p90) and {} (p99) of {}; a refused try takes \
             {}, {} and {} of {}",
            exact(cycle.p50),
            exact(cycle.p90),
            exact(cycle.p99),
            cycle.count,
            exact(refused.p50),
            exact(refused.p90),
            exact(refused.p99),
            refused.count,
        );
        let (what, option, time) = match self.bound {
            LockLifetime::Session => ("session", "session-timeout", session_timeout),
            _ => ("lease", "ttl", ttl),
        };
        // The server looks after a connection, however long a reply takes.
        let room = room(self.bound, time).filter(|room| *room < cycle.p90);
        let Some(room) = room else {
            return HealthCheck::ok("round-trip", summary);
        };
        let impact = format!(
            "a {what} of {} has room for exchanges of {}, and the p90 is {}: holders lose \
             uncontended locks",
            human(time),
            exact(room),
            exact(cycle.p90),
        );
        let fix = match self.recommended {
            Some(time) => format!(
                "use a {option} of {}, or a server that is closer",
                human(time)
            ),
            None => format!("use a server that is closer: no {option} leaves enough time"),
        };
        HealthCheck::warning("round-trip", summary, impact, fix)
    }

    /// The recommendation in words.
    pub(super) fn text(&self) -> String {
        let option = match self.bound {
            LockLifetime::Connection => {
                return "no ttl is recommended: locks live with the connection".to_owned();
            }
            LockLifetime::Session => "session-timeout",
            _ => "ttl",
        };
        let (Some(time), Some(min)) = (self.recommended, self.min) else {
            let p90 = exact(self.round_trips.cycle.p90);
            return format!("recommended {option}: none has room for the p90 of {p90}");
        };
        let renewed = self.renewal().map(human);
        let renewed = renewed.map_or_else(String::new, |time| format!(", renewed every {time}"));
        // They have limits of their own, and a check reports what they have granted.
        let granted = match self.bound {
            LockLifetime::Session => ", if the servers grant it",
            _ => "",
        };
        let (time, min) = (human(time), human(min));
        format!("recommended {option}: {time}{renewed}{granted}; min {min}")
    }
}

/// How long an exchange may take again and again with a lease or a session of this length; `None` if
/// locks live with a connection.
fn room(bound: LockLifetime, time: Duration) -> Option<Duration> {
    match bound {
        LockLifetime::Connection => None,
        // A heartbeat is one exchange, and what was measured is several.
        LockLifetime::Session => Some(heartbeat_timeout(time)),
        // A slow one must not be taken for a failure.
        _ => Some(renewal_timeout(time) / 2),
    }
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

/// Those of ZooKeeper, whose locks are the only ones that live with a session.
#[cfg(feature = "zk")]
pub(super) const DEFAULT_SESSION_TIMEOUT: Duration =
    polylock::zk::ZooKeeperConfig::DEFAULT_SESSION_TIMEOUT;
#[cfg(not(feature = "zk"))]
pub(super) const DEFAULT_SESSION_TIMEOUT: Duration = Duration::ZERO;

#[cfg(feature = "zk")]
fn heartbeat_timeout(session_timeout: Duration) -> Duration {
    polylock::zk::ZooKeeperConfig::heartbeat_timeout(session_timeout)
}

#[cfg(not(feature = "zk"))]
fn heartbeat_timeout(session_timeout: Duration) -> Duration {
    session_timeout
}

#[cfg(test)]
mod tests {
    use lock_testkit::locks::ms;
    use polylock::Status;

    use super::*;

    #[test]
    fn quantiles_are_of_the_nearest_rank() {
        let times = (1..=200).rev().map(ms).collect();
        let quantiles = RoundTripQuantiles::of(times);
        let RoundTripQuantiles { p50, p90, p99, .. } = quantiles;
        assert_eq!([p50, p90, p99], [100, 180, 198].map(ms));
        let one = RoundTripQuantiles::of(vec![ms(7)]);
        assert_eq!((one.count, one.p50, one.p99), (1, ms(7), ms(7)));
        // One that is slow does not decide.
        for count in [2, 5, 9, 10, 11, 200] {
            let mut times = vec![ms(1); count - 1];
            times.push(Duration::from_secs(9));
            assert_eq!(
                RoundTripQuantiles::of(times).p90,
                ms(1),
                "of {count} exchanges"
            );
        }
    }

    #[test]
    fn a_lease_or_a_session_has_room_for_its_renewals() {
        use LockLifetime::{Connection, Lease, Session};
        // The p90, the length in seconds, whether that is enough, the min and the recommendation.
        for (bound, p90, time, is_enough, min, recommended) in [
            (Lease, 2, 30, true, Some(5), Some(30)),
            (Lease, 500, 5, true, Some(5), Some(30)),
            (Lease, 800, 30, false, Some(48), Some(48)),
            (Lease, 800, 48, true, Some(48), Some(48)),
            (Lease, 2_500, 150, true, Some(150), Some(150)),
            (Lease, 2_501, 600, false, None, None),
            #[cfg(feature = "zk")]
            (Session, 499, 4, true, Some(5), Some(20)),
            #[cfg(feature = "zk")]
            (Session, 2_500, 20, true, Some(20), Some(20)),
            #[cfg(feature = "zk")]
            (Session, 2_501, 20, false, Some(21), Some(21)),
            (Connection, 4_000, 1, true, None, None),
        ] {
            let quantiles = RoundTripQuantiles {
                count: 100,
                p50: ms(p90 / 2),
                p90: ms(p90),
                p99: ms(p90 * 9),
            };
            let round_trips = RoundTrips {
                cycle: quantiles,
                refused: quantiles,
            };
            let advice = Advice::of(round_trips, bound);
            let time = Duration::from_secs(time);
            let found = advice.check(time, time);
            assert_eq!(found.status == Status::Ok, is_enough, "{found}");
            let found = (advice.min, advice.recommended);
            let expected = (
                min.map(Duration::from_secs),
                recommended.map(Duration::from_secs),
            );
            assert_eq!(found, expected, "{bound:?} {p90}");
            let is_renewed = bound == Lease && recommended.is_some();
            assert_eq!(advice.renewal().is_some(), is_renewed);
            let text = advice.text();
            let is_limited = text.contains(", if the servers grant it; min ");
            assert_eq!(is_limited, bound == Session, "{text}");
        }
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
