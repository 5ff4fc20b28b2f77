//! Locks among the connections of a pool that the application has.

use std::sync::Arc;
use std::time::Duration;

use lock_testkit::locks::acquire;
use polylock_core::{
    DistributedLock as _, DistributedLockExt as _, ErrorKind, LockGuard, LostReason,
};
use polylock_sql::transaction::Connection;
use polylock_sql::{SqlConfig, SqlLock, SqlMode};
use sqlx::pool::{PoolConnection, PoolOptions};
use sqlx::{Database, MySql, Pool, Postgres};

use crate::server::support::{
    Kind, SOON, Site, assert_free, assert_taken, loss, ms, request, take, take_and_release, until,
};

/// The database of an application.
trait App: Database<Connection: Connection<Database = Self>> {
    /// What the application leaves on its connections.
    const HOOK: &str;
    /// The time zone that it sets.
    const ZONE: &str;

    fn config(pool: &Pool<Self>) -> SqlConfig;

    async fn zone(connection: &mut Self::Connection) -> String;
}

impl App for MySql {
    const HOOK: &str = "SET SESSION time_zone = '+05:00', sql_mode = 'ANSI_QUOTES', \
                        /*M!100000 tx_isolation = 'SERIALIZABLE', max_statement_time = 50 */ \
                        /*!80000 transaction_isolation = 'SERIALIZABLE' */";
    const ZONE: &str = "+05:00";

    fn config(pool: &Pool<Self>) -> SqlConfig {
        SqlConfig::from_mysql_pool(pool)
    }

    async fn zone(connection: &mut Self::Connection) -> String {
        let asked = sqlx::query_scalar("SELECT @@session.time_zone");
        asked.fetch_one(connection).await.expect("it answers")
    }
}

impl App for Postgres {
    const HOOK: &str = "SET search_path = pg_temp; SET TimeZone = 'Asia/Karachi'; \
                        SET default_transaction_read_only = on; SET statement_timeout = '50s'";
    const ZONE: &str = "Asia/Karachi";

    fn config(pool: &Pool<Self>) -> SqlConfig {
        SqlConfig::from_postgres_pool(pool)
    }

    async fn zone(connection: &mut Self::Connection) -> String {
        let asked = sqlx::query_scalar("SHOW TimeZone");
        asked.fetch_one(connection).await.expect("it answers")
    }
}

/// The pool of an application.
async fn open<DB: App>(site: &Site, most: u32) -> Pool<DB> {
    let options = PoolOptions::new().max_connections(most);
    let options = options.after_connect(|connection: &mut DB::Connection, _| {
        Box::pin(async move {
            connection.run(sqlx::raw_sql(DB::HOOK)).await?;
            Ok(())
        })
    });
    let opened = options.connect(&site.plain_url()).await;
    opened.expect("it gets in")
}

fn config_on<DB: App>(pool: &Pool<DB>, site: &Site) -> SqlConfig {
    let config = DB::config(pool).with_table(&site.table);
    config.expect("it is a name")
}

async fn locks<DB: App>(pool: &Pool<DB>, site: &Site) -> SqlLock {
    let locks = SqlLock::connect(config_on(pool, site)).await;
    locks.expect("it gets in")
}

/// Takes all connections that are left, so many.
async fn exhaust<DB: App>(pool: &Pool<DB>, left: usize) -> Vec<PoolConnection<DB>> {
    let mut taken = Vec::new();
    for _ in 0..left {
        taken.push(pool.acquire().await.expect("there is one left"));
    }
    assert!(pool.try_acquire().is_none(), "there is one more");
    taken
}

