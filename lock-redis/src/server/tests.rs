use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use polylock_core::admin::Record;
use polylock_core::{FencingToken, LostReason, RenewalRequest};
use tokio::time::Instant;

use super::*;
use crate::renew::MAX_RENEWALS;
use crate::script::RECORD;
use crate::topology::RedisNode;

/// A server that answers scripts after a while, and always has a later version of a record.
#[derive(Debug, Default)]
struct Fake {
    /// How long each call takes.
    takes: Duration,
    /// How long it takes until others confirm that it is the master; never by default.
    confirmed_after: Option<Duration>,
    /// For a cluster in which a lease is lost: what a renewal that reads the notes of the lock replies. One
    /// that does not read them takes no time. Other servers renew every other lease.
    by_notes: Option<i64>,
    /// How many records were to be written.
    records: AtomicUsize,
    /// How long each call was to wait for replicas.
    waits: Mutex<Vec<Duration>>,
}

#[async_trait]
impl Topology for Fake {
    async fn open(&self) -> Result<(), RedisFailure> {
        Ok(())
    }

    async fn call(&self, call: Call<'_>) -> Result<Done, RedisFailure> {
        let CallKind::Script { script, keys, .. } = call.kind else {
            return Err(RedisCause::LateRenewal.unknown());
        };
        let within = call.wait.map(|(_, within)| within);
        self.waits.lock().unwrap().extend(within);
        let has_notes = keys.len() > 1;
        if self.by_notes.is_none() || has_notes {
            tokio::time::sleep(self.takes).await;
        }
        let value = match self.by_notes {
            Some(state) => Value::Array(vec![Value::Int(if has_notes { state } else { 0 })]),
            None if script.name == RECORD.name => {
                self.records.fetch_add(1, Ordering::Relaxed);
                Value::BulkString(b"7".to_vec())
            }
            None => {
                let held = (0..keys.len() / 2).map(|n| Value::Int(i64::from(n % 2 == 0)));
                Value::Array(held.collect())
            }
        };
        Ok(Done {
            value,
            acked: 0,
            server: "a:1".into(),
        })
    }

    fn confirms(&self) -> bool {
        self.by_notes.is_none()
    }

    async fn confirm(&self, _: &Done, _: Duration, within: Duration) -> Result<(), RedisFailure> {
        tokio::time::sleep(self.confirmed_after.unwrap_or(within)).await;
        match self.confirmed_after {
            Some(_) => Ok(()),
            None => Err(RedisCause::LateRenewal.unknown()),
        }
    }

    async fn channel(&self) -> Result<Option<Arc<str>>, RedisFailure> {
        Ok(None)
    }

    fn subscribed(&self) -> Option<Arc<str>> {
        None
    }

    async fn masters(&self) -> Result<Vec<Arc<RedisNode>>, RedisFailure> {
        Ok(Vec::new())
    }
}

fn due(count: usize, ttl: Duration) -> Vec<RenewalRequest> {
    let id = LeaseId::from_hex("000102030405060708090a0b0c0d0e0f").unwrap();
    let key = |n| LockKey::new(format!("k{n}")).unwrap();
    let due = (0..count).map(|n| RenewalRequest::new(key(n), id, ttl));
    due.collect()
}

fn taking(takes: Duration) -> Server {
    let fake = Fake {
        takes,
        ..Fake::default()
    };
    with_topology(Arc::new(fake))
}

fn with_topology(topology: Arc<Fake>) -> Server {
    Server {
        replicas: Some((0, Duration::from_secs(9))),
        timeout: Duration::from_secs(60),
        ..Server::new(topology, &RedisConfig::new("a", 1))
    }
}

/// Results that are missing when the scheduler gives up are lost, and their losses are never
/// reported.
#[tokio::test(start_paused = true)]
async fn a_round_of_renewals_ends_before_the_scheduler_gives_it_up() {
    let ms = Duration::from_millis;
    for (count, ttl, takes) in [
        (3, ms(1_000), ms(0)),
        (3, ms(30_000), ms(0)),
        (3, ms(900_000), ms(0)),
        // Several calls, of which none takes long.
        (4 * MAX_RENEWALS + 1, ms(1_000), ms(30)),
        // And a server that hangs.
        (4 * MAX_RENEWALS + 1, ms(1_000), ms(100)),
        (3, ms(1_000), ms(5_000)),
    ] {
        let due = due(count, ttl);
        let (server, began) = (taking(takes), Instant::now());
        let states = server.renew(&due, &|_, _| (), &|_| None).await;
        let (took, timeout) = (began.elapsed(), due[0].timeout);
        assert!(
            took < timeout,
            "{count} renewals for {ttl:?} take {took:?}, and the scheduler waits for {timeout:?}"
        );
        assert_eq!(states.len(), count);
        assert!(states[0].is_err(), "nobody has confirmed the master");
    }
}

