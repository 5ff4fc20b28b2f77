//! Renewals of leases whose rows another transaction has locked.

use std::time::{Duration, Instant};

use polylock_core::{LeaseState, LostReason, Mode, RenewalRequest, TtlRule};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{Client, TTL, databases, id, key};
use crate::error::Cause;
use crate::store::Store as _;
use crate::wire::Sql;

const ALONE: Mode = Mode::Exclusive;

/// Runs statements, keeps the rows for so many seconds, and commits.
async fn block(url: &str, statement: &str, seconds: f32) -> JoinHandle<()> {
    let other = Client::open(url, "").await;
    // It has its connection then.
    other.sql("SELECT version FROM polylock_locks").await;
    let sleep = match url.starts_with("postgres") {
        true => format!("pg_sleep({seconds})::text"),
        false => format!("SLEEP({seconds})"),
    };
    let text = format!("BEGIN; {statement}; SELECT {sleep}; COMMIT");
    let blocking = tokio::spawn(async move {
        let sql = Sql::new(text);
        other.pool.message(&sql, Vec::new()).await.expect("done");
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    blocking
}

fn rows(name: &str, slot: u8) -> String {
    let rows = format!("kind = 1 AND lock_key = '{name}' AND slot = {slot}");
    format!("SELECT version FROM polylock_locks WHERE {rows} FOR UPDATE")
}

fn due(name: &str, n: u8) -> RenewalRequest {
    RenewalRequest::new(key(name), id(n), TTL)
}

#[tokio::test]
async fn what_is_locked_is_unknown_and_what_is_gone_is_lost() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        for (n, name) in (1..).zip(["a", "b", "c"]) {
            client.take(name, n, ALONE).await.unwrap();
        }
        for n in [4, 5] {
            client.take("shared", n, Mode::Shared).await.unwrap();
        }
        let broken = client.store.break_all(&key("b"), "wedged").await.unwrap();
        assert!(broken.is_some());
        let all = rows("a", 0).replace("= 'a'", "IN ('a', 'b')");
        let blocking = [
            block(&url, &all, 3.0).await,
            block(&url, &rows("shared", 1), 3.0).await,
        ];
        let all = [("a", 1), ("b", 2), ("c", 3), ("shared", 4), ("shared", 5)];
        let due = all.map(|(name, n)| due(name, n));
        let mut states = client.store.renew_all(&due).await;
        let is_locked = |cause: &Cause| matches!(cause, Cause::Busy);
        let sharer = states.remove(3).expect_err("its slot is locked");
        assert!(is_locked(&sharer.cause), "{}", sharer.cause);
        let locked = states.remove(0).expect_err("its row is locked");
        assert!(is_locked(&locked.cause), "{}", locked.cause);
        let states: Vec<_> = states.into_iter().map(Result::unwrap).collect();
        let (broken, held) = (LeaseState::Lost(LostReason::Broken), LeaseState::Held);
        assert_eq!(states, [broken, held, held]);
        // What waits for the row of the one lease does not lock that of the key.
        assert!(client.take("shared", 6, Mode::Shared).await.is_some());
        for blocking in blocking {
            blocking.await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_row_that_is_unlocked_is_renewed_at_once() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        client.take("alone", 1, ALONE).await.unwrap();
        client.take("shared", 2, Mode::Shared).await.unwrap();
        for (name, n) in [("alone", 1), ("shared", 2)] {
            let request = [due(name, n)];
            // The connection for it.
            drop(block(&url, &rows(name, 0), 0.3).await);
            client.store.renew_all(&request).await;
            let blocking = block(&url, &rows(name, 0), 0.8).await;
            let began = Instant::now();
            let state = client.store.renew_all(&request).await.remove(0);
            assert_eq!(state.unwrap(), LeaseState::Held, "{name}");
            assert!(began.elapsed() > Duration::from_millis(100), "{name}");
            blocking.await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_renewal_that_has_waited_takes_no_later_one_back() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        client.take("alone", 1, ALONE).await.unwrap();
        client.take("shared", 2, Mode::Shared).await.unwrap();
        for (name, slot, n) in [("alone", 0, 1), ("shared", 1, 2)] {
            let end = format!(
                "SELECT expires_at FROM polylock_locks
                 WHERE kind = 1 AND lock_key = '{name}' AND slot = {slot}"
            );
            let before = client.number(&end).await;
            let later = format!(
                "UPDATE polylock_locks SET expires_at = expires_at + 60000000
                 WHERE kind = 1 AND lock_key = '{name}'"
            );
            let blocking = block(&url, &later, 0.6).await;
            client.store.renew_all(&[due(name, n)]).await;
            blocking.await.unwrap();
            // It may come after its caller gave up.
            sleep(Duration::from_secs(1)).await;
            let after = client.number(&end).await;
            assert_eq!(after - before, 60_000_000, "{name}");
        }
    }
}

/// What is left of a least hold is less than the ttl.
#[tokio::test]
async fn a_last_renewal_that_has_waited_makes_the_lease_shorter() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        client.take("alone", 1, ALONE).await.unwrap();
        client.take("shared", 2, Mode::Shared).await.unwrap();
        for (name, slot, n) in [("alone", 0, 1), ("shared", 1, 2)] {
            let end = format!(
                "SELECT expires_at FROM polylock_locks
                 WHERE kind = 1 AND lock_key = '{name}' AND slot = {slot}"
            );
            let before = client.number(&end).await;
            let blocking = block(&url, &rows(name, 0), 0.6).await;
            let mut last = due(name, n);
            (last.ttl, last.rule) = (TTL / 30, TtlRule::Exactly);
            client.store.renew_all(&[last]).await;
            blocking.await.unwrap();
            // It may come after its caller gave up.
            sleep(Duration::from_secs(1)).await;
            let after = client.number(&end).await;
            assert!(after < before, "{name}");
        }
    }
}
