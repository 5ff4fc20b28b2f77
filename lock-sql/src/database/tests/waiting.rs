use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_testkit::locks::until;
use lock_testkit::servers::{MariaDbServer, PgBouncer, PoolMode, PostgresOptions, PostgresServer};
use polylock_core::engine::Engine;
use polylock_core::{AcquireRequest, ErrorKind, Fencing, LockGuard, Mode, Wait};
use tokio::task::JoinHandle;

use super::doubt::until_blocked;
use super::locked::begin;
use super::{ALONE, Client, claim, id, key};
use crate::leases::Leases;
use crate::store::{LeaseStore as _, ReleaseDetection};
use crate::table::{MAX_WAITERS, SqlClaim};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Shorter than any poll interval of a notified waiter, with room for a busy machine.
const NOTIFIED: Duration = Duration::from_millis(450);
const ASKED: Duration = Duration::from_secs(2);

const QUEUED: &str = "SELECT count(*) FROM polylock_locks WHERE slot > 1000000 AND id IS NOT NULL";

pub(super) fn request(name: &str) -> AcquireRequest {
    AcquireRequest::new(key(name)).with_wait(Wait::AtMost(TIMEOUT))
}

pub(super) async fn leases(url: &str, parameters: &str) -> Arc<Leases> {
    let store = Client::open(url, parameters).await.store;
    let engine = Engine::of_this_process("test");
    Arc::new(Leases::new(engine, Arc::new(store), Fencing::Strong))
}

/// A waiter, and when it has the lock.
pub(super) fn wait(
    leases: &Arc<Leases>,
    request: AcquireRequest,
) -> JoinHandle<(LockGuard, Instant)> {
    let leases = Arc::clone(leases);
    tokio::spawn(async move {
        let guard = leases.acquire(&request).await.expect("in time");
        (guard, Instant::now())
    })
}

/// Times from a release to the grant of another client that waits.
async fn hand_offs(here: &Arc<Leases>, there: &Arc<Leases>, count: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    let mut guard = here.acquire(&request("k")).await.expect("free");
    for n in 0..count {
        let next = wait(if n % 2 == 0 { there } else { here }, request("k"));
        tokio::time::sleep(Duration::from_millis(30)).await;
        let begun = Instant::now();
        guard.release().await.expect("released");
        let (granted, when) = next.await.expect("no panic");
        times.push(when - begun);
        guard = granted;
    }
    guard.release().await.expect("released");
    times
}

/// Releases a lock; returns the guard of the waiter, and the time until it was granted.
async fn passes(
    guard: LockGuard,
    waiting: JoinHandle<(LockGuard, Instant)>,
) -> (LockGuard, Duration) {
    let begun = Instant::now();
    guard.release().await.expect("released");
    let (next, when) = waiting.await.expect("no panic");
    (next, when - begun)
}

/// Asserts by the median that waiters were notified: a busy machine may stall one of three.
fn assert_notified(mut times: Vec<Duration>) {
    times.sort();
    assert!(times[times.len() / 2] < NOTIFIED, "granted after {times:?}");
}

/// The claim of a waiter in the queue.
fn queued(n: u8, mode: Mode) -> SqlClaim {
    SqlClaim {
        ticket: Some(id(100 + n)),
        is_queued: true,
        ..claim(n, mode)
    }
}

/// Whether a claim gets the lock `k`.
async fn takes(client: &Client, claim: &SqlClaim) -> bool {
    let taken = client.store.take(&key("k"), claim.clone()).await;
    taken.expect("an answer").is_ok()
}

/// A holder whose place would have expired soon frees it in the background.
async fn all_leave_the_queue(client: &Client) {
    let is_empty = async || client.number(QUEUED).await == 0;
    until("no holder keeps a place in the queue", is_empty).await;
}

async fn receives(leases: &Arc<Leases>) {
    let is_notified = async || leases.store.release_detection() == ReleaseDetection::Notified;
    until("it receives", is_notified).await;
}

