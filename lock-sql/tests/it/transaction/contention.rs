//! The order and the length of waits.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_testkit::locks::until;
use lock_testkit::servers::MariaDbServer;
use polylock_core::ErrorKind;
use polylock_sql::transaction::TransactionLocks;
use sqlx::Connection as _;

use crate::transaction::on_each_server;
use crate::transaction::servers::{Raw, Server, begin, locks, locks_within, run};

on_each_server! {
    a_transaction_that_has_the_lock_keeps_others_out
    a_wait_ends_when_the_transaction_of_the_holder_does
    a_wait_has_an_end
    waiters_of_one_row_all_learn_that_it_is_held
    a_row_may_be_purged_while_a_transaction_waits_for_it
    a_row_that_is_held_in_another_way_is_held
    a_rollback_to_an_earlier_savepoint_may_release_the_lock
    the_death_of_the_connection_frees_the_lock
    the_limits_of_the_session_are_its_own_again
    waiters_outlive_a_rollback_of_the_transaction_that_made_the_row
}

async fn a_transaction_that_has_the_lock_keeps_others_out<S: Server>(server: S) {
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    let (mut one, mut two) = (begin::<S>(&mut one).await, begin::<S>(&mut two).await);
    let locks = TransactionLocks::new();
    let first = locks.acquire_in(&mut *one, "k").await.unwrap();
    assert_eq!(first.key().as_str(), "k");
    let begun = Instant::now();
    let refused = locks.try_acquire_in(&mut *two, "k").await.unwrap();
    assert_eq!(refused, None);
    assert!(begun.elapsed() < Duration::from_millis(900), "it waited");
    // The transaction goes on, and takes another lock.
    run(&mut *two, "UPDATE counter SET n = n + 1").await;
    let other = locks.try_acquire_in(&mut *two, "another").await.unwrap();
    assert!(other.is_some());
    one.commit().await.unwrap();
    let second = locks.try_acquire_in(&mut *two, "k").await.unwrap().unwrap();
    assert!(second.fencing_token() > first.fencing_token());
    two.commit().await.unwrap();
    assert_eq!(server.sql("SELECT n FROM counter"), [["1"]]);
}

async fn a_wait_ends_when_the_transaction_of_the_holder_does<S: Server>(server: S) {
    for rolls_back in [false, true] {
        let (mut one, mut two) = (server.connect().await, server.connect().await);
        let mut one = begin::<S>(&mut one).await;
        let first = locks().acquire_in(&mut *one, "k").await.unwrap();
        let waiter = tokio::spawn(async move {
            let mut two = begin::<S>(&mut two).await;
            let second = locks().acquire_in(&mut *two, "k").await.unwrap();
            two.commit().await.unwrap();
            second
        });
        waits::<S>(&server).await;
        assert!(!waiter.is_finished());
        if rolls_back {
            one.rollback().await.unwrap();
        } else {
            one.commit().await.unwrap();
        }
        let second = waiter.await.unwrap();
        if !rolls_back {
            assert!(second.fencing_token() > first.fencing_token());
        }
    }
}

