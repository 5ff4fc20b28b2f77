//! Stored locks, seen by two clients and in the table itself.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails the test")]

use std::collections::HashSet;
use std::time::Duration;

use crate::support::Place;
use lock_testkit::polled;
use polylock_core::FencingToken;
use polylock_core::admin::Record;
use polylock_core::layers::LocalQueue;
use polylock_core::prelude::*;
use polylock_sql::{Sqlite, SqliteConfig};
use std::sync::Arc;

#[tokio::test]
async fn tokens_increase_after_idle_rows_were_purged() {
    let place = Place::new();
    let config = SqliteConfig::new(place.database()).with_retention(Duration::ZERO);
    let locks = Sqlite::connect(config).await.unwrap();
    let first = token(&locks, "first").await;
    // A clock that goes back, as those of the rows to come see it.
    let ahead = "UPDATE polylock_locks SET last_token = last_token + 1000000000000 \
                 WHERE key = x'6669727374'";
    place.run(ahead).await;
    let row = "SELECT count(*) FROM polylock_locks WHERE key = x'6669727374'";
    until_purged(&place, &locks, row).await;
    assert!(token(&locks, "first").await > first + 1_000_000_000_000);
    let rows = place.number("SELECT count(*) FROM polylock_locks").await;
    assert!(rows < 200, "{rows} rows for locks without a holder");
}

#[tokio::test]
async fn records_are_purged_when_they_have_ended_and_no_others() {
    let place = Place::new();
    let config = SqliteConfig::new(place.database()).with_retention(Duration::ZERO);
    let locks = Sqlite::connect(config).await.unwrap();
    let admin = locks.admin().unwrap();
    let record = Record::new(FencingToken::new(7), "done");
    for (name, keep) in [("ended", 1), ("kept", 3_600_000)] {
        let (name, keep) = (LockKey::new(name).unwrap(), Duration::from_millis(keep));
        assert!(admin.write_record(&name, &record, keep).await.unwrap());
    }
    let ended = "SELECT count(*) FROM polylock_locks WHERE key = x'656e646564'";
    until_purged(&place, &locks, ended).await;
    let kept = admin.record(&LockKey::new("kept").unwrap()).await.unwrap();
    assert_eq!(kept, Some(record));
}

#[tokio::test]
async fn rows_are_used_again() {
    let place = Place::new();
    let locks = place.open().await;
    let mut tokens = Vec::new();
    for _ in 0..20 {
        tokens.push(token(&locks, "one").await);
        for _ in 0..2 {
            let readers = (locks.request("two").shared(), locks.request("two").shared());
            let (a, b) = tokio::join!(readers.0.acquire(), readers.1.acquire());
            tokio::try_join!(a.unwrap().release(), b.unwrap().release()).unwrap();
        }
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    // The table's own row, both locks, and both places for readers.
    assert_eq!(place.number("SELECT count(*) FROM polylock_locks").await, 5);
}

#[tokio::test]
async fn a_hand_over_inside_the_process_writes_nothing_until_tokens_run_out() {
    let place = Place::new();
    let other = place.open().await;
    let locks: Arc<Sqlite> = Arc::new(place.open().await);
    let queue = LocalQueue::new(locks).with_max_handovers(200);
    let mut tokens = Vec::new();
    let mut stored = HashSet::new();
    let mut guard = queue.lock("one").await.unwrap();
    for _ in 0..150 {
        tokens.push(guard.fencing_token().unwrap().value());
        let last = "SELECT max(last_token) FROM polylock_locks";
        stored.insert(place.number(last).await);
        let next = queue.lock("one");
        tokio::pin!(next);
        // In line before the holder leaves.
        assert!(polled(1, next.as_mut()).await.is_none());
        guard.release().await.unwrap();
        guard = next.await.unwrap();
        assert!(
            other.try_lock("one").await.unwrap().is_none(),
            "it was free in between"
        );
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert_eq!(stored.len(), 3, "150 tokens are three times 64");
    guard.release().await.unwrap();
    assert!(token(&other, "one").await > *tokens.last().unwrap());
}

#[tokio::test]
async fn tables_of_one_file_do_not_meet() {
    let place = Place::new();
    let config = SqliteConfig::new(place.database())
        .with_table("other")
        .unwrap();
    let (here, there) = (place.open().await, Sqlite::connect(config).await.unwrap());
    let _here = here.try_lock("job").await.unwrap().unwrap();
    let _there = there.try_lock("job").await.unwrap().unwrap();
}

/// Locks other keys until no row is left of those that are counted.
async fn until_purged(place: &Place, locks: &Sqlite, count: &'static str) {
    let mut n = 0;
    while place.number(count).await > 0 {
        token(locks, &format!("other {n}")).await;
        n += 1;
        assert!(n < 500, "never purged");
    }
}

async fn token(locks: &Sqlite, key: &str) -> u64 {
    let guard = locks.lock(key).await.unwrap();
    let token = guard.fencing_token().unwrap().value();
    assert_eq!(guard.release().await.unwrap(), Released::Clean);
    token
}