#[tokio::test]
async fn a_waiter_is_notified_and_polls_no_more_than_once_a_second() {
    let url = PostgresServer::shared().database();
    let (here, there) = (leases(&url, "").await, leases(&url, "").await);
    let client = Client::open(&url, "").await;
    // What a backend has done it reports when it has been idle for a second.
    let done = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    let mut times = Vec::new();
    // The machine may stall during the first grant.
    while times.is_empty() || times[0] >= NOTIFIED && times.len() < 3 {
        let guard = here.acquire(&request("k")).await.unwrap();
        let waiting = wait(&there, request("k"));
        receives(&there).await;
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let before = client.number(done).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        let after = client.number(done).await;
        assert!(after - before < 50, "{} transactions", after - before);
        assert!(!waiting.is_finished());
        let (guard, after) = passes(guard, waiting).await;
        times.push(after);
        let waiting = wait(&here, request("k"));
        receives(&here).await;
        guard.release().await.unwrap();
        waiting.await.unwrap().0.release().await.unwrap();
    }
    assert_notified(times);
    assert_notified(hand_offs(&here, &there, 20).await);
}

#[tokio::test]
async fn waiters_that_poll_are_served_in_the_order_of_their_arrival() {
    let server = PostgresServer::start(PostgresOptions::new());
    let pooler = PgBouncer::with_config(&server, PoolMode::Transaction, &[]);
    let last = "UPDATE polylock_locks SET expires_at = changed_at + 2000000 WHERE slot > 1000000";
    for (url, parameters) in [
        (server.database(), "&notify=off"),
        (pooler.url(), "&pooler=transaction"),
        (MariaDbServer::shared().database(), ""),
    ] {
        let client = Client::open(&url, parameters).await;
        let holder = leases(&url, parameters).await;
        let mut guard = holder.acquire(&request("k")).await.expect("free");
        let mut waiting = Vec::new();
        for n in 1..=4 {
            waiting.push(wait(&leases(&url, parameters).await, request("k")));
            let has_place = async || client.number(QUEUED).await == n;
            until("a waiter enters the queue", has_place).await;
            // A busy machine may let a waiter renew its place too late. No place may last longer.
            client.sql(last).await;
        }
        // One that came earlier would wait for one that came later, until its time is over.
        for next in waiting {
            guard.release().await.expect("released");
            guard = next.await.expect("no panic").0;
        }
        guard.release().await.expect("released");
        all_leave_the_queue(&client).await;
    }
}

#[tokio::test]
async fn a_waiter_that_is_notified_too_late_queues() {
    let url = PostgresServer::shared().database();
    let (here, there) = (leases(&url, "").await, leases(&url, "").await);
    let client = Client::open(&url, "").await;
    let guard = here.acquire(&request("k")).await.unwrap();
    let waiting = wait(&there, request("k"));
    receives(&there).await;
    assert_eq!(client.number(QUEUED).await, 0);
    // As if the lock had been released, and another client had been faster.
    let topic = crate::database::listen::topic("polylock_locks", &key("k"));
    let notify = format!("SELECT pg_notify('polylock', '{topic}')");
    let has_place = async || {
        client.sql(&notify).await;
        client.number(QUEUED).await == 1
    };
    until("it enters the queue", has_place).await;
    guard.release().await.unwrap();
    let (guard, _) = waiting.await.unwrap();
    all_leave_the_queue(&client).await;
    guard.release().await.unwrap();
}

