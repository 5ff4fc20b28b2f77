use std::cell::Cell;
use std::time::{Duration, Instant};

use polylock_core::admin::Record;
use polylock_core::{ErrorKind, FencingToken, Mode};

use super::locked::begin;
use super::{ALONE, Client, TTL, databases, key};
use crate::error::SqlCause;
use crate::store::LeaseStore as _;

#[tokio::test]
async fn what_polylock_has_not_written_is_malformed_and_never_free() {
    let damages = [
        "last_token = -1, id = NULL",
        "version = -1, id = NULL",
        "ttl = 0",
        "id = '123'",
        "expires_at = -1, sharers = 1",
        "claimed_until = -5",
        "permits = -1",
    ];
    for url in databases() {
        let client = Client::open(&url, "").await;
        for (n, damage) in damages.iter().enumerate() {
            let name = format!("k{n}");
            client.take(&name, 2, ALONE).await.unwrap();
            let damage = format!(
                "UPDATE polylock_locks SET {damage} WHERE kind = 1 AND lock_key = '{name}'"
            );
            client.sql(&damage).await;
            let taken = client.try_take(&name, 4, ALONE, TTL).await;
            let cause = taken.expect_err(&damage).cause;
            assert!(
                matches!(cause, SqlCause::Malformed { .. }),
                "{damage}: {cause}"
            );
            let shared = client.try_take(&name, 4, Mode::Shared, TTL).await;
            assert!(shared.is_err(), "{damage}");
            assert!(client.look(&name, ALONE).await.is_err(), "{damage}");
        }
    }
}

#[tokio::test]
async fn what_polylock_has_not_written_is_listed_beside_other_locks() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        for name in ["bad", "good"] {
            client.take(name, 2, ALONE).await.unwrap();
        }
        client
            .sql("UPDATE polylock_locks SET permits = -1 WHERE kind = 1 AND lock_key = 'bad'")
            .await;
        let listed = client.store.list("").await.unwrap().into_iter();
        let listed = listed.map(|info| (info.key, info.holders[0].token.is_some()));
        let expected = [(key("bad"), false), (key("good"), true)];
        assert_eq!(listed.collect::<Vec<_>>(), expected, "{url}");
    }
}

#[tokio::test]
async fn a_lock_that_is_held_and_said_to_be_free_is_held() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        client.take("k", 2, ALONE).await.unwrap();
        client.sql("UPDATE polylock_locks SET sharers = 0").await;
        assert_eq!(client.take("k", 4, ALONE).await, None);
    }
}

#[tokio::test]
async fn a_purge_takes_no_token_back() {
    for url in databases() {
        let client = Client::open(&url, "&retention=0s").await;
        let first = client.take("first", 2, ALONE).await.unwrap();
        client.take("held", 2, ALONE).await.unwrap();
        client.release("first", 2).await;
        // The server's clock goes back after this, as later clients see it.
        let ahead = "UPDATE polylock_locks SET last_token = last_token + 1000000000000 \
                     WHERE kind = 1 AND lock_key = 'first'";
        client.sql(ahead).await;
        let rows = "SELECT count(*) FROM polylock_locks WHERE kind = 1 AND lock_key = 'first'";
        let floor = "SELECT last_token FROM polylock_locks WHERE kind = 0";
        let added = Cell::new(0);
        let add_row = async || {
            let name = format!("other {}", added.replace(added.get() + 1));
            client.take(&name, 4, ALONE).await.unwrap();
            client.release(&name, 4).await;
        };
        // Each round of the purge runs in the background, and takes as long as the server lets it.
        let end = Instant::now() + Duration::from_secs(60);
        let begin_period = async || {
            client.sql(PERIOD_IS_OVER).await;
            let began = "SELECT acquired_at FROM polylock_locks WHERE kind = 0";
            while client.number(began).await == 1 {
                assert!(Instant::now() < end, "no period begins");
                add_row().await;
            }
        };
        while client.number(floor).await.unsigned_abs() < first.last + 1_000_000_000_000 {
            begin_period().await;
        }
        for _ in 0..4 {
            begin_period().await;
            for _ in 0..20 {
                add_row().await;
                assert_eq!(client.number(rows).await, 1, "deleted before it is safe");
            }
        }
        begin_period().await;
        while client.number(rows).await == 1 {
            assert!(Instant::now() < end, "never purged");
            add_row().await;
        }
        let second = client.take("first", 6, ALONE).await.unwrap();
        assert!(second.next > first.last + 1_000_000_000_000);
        assert_eq!(client.take("held", 8, ALONE).await, None);
    }
}