/// Makes a test of an async function for the pool of each database.
macro_rules! on_each_pool {
    ($($body:ident)*) => {$(
        mod $body {
            use crate::server::support::Site;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres_lease() {
                super::$body::<sqlx::Postgres>(Site::postgres_lease()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn mariadb_lease() {
                super::$body::<sqlx::MySql>(Site::mariadb_lease()).await;
            }
        }
    )*};
}

on_each_pool! {
    locks_of_a_pool_are_the_same_locks
    a_pool_that_the_application_uses_up_keeps_its_locks
    connections_that_break_are_replaced_in_their_places
    a_pool_that_is_too_small_is_refused
    a_pool_without_a_free_connection_is_unavailable
    the_application_gets_its_connections_back_and_none_that_locks_have_used
    a_pool_that_is_closed_waits_for_no_lock
}

/// Ends all connections of the pool.
fn kill(site: &Site) {
    site.server.own().sql(match site.kind() {
        Kind::MariaDb => "KILL USER test",
        Kind::Postgres => {
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'test'"
        }
    });
}

/// A lease that ends while a test runs, and outlasts the pauses of a busy machine.
async fn short(locks: &SqlLock, name: &str) -> LockGuard {
    acquire(locks, &request(name).with_ttl(Duration::from_secs(6))).await
}

async fn locks_of_a_pool_are_the_same_locks<DB: App>(site: Site) {
    let pool = open::<DB>(&site, 6).await;
    let locks = locks(&pool, &site).await;
    let guard = take(&locks, "job").await;
    assert_taken(&site, "job").await;
    guard.release().await.expect("it is held");
    assert_free(&site, "job").await;
    let reader = request("job").with_mode(polylock_core::Mode::Shared);
    let reader = acquire(&locks, &reader).await;
    assert_taken(&site, "job").await;
    reader.release().await.expect("it is held");
}

async fn a_pool_that_the_application_uses_up_keeps_its_locks<DB: App>(site: Site) {
    let site = site.durable();
    let pool = open::<DB>(&site, 6).await;
    let locks = locks(&pool, &site).await;
    let guard = short(&locks, "job").await;
    let taken = exhaust(&pool, 1).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(9);
    while tokio::time::Instant::now() < deadline {
        assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
        tokio::time::sleep(ms(100)).await;
    }
    // Nor does an acquisition or a release wait for the application.
    take_and_release(&locks, "other").await;
    guard.release().await.expect("it is held");
    // The server may take a moment to see that one which was replaced is closed.
    let server = site.server.own();
    until("the pool allows all", async || server.connections() <= 6).await;
    drop(taken);
}

async fn connections_that_break_are_replaced_in_their_places<DB: App>(site: Site) {
    let site = site.durable();
    let pool = open::<DB>(&site, 6).await;
    let locks = locks(&pool, &site).await;
    let guard = short(&locks, "job").await;
    let taken = exhaust(&pool, 1).await;
    for _ in 0..3 {
        kill(&site);
        tokio::time::sleep(ms(3_000)).await;
        assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
    }
    assert!(pool.try_acquire().is_none(), "a place was returned");
    guard.release().await.expect("it is held");
    drop(taken);
}

async fn a_pool_that_is_too_small_is_refused<DB: App>(site: Site) {
    let pool = open::<DB>(&site, 5).await;
    let error = SqlLock::connect(config_on(&pool, &site)).await;
    let error = error.expect_err("nothing is left for the application");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    for part in ["reserve 5", "allows 5", "max_connections to 6"] {
        assert!(error.message().contains(part), "{part}: {error}");
    }
    assert!(pool.size() <= 1, "nothing was reserved");

    let larger = open::<DB>(&site, 6).await;
    let config = config_on(&larger, &site).with_connections(4);
    let error = SqlLock::connect(config.expect("in range")).await;
    assert_eq!(
        error.expect_err("it is as well").kind(),
        ErrorKind::InvalidConfig
    );
    for mode in [SqlMode::Row, SqlMode::Advisory] {
        let error = SqlLock::connect(config_on(&larger, &site).with_mode(mode)).await;
        let error = error.expect_err("a lock would keep a connection");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    }
}

async fn a_pool_without_a_free_connection_is_unavailable<DB: App>(site: Site) {
    let pool = open::<DB>(&site, 6).await;
    let taken = exhaust(&pool, 6).await;
    let config = config_on(&pool, &site).with_timeout(ms(300));
    let error = SqlLock::connect(config.expect("in range")).await;
    let error = error.expect_err("all of them are in use");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("reserve 5 of its 6"), "{error}");
    drop(taken);
    // Connections that it had reserved by then are returned.
    drop(exhaust(&pool, 6).await);
}

async fn the_application_gets_its_connections_back_and_none_that_locks_have_used<DB: App>(
    site: Site,
) {
    let pool = open::<DB>(&site, 6).await;
    let locks = locks(&pool, &site).await;
    take_and_release(&locks, "job").await;
    assert_eq!(pool.size(), 5, "the reserved ones, and no other");
    drop(exhaust(&pool, 1).await);
    assert!(locks.shutdown(SOON).await);
    // Dropped outside of a runtime.
    std::thread::spawn(move || drop(locks))
        .join()
        .expect("it does not panic");
    let mut taken = exhaust(&pool, 6).await;
    for connection in &mut taken {
        assert_eq!(DB::zone(connection).await, DB::ZONE);
    }
}

async fn a_pool_that_is_closed_waits_for_no_lock<DB: App>(site: Site) {
    let site = site.durable();
    let pool = open::<DB>(&site, 6).await;
    let locks = Arc::new(locks(&pool, &site).await);
    let guard = short(&locks, "job").await;
    let waiter = tokio::spawn({
        let locks = Arc::clone(&locks);
        async move { locks.lock_within("job", SOON * 10).await }
    });
    // By then it has seen that the lock is held; the test has no condition for that.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let closed = tokio::time::timeout(SOON, pool.close()).await;
    closed.expect("it does not hang");
    let waited = tokio::time::timeout(SOON * 2, waiter).await;
    let waited = waited.expect("a pool that is closed is no outage to wait for");
    let error = waited.expect("no panic").expect_err("it has no connection");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let (reason, _) = loss(&guard, 2 * SOON).await;
    assert_eq!(reason, LostReason::Unreachable);
    let refused = locks.try_lock("job").await;
    let error = refused.expect_err("there is no connection");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let server = site.server.own();
    until("all are closed", async || server.connections() == 0).await;
    assert_free(&site, "job").await;
}
