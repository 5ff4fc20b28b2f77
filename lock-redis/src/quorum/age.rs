//! For how long the process of a node is known to be up. Pure.
//!
//! A node that has restarted may have forgotten a lock, and votes once every lease is over that it
//! may have forgotten. What it says of its uptime follows its wall clock, which steps. An age is
//! therefore a difference on the boot clock of a client, between the answer that first named a run
//! of the process and a later moment; or one that another client has found like that and stored on
//! the node, together with the run.

use std::sync::Arc;
use std::time::Duration;

use lock_core::engine::Moment;

/// A run of the process of a node, and how old it was at least at some moment.
#[derive(Clone, Debug)]
pub(super) struct KnownRun {
    run_id: Arc<str>,
    at: Moment,
    age: Duration,
}

impl KnownRun {
    /// An answer of this run came at a moment, in which it was known to be so old.
    ///
    /// The process can have started after the question was sent, but not after its answer came.
    pub(super) fn new(run_id: &str, at: Moment, age: Duration) -> Self {
        let run_id = run_id.into();
        Self { run_id, at, age }
    }

    pub(super) fn run_id(&self) -> &Arc<str> {
        &self.run_id
    }

    /// How old the run is at least, if it is still the same.
    pub(super) fn age(&self, now: Moment) -> Duration {
        self.age.saturating_add(now.since(self.at))
    }

    /// Takes in another answer: one of the same run can only make it older.
    pub(super) fn and(self, other: Self) -> Self {
        let now = self.at.max(other.at);
        if self.run_id == other.run_id && self.age(now) > other.age(now) {
            self
        } else {
            other
        }
    }
}

/// For how long a node of which this was seen does not vote yet.
pub(super) fn left(seen: Option<&KnownRun>, now: Moment, rejoin_delay: Duration) -> Duration {
    let age = seen.map_or(Duration::ZERO, |seen| seen.age(now));
    rejoin_delay.saturating_sub(age)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_secs(30);

    fn at(secs: u64) -> Moment {
        Moment::from_nanos(secs * 1_000_000_000)
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_node_votes_once_its_run_is_known_for_long_enough() {
        // Answers: when they came, of which run, and what was known on the node.
        type Answers = &'static [(u64, &'static str, u64)];
        let cases: [(&str, Answers, u64, u64); 12] = [
            ("never seen", &[], 1_000, 30),
            ("just seen", &[(100, "a", 0)], 100, 30),
            ("watched for a while", &[(100, "a", 0)], 120, 10),
            ("watched for long", &[(100, "a", 0)], 130, 0),
            ("for longer", &[(100, "a", 0)], 9_000, 0),
            ("others know it", &[(100, "a", 25)], 100, 5),
            ("and it goes on", &[(100, "a", 25)], 105, 0),
            ("seen again", &[(100, "a", 0), (120, "a", 0)], 130, 0),
            ("others know less", &[(100, "a", 0), (120, "a", 5)], 130, 0),
            ("others know more", &[(100, "a", 0), (120, "a", 28)], 122, 0),
            ("restarted", &[(100, "a", 25), (120, "b", 0)], 130, 20),
            (
                "an answer of the former run is late",
                &[(100, "a", 0), (120, "b", 0), (121, "a", 0)],
                149,
                2,
            ),
        ];
        for (what, answers, now, expected) in cases {
            let answers = answers.iter();
            let seen =
                answers.map(|(moment, run, age)| KnownRun::new(run, at(*moment), secs(*age)));
            let seen = seen.reduce(KnownRun::and);
            let left = left(seen.as_ref(), at(now), DELAY);
            assert_eq!(left, secs(expected), "{what}: {seen:?}");
        }
    }

    #[test]
    fn no_order_of_answers_makes_a_run_older() {
        let answers = [(100, 0), (110, 4), (115, 15), (120, 3)];
        let seen = answers.map(|(moment, age)| KnownRun::new("a", at(moment), secs(age)));
        for first in &seen {
            for then in &seen {
                let both = first.clone().and(then.clone());
                let now = at(130);
                assert_eq!(both.age(now), first.age(now).max(then.age(now)));
                assert!(both.age(now) <= secs(30), "it started at 100");
            }
        }
    }

    #[test]
    fn no_delay_needs_no_sighting() {
        assert_eq!(left(None, at(0), Duration::ZERO), Duration::ZERO);
        let old = KnownRun::new("a", at(5), Duration::MAX);
        assert_eq!(left(Some(&old), at(9), DELAY), Duration::ZERO);
    }
}
