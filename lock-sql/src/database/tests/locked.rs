//! Renewals of leases whose rows another transaction has locked.

use std::time::Duration;

use polylock_core::{LeaseState, LostReason, Mode, RenewalRequest, TtlRule};
use tokio::time::{Instant, sleep};

use super::{ALONE, Client, TTL, databases, id, key};
use crate::error::SqlCause;
use crate::store::LeaseStore as _;
use crate::wire::Sql;

/// Runs a statement in a transaction, which ends with the value.
pub(crate) async fn begin(url: &str, statement: &str) -> Client {
    let other = Client::open(url, "").await;
    let sql = Sql::new(format!("BEGIN; {statement}"));
    other.pool.run(&sql, Vec::new()).await.expect("done");
    other
}

/// A client with an exclusive and a shared lease.
async fn holder(url: &str) -> Client {
    let client = Client::open(url, "").await;
    let alone = client.take("alone", 1, ALONE).await;
    let shared = client.take("shared", 2, Mode::Shared).await;
    assert!(alone.is_some() && shared.is_some(), "both are free");
    client
}

/// What a renewal writes that began this many microseconds after the last one.
pub(super) fn renewal_after(name: &str, micros: u32) -> String {
    format!(
        "UPDATE polylock_locks SET expires_at = expires_at + {micros}
         WHERE kind = 1 AND lock_key = '{name}'"
    )
}

pub(super) fn rows(name: &str, slot: u8) -> String {
    let rows = format!("kind = 1 AND lock_key = '{name}' AND slot = {slot}");
    format!("SELECT version FROM polylock_locks WHERE {rows} FOR UPDATE")
}

pub(super) fn end(name: &str, slot: u8) -> String {
    format!(
        "SELECT expires_at FROM polylock_locks
         WHERE kind = 1 AND lock_key = '{name}' AND slot = {slot}"
    )
}

/// Slow machines get their answers as well.
pub(super) fn due(name: &str, n: u8) -> RenewalRequest {
    let mut due = RenewalRequest::new(key(name), id(n), TTL);
    due.timeout = TTL;
    due
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
        let others = [
            begin(&url, &all).await,
            begin(&url, &rows("shared", 1)).await,
        ];
        let all = [("a", 1), ("b", 2), ("c", 3), ("shared", 4), ("shared", 5)];
        let due = all.map(|(name, n)| due(name, n));
        let take = async {
            sleep(Duration::from_secs(1)).await;
            client.take("shared", 6, Mode::Shared).await
        };
        let (mut states, taken) = tokio::join!(client.store.renew_all(&due), take);
        // What waits for the row of the one lease does not lock that of the key.
        assert!(taken.is_some());
        let sharer = states.remove(3).expect_err("its slot is locked");
        assert!(matches!(sharer.cause, SqlCause::Busy), "{}", sharer.cause);
        states.remove(0).expect_err("its row is locked");
        let states: Vec<_> = states.into_iter().map(Result::unwrap).collect();
        let (broken, held) = (LeaseState::Lost(LostReason::Broken), LeaseState::Held);
        assert_eq!(states, [broken, held, held]);
        drop(others);
    }
}

/// A statement waits for each locked row, and there are fewer connections for it than such rows.
#[tokio::test]
async fn rows_that_stay_locked_keep_no_connection_from_a_row_that_is_locked_for_a_moment() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        let mut all = Vec::new();
        for (n, name) in (1..).zip(["a", "b", "c", "d", "e"]) {
            client.take(name, n, ALONE).await.unwrap();
            all.push(due(name, n));
        }
        // That of a lease of 30 s.
        all.iter_mut()
            .for_each(|due| due.timeout = Duration::from_secs(1));
        let stay = rows("a", 0).replace("= 'a'", "IN ('a', 'b', 'c', 'd')");
        let _stay = begin(&url, &stay).await;
        let end = Instant::now() + TTL;
        loop {
            let other = begin(&url, &rows("e", 0)).await;
            let commit = async {
                sleep(Duration::from_millis(300)).await;
                other.sql("COMMIT").await;
            };
            let (mut states, ()) = tokio::join!(client.store.renew_all(&all), commit);
            if matches!(states.pop(), Some(Ok(LeaseState::Held))) {
                break;
            }
            assert!(Instant::now() < end, "no statement waits for it: {url}");
            // Those that wait end after 2 s.
            sleep(Duration::from_millis(1_200)).await;
        }
    }
}

#[tokio::test]
async fn a_renewal_that_still_waits_for_its_row_has_an_unknown_outcome() {
    for url in databases() {
        let client = holder(&url).await;
        let other = begin(&url, &rows("alone", 0)).await;
        let mut due = due("alone", 1);
        due.timeout = Duration::from_millis(500);
        let state = client.store.renew_all(&[due]).await.remove(0);
        let failure = state.expect_err("its row is locked");
        assert!(failure.outcome_unknown, "{}", failure.cause);
        drop(other);
    }
}

/// By how many microseconds the end of a lease moves, exclusive and shared, while its renewal waits until
/// another transaction commits.
async fn moved(other: impl Fn(&str) -> String, change: impl Fn(&mut RenewalRequest)) -> Vec<i64> {
    let mut moved = Vec::new();
    for url in databases() {
        let client = holder(&url).await;
        for (name, slot, n) in [("alone", 0, 1), ("shared", 1, 2)] {
            let end = end(name, slot);
            let before = client.number(&end).await;
            let other = begin(&url, &other(name)).await;
            let mut due = [due(name, n)];
            change(&mut due[0]);
            let commit = async {
                sleep(Duration::from_millis(300)).await;
                other.sql("COMMIT").await;
            };
            let (mut states, ()) = tokio::join!(client.store.renew_all(&due), commit);
            let state = states.remove(0);
            assert_eq!(state.expect("it is renewed"), LeaseState::Held, "{name}");
            moved.push(client.number(&end).await - before);
        }
    }
    moved
}

#[tokio::test]
async fn a_renewal_that_has_waited_takes_no_later_one_back() {
    let moved = moved(|name| renewal_after(name, 60_000_000), |_| ()).await;
    assert_eq!(moved, [60_000_000; 4]);
}

/// Its answer is what the holder relies on, whatever began later.
#[tokio::test]
async fn an_extension_that_has_waited_extends_the_lease() {
    let other = |name: &str| renewal_after(name, 10_000_000);
    let moved = moved(other, |due| due.ttl = TTL * 4).await;
    let least = i64::try_from((TTL * 3).as_micros()).unwrap();
    assert!(moved.iter().all(|longer| *longer >= least), "{moved:?}");
}

/// What is left of a min hold is less than the ttl.
#[tokio::test]
async fn a_last_renewal_that_has_waited_makes_the_lease_shorter() {
    let last = |due: &mut RenewalRequest| (due.ttl, due.rule) = (TTL / 30, TtlRule::Exactly);
    let moved = moved(|name| rows(name, 0), last).await;
    assert!(moved.iter().all(|longer| *longer < 0), "{moved:?}");
}
