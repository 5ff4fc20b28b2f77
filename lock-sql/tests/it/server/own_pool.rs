//! Locks among the connections of a pool that the application has.

use std::sync::Arc;
use std::time::Duration;

use polylock_core::{
    DistributedLock as _, DistributedLockExt as _, ErrorKind, LockGuard, LostReason,
};
use polylock_sql::{SqlConfig, SqlLock, SqlMode};
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{MySql, Postgres};

use crate::server::support::{
    Kind, Mode, SOON, Site, assert_free, assert_taken, loss, ms, on, request, take, until,
};

/// The pool of an application.
#[derive(Clone)]
enum AppPool {
    MySql(MySqlPool),
    Postgres(PgPool),
}

/// A connection that the application uses.
enum AppConnection {
    MySql(PoolConnection<MySql>),
    Postgres(PoolConnection<Postgres>),
}

impl AppPool {
    async fn open(site: &Site, most: u32) -> Self {
        let plain = site.plain_url();
        match site.kind() {
            Kind::MariaDb => {
                let options = MySqlPoolOptions::new().max_connections(most);
                // What the application leaves on its connections.
                let options = options.after_connect(|connection, _| {
                    Box::pin(async move {
                        let hook = "SET SESSION time_zone = '+05:00', sql_mode = 'ANSI_QUOTES', \
                                    tx_isolation = 'SERIALIZABLE', max_statement_time = 50";
                        sqlx::raw_sql(hook).execute(connection).await?;
                        Ok(())
                    })
                });
                Self::MySql(options.connect(&plain).await.expect("it gets in"))
            }
            Kind::Postgres => {
                let options = PgPoolOptions::new().max_connections(most);
                let options = options.after_connect(|connection, _| {
                    Box::pin(async move {
                        let hook = "SET search_path = pg_temp; SET TimeZone = 'Asia/Karachi'; \
                                    SET default_transaction_read_only = on; \
                                    SET statement_timeout = '50s'";
                        sqlx::raw_sql(hook).execute(connection).await?;
                        Ok(())
                    })
                });
                Self::Postgres(options.connect(&plain).await.expect("it gets in"))
            }
        }
    }

    fn config(&self, site: &Site) -> SqlConfig {
        let config = match self {
            Self::MySql(pool) => SqlConfig::from_mysql_pool(pool),
            Self::Postgres(pool) => SqlConfig::from_postgres_pool(pool),
        };
        config.with_table(&site.table).expect("it is a name")
    }

    async fn locks(&self, site: &Site) -> SqlLock {
        let locks = SqlLock::connect(self.config(site)).await;
        locks.expect("it gets in")
    }

    fn try_acquire(&self) -> Option<AppConnection> {
        match self {
            Self::MySql(pool) => pool.try_acquire().map(AppConnection::MySql),
            Self::Postgres(pool) => pool.try_acquire().map(AppConnection::Postgres),
        }
    }

    async fn acquire(&self) -> AppConnection {
        match self {
            Self::MySql(pool) => {
                AppConnection::MySql(pool.acquire().await.expect("there is one left"))
            }
            Self::Postgres(pool) => {
                AppConnection::Postgres(pool.acquire().await.expect("there is one left"))
            }
        }
    }

    /// Takes all connections that are left, so many.
    async fn exhaust(&self, left: usize) -> Vec<AppConnection> {
        let mut taken = Vec::new();
        for _ in 0..left {
            taken.push(self.acquire().await);
        }
        assert!(self.try_acquire().is_none(), "there is one more");
        taken
    }

    fn size(&self) -> u32 {
        match self {
            Self::MySql(pool) => pool.size(),
            Self::Postgres(pool) => pool.size(),
        }
    }

