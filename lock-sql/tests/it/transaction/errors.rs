//! Refused requests, and the state of the transaction after them.

use std::time::Duration;

use lock_testkit::servers::{MariaDbOptions, MariaDbServer};
use polylock_core::{ErrorKind, FencingToken, Wait};
use polylock_sql::transaction::{Fence, TransactionLocks};
use sqlx::{Connection as _, MySqlConnection};

use crate::checks::assert_says;
use crate::transaction::contention::waits;
use crate::transaction::on_each_server;
use crate::transaction::servers::{
    COUNTER, Home, MariaDb, Postgres, Server, begin, locks, locks_within, pass, refused, run, table,
};

on_each_server! {
    a_connection_without_a_transaction_is_refused;
    a_time_out_of_the_session_is_no_contention
    a_deadlock_ends_one_transaction_and_not_the_other
    a_missing_table_and_a_strange_one_are_told
    a_wait_with_an_old_view_of_the_data_is_no_success
    no_more_rights_are_needed_than_said
}

async fn a_connection_without_a_transaction_is_refused<S: Home>(server: S) {
    let mut raw = server.connect().await;
    for _ in 0..2 {
        let error = locks().acquire_in(&mut raw, "k").await.unwrap_err();
        assert_says(&error, ErrorKind::InvalidRequest, "no transaction");
        assert_eq!(error.backend(), Some(S::NAME));
        let error = locks().try_acquire_in(&mut raw, "k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
    if S::NAME != "sqlite" {
        let rows = "SELECT CONCAT(COUNT(*)) FROM polylock_locks WHERE kind > 0";
        assert_eq!(S::read(&mut raw, rows).await, "0");
    }
    // One that sqlx knows nothing of will do.
    run(&mut raw, "BEGIN").await;
    locks().acquire_in(&mut raw, "k").await.unwrap();
    run(&mut raw, "COMMIT").await;
    locks().acquire_in(&mut raw, "k").await.unwrap_err();
}

async fn a_deadlock_ends_one_transaction_and_not_the_other<S: Server>(server: S) {
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    let (mut one, mut two) = (begin::<S>(&mut one).await, begin::<S>(&mut two).await);
    locks().acquire_in(&mut *one, "a").await.unwrap();
    locks().acquire_in(&mut *two, "b").await.unwrap();
    // A refused transaction must be rolled back.
    let first = async {
        let taken = locks().acquire_in(&mut *one, "b").await;
        one.rollback().await.unwrap();
        taken
    };
    let second = async {
        let taken = locks().acquire_in(&mut *two, "a").await;
        two.rollback().await.unwrap();
        taken
    };
    let both = async { tokio::join!(first, second) };
    let (first, second) = tokio::time::timeout(Duration::from_secs(15), both)
        .await
        .unwrap();
    let refused: Vec<_> = [first, second]
        .into_iter()
        .filter_map(Result::err)
        .collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_says(&refused[0], ErrorKind::Unavailable, "repeat");
    assert!(refused[0].is_retryable() && !refused[0].is_outcome_unknown());
}

async fn a_missing_table_and_a_strange_one_are_told<S: Server>(server: S) {
    let mut raw = server.connect().await;
    let nowhere = TransactionLocks::new().with_table("nowhere").unwrap();
    let mut tx = begin::<S>(&mut raw).await;
    let error = nowhere.acquire_in(&mut *tx, "k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
    for says in ["nowhere", "polylock::sql::Schema", "lockctl schema apply"] {
        assert!(error.message().contains(says), "{error}");
    }
    drop(tx);
    let mut tx = begin::<S>(&mut raw).await;
    let fence = Fence::new().with_table("nowhere").unwrap();
    let error = refused(fence.check(&mut *tx, "k", FencingToken::new(1)).await);
    assert!(error.message().contains("nowhere"), "{error}");
    drop(tx);
    server.sql("UPDATE polylock_locks SET token = 9 WHERE kind = 0");
    let mut tx = begin::<S>(&mut raw).await;
    let error = locks().acquire_in(&mut *tx, "k").await.unwrap_err();
    assert_says(&error, ErrorKind::Protocol, "layout 9");
}

async fn a_time_out_of_the_session_is_no_contention<S: Server>(server: S) {
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    let mut one = begin::<S>(&mut one).await;
    locks().acquire_in(&mut *one, "k").await.unwrap();
    let limit = match S::NAME {
        "postgres" => "SET statement_timeout = '300ms'",
        _ => "SET SESSION max_statement_time = 0.3",
    };
    run(&mut two, limit).await;
    let mut two = begin::<S>(&mut two).await;
    let error = locks().acquire_in(&mut *two, "k").await.unwrap_err();
    assert_says(&error, ErrorKind::Unavailable, "time-out");
    two.rollback().await.unwrap();
}

/// PostgreSQL reports an error; on MySQL a transaction that has read before the lock reads the same
/// after it.
async fn a_wait_with_an_old_view_of_the_data_is_no_success<S: Server>(server: S) {
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    run(&mut two, S::isolation("REPEATABLE READ")).await;
    for reads_before in [false, true] {
        let mut tx = begin::<S>(&mut one).await;
        locks().acquire_in(&mut *tx, "k").await.unwrap();
        run(&mut *tx, "UPDATE counter SET n = 0").await;
        tx.commit().await.unwrap();
        let mut tx = begin::<S>(&mut one).await;
        locks().acquire_in(&mut *tx, "k").await.unwrap();
        run(&mut *tx, "UPDATE counter SET n = 1").await;
        let mut waiter = begin::<S>(&mut two).await;
        if reads_before {
            S::read(&mut waiter, "SELECT CONCAT(n) FROM counter").await;
        }
        let waiting = locks();
        let (taken, ()) = tokio::join!(waiting.acquire_in(&mut *waiter, "k"), async {
            waits(&server).await;
            tx.commit().await.unwrap();
        });
        match (S::NAME, taken) {
            ("postgres", taken) => {
                let error = taken.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                assert!(error.is_retryable());
            }
            (_, taken) => {
                taken.unwrap();
                let seen = S::read(&mut waiter, "SELECT CONCAT(n) FROM counter").await;
                assert_eq!(seen, if reads_before { "0" } else { "1" });
                let sql = "SELECT CONCAT(n) FROM counter FOR UPDATE";
                assert_eq!(S::read(&mut waiter, sql).await, "1");
            }
        }
        waiter.rollback().await.unwrap();
    }
}

async fn no_more_rights_are_needed_than_said<S: Server>(server: S) {
    let mut raw = server.connect_with("SELECT, INSERT, UPDATE").await;
    for _ in 0..2 {
        let mut tx = begin::<S>(&mut raw).await;
        let lock = locks().acquire_in(&mut *tx, "k").await.unwrap();
        pass(&mut *tx, "r", lock.fencing_token()).await;
        tx.commit().await.unwrap();
    }
    let mut raw = server.connect_with("SELECT, UPDATE").await;
    let mut tx = begin::<S>(&mut raw).await;
    let denied = locks().acquire_in(&mut *tx, "k").await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied:?}");
    let says = format!(
        "this user lacks a right that locks need: GRANT {}",
        S::GRANT
    );
    assert_eq!(denied.message(), says);
}

/// As `CREATE INDEX` locks it.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_table_is_no_contention() {
    let server = Postgres::start().await;
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    let mut index = begin::<Postgres>(&mut one).await;
    run(&mut *index, "LOCK TABLE polylock_locks IN SHARE MODE").await;
    let mut tx = begin::<Postgres>(&mut two).await;
    run(&mut *tx, "SET LOCAL lock_timeout = '50ms'").await;
    let tried = locks().try_acquire_in(&mut *tx, "free").await;
    let impatient = locks_within(Duration::from_millis(50));
    let waited = impatient.acquire_in(&mut *tx, "free").await;
    let fence = Fence::new();
    let checked = fence.check(&mut *tx, "free", FencingToken::new(1)).await;
    for error in [tried.unwrap_err(), waited.unwrap_err(), refused(checked)] {
        assert_says(&error, ErrorKind::Unavailable, "locked the table");
        assert!(error.is_retryable() && !error.is_outcome_unknown());
    }
    index.rollback().await.unwrap();
    let taken = locks().try_acquire_in(&mut *tx, "free").await.unwrap();
    assert!(taken.is_some());
}

/// A trigger of another program removes the rows of locks again.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_never_there_is_not_waited_for() {
    let server = Postgres::start().await;
    server.sql(
        "CREATE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER gone BEFORE INSERT ON polylock_locks FOR EACH ROW EXECUTE FUNCTION gone()",
    );
    let mut raw = server.connect().await;
    let mut tx = begin::<Postgres>(&mut raw).await;
    let locks = TransactionLocks::new().with_wait(Wait::Forever);
    let taken = locks.acquire_in(&mut *tx, "k");
    let taken = tokio::time::timeout(Duration::from_secs(10), taken).await;
    let error = taken.expect("an answer").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error:?}");
    tx.rollback().await.unwrap();
}

