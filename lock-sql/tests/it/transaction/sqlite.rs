//! The file that processes of one machine share.

use std::num::NonZeroU32;
use std::time::Duration;

use polylock_core::prelude::*;
use polylock_sql::transaction::TransactionLocks;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode};
use sqlx::{ConnectOptions as _, Connection as _, raw_sql};

use crate::checks::assert_says;
use crate::support::Place;
use crate::transaction::servers::{Sqlite, begin, pass};

async fn connect(place: &Place) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(place.database());
    let options = options.create_if_missing(true);
    let options = options.journal_mode(SqliteJournalMode::Wal);
    let options = options.busy_timeout(Duration::from_millis(100));
    options.connect().await.unwrap()
}

#[tokio::test]
async fn a_lease_keeps_transactions_out_and_the_other_way_round() {
    let place = Place::new();
    let (leases, mut raw) = (place.open().await, connect(&place).await);
    let locks = TransactionLocks::new();
    let guard = leases.lock("k").await.unwrap();
    let mut tx = begin::<Sqlite>(&mut raw).await;
    assert_eq!(locks.try_acquire_in(&mut *tx, "k").await.unwrap(), None);
    let error = locks.acquire_in(&mut *tx, "k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended);
    // It was not waited for.
    assert_eq!(error.to_string(), "sqlite: the lock is held (key \"k\")");
    assert!(locks.try_acquire_in(&mut *tx, "K").await.unwrap().is_some());
    tx.rollback().await.unwrap();
    let first = guard.fencing_token().unwrap();
    guard.release().await.unwrap();

    let mut tx = begin::<Sqlite>(&mut raw).await;
    let lock = locks.acquire_in(&mut *tx, "k").await.unwrap();
    assert!(lock.fencing_token() > first);
    let lease = leases
        .request("k")
        .wait(Wait::AtMost(Duration::from_millis(300)));
    let error = lease.acquire().await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    tx.commit().await.unwrap();
    let guard = leases.lock("k").await.unwrap();
    assert!(guard.fencing_token().unwrap() > lock.fencing_token());
}

#[tokio::test]
async fn readers_and_permits_keep_transactions_out() {
    let place = Place::new();
    let (leases, mut raw) = (place.open().await, connect(&place).await);
    let locks = TransactionLocks::new();
    for lease in [
        leases.request("k").shared(),
        leases.request("k").permit(NonZeroU32::MIN),
    ] {
        let lease = lease.acquire().await.unwrap();
        let mut tx = begin::<Sqlite>(&mut raw).await;
        let taken = locks.try_acquire_in(&mut *tx, "k").await.unwrap();
        assert_eq!(taken, None, "beside {lease:?}");
        tx.rollback().await.unwrap();
        lease.release().await.unwrap();
    }
    let mut tx = begin::<Sqlite>(&mut raw).await;
    locks.acquire_in(&mut *tx, "k").await.unwrap();
}

/// Whichever keys the other one uses: it may hold any.
#[tokio::test]
async fn a_database_that_is_locked_is_said_to_be() {
    let place = Place::new();
    drop(place.open().await);
    let (mut one, mut two) = (connect(&place).await, connect(&place).await);
    let other = begin::<Sqlite>(&mut one).await;
    let (locks, mut tx) = (TransactionLocks::new(), two.begin().await.unwrap());
    assert_eq!(locks.try_acquire_in(&mut *tx, "k").await.unwrap(), None);
    let error = locks.acquire_in(&mut *tx, "k").await.unwrap_err();
    assert_says(&error, ErrorKind::Contended, "the database locked");
    assert_eq!(error.key().unwrap().as_str(), "k");
    other.rollback().await.unwrap();
    locks.acquire_in(&mut *tx, "k").await.unwrap();
}

#[tokio::test]
async fn the_tables_are_made_in_the_transaction() {
    let place = Place::new();
    let mut raw = connect(&place).await;
    let locks = TransactionLocks::new();
    let mut tx = begin::<Sqlite>(&mut raw).await;
    let first = locks.acquire_in(&mut *tx, "k").await.unwrap();
    pass(&mut *tx, "r", first.fencing_token()).await;
    tx.rollback().await.unwrap();
    let mut tx = begin::<Sqlite>(&mut raw).await;
    let second = locks.acquire_in(&mut *tx, "k").await.unwrap();
    assert!(second.fencing_token() > first.fencing_token());
    pass(&mut *tx, "r", second.fencing_token()).await;
    tx.commit().await.unwrap();
    // What was made is what leases use.
    drop(place.open().await.lock("k").await.unwrap());
}

#[tokio::test]
async fn a_transaction_that_only_reads_may_come_too_late_to_write() {
    let place = Place::new();
    drop(place.open().await);
    let (mut one, mut two) = (connect(&place).await, connect(&place).await);
    let locks = TransactionLocks::new();
    let mut late = two.begin().await.unwrap();
    raw_sql("SELECT * FROM polylock_locks")
        .fetch_all(&mut *late)
        .await
        .unwrap();
    let mut tx = begin::<Sqlite>(&mut one).await;
    locks.acquire_in(&mut *tx, "a").await.unwrap();
    assert_eq!(locks.try_acquire_in(&mut *late, "b").await.unwrap(), None);
    tx.commit().await.unwrap();
    let error = locks.try_acquire_in(&mut *late, "b").await.unwrap_err();
    assert_says(&error, ErrorKind::Unavailable, "repeat");
    drop(late);
    let mut tx = two.begin().await.unwrap();
    locks.acquire_in(&mut *tx, "b").await.unwrap();
}
