use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lock_testkit::locks::{assert_error, granted, until, waiting};
use polylock_core::{
    AcquireRequest, DistributedLock as _, ErrorKind, LockKey, Mode, Released, Wait,
};
use sqlx::{Connection as _, MySqlConnection, PgConnection};
use tokio::time::Instant;

use super::*;
use crate::database::tests::{Client, begin, databases};
use crate::lock::SqlLock;
use crate::transaction::{Connection, TransactionLocks};

impl Purge {
    /// No round begins by itself.
    pub(crate) fn suspend(&self) {
        self.state.lock().is_busy = true;
    }
}

/// `sharers` still counts holders that died without a release.
#[tokio::test]
async fn rows_of_sharers_that_died_are_purged_and_no_others() {
    for url in databases() {
        let client = Client::open(&url, "&retention=0s").await;
        client.store.purge.suspend();
        let purge = &client.store.purge;
        for name in ["dead", "half", "idle", "used"] {
            for n in [2, 4] {
                let taken = client.take(name, n, Mode::Shared).await;
                taken.expect("it is shared");
            }
        }
        for n in [2, 4] {
            assert_eq!(client.release("idle", n).await, Released::Clean);
        }
        let died = "UPDATE polylock_locks SET expires_at = 1
                    WHERE kind = 1 AND slot > 0 AND (lock_key <> 'half' OR slot = 1)";
        client.sql(died).await;
        // The tokens of the other keys stay below it, and so do not keep their rows.
        let ahead = "UPDATE polylock_locks SET last_token = last_token + 1000000000000
                     WHERE kind = 1 AND lock_key = 'dead' AND slot = 0";
        client.sql(ahead).await;
        let last = "SELECT max(last_token) FROM polylock_locks";
        let last = client.number(last).await;
        let raise = format!("UPDATE polylock_locks SET last_token = {last} WHERE kind = 0");
        client.sql(&raise).await;
        let scan = purge.scan(&Default::default(), MIN_ROW_AGE).await;
        // It comes after the scan.
        let taken = client.take("used", 6, Mode::Shared).await;
        taken.expect("it is shared");
        let [leases, ..] = scan.expect("rows").unused;
        let keys: Vec<_> = leases.iter().map(|row| &*row.key).collect();
        assert_eq!(keys, [b"dead", b"idle", b"used"]);
        let deleted = purge.delete_leases(&leases, last).await;
        deleted.expect("deleted");
        let left = async |name: &str| {
            let rows = "SELECT count(*) FROM polylock_locks WHERE kind = 1 AND lock_key";
            client.number(&format!("{rows} = '{name}'")).await
        };
        for name in ["dead", "idle"] {
            assert_eq!(left(name).await, 0, "{name}");
        }
        assert_eq!(left("half").await, 3);
        for name in ["half", "used"] {
            let taken = client.take(name, 8, Mode::Exclusive).await;
            assert_eq!(taken, None, "{name}");
        }
        let taken = client.take("dead", 8, Mode::Exclusive).await;
        assert!(taken.expect("it is free").next > last.unsigned_abs());
    }
}

/// Wherever in the wait for the statements that may have missed a raise.
#[test]
fn a_clock_that_is_set_leaves_statements_their_time() {
    const SECOND: i64 = 1_000_000;
    let began = 1_700_000_000 * SECOND;
    for jump in [-86_400 * SECOND, 0, 86_400 * SECOND] {
        for at in 0..130 {
            let mut progress = PurgeProgress {
                now: began,
                floor: 7,
                periods: PERIODS,
                ..PurgeProgress::default()
            };
            progress.advance(5);
            assert_eq!((progress.raised, progress.settled), (7, 0));
            // By a clock that is never set.
            let mut seconds = 0;
            while progress.settled == 0 {
                seconds += 1;
                let jumped = if seconds > at { jump } else { 0 };
                progress.now = began + seconds * SECOND + jumped;
                progress.advance(9);
            }
            assert_eq!((progress.raised, progress.settled), (9, 7));
            assert!((91..200).contains(&seconds), "{jump}, {at}: {seconds} s");
        }
    }
}

#[tokio::test]
async fn a_purge_waits_for_no_transaction_that_reads_the_layout() {
    let [_, url] = databases();
    let client = Client::open(&url, "").await;
    client.store.purge.suspend();
    client.take("held", 2, Mode::Exclusive).await;
    let began = "SELECT acquired_at FROM polylock_locks WHERE kind = 0";
    let reading = begin(&url, &format!("{began} LOCK IN SHARE MODE")).await;
    let round = client.store.purge.round(MIN_ROW_AGE).await;
    round.expect("it does not wait");
    assert_eq!(client.number(began).await, 0);
    drop(reading);
    until("the transaction has ended", async || {
        let round = client.store.purge.round(MIN_ROW_AGE).await;
        round.expect("it does not wait");
        client.number(began).await > 0
    })
    .await;
}

/// Deletes what is older than this, of all rows of locks.
async fn purge_rows(client: &Client, retention: Duration) {
    let purge = &client.store.purge;
    purge.state.lock().passed = Some(Default::default());
    let purged = purge.round(retention).await;
    // MariaDB may choose it to end a deadlock.
    let is_victim = |failure: &SqlFailure| failure.class() == Some(ErrorClass::Conflict);
    assert!(purged.as_ref().err().is_none_or(is_victim), "{purged:?}");
}

