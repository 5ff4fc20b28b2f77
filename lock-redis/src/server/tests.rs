use std::sync::Mutex;

use async_trait::async_trait;

use super::*;
use crate::topology::NodeReply;

/// Renews every other lease after a while, never says why the others are lost, and never confirms
/// that it is the master.
#[derive(Debug, Default)]
struct Mute {
    /// How long each call takes.
    takes: Duration,
    /// The arguments of the last call.
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Topology for Mute {
    async fn call_with(
        &self,
        call: Call<'_>,
        _wait: Option<(u32, Duration)>,
    ) -> Result<Done, Failure> {
        if call.script.name == LOSS_REASON.name {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(self.takes).await;
        let text = |arg: &&[u8]| String::from_utf8_lossy(arg).into_owned();
        *self.asked.lock().unwrap() = call.args.iter().map(text).collect();
        let held = (0..call.keys.len()).map(|n| Value::Int(i64::from(n % 2 == 0)));
        Ok(Done {
            value: Value::Array(held.collect()),
            acked: 0,
            server: "a:1".into(),
        })
    }

    async fn take(
        &self,
        _take: Take<'_>,
        _wait: Option<(u32, Duration)>,
    ) -> Result<(Taken, Done), Failure> {
        Err(Failure::late_renewal())
    }

    async fn confirm(&self, _: &Done, _: Duration, within: Duration) -> Result<(), Failure> {
        tokio::time::sleep(within).await;
        Err(Failure::late_renewal())
    }

    async fn channel(&self) -> Result<Option<Arc<str>>, Failure> {
        Ok(None)
    }

    fn subscribed(&self) -> Option<Arc<str>> {
        None
    }

    fn one_slot(&self) -> bool {
        true
    }

    async fn broadcast(&self, _command: &redis::Cmd) -> Result<Vec<NodeReply>, Failure> {
        Ok(Vec::new())
    }

    async fn scan(&self, _pattern: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        Ok(Vec::new())
    }
}

fn due(count: usize, ttl: Duration) -> Vec<RenewalRequest> {
    let id = LeaseId::from_hex("000102030405060708090a0b0c0d0e0f").unwrap();
    let key = |n| LockKey::new(format!("k{n}")).unwrap();
    let due = (0..count).map(|n| RenewalRequest::new(key(n), id, ttl));
    due.collect()
}

fn telling<'a>(lost: &'a Lost<'a>) -> RenewalCallbacks<'a> {
    RenewalCallbacks {
        lost,
        note: &|_| None,
    }
}

fn mute(takes: Duration) -> Server {
    let topology = Mute {
        takes,
        ..Mute::default()
    };
    let replicas = Some((0, Duration::from_secs(9)));
    Server::new(Arc::new(topology), Duration::from_secs(1))
        .with_proof(replicas, Duration::from_secs(60))
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
        let (server, began) = (mute(takes), Instant::now());
        let states = server.renew(&due, telling(&|_, _| ())).await;
        let (took, timeout) = (began.elapsed(), due[0].timeout);
        assert!(
            took < timeout,
            "{count} renewals for {ttl:?} take {took:?}, and the scheduler waits for {timeout:?}"
        );
        assert_eq!(states.len(), count);
        assert!(states[0].is_err(), "nobody has confirmed the master");
    }
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_before_others_are_confirmed() {
    let told = Mutex::new(Vec::new());
    let began = Instant::now();
    let lost = |_, reason| told.lock().unwrap().push((reason, began.elapsed()));
    let due = due(MAX_RENEWALS + 2, Duration::from_secs(30));
    let states = mute(Duration::ZERO).renew(&due, telling(&lost)).await;
    let took = began.elapsed();
    let told = told.into_inner().unwrap();
    assert_eq!(told.len(), MAX_RENEWALS / 2 + 1);
    let last = told.iter().map(|(_, when)| *when).max().unwrap();
    assert!(
        last <= LOSS_REASON_TIMEOUT && last < took,
        "the last loss is told after {last:?}, the round takes {took:?}"
    );
    let lost = LeaseState::Lost(LostReason::Stolen);
    for (n, state) in states.into_iter().enumerate() {
        match n % MAX_RENEWALS % 2 {
            0 => assert!(state.is_err(), "lease {n} counts as held: {state:?}"),
            _ => assert_eq!(state.unwrap(), lost, "lease {n}"),
        }
    }
}

/// A request may be under way for as long as it waits for replicas, and its copies.
#[tokio::test]
async fn a_request_that_waits_for_replicas_is_in_time_for_longer() {
    let limit = async |wait: Option<(u32, Duration)>| {
        let topology = Arc::new(Mute::default());
        let clock = ServerClock::default();
        clock.learn(1_000_000);
        let of_link: Arc<dyn Topology> = Arc::<Mute>::clone(&topology);
        let server = Server {
            clock,
            ..Server::new(of_link, Duration::from_secs(1))
        };
        let call = Call {
            script: &ACQUIRE,
            keys: &[b"k"],
            args: &[],
            unanswered: None,
        };
        server.take_in_time(call, 0, wait).await.unwrap();
        let asked = topology.asked.lock().unwrap();
        asked[0].parse::<u64>().unwrap()
    };
    let (without, with) = (
        limit(None).await,
        limit(Some((1, Duration::from_secs(60)))).await,
    );
    assert!(
        with >= without + 60_000,
        "copies are refused after {with} ms, without replicas after {without} ms"
    );
}