/// With this option the server rolls the whole transaction back after a wait, and takes the next
/// statements as those of another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_rolls_the_transaction_back_is_no_contention() {
    let options = MariaDbOptions::new().with_config("innodb_rollback_on_timeout", "ON");
    let server = MariaDbServer::start(options);
    let connect = async || MySqlConnection::connect(&server.url()).await.unwrap();
    let (mut one, mut other) = (connect().await, connect().await);
    run(&mut one, table(&server.url())).await;
    run(&mut one, COUNTER).await;
    let (fence, token) = (Fence::new(), FencingToken::new(1));
    let mut holder = begin::<MariaDb>(&mut one).await;
    locks().acquire_in(&mut *holder, "held").await.unwrap();
    fence.check(&mut *holder, "held", token).await.unwrap();
    for start in ["BEGIN", "SET autocommit = 0"] {
        // An attempt on MySQL does not wait.
        let attempts = &["try", "wait", "check"][usize::from(MariaDbServer::is_mysql())..];
        for &attempt in attempts {
            let mut raw = connect().await;
            run(&mut raw, "SET SESSION innodb_lock_wait_timeout = 1").await;
            run(&mut raw, start).await;
            run(&mut raw, "UPDATE counter SET n = n + 1").await;
            locks().acquire_in(&mut raw, "first").await.unwrap();
            let impatient = locks_within(Duration::from_millis(10));
            let error = match attempt {
                "try" => locks().try_acquire_in(&mut raw, "held").await.unwrap_err(),
                "wait" => impatient.acquire_in(&mut raw, "held").await.unwrap_err(),
                _ => refused(fence.check(&mut raw, "held", token).await),
            };
            let what = format!("{start}, {attempt}: {error:?}");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}");
            assert!(error.is_retryable(), "{what}");
            assert!(error.message().contains("rolled the transaction"), "{what}");
            // The first lock has gone with the transaction.
            let mut next = begin::<MariaDb>(&mut other).await;
            let taken = locks().try_acquire_in(&mut *next, "first").await.unwrap();
            assert!(taken.is_some(), "{what}");
            next.rollback().await.unwrap();
            run(&mut raw, "ROLLBACK").await;
        }
    }
    holder.rollback().await.unwrap();
    assert_eq!(server.sql("SELECT n FROM counter"), [["0"]]);
}
