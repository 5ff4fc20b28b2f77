//! How long a node has been known to be up, and when it votes.
//!
//! A node that has restarted may have forgotten a lock. It votes once every lease that it may have
//! forgotten has expired. Its reported uptime follows its wall clock, which can jump. An age is
//! therefore a difference on the boot clock of a client, between the first reply of a run of the process
//! and a later moment. A client may also use an age that another client measured and stored on the node
//! with the run.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use polylock_core::engine::Moment;
use redis::{Value, from_redis_value_ref};
use tokio::task::JoinHandle;

use super::node::{Quorum, QuorumNode};
use crate::error::RedisFailure;
use crate::keys::AGE_KEY;
use crate::locked;
use crate::reply;
use crate::script::AGE;
use crate::topology::Call;

/// A run of the process of a node, and its min age at some moment.
#[derive(Clone, Debug)]
pub(super) struct KnownRun {
    run_id: Arc<str>,
    at: Moment,
    age: Duration,
}

impl KnownRun {
    /// A run whose reply arrived at a moment, with the age known at that time.
    ///
    /// The process can have started after the question was sent, but not after its answer came.
    fn new(run_id: &str, at: Moment, age: Duration) -> Self {
        let run_id = run_id.into();
        Self { run_id, at, age }
    }

    /// How old the run is at least, if it is still the same.
    fn age(&self, now: Moment) -> Duration {
        self.age.saturating_add(now.since(self.at))
    }

    /// Merges another reply: one of the same run can only increase the age.
    fn and(self, other: Self) -> Self {
        let now = self.at.max(other.at);
        if self.run_id == other.run_id && self.age(now) > other.age(now) {
            self
        } else {
            other
        }
    }
}

/// How long a node with this known run does not vote.
fn rejoins_in(run: Option<&KnownRun>, now: Moment, rejoin_delay: Duration) -> Duration {
    let age = run.map_or(Duration::ZERO, |run| run.age(now));
    rejoin_delay.saturating_sub(age)
}

/// Reads the run of a node and its age.
fn run_and_age(reply: &Value) -> Result<(String, Duration), RedisFailure> {
    // The conversion to an unsigned number would wrap a negative one.
    let known = from_redis_value_ref::<(String, i64)>(reply).ok();
    known
        .and_then(|(run, age)| Some((run, Duration::from_millis(u64::try_from(age).ok()?))))
        .ok_or_else(|| reply::strange(reply))
}

impl QuorumNode {
    /// How long the node does not vote, as far as this client knows.
    pub(super) fn rejoins_in(&self) -> Duration {
        let run = self.known_run();
        rejoins_in(run.as_ref(), self.engine.now(), self.rejoin_delay)
    }

    /// The run of the node that may vote: empty for any run, a dash for none.
    pub(super) fn voting_run(&self) -> Arc<str> {
        if self.rejoin_delay.is_zero() {
            return "".into();
        }
        match self.known_run() {
            Some(run) if run.age(self.engine.now()) >= self.rejoin_delay => run.run_id,
            _ => "-".into(),
        }
    }

    fn known_run(&self) -> Option<KnownRun> {
        locked(&self.run).clone()
    }

    /// Records a reply of a run that is known to have this age.
    pub(super) fn saw(&self, run_id: &str, age: Duration) {
        let new = KnownRun::new(run_id, self.engine.now(), age);
        let mut run = locked(&self.run);
        *run = Some(match run.take() {
            Some(before) => before.and(new),
            None => new,
        });
    }

    /// Sends the node the age of its run that this client knows, and learns the age that others know.
    pub(super) async fn compare_ages(&self) -> Result<(), RedisFailure> {
        // Read before the request, so that the age is valid whenever it arrives.
        let now = self.engine.now();
        let (run, age) = match self.known_run() {
            Some(run) => (Arc::clone(&run.run_id), run.age(now)),
            None => ("".into(), Duration::ZERO),
        };
        let age = age.as_millis().to_string();
        let (keys, args) = ([AGE_KEY.as_bytes()], [run.as_bytes(), age.as_bytes()]);
        let call = Call::script(&AGE, &keys, &args);
        let (run, age) = run_and_age(&self.server.topology.call(call).await?.value)?;
        self.saw(&run, age);
        Ok(())
    }

    /// Compares ages periodically until the node is old enough, so that short-lived clients do not have
    /// to observe the whole delay.
    pub(super) fn watch(self: &Arc<Self>) {
        let mut watcher = locked(&self.watcher);
        if self.rejoin_delay.is_zero() || is_running(&watcher) {
            return;
        }
        let watched = Arc::downgrade(self);
        let period = (self.rejoin_delay / 8).min(MAX_PERIOD);
        // A node that is down is watched again once it replies.
        let until = self.engine.now() + 2 * self.rejoin_delay;
        *watcher = Some(tokio::spawn(async move {
            while let Some(node) = watched.upgrade() {
                let was_old = node.rejoins_in().is_zero();
                // Another client may know that this run is old enough.
                let is_done = match node.compare_ages().await {
                    Ok(()) => was_old && node.rejoins_in().is_zero(),
                    Err(failure) => !failure.is_retryable(),
                };
                if is_done || node.engine.now() > until {
                    return;
                }
                drop(node);
                tokio::time::sleep(period).await;
            }
        }));
    }
}

impl Quorum {
    /// Sends the watched nodes the ages that this client knows.
    pub(super) async fn tell_ages(&self) {
        let is_watched = |node: usize| is_running(&locked(&self.nodes[node].watcher));
        let mut answers = self.ask_some(is_watched, async |node| node.compare_ages().await);
        while answers.next().await.is_some() {}
    }
}

fn is_running(task: &Option<JoinHandle<()>>) -> bool {
    task.as_ref().is_some_and(|task| !task.is_finished())
}

/// Time between two comparisons; a client that ends loses the age observed since the last.
const MAX_PERIOD: Duration = Duration::from_secs(1);

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
            let left = rejoins_in(seen.as_ref(), at(now), DELAY);
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
    fn a_negative_age_is_no_reply() {
        let reply = |age| {
            let run = Value::BulkString(b"a".to_vec());
            run_and_age(&Value::Array(vec![run, Value::Int(age)]))
        };
        assert_eq!(
            reply(25).unwrap(),
            ("a".to_owned(), Duration::from_millis(25))
        );
        assert!(reply(-1).is_err());
        assert!(run_and_age(&Value::Nil).is_err());
    }

    #[test]
    fn no_delay_needs_no_sighting() {
        assert_eq!(rejoins_in(None, at(0), Duration::ZERO), Duration::ZERO);
        let old = KnownRun::new("a", at(5), Duration::MAX);
        assert_eq!(rejoins_in(Some(&old), at(9), DELAY), Duration::ZERO);
    }
}