/// As if the clock of the server had been set forward.
const PERIOD_IS_OVER: &str = "UPDATE polylock_locks SET acquired_at = 1 WHERE kind = 0";

/// How long a record is kept that no test outlasts.
const LONG: Duration = Duration::from_secs(3600);

/// Also by clients that write one record each, where many are kept before them, and others have rows
/// locked.
#[tokio::test]
async fn records_that_have_ended_are_deleted_and_no_others() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        client.store.purge.suspend();
        let write = async |client: &Client, name: &str, keep| {
            let record = Record::new(FencingToken::new(7), name);
            let written = client.store.write_record(&key(name), &record, keep).await;
            assert!(written.expect("an answer"));
        };
        client.take("lock", 2, ALONE).await.unwrap();
        for n in 0..70 {
            write(&client, &format!("kept {n}"), LONG).await;
        }
        for name in ["ended", "kept 99", "later ended"] {
            write(&client, name, Duration::from_millis(1)).await;
        }
        let others = "SELECT version FROM polylock_locks WHERE (kind = 1 AND lock_key = 'lock') \
                      OR (kind = 9 AND lock_key = 'kept 7') FOR UPDATE";
        let _other = begin(&url, others).await;
        let rows = "SELECT count(*) FROM polylock_locks WHERE kind = 9";
        let mut n = 0;
        while n == 0 || client.number(rows).await > 71 {
            let one = Client::open(&url, "").await;
            write(&one, "last", LONG).await;
            n += 1;
            assert!(n < 1000, "never deleted");
        }
        assert_eq!(client.number(rows).await, 71);
        for name in ["kept 0", "kept 69", "last"] {
            let kept = client.store.record(&key(name)).await.unwrap();
            assert_eq!(kept, Some(Record::new(FencingToken::new(7), name)));
        }
    }
}

#[tokio::test]
async fn an_earlier_record_that_comes_late_replaces_no_later_one() {
    // The versions of a process grow over all servers: the second one is ahead of what the first one has left.
    let ahead = [9_000_000_000_000_000, 9_100_000_000_000_000];
    for (url, ahead) in databases().into_iter().zip(ahead) {
        let client = Client::open(&url, "").await;
        let (k, records) = (key("k"), &client.store.records);
        let put = async |token, bytes: &str, version, keep| {
            let record = Record::new(FencingToken::new(token), bytes);
            let put = records.write_version(&k, &record, version, keep).await;
            put.expect("an answer")
        };
        let last = async |token, bytes: &str| {
            let record = Record::new(FencingToken::new(token), bytes);
            let found = client.store.record(&k).await.unwrap();
            assert_eq!(found, Some(record));
        };
        let later = Record::new(FencingToken::new(7), "later");
        assert!(records.write(&k, &later, TTL).await.unwrap());
        assert!(!put(7, "earlier", 1, TTL).await);
        last(7, "later").await;
        // Of a client whose clock is ahead.
        assert!(put(7, "ahead", ahead, TTL).await);
        assert!(!put(6, "smaller", ahead, TTL).await);
        last(7, "ahead").await;
        assert!(records.write(&k, &later, TTL).await.unwrap());
        last(7, "later").await;
        assert!(put(8, "larger", 1, Duration::from_millis(1)).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(put(6, "after its end", 0, TTL).await);
        last(6, "after its end").await;
    }
}

#[tokio::test]
async fn a_user_without_the_right_to_delete_keeps_its_rows() {
    let server = lock_testkit::servers::PostgresServer::shared();
    let url = server.database();
    let client = Client::open(&url, "&retention=0s").await;
    client
        .sql("REVOKE DELETE ON polylock_locks FROM test")
        .await;
    for n in 0..40 {
        let name = format!("k{n}");
        client.take(&name, 2, ALONE).await.unwrap();
        client.release(&name, 2).await;
        if n == 20 {
            // All rows may be deleted.
            let settled = "UPDATE polylock_locks SET claimed_until = last_token + 9000000000000000";
            client.sql(&format!("{settled} WHERE kind = 0")).await;
        }
    }
    let rows = "SELECT count(*) FROM polylock_locks WHERE kind = 1";
    assert_eq!(client.number(rows).await, 40);
}

#[tokio::test]
async fn a_missing_table_is_said_to_be_missing() {
    for url in databases() {
        let client = Client::open(&url, "").await;
        client.sql("DROP TABLE polylock_locks").await;
        let failure = client.try_take("k", 2, ALONE, TTL).await.unwrap_err();
        let error = polylock_core::Error::from(failure);
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    }
}
