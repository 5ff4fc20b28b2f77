//! Waits outlast an administrator's limits for statements. The limit of connections holds.

use std::sync::Arc;

use futures_util::future::join_all;
use lock_testkit::locks::{acquire, granted, renewed, waiting};
use lock_testkit::servers::{
    MariaDbOptions, MariaDbServer, PgBouncer, PoolMode, PostgresOptions, PostgresServer,
};
use polylock_core::layers::{LocalQueue, acquire_all};
use polylock_core::{DistributedLock, ErrorKind, Released, Wait};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, raw_sql};

use crate::server::support::{
    Mode, Site, assert_free, assert_taken, ms, on, request, sessions, take, take_and_release, until,
};

const MODES: [Mode; 3] = [Mode::Row, Mode::Advisory, Mode::Lease];

/// The holder keeps the lock for longer than any limit, and the waiter gets it nevertheless.
async fn a_wait_outlasts_limits(site: Site) {
    let (holder, waiter) = (site.open().await, site.open().await);
    let guard = take(&holder, "job").await;
    let waiting = tokio::spawn(async move { take(&waiter, "job").await });
    until("it waits", async || {
        !site.is_session() || site.waiters().await > 0
    })
    .await;
    tokio::time::sleep(ms(2_000)).await;
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    guard.release().await.expect("it is released");
    let next = waiting.await.expect("it is granted");
    next.release().await.expect("it is released");
}

async fn short_limits_for_idle_sessions_cost_no_lock(site: Site) {
    let locks = site.open().await;
    let guard = take(&locks, "job").await;
    tokio::time::sleep(ms(4_500)).await;
    assert!(guard.is_held(), "{site:?}: {:?}", guard.lost().reason());
    assert_taken(&site, "job").await;
    let released = guard.release().await.expect("it is released");
    assert_eq!(released, Released::Clean, "{site:?}");
    assert_free(&site, "job").await;
}

