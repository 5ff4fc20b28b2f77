//! How long a service takes to answer.

use std::fmt;
use std::time::{Duration, Instant};

use polylock::prelude::*;
use polylock::{Error, ErrorKind};

use super::timing::exact;

/// What the exchanges with a service took.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct RoundTrips {
    /// An acquisition and its release.
    pub(super) cycle: Quantiles,
    /// An attempt to acquire what another connection holds: the cheapest answer there is.
    pub(super) refused: Quantiles,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Quantiles {
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
    let mut cycles = Vec::new();
    let mut budget = Budget::new();
    while budget.has_room() {
        let began = Instant::now();
        let guard = first.try_lock(key).await?.ok_or_else(taken)?;
        guard.release().await?;
        budget.note(&mut cycles, began.elapsed());
    }
    let guard = first.try_lock(key).await?.ok_or_else(taken)?;
    let mut refusals = Vec::new();
    let mut budget = Budget::new();
    while budget.has_room() {
        let began = Instant::now();
        // Whether it is refused is judged elsewhere.
        drop(second.try_lock(key).await?);
        budget.note(&mut refusals, began.elapsed());
    }
    guard.release().await?;
    Ok(RoundTrips {
        cycle: Quantiles::of(cycles),
        refused: Quantiles::of(refusals),
    })
}

fn taken() -> Error {
    Error::new(ErrorKind::Protocol, "a key that nobody else knows is held")
}

/// How often and how long something is measured.
struct Budget {
    began: Instant,
    warm_up: u32,
    count: u32,
}

impl Budget {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            warm_up: WARM_UP,
            count: 0,
        }
    }

    fn has_room(&self) -> bool {
        let is_early = self.began.elapsed() < LONGEST;
        self.count < LEAST || (self.count < MOST && is_early)
    }

    /// The first ones pay for connections and for what a server remembers.
    fn note(&mut self, times: &mut Vec<Duration>, time: Duration) {
        if self.warm_up > 0 {
            self.warm_up -= 1;
            self.began = Instant::now();
        } else {
            self.count += 1;
            times.push(time);
        }
    }
}

impl Quantiles {
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

impl fmt::Display for RoundTrips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cycle, refused } = self;
        write!(
            f,
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
        )
    }
}

const WARM_UP: u32 = 3;
const LEAST: u32 = 5;
const MOST: u32 = 200;
const LONGEST: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use polylock::memory::Memory;

    use super::*;

    #[test]
    fn quantiles_are_of_the_nearest_rank() {
        let times = (1..=200).rev().map(Duration::from_millis).collect();
        let quantiles = Quantiles::of(times);
        assert_eq!(quantiles.count, 200);
        assert_eq!(quantiles.p50, Duration::from_millis(100));
        assert_eq!(quantiles.p90, Duration::from_millis(180));
        assert_eq!(quantiles.p99, Duration::from_millis(198));
        let one = Quantiles::of(vec![Duration::from_millis(7)]);
        assert_eq!(
            (one.p50, one.p99),
            (Duration::from_millis(7), Duration::from_millis(7))
        );
    }

    #[test]
    fn one_that_is_slow_does_not_decide() {
        for count in [2, 5, 9, 10, 11, 200] {
            let mut times = vec![Duration::from_millis(1); count - 1];
            times.push(Duration::from_secs(9));
            assert_eq!(
                Quantiles::of(times).p90,
                Duration::from_millis(1),
                "{count}"
            );
        }
    }

    #[tokio::test]
    async fn both_kinds_of_exchange_are_measured_and_nothing_stays_held() {
        let locks = Memory::new();
        let measured = measure(&locks, &locks, "k").await.unwrap();
        assert!(measured.cycle.count >= LEAST as usize);
        assert!(measured.refused.count >= LEAST as usize);
        assert!(measured.refused.p50 <= measured.refused.p99);
        assert!(locks.try_lock("k").await.unwrap().is_some());
    }
}