/// The first waiter acquires the lock while another one enters the queue.
#[tokio::test]
async fn a_waiter_that_enters_meanwhile_keeps_the_lock_queued() {
    const QUEUED_UNTIL: &str =
        "SELECT queued_until FROM polylock_locks WHERE kind = 1 AND slot = 0";
    let url = PostgresServer::shared().database();
    let client = Client::open(&url, "").await;
    for enters in [false, true] {
        client.take("k", 1, ALONE).await.unwrap();
        let again = SqlClaim {
            is_notified: true,
            ..queued(2, ALONE)
        };
        let first = SqlClaim {
            is_queued: false,
            ..again.clone()
        };
        assert!(!takes(&client, &first).await, "it is held");
        client.release("k", 1).await;
        let statement = match enters {
            true => "UPDATE polylock_locks SET queued_until = queued_until + 1 WHERE slot = 0",
            false => "SELECT version FROM polylock_locks WHERE slot = 0 FOR UPDATE",
        };
        let lasts = "SET LOCAL idle_in_transaction_session_timeout = 0";
        let other = begin(&url, &format!("{lasts}; {statement}")).await;
        let (is_granted, ()) = tokio::join!(takes(&client, &again), async {
            until_blocked(&url).await;
            other.sql("COMMIT").await;
        });
        assert!(is_granted, "it is the first");
        let is_queued = client.number(QUEUED_UNTIL).await != 0;
        assert_eq!(is_queued, enters);
        client.release("k", 2).await;
    }
}

/// An exclusive waiter needs one statement after a notification, and a shared request two.
#[tokio::test]
async fn a_shared_request_that_lost_a_race_is_ahead_of_later_exclusive_waiters() {
    is_ahead_of_later_exclusive_waiters(Mode::Shared, 0).await;
}

#[tokio::test]
async fn exclusive_waiters_leave_places_to_shared_requests_and_permits() {
    let limit = NonZeroU32::MIN;
    for mode in [Mode::Shared, Mode::Permit { limit }] {
        // With the later one, all that may have a place.
        is_ahead_of_later_exclusive_waiters(mode, MAX_WAITERS - 1).await;
    }
}

/// Exclusive waiters enter the queue, so many of them before the request, and leave it before the release.
async fn is_ahead_of_later_exclusive_waiters(mode: Mode, earlier: usize) {
    let url = PostgresServer::shared().database();
    let (client, name) = (Client::open(&url, "").await, key("k"));
    let notified = |n: u8, mode| SqlClaim {
        queues: false,
        is_notified: true,
        ..queued(n, mode)
    };
    let take = async |claim: &SqlClaim| takes(&client, claim).await;
    let (reader, writer) = (notified(2, mode), notified(3, ALONE));
    let earlier: Vec<_> = (10..).take(earlier).map(|n| notified(n, ALONE)).collect();
    let leave = async |waiter: &SqlClaim| {
        let ticket = waiter.ticket.expect("it queues");
        let left = client.store.dequeue(&name, ticket).await;
        left.expect("an answer");
    };
    // No place may last longer.
    let last = "UPDATE polylock_locks SET expires_at =
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 1900000 WHERE slot > 1000000";
    // Until then a place lasts for 250 ms more, or a new holder would free it in the background.
    let lasts = Duration::from_millis(1600);
    until("the machine is fast enough for the places", async || {
        assert!(client.take("k", 1, ALONE).await.is_some());
        for waiter in &earlier {
            assert!(!take(waiter).await, "it is held");
        }
        client.sql(last).await;
        assert!(!take(&reader).await && !take(&writer).await);
        let queued = usize::try_from(client.number(QUEUED).await);
        assert_eq!(queued, Ok(earlier.len() + 2), "{mode:?}");
        for waiter in &earlier {
            leave(waiter).await;
        }
        let begun = Instant::now();
        client.sql(last).await;
        client.release("k", 1).await;
        let has_overtaken = take(&writer).await;
        let is_taken = take(&reader).await;
        let queued = client.number(QUEUED).await;
        if begun.elapsed() < lasts {
            assert!(!has_overtaken, "it has overtaken the reader");
            assert!(is_taken, "it is the first");
            assert_eq!(queued, 1);
            return true;
        }
        for (n, waiter) in [(2, &reader), (3, &writer)] {
            client.release("k", n).await;
            leave(waiter).await;
        }
        false
    })
    .await;
    client.release("k", 2).await;
    assert!(take(&writer).await, "it is the first");
}