/// As the documentation has it: a part of the timeout of the renewal, which depends on the ttl.
#[tokio::test(start_paused = true)]
async fn a_renewal_leaves_time_for_others_when_it_waits_for_replicas() {
    let ms = Duration::from_millis;
    for (ttl, longest) in [
        (500, 37_500),
        (1_000, 75_000),
        (5_000, 375_000),
        (30_000, 375_000),
        (60_000, 750_000),
        (150_000, 1_875_000),
        (900_000, 1_875_000),
    ] {
        let topology = Arc::<Fake>::default();
        let server = with_topology(Arc::clone(&topology));
        let due = due(1, ms(ttl));
        server.renew(&due, &|_, _| (), &|_| None).await;
        let longest = Duration::from_micros(longest);
        assert_eq!(*topology.waits.lock().unwrap(), [longest], "{ttl} ms");
    }
}

/// A loss by a server that is confirmed is told before the calls for other leases are answered.
#[tokio::test(start_paused = true)]
async fn a_loss_is_told_once_the_master_is_confirmed_and_before_other_calls_end() {
    let ms = Duration::from_millis;
    let told = Mutex::new(Vec::new());
    let began = Instant::now();
    let lost = |_, reason| told.lock().unwrap().push((reason, began.elapsed()));
    let due = due(MAX_RENEWALS + 2, Duration::from_secs(30));
    let topology = Fake {
        takes: ms(100),
        confirmed_after: Some(ms(20)),
        ..Fake::default()
    };
    let server = with_topology(Arc::new(topology));
    let states = server.renew(&due, &lost, &|_| None).await;
    let told = told.into_inner().unwrap();
    assert_eq!(told.len(), MAX_RENEWALS / 2 + 1);
    let due_at = std::iter::repeat_n(ms(120), MAX_RENEWALS / 2).chain([ms(220)]);
    for ((reason, at), due_at) in told.into_iter().zip(due_at) {
        assert_eq!(reason, LostReason::Stolen);
        // The timer counts whole milliseconds.
        let is_in_time = (due_at..due_at + ms(5)).contains(&at);
        assert!(is_in_time, "told after {at:?}, and not {due_at:?}");
    }
    for (n, state) in states.into_iter().enumerate() {
        let expected = match n % MAX_RENEWALS % 2 {
            0 => LeaseState::Held,
            _ => LeaseState::Lost(LostReason::Stolen),
        };
        assert_eq!(state.unwrap(), expected, "lease {n}");
    }
}

/// The server may be a former master, and its successor may have the lease.
#[tokio::test(start_paused = true)]
async fn a_loss_that_nobody_confirms_is_unknown() {
    let told = AtomicUsize::new(0);
    let lost = |_, _| {
        told.fetch_add(1, Ordering::Relaxed);
    };
    let due = due(MAX_RENEWALS + 2, Duration::from_secs(30));
    let states = taking(Duration::ZERO).renew(&due, &lost, &|_| None).await;
    assert_eq!(told.into_inner(), 0);
    for (n, state) in states.into_iter().enumerate() {
        let failure = state.expect_err("it is not confirmed");
        assert!(failure.outcome_unknown, "lease {n}: {failure:?}");
    }
}

/// The loss itself is known already, and must not be reported late for the sake of its reason.
#[tokio::test(start_paused = true)]
async fn the_reason_of_a_loss_in_a_cluster_is_awaited_only_briefly() {
    let ms = Duration::from_millis;
    let (broken, stolen) = (LostReason::Broken, LostReason::Stolen);
    for (ttl, takes, by_notes, limit, expected) in [
        (ms(30_000), ms(0), 2, ms(250), broken),
        (ms(30_000), ms(200), 2, ms(250), broken),
        (ms(30_000), ms(300), 2, ms(250), stolen),
        (ms(900_000), ms(60_000), 2, ms(250), stolen),
        // Half of the time that is left of the round of a short lease.
        (ms(1_000), ms(50), 2, ms(75), broken),
        (ms(1_000), ms(100), 2, ms(75), stolen),
        // A lease that was lost is not held again.
        (ms(30_000), ms(0), 1, ms(250), stolen),
    ] {
        let case = format!("a ttl of {ttl:?}, and {by_notes} after {takes:?}");
        let topology = Fake {
            takes,
            by_notes: Some(by_notes),
            ..Fake::default()
        };
        let server = Server::new(Arc::new(topology), &RedisConfig::cluster([("a", 1)]));
        let told = Mutex::new(Vec::new());
        let lost = |_, reason| told.lock().unwrap().push(reason);
        let (due, began) = (due(1, ttl), Instant::now());
        let states = server.renew(&due, &lost, &|_| None).await;
        let took = began.elapsed();
        assert_eq!(told.into_inner().unwrap(), [expected], "{case}");
        let states: Vec<_> = states.into_iter().map(Result::unwrap).collect();
        assert_eq!(states, [LeaseState::Lost(expected)], "{case}");
        // The timer counts whole milliseconds.
        assert!(took <= limit + ms(1), "{case}: takes {took:?}");
    }
}

#[tokio::test]
async fn a_record_that_others_replace_all_the_time_is_known_to_be_refused() {
    let topology = Arc::<Fake>::default();
    let server = with_topology(Arc::clone(&topology));
    let record = Record::new(FencingToken::new(1), "done");
    let written = server.write_record(b"key", &record, Duration::from_secs(60));
    let failure = written.await.unwrap_err();
    assert!(matches!(failure.cause, RedisCause::Overtaken) && !failure.outcome_unknown);
    assert_eq!(topology.records.load(Ordering::Relaxed), Record::MAX_WRITES);
}
