//! Leases behind a pooler, where settings of the role apply.

use lock_testkit::servers::{PgBouncer, PoolMode, PostgresServer};
use polylock_core::{LeaseState, Mode, Released};
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;

use super::locked::due;
use super::{ALONE, Client, key};
use crate::store::LeaseStore as _;
use crate::wire::SqlValue;

/// A pooler that gives each client a session of its own, and the URL of a database behind it.
pub(crate) fn pooled(url: &str) -> (PgBouncer, String) {
    let pooler = PgBouncer::before_shared(&PostgresServer::shared(), PoolMode::Session);
    let (_, database) = url.rsplit_once('/').expect("a database");
    let port = pooler.port();
    let url = format!("postgres://test:test@127.0.0.1:{port}/{database}");
    (pooler, url)
}

/// Changes a setting of a pooler.
pub(crate) async fn set(pooler: &PgBouncer, setting: &'static str) {
    let options: PgConnectOptions = pooler.admin_url().parse().expect("a URL");
    let admin = options.extra_float_digits(None).connect().await;
    let mut admin = admin.expect("it has a console");
    let done = sqlx::raw_sql(setting).execute(&mut admin).await;
    done.expect("it obeys");
}

/// Its clients share the sessions of the server from their next transaction on.
pub(crate) const SHARE: &str = "SET pool_mode = 'transaction'";

#[tokio::test]
async fn leases_behind_a_pooler_are_renewed_with_any_output_format_of_bytes() {
    let server = PostgresServer::shared();
    let url = server.database();
    let (_, database) = url.rsplit_once('/').expect("a database");
    server.sql(
        &url,
        &format!("ALTER DATABASE {database} SET bytea_output = 'escape'"),
    );
    let pooler = PgBouncer::before_shared(&server, PoolMode::Transaction);
    let pooled = format!(
        "postgres://test:test@127.0.0.1:{}/{database}",
        pooler.port()
    );
    let client = Client::open(&pooled, "&pooler=transaction").await;
    let format = client.sql("SHOW bytea_output").await;
    assert_eq!(format.rows, [[SqlValue::from("escape")]]);
    // Ids of backslashes, of bytes with octal digits, and of the prefix of the other format.
    let all = [
        (r"a\b", b'\\', ALONE),
        ("é", 200, ALONE),
        (r"\x41", b'x', ALONE),
        ("shared", 1, Mode::Shared),
    ];
    for (name, n, mode) in all {
        assert!(client.take(name, n, mode).await.is_some(), "{name}");
    }
    let due = all.map(|(name, n, _)| due(name, n));
    for state in client.store.renew_all(&due).await {
        assert_eq!(state.expect("an answer"), LeaseState::Held);
    }
    let listed = client.store.list("").await.expect("an answer").into_iter();
    let mut listed: Vec<_> = listed.map(|info| info.key).collect();
    listed.sort();
    assert_eq!(listed, [r"\x41", r"a\b", "shared", "é"].map(key));
    for (name, n, _) in all {
        assert_eq!(client.release(name, n).await, Released::Clean, "{name}");
    }
}

/// PgBouncer before 1.21 does not know prepared statements: one that a client executes may be that of another client, for
/// another table.
#[tokio::test]
async fn a_lease_behind_a_pooler_that_shares_sessions_is_one_of_its_own_table() {
    let direct = PostgresServer::shared().database();
    let (pooler, url) = pooled(&direct);
    let here = Client::open(&url, "&notify=off&table=others").await;
    let there = Client::open(&url, "&notify=off").await;
    for client in [&here, &there] {
        assert!(client.take("k", 1, ALONE).await.is_some());
        assert_eq!(client.release("k", 1).await, Released::Clean);
    }
    let other = Client::open(&direct, "&notify=off").await;
    assert!(other.take("k", 9, ALONE).await.is_some());
    set(&pooler, SHARE).await;
    for n in 0..10 {
        // The pooler gives out the session that was used last.
        assert!(
            there.take("k", 2, ALONE).await.is_none(),
            "{n}: two holders"
        );
        assert!(here.take("k", 2, ALONE).await.is_some(), "{n}: it is free");
        assert_eq!(here.release("k", 2).await, Released::Clean, "{n}");
    }
}
