//! Tokens increase, whether transactions commit or not.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::transaction::on_each_server;
use crate::transaction::servers::{Home, Server, begin, locks, run};

on_each_server! {
    a_second_lock_of_one_transaction_is_the_same_with_a_larger_token
    a_rollback_brings_no_token_back
    eight_connections_lose_no_increment_and_share_no_token;
    a_rollback_brings_no_token_back_for_an_older_transaction
    no_token_is_below_the_clock_or_those_of_others
}

const TASKS: usize = 8;
const ROUNDS: usize = 50;

async fn eight_connections_lose_no_increment_and_share_no_token<S: Home>(server: S) {
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let mut raw = server.connect().await;
        tasks.push(tokio::spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..ROUNDS {
                let mut tx = begin::<S>(&mut raw).await;
                let lock = locks().acquire_in(&mut *tx, "counter").await.unwrap();
                // Read and written in two statements, which is safe under the lock only.
                let sql = "SELECT CONCAT(n, ' ', token) FROM counter";
                let read = S::read(&mut tx, sql).await;
                let (n, last) = read.split_once(' ').unwrap();
                let (n, last): (u64, u64) = (n.parse().unwrap(), last.parse().unwrap());
                let token = lock.fencing_token().value();
                assert!(token > last, "{token} came after {last}");
                let sql = format!("UPDATE counter SET n = {}, token = {token}", n + 1);
                run(&mut *tx, sql.leak()).await;
                tokens.push(token);
                tx.commit().await.unwrap();
            }
            tokens
        }));
    }
    let mut all = BTreeSet::new();
    for task in tasks {
        let tokens = task.await.unwrap();
        assert!(tokens.is_sorted());
        all.extend(tokens);
    }
    assert_eq!(all.len(), TASKS * ROUNDS);
    let mut raw = server.connect().await;
    let count = S::read(&mut raw, "SELECT CONCAT(n) FROM counter").await;
    assert_eq!(count, (TASKS * ROUNDS).to_string());
}

async fn a_rollback_brings_no_token_back<S: Home>(server: S) {
    let mut raw = server.connect().await;
    let mut last = 0;
    for round in 0..20 {
        let mut tx = begin::<S>(&mut raw).await;
        let lock = locks().acquire_in(&mut *tx, "k").await.unwrap();
        assert!(lock.fencing_token().value() > last, "round {round}");
        last = lock.fencing_token().value();
        if round % 3 == 0 {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
    }
}

/// A token has the time of the grant, and not that at which the transaction began.
async fn a_rollback_brings_no_token_back_for_an_older_transaction<S: Server>(server: S) {
    let (mut old, mut young) = (server.connect().await, server.connect().await);
    let mut old = begin::<S>(&mut old).await;
    S::read(&mut old, "SELECT CONCAT(n, '') FROM counter").await;
    let mut young = begin::<S>(&mut young).await;
    let first = locks().acquire_in(&mut *young, "k").await.unwrap();
    young.rollback().await.unwrap();
    let second = locks().acquire_in(&mut *old, "k").await.unwrap();
    let (first, second) = (
        first.fencing_token().value(),
        second.fencing_token().value(),
    );
    assert!(
        second > first,
        "{second} was granted after {first}: a token has the time at which its transaction began"
    );
}

async fn a_second_lock_of_one_transaction_is_the_same_with_a_larger_token<S: Home>(server: S) {
    let mut raw = server.connect().await;
    let mut tx = begin::<S>(&mut raw).await;
    let first = locks().acquire_in(&mut *tx, "k").await.unwrap();
    let second = locks().try_acquire_in(&mut *tx, "k").await.unwrap();
    assert!(second.unwrap().fencing_token() > first.fencing_token());
}

async fn no_token_is_below_the_clock_or_those_of_others<S: Server>(server: S) {
    let mut raw = server.connect().await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = u64::try_from(now.as_micros()).unwrap();
    let mut tx = begin::<S>(&mut raw).await;
    let lock = locks().acquire_in(&mut *tx, "k").await.unwrap();
    let token = lock.fencing_token().value();
    assert!(
        (now..now + 60_000_000).contains(&token),
        "the fencing token is {token}"
    );
    tx.commit().await.unwrap();
    // Tokens of others count as well.
    let ahead = i64::MAX as u64 / 2;
    server.sql(&S::raise(ahead));
    for key in ["k", "other"] {
        let mut tx = begin::<S>(&mut raw).await;
        let lock = locks().acquire_in(&mut *tx, key).await.unwrap();
        assert!(lock.fencing_token().value() > ahead, "{key}");
        tx.rollback().await.unwrap();
    }
}
