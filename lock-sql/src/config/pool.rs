//! Locks on a pool of the application.

use std::fmt;

use polylock_core::Result;
#[cfg(feature = "mysql")]
use sqlx::MySqlPool;
#[cfg(feature = "postgres")]
use sqlx::PgPool;

use super::server::wrong;
use super::{SqlConfig, SqlMode};
use crate::database::RENEWERS;
use crate::wire::ClientOptions;

/// A pool of the application.
#[derive(Clone)]
pub(crate) enum AppPool {
    #[cfg(feature = "mysql")]
    MySql(MySqlPool),
    #[cfg(feature = "postgres")]
    Postgres(PgPool),
}

impl AppPool {
    /// What the pool opens connections with at the moment.
    pub(crate) fn options(&self) -> ClientOptions {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql(pool) => ClientOptions::MySql((*pool.connect_options()).clone()),
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => ClientOptions::Postgres((*pool.connect_options()).clone()),
        }
    }

    fn max_connections(&self) -> u32 {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql(pool) => pool.options().get_max_connections(),
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => pool.options().get_max_connections(),
        }
    }
}

impl fmt::Debug for AppPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppPool")
    }
}

impl SqlConfig {
    /// How many statements of locks run at once on a pool of the application, unless set.
    pub const DEFAULT_POOL_CONNECTIONS: usize = 2;

    /// Has locks count among the connections of a pool of the application, for MySQL and MariaDB; as
    /// [`from_postgres_pool`](Self::from_postgres_pool).
    #[cfg(feature = "mysql")]
    #[must_use]
    pub fn from_mysql_pool(pool: &MySqlPool) -> Self {
        let config = Self::from_mysql_options(&pool.connect_options());
        config.on_pool(AppPool::MySql(pool.clone()))
    }

    /// Has locks count among the connections of a pool of the application, in
    /// [`SqlMode::Lease`], the only mode that goes with it.
    ///
    /// [`SqlLock::connect`](crate::SqlLock::connect) reserves 4 connections of the pool, 2 for renewals
    /// and [`with_connections`](Self::with_connections) for the rest, 2 unless set. They stay reserved
    /// for as long as the locks are there, so that neither a renewal nor a release waits for a query of
    /// the application, nor for a task of it that waits for a lock. The pool has to allow one more at
    /// least. While a connection that broke or was idle for a minute is replaced, one more than the pool
    /// allows may be open for a moment.
    ///
    /// The pool serves none of these connections again: they are closed when the locks are dropped. They
    /// are opened with the options that the pool has at that time, as
    /// [`from_postgres_options`](Self::from_postgres_options) says, also after
    /// [`Pool::set_connect_options`](sqlx::Pool::set_connect_options), on the runtime of polylock.
    /// Hooks of the pool such as `after_connect` do not run on them; what they decide for others, such
    /// as `search_path` or the time zone, plays no part for locks, which set or check what does. Where a
    /// hook takes a role that has the rights, give the table to the user of the login.
    ///
    /// Waiters poll, in order of arrival for up to 16 of a key: a connection that listens would be one
    /// more. [`Pool::close`](sqlx::Pool::close) ends with it: held locks are lost at the end of their
    /// lease, and what is asked of locks then is [`Unavailable`](polylock_core::ErrorKind::Unavailable).
    ///
    /// # Errors
    ///
    /// Of [`SqlLock::connect`](crate::SqlLock::connect):
    ///
    /// - [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the pool does not allow that many
    ///   connections and one more, or for another mode than leases.
    /// - [`Unavailable`](polylock_core::ErrorKind::Unavailable) if the application uses so many of them that
    ///   one is not free within the [timeout](Self::with_timeout).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use polylock_core::prelude::*;
    /// use polylock_sql::{SqlConfig, SqlLock};
    /// use sqlx::postgres::PgPoolOptions;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let options = PgPoolOptions::new().max_connections(20); // 16 for the application
    /// let db = options.connect("postgres://app:s3cret@db.internal/shop").await?;
    /// let locks = SqlLock::connect(SqlConfig::from_postgres_pool(&db)).await?;
    /// let guard = locks.lock("orders/42").await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "postgres")]
    #[must_use]
    pub fn from_postgres_pool(pool: &PgPool) -> Self {
        let config = Self::from_postgres_options(&pool.connect_options());
        config.on_pool(AppPool::Postgres(pool.clone()))
    }

    fn on_pool(mut self, pool: AppPool) -> Self {
        self.pool = Some(pool);
        self.mode = SqlMode::Lease;
        self.connections = Self::DEFAULT_POOL_CONNECTIONS;
        self.notify = false;
        self
    }

    /// How many connections of the pool are those of locks.
    pub(crate) fn reserved(&self) -> usize {
        self.connections + RENEWERS
    }

    /// Refuses pools that cannot spare them.
    pub(super) fn check_pool(&self) -> Result<()> {
        let Some(pool) = &self.pool else {
            return Ok(());
        };
        if self.mode != SqlMode::Lease {
            return Err(wrong(
                "only mode=lease goes with a pool: other locks need a connection each for as long as they \
                 are held; take the options of the pool",
            ));
        }
        let (reserved, most) = (self.reserved(), pool.max_connections());
        if u64::from(most) <= reserved as u64 {
            return Err(wrong(format!(
                "locks reserve {reserved} connections of the pool, {} for statements and {RENEWERS} for \
                 renewals, and leave one at least: it allows {most}, set its max_connections to {} or more",
                self.connections,
                reserved + 1,
            )));
        }
        Ok(())
    }
}