fn request(name: &str, wait: Wait) -> AcquireRequest {
    AcquireRequest::new(LockKey::new(name).expect("a key")).with_wait(wait)
}

const LONG: Wait = Wait::AtMost(Duration::from_secs(30));

const ROWS: &str = "SELECT count(*) FROM polylock_locks WHERE kind = 2";

#[tokio::test]
async fn held_rows_stay_and_the_purge_waits_for_none() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        let url = format!("{url}?mode=row");
        let here = SqlLock::open(&url).await.unwrap();
        let there = Arc::new(SqlLock::open(&url).await.unwrap());
        let held = here.acquire(&request("held", LONG)).await.unwrap();
        let share = request("shared", LONG).with_mode(Mode::Shared);
        let shared = here.acquire(&share).await.unwrap();
        let waiting = waiting(&there, request("held", LONG));
        for n in 0..100 {
            let idle = here.acquire(&request(&format!("idle/{n}"), LONG)).await;
            idle.unwrap().release().await.unwrap();
        }
        // A release is confirmed before the server has ended the transaction of the last one.
        let began = Instant::now();
        while client.number(ROWS).await > 2 {
            purge_rows(&client, Duration::ZERO).await;
            assert!(began.elapsed() < Duration::from_secs(4), "the rows stay");
        }
        assert_eq!(client.number(ROWS).await, 2);
        for name in ["held", "shared"] {
            assert_error(&there, &request(name, Wait::Never), ErrorKind::Contended).await;
        }
        held.release().await.unwrap();
        granted(waiting).await.release().await.unwrap();
        shared.release().await.unwrap();
    }
}

/// Says when two are inside at once.
#[derive(Default)]
struct Section {
    is_taken: AtomicBool,
    entered: AtomicU32,
}

impl Section {
    async fn enter(&self) {
        assert!(!self.is_taken.swap(true, Ordering::SeqCst), "two are in");
        tokio::time::sleep(Duration::from_millis(2)).await;
        self.is_taken.store(false, Ordering::SeqCst);
        self.entered.fetch_add(1, Ordering::SeqCst);
    }
}

/// Enters a section under the lock of a transaction, which the server may refuse for a deadlock.
async fn enter_in<D>(mut raw: D::Connection, section: &Section, name: &str)
where
    D: sqlx::Database<Connection: Connection<Database = D>>,
{
    let locks = TransactionLocks::new().with_wait(LONG);
    let mut entered = 0;
    for _ in 0..ROUNDS {
        let mut transaction = raw.begin().await.expect("it begins");
        match locks.acquire_in(&mut *transaction, name).await {
            Ok(_) => {
                section.enter().await;
                entered += 1;
            }
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        transaction.rollback().await.expect("it ends");
    }
    assert!(entered > ROUNDS / 2, "{entered} transactions got the lock");
}

/// Rows vanish between the attempt of a waiter and its grant, all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_that_never_rests_costs_no_lock_and_no_exclusion() {
    for url in databases() {
        let plain = url.clone();
        let url = format!("{url}?mode=row");
        let sections: Arc<[Section; 2]> = Arc::default();
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let locks = Arc::new(SqlLock::open(&url).await.unwrap());
            for n in 0..4 {
                let (locks, sections) = (Arc::clone(&locks), Arc::clone(&sections));
                tasks.push(tokio::spawn(async move {
                    for round in 0..ROUNDS {
                        let key = format!("k{}", n % 2);
                        let guard = locks.acquire(&request(&key, LONG)).await.unwrap();
                        sections[n % 2].enter().await;
                        guard.release().await.unwrap();
                        // Now and then nobody has the lock, or waits for it.
                        tokio::time::sleep(Duration::from_millis(u64::from(round % 8) * 8)).await;
                    }
                }));
            }
        }
        let inside = Arc::clone(&sections);
        tasks.push(match plain.starts_with("postgres") {
            true => {
                let raw = PgConnection::connect(&plain).await.unwrap();
                tokio::spawn(async move { enter_in::<sqlx::Postgres>(raw, &inside[0], "k0").await })
            }
            false => {
                let raw = MySqlConnection::connect(&plain).await.unwrap();
                tokio::spawn(async move { enter_in::<sqlx::MySql>(raw, &inside[0], "k0").await })
            }
        });
        let client = Client::open(&plain, "").await;
        let mut deleted = 0;
        while tasks.iter().any(|task| !task.is_finished()) {
            let before = client.number(ROWS).await;
            purge_rows(&client, AGE).await;
            deleted += i64::from(client.number(ROWS).await < before);
            tokio::task::yield_now().await;
        }
        for task in tasks {
            task.await.expect("a lock for everyone");
        }
        for section in sections.iter() {
            assert!(section.entered.load(Ordering::SeqCst) >= 4 * ROUNDS);
        }
        assert!(deleted > 10, "{deleted} purges deleted a row");
    }
}

const ROUNDS: u32 = 120;

/// Long enough for a request to lock the row that it has made, most often.
const AGE: Duration = Duration::from_millis(60);