async fn limits_cost_no_lock_and_end_no_wait(site: impl Fn(Mode) -> Site) {
    join_all(MODES.map(|mode| {
        let site = site(mode);
        async move {
            a_wait_outlasts_limits(site.clone()).await;
            short_limits_for_idle_sessions_cost_no_lock(site).await;
        }
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_postgres_cost_no_lock_and_end_no_wait() {
    let options = PostgresOptions::new()
        .with_config("statement_timeout", "1500ms")
        .with_config("lock_timeout", "1400ms")
        .with_config("idle_in_transaction_session_timeout", "2s")
        .with_config("idle_session_timeout", "2s");
    let server = Arc::new(PostgresServer::start(options));
    limits_cost_no_lock_and_end_no_wait(|mode| Site::postgres(&server, mode)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_mariadb_cost_no_lock_and_end_no_wait() {
    let options = MariaDbOptions::new()
        .with_config("max_statement_time", "1.5")
        .with_config("innodb_lock_wait_timeout", "1")
        .with_config("lock_wait_timeout", "1")
        .with_config("wait_timeout", "2")
        .with_config("idle_transaction_timeout", "2");
    let server = Arc::new(MariaDbServer::start(options));
    limits_cost_no_lock_and_end_no_wait(|mode| Site::mariadb(&server, mode)).await;
}

/// Behind a pooler the limits of the server apply. Each grant there locks the sequence of the tokens,
/// and an attempt that waits for the sequence is not refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_for_locks_behind_a_pooler_refuses_no_free_lock() {
    let options = PostgresOptions::new().with_config("lock_timeout", "100ms");
    let server = Arc::new(PostgresServer::start(options));
    let pooler = PgBouncer::before(&server, PoolMode::Transaction);
    let site = Site::postgres(&server, Mode::Row).with_session_timeout(ms(30_000));
    let pooled = site.clone().with("pooler=transaction&timeout=30s");
    let locks = pooled.open_at(pooler.port()).await;
    take_and_release(&locks, "job").await;
    let mut other = PgConnection::connect(&site.plain_url())
        .await
        .expect("a connection");
    let sequence = format!("'{}_token'::regclass::oid::int, 7205759", site.table);
    let hold = format!("SELECT pg_advisory_lock({sequence})");
    let hold = raw_sql(AssertSqlSafe(hold));
    hold.execute(&mut other).await.expect("it is free");
    let attempt = request("job").with_wait(Wait::Never);
    let trying = tokio::spawn(async move { locks.acquire(&attempt).await });
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    until("it waits", async || site.number(waits).await > 0).await;
    // Longer than the limit.
    tokio::time::sleep(ms(300)).await;
    let let_go = raw_sql("SELECT pg_advisory_unlock_all()");
    let_go.execute(&mut other).await.expect("it is held");
    let guard = trying.await.expect("no panic").expect("it is free");
    guard.release().await.expect("it is released");
}

/// With row locks, each of them needs a connection.
async fn as_many_keys_as_connections_are_granted_at_once(site: Site) {
    let locks = site.clone().with_connections(3).open().await;
    let all = ["a", "b", "c", "d"].map(request);
    let three = acquire_all(&locks, &all[..3]).await;
    for guard in three.expect("there are three connections") {
        guard.release().await.expect("it is released");
    }
    let four = acquire_all(&locks, &all).await;
    if site.mode == Mode::Advisory {
        assert_eq!(four.expect("one connection has all").len(), 4);
        return;
    }
    let error = four.expect_err("it can never be granted");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    assert!(error.message().contains("connections=4"), "{error}");
}

sessions!(as_many_keys_as_connections_are_granted_at_once);

/// The server answers, so a service that runs without its locks in an outage must not do so here.
/// `mode=advisory` keeps a connection for free locks.
async fn a_request_that_gets_no_connection_says_so_and_is_no_outage(site: Site) {
    let locks: Arc<dyn DistributedLock> =
        Arc::new(site.with_connections(2).with("timeout=4s").open().await);
    let queued = Arc::new(LocalQueue::new(Arc::clone(&locks)));
    for locks in [locks, queued] {
        let held = [take(&locks, "a").await, take(&locks, "b").await];
        let at_once = request("c").with_wait(Wait::Never);
        let soon = request("c").with_wait(Wait::AtMost(ms(300)));
        for request in [at_once, soon] {
            let refused = locks.acquire(&request).await;
            let error = refused.expect_err("no connection is free");
            assert_eq!(error.kind(), ErrorKind::QueueFull, "{request:?}: {error}");
            let message = error.message();
            assert!(message.contains("connections=N allows more"), "{error}");
        }
        // Behind one that waits for a connection, for longer than several attempts take.
        let patient = request("c").with_wait(Wait::AtMost(ms(60_000)));
        let waiting = waiting(&locks, patient);
        let at_once = request("c").with_wait(Wait::Never);
        until("nothing is known of the lock", async || {
            let refused = locks.acquire(&at_once).await;
            let error = refused.expect_err("no connection is free");
            assert_ne!(error.kind(), ErrorKind::Unavailable, "{error}");
            error.kind() == ErrorKind::QueueFull
        })
        .await;
        for guard in held {
            guard.release().await.expect("it is released");
        }
        let next = granted(waiting).await;
        next.release().await.expect("it is released");
        take_and_release(&locks, "c").await;
    }
}

on!(
    a_request_that_gets_no_connection_says_so_and_is_no_outage: postgres_row, mariadb_row
);

/// Until the table is analyzed, the planner expects one row where it reads the first rows of all keys.
#[tokio::test(flavor = "multi_thread")]
async fn renewals_read_few_rows_of_a_large_table_without_statistics() {
    const KEYS: u64 = 20_000;
    let options = PostgresOptions::new().with_config("autovacuum", "off");
    let server = Arc::new(PostgresServer::start(options));
    let site = Site::postgres(&server, Mode::Lease);
    let locks = site.open().await;
    let exclusive = take(&locks, "exclusive").await;
    let shared = request("shared").with_mode(polylock_core::Mode::Shared);
    let shared = acquire(&locks, &shared).await;
    site.sql(format!(
        "INSERT INTO {} (kind, lock_key, changed_at)
         SELECT 1, convert_to('other/' || n, 'UTF8'), 0 FROM generate_series(1, {KEYS}) n",
        site.table
    ))
    .await;
    let before = rows_read(&site).await;
    for _ in 0..2 {
        for guard in [&exclusive, &shared] {
            renewed(guard).await;
        }
        // A connection reports with a statement what it has read more than a second ago.
        tokio::time::sleep(ms(1_200)).await;
    }
    for guard in [&exclusive, &shared] {
        renewed(guard).await;
    }
    let read = rows_read(&site).await - before;
    assert!(read < KEYS / 4, "{read} rows were read");
}

async fn rows_read(site: &Site) -> u64 {
    let read = "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint
         FROM pg_stat_user_tables";
    site.number(read).await
}
