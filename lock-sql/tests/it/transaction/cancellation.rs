//! Futures that are dropped in the middle.

use std::time::Duration;

use crate::transaction::contention::waits;
use crate::transaction::on_each_server;
use crate::transaction::servers::{Server, begin, locks, locks_within};
use lock_testkit::polled;

on_each_server! {
    dropped_at_any_point_and_rolled_back_it_leaves_nothing
    a_dropped_wait_ends_with_its_limit
}

async fn dropped_at_any_point_and_rolled_back_it_leaves_nothing<S: Server>(server: S) {
    let mut polls = 0;
    // A quick server may answer before the first poll is over, and nothing is dropped in a wait then.
    for _ in 0..20 {
        polls = polls_until_it_is_done(&server).await;
        if polls > 1 {
            break;
        }
    }
    assert!(polls > 1);
}

/// Drops it after each number of polls, until it is done.
async fn polls_until_it_is_done<S: Server>(server: &S) -> usize {
    let (mut raw, mut other) = (server.connect().await, server.connect().await);
    for polls in 0.. {
        let mut tx = begin::<S>(&mut raw).await;
        let locks = locks();
        let done = polled(polls, locks.acquire_in(&mut *tx, "k")).await;
        drop(tx);
        // The connection is good for the next transaction, and the lock is free when that begins.
        let tx = begin::<S>(&mut raw).await;
        tx.rollback().await.unwrap();
        let mut tx = begin::<S>(&mut other).await;
        let taken = locks.try_acquire_in(&mut *tx, "k").await.unwrap();
        assert!(taken.is_some(), "after {polls} polls");
        tx.rollback().await.unwrap();
        if done.is_some() {
            return polls;
        }
    }
    unreachable!("it is done at some time")
}

async fn a_dropped_wait_ends_with_its_limit<S: Server>(server: S) {
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    let mut holder = begin::<S>(&mut one).await;
    locks().acquire_in(&mut *holder, "k").await.unwrap();
    let mut tx = begin::<S>(&mut two).await;
    let patient = locks_within(Duration::from_secs(3));
    tokio::select! {
        taken = patient.acquire_in(&mut *tx, "k") => panic!("it did not wait: {taken:?}"),
        () = waits(&server) => {}
    }
    drop(tx);
    // The ping waits until the server's lock wait ends, and gets the error of the dropped request.
    let error = sqlx::Connection::ping(&mut two).await.unwrap_err();
    assert!(error.as_database_error().is_some(), "{error:?}");
    let again = tokio::time::timeout(Duration::from_secs(8), async {
        let mut tx = begin::<S>(&mut two).await;
        locks().acquire_in(&mut *tx, "other").await.unwrap();
        let taken = locks().try_acquire_in(&mut *tx, "k").await.unwrap();
        tx.rollback().await.unwrap();
        taken
    });
    assert_eq!(again.await.unwrap(), None);
    holder.rollback().await.unwrap();
}