    async fn close(&self) {
        match self {
            Self::MySql(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

/// A server of the test alone, whose connections are counted and ended.
fn alone(site: &Site) -> Site {
    Site::durable(site.kind(), Mode::Lease)
}

/// How many connections there are with the database.
async fn connections(site: &Site) -> u64 {
    let database = &site.database;
    let count = match site.kind() {
        Kind::MariaDb => format!(
            "SELECT COUNT(*) FROM information_schema.processlist
             WHERE db = '{database}' AND id <> CONNECTION_ID()"
        ),
        Kind::Postgres => format!(
            "SELECT COUNT(*) FROM pg_stat_activity
             WHERE datname = '{database}' AND pid <> pg_backend_pid()"
        ),
    };
    site.number(count).await
}

/// Ends all connections with the database.
async fn kill(site: &Site) {
    let database = &site.database;
    match site.kind() {
        Kind::MariaDb => {
            let ids = site
                .sql(format!(
                    "SELECT id FROM information_schema.processlist
                     WHERE db = '{database}' AND id <> CONNECTION_ID()"
                ))
                .await;
            for id in ids.iter().flatten() {
                // It may have ended by itself.
                site.sql(format!("KILL SOFT CONNECTION {id}")).await;
            }
        }
        Kind::Postgres => {
            site.sql(format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = '{database}' AND pid <> pg_backend_pid()"
            ))
            .await;
        }
    }
}

/// A lease that ends while a test runs, and outlasts the pauses of a busy machine.
async fn short(locks: &SqlLock, name: &str) -> LockGuard {
    let short = request(name).with_ttl(Duration::from_secs(6));
    locks.acquire(&short).await.expect("a free lock is granted")
}

async fn locks_of_a_pool_are_the_same_locks(site: Site) {
    let pool = AppPool::open(&site, 5).await;
    let locks = pool.locks(&site).await;
    let guard = take(&locks, "job").await;
    assert_taken(&site, "job").await;
    guard.release().await.expect("it is held");
    assert_free(&site, "job").await;
    let reader = request("job").with_mode(polylock_core::Mode::Shared);
    let reader = locks.acquire(&reader).await.expect("it is free");
    assert_taken(&site, "job").await;
    reader.release().await.expect("it is held");
}

on!(locks_of_a_pool_are_the_same_locks: postgres_lease, mariadb_lease);

async fn a_pool_that_the_application_uses_up_keeps_its_locks(site: Site) {
    let site = alone(&site);
    let pool = AppPool::open(&site, 6).await;
    let locks = pool.locks(&site).await;
    let guard = short(&locks, "job").await;
    let taken = pool.exhaust(2).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(9);
    while tokio::time::Instant::now() < deadline {
        assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
        tokio::time::sleep(ms(100)).await;
    }
    // Nor does an acquisition or a release wait for the application.
    take(&locks, "other")
        .await
        .release()
        .await
        .expect("it is held");
    guard.release().await.expect("it is held");
    // The server may take a moment to see that one which was replaced is closed.
    until("no more than the pool allows", async || {
        connections(&site).await <= 6
    })
    .await;
    drop(taken);
}

on!(a_pool_that_the_application_uses_up_keeps_its_locks: postgres_lease, mariadb_lease);

async fn connections_that_break_are_replaced_in_their_places(site: Site) {
    let site = alone(&site);
    let pool = AppPool::open(&site, 6).await;
    let locks = pool.locks(&site).await;
    let guard = short(&locks, "job").await;
    let taken = pool.exhaust(2).await;
    for _ in 0..3 {
        kill(&site).await;
        tokio::time::sleep(ms(3_000)).await;
        assert!(guard.is_held(), "lost: {:?}", guard.lost().reason());
    }
    assert!(pool.try_acquire().is_none(), "a place was returned");
    guard.release().await.expect("it is held");
    drop(taken);
}

on!(connections_that_break_are_replaced_in_their_places: postgres_lease, mariadb_lease);

async fn a_pool_that_is_too_small_is_refused(site: Site) {
    let pool = AppPool::open(&site, 4).await;
    let error = SqlLock::connect(pool.config(&site)).await;
    let error = error.expect_err("nothing is left for the application");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    for part in ["reserve 4", "allows 4", "max_connections to 5"] {
        assert!(error.message().contains(part), "{part}: {error}");
    }
    assert!(pool.size() <= 1, "nothing was reserved");

    let larger = AppPool::open(&site, 6).await;
    let config = larger.config(&site).with_connections(4);
    let error = SqlLock::connect(config.expect("in range")).await;
    assert_eq!(
        error.expect_err("it is as well").kind(),
        ErrorKind::InvalidConfig
    );
    for mode in [SqlMode::Row, SqlMode::Advisory] {
        let error = SqlLock::connect(larger.config(&site).with_mode(mode)).await;
        let error = error.expect_err("a lock would keep a connection");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    }
}

on!(a_pool_that_is_too_small_is_refused: postgres_lease, mariadb_lease);

async fn a_pool_without_a_free_connection_is_unavailable(site: Site) {
    let pool = AppPool::open(&site, 6).await;
    let taken = pool.exhaust(6).await;
    let config = pool.config(&site).with_timeout(ms(300));
    let error = SqlLock::connect(config.expect("in range")).await;
    let error = error.expect_err("all of them are in use");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("reserve 4 of its 6"), "{error}");
    drop(taken);
    // Connections that it had reserved by then are returned.
    drop(pool.exhaust(6).await);
}

on!(a_pool_without_a_free_connection_is_unavailable: postgres_lease, mariadb_lease);

async fn the_application_gets_its_connections_back_and_none_that_locks_have_used(site: Site) {
    let pool = AppPool::open(&site, 6).await;
    let locks = pool.locks(&site).await;
    take(&locks, "job")
        .await
        .release()
        .await
        .expect("it is held");
    assert_eq!(pool.size(), 4, "the reserved ones, and no other");
    drop(pool.exhaust(2).await);
    assert!(locks.shutdown(SOON).await);
    // Dropped outside of a runtime.
    std::thread::spawn(move || drop(locks))
        .join()
        .expect("it does not panic");
    let mut taken = pool.exhaust(6).await;
    for connection in &mut taken {
        let setting: String = match connection {
            AppConnection::MySql(raw) => {
                let asked = sqlx::query_scalar("SELECT @@session.time_zone");
                asked.fetch_one(&mut **raw).await.expect("it answers")
            }
            AppConnection::Postgres(raw) => {
                let asked = sqlx::query_scalar("SHOW TimeZone");
                asked.fetch_one(&mut **raw).await.expect("it answers")
            }
        };
        assert!(
            ["+05:00", "Asia/Karachi"].contains(&setting.as_str()),
            "{setting}"
        );
    }
}

on!(
    the_application_gets_its_connections_back_and_none_that_locks_have_used: postgres_lease,
    mariadb_lease
);

async fn a_pool_that_is_closed_waits_for_no_lock(site: Site) {
    let site = alone(&site);
    let pool = AppPool::open(&site, 6).await;
    let locks = Arc::new(pool.locks(&site).await);
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
    let error = locks
        .try_lock("job")
        .await
        .expect_err("there is no connection");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    until("all are closed", async || connections(&site).await == 0).await;
    assert_free(&site, "job").await;
}

on!(a_pool_that_is_closed_waits_for_no_lock: postgres_lease, mariadb_lease);
