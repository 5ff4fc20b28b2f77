//! Locks on a pool of the application.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use polylock_core::engine::Engine;
use polylock_core::{Error, Result};
#[cfg(feature = "mysql")]
use sqlx::MySqlPool;
#[cfg(feature = "postgres")]
use sqlx::PgPool;
use sqlx::pool::CloseEvent;

use super::{SqlConfig, SqlMode};
use crate::error::SqlFailure;
use crate::wire::{ConnectTarget, DriverOptions, ReservedPool};

/// A pool of the application, of any database.
#[async_trait]
pub(crate) trait AppPool: Send + Sync {
    fn options(&self) -> DriverOptions;

    fn max_connections(&self) -> u32;

    fn is_closed(&self) -> bool;

    fn close_event(&self) -> CloseEvent;

    /// Reserves connections, and opens one in the place of each. If it is dropped or fails, it returns all of
    /// them.
    async fn reserve(
        &self,
        engine: &Engine,
        target: &ConnectTarget,
    ) -> Result<Arc<dyn ReservedPool>, SqlFailure>;
}

impl fmt::Debug for dyn AppPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppPool")
    }
}

impl SqlConfig {
    /// How many statements of locks run at once on a pool of the application, unless set.
    pub const DEFAULT_POOL_CONNECTIONS: usize = 2;

    /// Uses connections of the application's MySQL or MariaDB pool for locks; see
    /// [`from_postgres_pool`](Self::from_postgres_pool).
    #[cfg(feature = "mysql")]
    #[must_use]
    pub fn from_mysql_pool(pool: &MySqlPool) -> Self {
        let config = Self::from_mysql_options(&pool.connect_options());
        config.on_pool(Arc::new(pool.clone()))
    }

    /// Uses connections of the application's pool for locks, in [`SqlMode::Lease`], the only mode that
    /// supports this.
    ///
    /// [`SqlLock::connect`](crate::SqlLock::connect) reserves 5 connections of the pool: 3 for renewals,
    /// and [`with_connections`](Self::with_connections) for the rest, 2 unless set. They stay reserved
    /// until the locks are dropped, so that renewals and releases never wait for queries of the
    /// application, or for its tasks that wait for a lock. The pool must allow at least one more
    /// connection. While a connection that broke or was idle for a minute is replaced, the pool may
    /// briefly exceed its limit by one.
    ///
    /// The pool never reuses these connections: they are closed when the locks are dropped. They run on
    /// the runtime of polylock, and are opened with the current options of the pool, as
    /// [`from_postgres_options`](Self::from_postgres_options) describes, also after
    /// [`Pool::set_connect_options`](sqlx::Pool::set_connect_options). Hooks of the pool such as
    /// `after_connect` do not run on them. Settings from hooks, such as `search_path` or the time zone,
    /// do not affect locks, which set or check all settings that matter. If a hook switches to a role
    /// with the needed rights, give the table to the login user.
    ///
    /// Waiters poll, in order of arrival for up to 16 of a key: notifications would need one more
    /// connection. After [`Pool::close`](sqlx::Pool::close), held locks are lost at the end of their
    /// lease, and requests fail with [`Unavailable`](polylock_core::ErrorKind::Unavailable).
    ///
    /// # Errors
    ///
    /// From [`SqlLock::connect`](crate::SqlLock::connect):
    ///
    /// - [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the pool does not allow the
    ///   reserved connections and one more, or if the mode is not `Lease`.
    /// - [`Unavailable`](polylock_core::ErrorKind::Unavailable) if the application uses too many
    ///   connections, so that one is not free within the [timeout](Self::with_timeout).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use polylock_core::prelude::*;
    /// use polylock_sql::{SqlConfig, SqlLock};
    /// use sqlx::postgres::PgPoolOptions;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let options = PgPoolOptions::new().max_connections(20); // 15 for the application
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
        config.on_pool(Arc::new(pool.clone()))
    }

    fn on_pool(mut self, pool: Arc<dyn AppPool>) -> Self {
        self.pool = Some(pool);
        self.mode = SqlMode::Lease;
        self.connections = Self::DEFAULT_POOL_CONNECTIONS;
        self.notify = false;
        self
    }

    /// How many connections of the pool are reserved for locks.
    pub(crate) fn reserved(&self) -> usize {
        self.connections + RESERVED_FOR_RENEWALS
    }

    /// Refuses pools that are too small for the reserved connections.
    pub(super) fn check_pool(&self) -> Result<()> {
        let Some(pool) = &self.pool else {
            return Ok(());
        };
        if self.mode != SqlMode::Lease {
            return Err(Error::config(
                "only mode=lease goes with a pool: other locks need a connection each for as long as they \
                 are held; take the options of the pool",
            ));
        }
        let (reserved, most) = (self.reserved(), pool.max_connections());
        if u64::from(most) <= reserved as u64 {
            return Err(Error::config(format!(
                "locks reserve {reserved} connections of the pool, {} for statements and \
                 {RESERVED_FOR_RENEWALS} for renewals, and leave one at least: it allows {most}, set \
                 its max_connections to {} or more",
                self.connections,
                reserved + 1,
            )));
        }
        Ok(())
    }
}

/// One reserved connection for each renewal that may run at once, also for those that wait for a locked row.
const RESERVED_FOR_RENEWALS: usize = RENEWERS + POOL_LOCK_WAITS;

/// Max renewals at once. For short leases, a scheduler abandons an attempt long before its time limit: the next
/// attempt must not wait behind it for a hanging connection.
pub(crate) const RENEWERS: usize = 2;

/// Max renewals that wait for locked rows on a pool of the application, where each has a reserved connection.
pub(crate) const POOL_LOCK_WAITS: usize = 1;