/// The server replies to each write that other clients were faster.
#[tokio::test]
async fn a_wait_that_ends_while_others_are_faster_is_contention() {
    let url = PostgresServer::shared().database();
    let (client, leases) = (Client::open(&url, "").await, leases(&url, "").await);
    client.take("k", 1, ALONE).await.unwrap();
    client.release("k", 1).await;
    // As if the version had changed, each time.
    for statement in [
        "CREATE FUNCTION skipped() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER skipped BEFORE INSERT ON polylock_locks FOR EACH ROW \
         EXECUTE FUNCTION skipped()",
    ] {
        client.sql(statement).await;
    }
    let reader = request("k").with_mode(Mode::Shared);
    let reader = reader.with_wait(Wait::AtMost(Duration::from_secs(1)));
    // On a busy machine the last reply may come too late.
    until("it is contention", async || {
        let refused = leases.acquire(&reader).await;
        let error = refused.expect_err("nothing is written");
        error.kind() == ErrorKind::Contended
    })
    .await;
}

#[tokio::test]
async fn a_waiter_that_is_notified_queues_behind_one_that_polls() {
    let url = PostgresServer::shared().database();
    let client = Client::open(&url, "").await;
    let (polls, listens) = (leases(&url, "&notify=off").await, leases(&url, "").await);
    let guard = listens.acquire(&request("k")).await.unwrap();
    let mut waiting = Vec::new();
    for (n, leases) in (1..).zip([&polls, &listens, &polls]) {
        waiting.push(wait(leases, request("k")));
        let has_place = async || client.number(QUEUED).await >= n;
        until("a waiter enters the queue", has_place).await;
    }
    guard.release().await.unwrap();
    let served = waiting
        .into_iter()
        .map(async |next| next.await.unwrap().0.release().await.unwrap());
    join_all(served).await;
    all_leave_the_queue(&client).await;
}

#[tokio::test]
async fn a_waiter_that_is_late_keeps_its_place() {
    for (url, parameters) in [
        (PostgresServer::shared().database(), "&notify=off"),
        (MariaDbServer::shared().database(), ""),
    ] {
        let client = Client::open(&url, parameters).await;
        let take = async |n| takes(&client, &queued(n, ALONE)).await;
        assert!(client.take("k", 1, ALONE).await.is_some());
        assert!(!take(2).await);
        client
            .sql("UPDATE polylock_locks SET expires_at = 1 WHERE slot > 1000000")
            .await;
        client.release("k", 1).await;
        // It is passed over, and another waiter comes.
        assert!(take(3).await);
        assert!(!take(4).await);
        assert!(!take(2).await);
        let is_ahead = format!(
            "SELECT count(*) FROM polylock_locks a JOIN polylock_locks b ON a.token < b.token
             WHERE a.slot > 1000000 AND a.id = '{}' AND b.slot > 1000000 AND b.id = '{}'",
            "f".repeat(16),
            "h".repeat(16),
        );
        assert_eq!(client.number(&is_ahead).await, 1, "{url}");
    }
}

/// It reads the rows, and another waiter enters its slot before it writes them.
#[tokio::test]
async fn a_late_waiter_that_gets_the_lock_frees_no_place_of_another() {
    for (url, parameters) in [
        (PostgresServer::shared().database(), "&notify=off"),
        (MariaDbServer::shared().database(), ""),
    ] {
        let client = Client::open(&url, parameters).await;
        let [late, other] = ["f", "g"].map(|byte| byte.repeat(16));
        let places = |id: &str| format!("{QUEUED} AND id = '{id}'");
        let take = async || takes(&client, &queued(2, ALONE)).await;
        for is_entered in [true, false] {
            assert!(client.take("k", 1, ALONE).await.is_some());
            assert!(!take().await);
            let expire = "UPDATE polylock_locks SET expires_at = 1 WHERE slot > 1000000";
            client.sql(expire).await;
            client.release("k", 1).await;
            if is_entered {
                let lock = "SELECT version FROM polylock_locks WHERE kind = 1 AND slot = 0";
                let enter = format!("UPDATE polylock_locks SET id = '{other}'");
                let entering =
                    format!("{lock} FOR UPDATE; {enter} WHERE kind = 1 AND slot > 1000000");
                let entering = begin(&url, &entering).await;
                let (is_taken, ()) = tokio::join!(take(), async {
                    until_blocked(&url).await;
                    entering.sql("COMMIT").await;
                });
                assert!(is_taken, "it is free");
            } else {
                assert!(take().await, "it is free");
            }
            let has_left = async || client.number(&places(&late)).await == 0;
            until("it leaves the queue", has_left).await;
            assert_eq!(client.number(&places(&other)).await, 1, "{url}");
            client.release("k", 2).await;
        }
    }
}

