//! Takes that the server is still at when they are given up, and releases that wait.

use std::time::Duration;

use lock_testkit::locks::until;
use lock_testkit::servers::MariaDbServer;
use polylock_core::{Mode, Released};
use tokio::task::JoinHandle;

use super::locked::{begin, rows};
use super::{Client, TTL, databases, id, key};
use crate::dialect;
use crate::error::SqlCause;
use crate::store::LeaseStore as _;
use crate::wire::Sql;

/// Keeps the row of a key locked for so many seconds.
pub(super) async fn block(url: &str, name: &str, seconds: u32) -> JoinHandle<()> {
    block_and(url, name, seconds, "").await
}

/// The same, and runs a statement before it unlocks the row.
pub(super) async fn block_and(
    url: &str,
    name: &str,
    seconds: u32,
    statement: &str,
) -> JoinHandle<()> {
    let observer = Client::open(url, "").await;
    let other = Client::open(url, "").await;
    // It has its connection then.
    other.sql("SELECT version FROM polylock_locks").await;
    let sleep = match url.starts_with("postgres") {
        true => format!("pg_sleep({seconds})::text"),
        false => format!("SLEEP({seconds})"),
    };
    let text = format!(
        "BEGIN; SELECT version FROM polylock_locks WHERE kind = 1 AND lock_key = '{name}' \
         FOR UPDATE; SELECT {sleep}; {statement}COMMIT"
    );
    let blocking = tokio::spawn(async move {
        let sql = Sql::new(text);
        other.pool.run(&sql, Vec::new()).await.expect("done");
    });
    let (postgres, mysql) = ("wait_event = 'PgSleep'", "state = 'User sleep'");
    until_shown(&observer, url, postgres, mysql).await;
    blocking
}

/// Waits until the server has a statement that waits for a row.
pub(crate) async fn until_blocked(url: &str) {
    let observer = Client::open(url, "").await;
    let mysql = "command IN ('Execute', 'Query') \
                 AND info NOT LIKE '%processlist%' AND info NOT LIKE '%SLEEP(%'";
    until_shown(&observer, url, "wait_event_type = 'Lock'", mysql).await;
}

/// Waits until the server shows a connection to the database of the test for which this holds.
async fn until_shown(observer: &Client, url: &str, postgres: &str, mysql: &str) {
    let sql = match url.starts_with("postgres") {
        true => format!(
            "SELECT pid::text FROM pg_stat_activity \
             WHERE datname = current_database() AND {postgres}"
        ),
        false => format!(
            "SELECT info FROM {} WHERE db = DATABASE() AND {mysql}",
            MariaDbServer::PROCESS_LIST
        ),
    };
    until("the server shows it", async || {
        !observer.sql(&sql).await.rows.is_empty()
    })
    .await;
}

async fn make_row(client: &Client, name: &str) {
    client.take(name, 1, Mode::Exclusive).await.expect("free");
    assert_eq!(client.release(name, 1).await, Released::Clean);
}

/// Repeats a release as its guard does.
async fn released(client: &Client, name: &str) {
    for _ in 0..100 {
        match client.store.release(&key(name), id(2)).await {
            Ok(_) => return,
            Err(failure) => assert!(failure.outcome_unknown, "{}", failure.cause),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("nobody knows forever");
}

#[tokio::test]
async fn a_release_does_not_overtake_a_take_that_no_caller_waits_for() {
    for url in databases() {
        let patient = Client::open(&url, "").await;
        make_row(&patient, "k").await;
        let client = Client::hasty(&url).await;
        let other = begin(&url, &rows("k", 0)).await;
        let taken = client.try_take("k", 2, Mode::Exclusive, TTL).await;
        let failure = taken.expect_err("the row is locked");
        // It is a definite answer where the server gives the statement no longer than that.
        let is_unknown =
            failure.outcome_unknown && matches!(failure.cause, SqlCause::Silent { .. });
        let release = async {
            if is_unknown {
                let released = client.store.release(&key("k"), id(2)).await;
                assert!(
                    !matches!(released, Ok(Released::AlreadyLost)),
                    "it cannot know"
                );
            }
        };
        tokio::join!(release, other.sql("COMMIT"));
        released(&client, "k").await;
        assert!(patient.take("k", 3, Mode::Exclusive).await.is_some());
    }
}

/// Others wait for the row as well, and a shared holder may have come in.
#[tokio::test]
async fn a_release_that_waits_until_the_lease_has_ended_is_not_clean() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        for (name, mode) in [("alone", Mode::Exclusive), ("shared", Mode::Shared)] {
            assert!(client.take(name, 2, mode).await.is_some());
            let now = match url.starts_with("postgres") {
                true => dialect::postgres::NOW,
                false => dialect::mysql::NOW,
            };
            // The release begins before the lease has ended, and finds its end when it has the row.
            let end = format!(
                "UPDATE polylock_locks SET expires_at = {now} - 1
                 WHERE kind = 1 AND lock_key = '{name}' AND id IS NOT NULL; "
            );
            let blocking = block_and(&url, name, 2, &end).await;
            let released = client.release(name, 2).await;
            blocking.await.expect("no panic");
            assert_eq!(released, Released::AlreadyLost, "{url} {name}");
        }
    }
}

#[tokio::test]
async fn a_release_waits_for_a_take_that_was_dropped() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        make_row(&client, "k").await;
        let blocking = block(&url, "k", 3).await;
        let take = client.try_take("k", 2, Mode::Exclusive, TTL);
        tokio::select! {
            taken = take => panic!("the row is locked: {:?}", taken.is_ok()),
            () = until_blocked(&url) => {}
        }
        assert_eq!(client.release("k", 2).await, Released::Clean);
        blocking.await.expect("no panic");
        assert!(client.take("k", 3, Mode::Exclusive).await.is_some());
    }
}