async fn a_wait_has_an_end<S: Server>(server: S) {
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    let (mut one, mut two) = (begin::<S>(&mut one).await, begin::<S>(&mut two).await);
    locks().acquire_in(&mut *one, "k").await.unwrap();
    let begun = Instant::now();
    let patient = locks_within(Duration::from_millis(1200));
    let error = patient.acquire_in(&mut *two, "k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contended, "{error:?}");
    assert_eq!(error.key().unwrap().as_str(), "k");
    assert_eq!(error.backend(), Some(S::NAME));
    assert_eq!(error.message(), "the lock is held, waited 1.2s");
    let waited = begun.elapsed();
    let most = Duration::from_secs(3);
    assert!(
        waited > Duration::from_secs(1) && waited < most,
        "it waited for {waited:?} of 1.2 s"
    );
    run(&mut *two, "UPDATE counter SET n = n + 1").await;
    two.commit().await.unwrap();
    assert_eq!(server.sql("SELECT n FROM counter"), [["1"]]);
}

/// Takes the lock in a transaction that is committed.
async fn make_row<S: Server>(raw: &mut Raw<S>, key: &str) {
    let mut tx = begin::<S>(raw).await;
    locks().acquire_in(&mut *tx, key).await.unwrap();
    tx.commit().await.unwrap();
}

/// PostgreSQL names the row to the first waiter only.
async fn waiters_of_one_row_all_learn_that_it_is_held<S: Server>(server: S) {
    let mut one = server.connect().await;
    make_row::<S>(&mut one, "k").await;
    let mut holder = begin::<S>(&mut one).await;
    let row = "SELECT 1 FROM polylock_locks WHERE kind = 2 AND lock_key = 'k' FOR UPDATE";
    run(&mut *holder, row).await;
    let waits = (0..3).map(async |_| {
        let mut raw = server.connect().await;
        let mut tx = begin::<S>(&mut raw).await;
        let impatient = locks_within(Duration::from_millis(300));
        let error = impatient.acquire_in(&mut *tx, "k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Contended, "{error:?}");
    });
    join_all(waits).await;
}

/// As the locks of `mode=row` are.
async fn a_row_that_is_held_in_another_way_is_held<S: Server>(server: S) {
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    make_row::<S>(&mut one, "k").await;
    let share = match S::NAME {
        "postgres" => "FOR SHARE",
        _ => "LOCK IN SHARE MODE",
    };
    for mode in ["FOR UPDATE", share] {
        let mut holder = server.connect().await;
        let mut holder = begin::<S>(&mut holder).await;
        let sql = format!("SELECT 1 FROM polylock_locks WHERE kind = 2 AND lock_key = 'k' {mode}");
        run(&mut *holder, sql.leak()).await;
        let mut two = begin::<S>(&mut two).await;
        let taken = locks().try_acquire_in(&mut *two, "k").await.unwrap();
        assert_eq!(taken, None, "{mode}");
        holder.rollback().await.unwrap();
        let taken = locks().try_acquire_in(&mut *two, "k").await.unwrap();
        assert!(taken.is_some(), "{mode}");
        two.rollback().await.unwrap();
    }
}

async fn a_row_may_be_purged_while_a_transaction_waits_for_it<S: Server>(server: S) {
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    make_row::<S>(&mut one, "k").await;
    let mut purge = begin::<S>(&mut one).await;
    run(&mut *purge, "DELETE FROM polylock_locks WHERE kind = 2").await;
    let mut waiter = begin::<S>(&mut two).await;
    let waiting = locks();
    let (taken, ()) = tokio::join!(waiting.acquire_in(&mut *waiter, "k"), async {
        waits::<S>(&server).await;
        purge.commit().await.unwrap();
    });
    taken.unwrap();
    let mut tx = begin::<S>(&mut one).await;
    assert_eq!(locks().try_acquire_in(&mut *tx, "k").await.unwrap(), None);
    tx.rollback().await.unwrap();
}

/// InnoDB keeps the locks of rows that were there before, and has none on a row that is gone.
async fn a_rollback_to_an_earlier_savepoint_may_release_the_lock<S: Server>(server: S) {
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    make_row::<S>(&mut one, "b old").await;
    let mut tx = begin::<S>(&mut one).await;
    locks().acquire_in(&mut *tx, "a outer").await.unwrap();
    let mut nested = tx.begin().await.unwrap();
    let names = ["a outer", "b old", "c new"];
    for name in names {
        locks().acquire_in(&mut *nested, name).await.unwrap();
    }
    nested.rollback().await.unwrap();
    let mut other = begin::<S>(&mut two).await;
    let released = [false, S::NAME == "postgres", true];
    for (name, released) in names.into_iter().zip(released) {
        let taken = locks().try_acquire_in(&mut *other, name).await.unwrap();
        assert_eq!(taken.is_some(), released, "{name}");
    }
    other.rollback().await.unwrap();
    tx.commit().await.unwrap();
}

async fn the_death_of_the_connection_frees_the_lock<S: Server>(server: S) {
    let mut one = server.connect().await;
    let mut one = begin::<S>(&mut one).await;
    let first = locks().acquire_in(&mut *one, "k").await.unwrap();
    server.kill_all();
    let mut two = server.connect().await;
    let mut two = begin::<S>(&mut two).await;
    let second = locks().acquire_in(&mut *two, "k").await.unwrap();
    assert!(second.fencing_token() > first.fencing_token());
    let dead = locks().acquire_in(&mut *one, "other").await.unwrap_err();
    assert_eq!(dead.kind(), ErrorKind::Unavailable, "{dead:?}");
}

async fn the_limits_of_the_session_are_its_own_again<S: Server>(server: S) {
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    let mut one = begin::<S>(&mut one).await;
    locks().acquire_in(&mut *one, "k").await.unwrap();
    run(&mut two, S::SET_LIMIT).await;
    let before = S::read(&mut two, S::LIMIT).await;
    let mut two = begin::<S>(&mut two).await;
    let impatient = locks_within(Duration::from_millis(10));
    let refused = impatient.acquire_in(&mut *two, "k").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Contended);
    assert_eq!(S::read(&mut two, S::LIMIT).await, before);
    let refused = locks().try_acquire_in(&mut *two, "k").await.unwrap();
    assert_eq!(refused, None);
    assert_eq!(S::read(&mut two, S::LIMIT).await, before);
    locks().acquire_in(&mut *two, "free").await.unwrap();
    assert_eq!(S::read(&mut two, S::LIMIT).await, before);
    two.commit().await.unwrap();
}

/// InnoDB gives each waiter the gap where the row was, in which no other may make it again, and
/// ends all but one of them.
async fn waiters_outlive_a_rollback_of_the_transaction_that_made_the_row<S: Server>(server: S) {
    let mut one = server.connect().await;
    let mut one = begin::<S>(&mut one).await;
    locks().acquire_in(&mut *one, "new").await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..4 {
        let mut raw = server.connect().await;
        waiters.push(tokio::spawn(async move {
            let mut tx = begin::<S>(&mut raw).await;
            let taken = locks().acquire_in(&mut *tx, "new").await;
            let ended = tx.commit().await;
            taken.map(|_| ended.unwrap())
        }));
    }
    all_wait(&server, 4).await;
    one.rollback().await.unwrap();
    let mut refused = Vec::new();
    for waiter in waiters {
        refused.extend(waiter.await.unwrap().err());
    }
    let most = if S::NAME == "mysql" { 3 } else { 0 };
    assert!(refused.len() <= most, "{refused:?}");
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(error.is_retryable());
    }
}

/// Waits until a lock in the database of the test has a waiter.
pub(super) async fn waits<S: Server>(server: &S) {
    all_wait(server, 1).await;
}

async fn all_wait<S: Server>(server: &S, waiters: usize) {
    let sql = match S::NAME {
        "postgres" => {
            "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = current_database() AND wait_event_type = 'Lock'"
        }
        // The tables of InnoDB about waits are not brought up to date while others read them.
        _ => &format!(
            "SELECT count(*) FROM {} WHERE db = DATABASE() AND command <> 'Sleep' \
                 AND /*M!100000 time_ms > 100 */ /*!80000 time > 0 */ \
                 AND info NOT LIKE '%processlist%'",
            MariaDbServer::PROCESS_LIST
        ),
    };
    until("all of them wait", async || {
        let count: usize = server.sql(sql)[0][0].parse().expect("a count");
        count >= waiters
    })
    .await;
}