#[tokio::test]
async fn a_waiter_whose_listener_was_killed_is_notified_again() {
    let server = PostgresServer::shared();
    let url = server.database();
    let (here, there) = (leases(&url, "").await, leases(&url, "").await);
    let guard = here.acquire(&request("k")).await.unwrap();
    let waiting = wait(&there, request("k"));
    receives(&there).await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    // The holder may have one as well.
    assert!(!server.sql(&url, kill).is_empty());
    // It gets no notification for a while, and polls.
    let (mut guard, after) = passes(guard, waiting).await;
    assert!(after < ASKED, "granted after {after:?}");
    let mut times = Vec::new();
    for _ in 0..3 {
        let waiting = wait(&here, request("k"));
        receives(&here).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        let (next, after) = passes(guard, waiting).await;
        times.push(after);
        next.release().await.unwrap();
        guard = there.acquire(&request("k")).await.unwrap();
    }
    assert_notified(times);
}

/// All connections that the role may open are in use.
#[tokio::test]
async fn waiters_queue_while_no_connection_can_listen() {
    let options = PostgresOptions::new().with_user("few", "test");
    let server = PostgresServer::start(options);
    server.sql("GRANT test TO few");
    let client = Client::open(&server.url(), "").await;
    let holder = leases(&server.url(), "").await;
    let guard = holder.acquire(&request("k")).await.unwrap();
    let url = server.url().replace("://test:", "://few:");
    let waiter = leases(&url, "&connections=2").await;
    // It opens its connection, and no other one from here on.
    assert!(waiter.store.inspect(&key("k")).await.unwrap().is_some());
    server.sql("ALTER ROLE few CONNECTION LIMIT 0");
    let waiting = wait(&waiter, request("k"));
    let has_place = async || client.number(QUEUED).await == 1;
    until("it enters the queue", has_place).await;
    assert_eq!(waiter.store.release_detection(), ReleaseDetection::Polled);
    server.sql("ALTER ROLE few CONNECTION LIMIT -1");
    receives(&waiter).await;
    let is_ready = async || !waiter.store.has_queue();
    until("waiters need no queue", is_ready).await;
    guard.release().await.unwrap();
    let (guard, _) = waiting.await.unwrap();
    all_leave_the_queue(&client).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_downgrade_a_break_and_a_permit_wake_waiters() {
    let url = PostgresServer::shared().database();
    let (here, there) = (leases(&url, "").await, leases(&url, "").await);
    let reader = || request("k").with_mode(Mode::Shared);
    let mut times = [(); 3].map(|()| Vec::new());
    for _ in 0..3 {
        let mut guard = here.acquire(&request("k")).await.unwrap();
        let waiting = wait(&there, reader());
        receives(&there).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let begun = Instant::now();
        guard.downgrade().await.unwrap();
        let (shared, when) = waiting.await.unwrap();
        times[0].push(when - begun);
        // A writer waits for two readers, and comes after the second one.
        let waiting = wait(&there, request("k"));
        tokio::time::sleep(Duration::from_millis(300)).await;
        guard.release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished());
        let (writer, after) = passes(shared, waiting).await;
        times[1].push(after);
        let waiting = wait(&there, reader());
        tokio::time::sleep(Duration::from_millis(300)).await;
        let begun = Instant::now();
        here.store.break_all(&key("k"), "why not").await.unwrap();
        let (last, when) = waiting.await.unwrap();
        times[2].push(when - begun);
        drop(writer);
        last.release().await.unwrap();
    }
    times.into_iter().for_each(assert_notified);
}
