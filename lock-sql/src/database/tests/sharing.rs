use std::time::Duration;

use polylock_core::{LeaseState, LostReason, Mode, Released, RenewalRequest, Renewer as _};

use super::locked;
use super::{ALONE, Client, databases, key};
use crate::store::LeaseStore as _;

async fn states(client: &Client, due: &[RenewalRequest]) -> Vec<LeaseState> {
    let states = client.store.renew(due).await.into_iter();
    states.map(|state| state.expect("an answer")).collect()
}

#[tokio::test]
async fn those_whose_lock_was_broken_learn_it_after_another_one_took_it() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        client.take("alone", 2, ALONE).await.unwrap();
        client.take("many", 4, Mode::Shared).await.unwrap();
        client.take("many", 6, Mode::Shared).await.unwrap();
        for (name, holders, n) in [("alone", 1, 8), ("many", 2, 10)] {
            let broken = client.store.break_all(&key(name), "wedged\0").await;
            assert_eq!(broken.unwrap().unwrap().holders.len(), holders);
            assert!(client.take(name, n, ALONE).await.is_some());
        }
        let due = [
            ("alone", 2),
            ("many", 4),
            ("many", 6),
            ("alone", 8),
            ("many", 10),
        ];
        let due = due.map(|(name, n)| locked::due(name, n));
        let (broken, held) = (LeaseState::Lost(LostReason::Broken), LeaseState::Held);
        let expected = [broken, broken, broken, held, held];
        assert_eq!(states(&client, &due).await, expected);
        // Another client takes the place of one of them and leaves again.
        client.release("many", 10).await;
        client.take("many", 12, Mode::Shared).await.unwrap();
        assert_eq!(client.release("many", 12).await, Released::Clean);
        assert_eq!(states(&client, &due[1..3]).await, [broken, broken]);
        assert!(client.take("many", 14, ALONE).await.is_some());
    }
}

#[tokio::test]
async fn a_broken_sharer_frees_no_seat_that_another_one_has_now() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        client.take("k", 2, Mode::Shared).await.unwrap();
        client.store.break_all(&key("k"), "wedged").await.unwrap();
        client.take("k", 4, Mode::Shared).await.unwrap();
        assert_eq!(client.release("k", 2).await, Released::AlreadyLost);
        let held = "SELECT sharers FROM polylock_locks WHERE kind = 1 AND slot = 0";
        assert_eq!(client.number(held).await, 1);
        assert_eq!(client.take("k", 6, ALONE).await, None);
        let due = [locked::due("k", 4)];
        assert_eq!(states(&client, &due).await, [LeaseState::Held]);
        assert_eq!(client.release("k", 4).await, Released::Clean);
        assert!(client.take("k", 6, ALONE).await.is_some());
    }
}

#[tokio::test]
async fn a_row_that_others_write_keeps_no_sharer_from_being_renewed() {
    const KEYS: u8 = 40;
    for url in databases() {
        let (client, other) = (Client::open(&url, "").await, Client::open(&url, "").await);
        let mut due = Vec::new();
        for n in 1..=KEYS {
            let name = format!("k{n}");
            client.take(&name, n, Mode::Shared).await.unwrap();
            let mut renewal = locked::due(&name, n);
            // Others may not delay it for long.
            renewal.timeout = Duration::from_secs(3);
            due.push(renewal);
        }
        let versions = "SELECT version FROM polylock_locks \
                        WHERE kind = 1 AND lock_key = 'k8' AND slot = 0";
        let before = client.number(versions).await;
        let writing = tokio::spawn(async move {
            loop {
                let write = "UPDATE polylock_locks SET version = version + 1 \
                             WHERE kind = 1 AND lock_key = 'k7' AND slot = 0";
                other.sql(write).await;
            }
        });
        for _ in 0..10 {
            for state in client.store.renew(&due).await {
                assert_eq!(state.unwrap(), LeaseState::Held);
            }
        }
        writing.abort();
        // Those of PostgreSQL are named, and are not written again.
        if url.starts_with("postgres") {
            assert_eq!(client.number(versions).await - before, 10);
        }
    }
}
