use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::LockAdmin;
use polylock_core::engine::Engine;
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, Error, HealthCheck, LockGuard, LockUrl, Result,
    Waiting,
};

use super::start::{start, to_its_end};
use crate::checks;
use crate::config::{SqlConfig, SqlMode};
use crate::database::DatabaseStore;
use crate::leases::Leases;
use crate::schema;
use crate::session::SqlSessions;
use crate::wire::ConnectTarget;

/// Locks in a PostgreSQL, MySQL or MariaDB server.
///
/// Create one value per process and share it: it has connections of its own.
///
/// # Guarantees
///
/// Two guards of the same mode exclude each other across all processes that use the same table of the
/// same server. The strength of this guarantee depends on the [`SqlMode`]:
///
/// - [`Row`](SqlMode::Row): the lock is a row that a transaction keeps locked, on a connection of its
///   own. The server frees it as soon as the process dies. If the machine or the network fails, the
///   server frees it after [`with_session_timeout`](SqlConfig::with_session_timeout); the holder is
///   notified before that. PostgreSQL measures idle sessions by its wall clock: a jump forward by more
///   than the session timeout ends them. A restarted server grants locks at once if all earlier sessions
///   were closed, otherwise after the longest session timeout. A killed backend, after which PostgreSQL
///   ends all others, is not a restart. A transaction stays open while the lock is held, and delays
///   `VACUUM` and `CREATE INDEX CONCURRENTLY`.
/// - [`Lease`](SqlMode::Lease): the lock is a row with the end of its lease, by the clock of the server.
///   No connection belongs to it. A jump of that clock can end a lease while it is held. The only mode
///   for poolers in transaction mode, for Galera, and with permits.
/// - [`Advisory`](SqlMode::Advisory): the lock is a server lock, named by a hash of the key, and ends
///   with the session as in `Row`. A row shows the holder to administrators.
///
/// Fencing tokens of leases are stored before a guard is returned, stay in the table after a release,
/// and are at least the time of the server. Those of `Row` and `Advisory` come from a sequence that
/// every new session raises to the time of the server. A server that loses tokens loses the locks as
/// well: after the promotion of a standby without the last writes, or on a server that acknowledges
/// before it writes, there can be a second holder. Its token is larger unless the clock is behind, or
/// both servers serve sessions. The start-up checks warn of such servers.
///
/// Deleting, truncating or editing the table by hand breaks these guarantees.
///
/// # Examples
///
/// ```no_run
/// use polylock_core::prelude::*;
/// use polylock_sql::{SqlConfig, SqlLock};
///
/// # #[cfg(feature = "postgres")]
/// # async fn example() -> polylock_core::Result<()> {
/// let config = SqlConfig::postgres("db.internal")
///     .with_database("shop")
///     .with_login("orders", "s3cret");
/// let locks = SqlLock::connect(config).await?;
/// let guard = locks.lock("orders/42").await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
pub struct SqlLock {
    kind: LockKind,
}

enum LockKind {
    Leases(Leases),
    Sessions(SqlSessions),
}

impl SqlLock {
    /// Connects to the server at a URL, as [`SqlConfig::from_url`] reads it.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect), and [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig)
    /// if the URL is wrong.
    ///
    /// # Cancel safety
    ///
    /// As for [`connect`](Self::connect).
    pub async fn open(url: &str) -> Result<Self> {
        Self::connect(SqlConfig::from_url(&LockUrl::parse(url)?)?).await
    }

    /// Connects to a server, checks it, and creates a missing table.
    ///
    /// # Errors
    ///
    /// - [`Unavailable`](polylock_core::ErrorKind::Unavailable) if the server cannot be reached, or
    ///   accepts no writes.
    /// - [`Denied`](polylock_core::ErrorKind::Denied) if a user or a certificate is refused, or if the
    ///   table is missing and the user may not create it.
    /// - [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the database does not exist, if
    ///   the server or a pooler in the path does not support the mode, or if the table is missing and
    ///   must not be created. With strict checks, also if the server is not fit for locks.
    /// - [`Foreign`](polylock_core::ErrorKind::Foreign) if the table belongs to another program.
    /// - [`Protocol`](polylock_core::ErrorKind::Protocol) if the table has another layout.
    ///
    /// # Cancel safety
    ///
    /// A dropped call continues in the background: it creates the table if it can, touches no lock, and
    /// closes its connections. Each step takes at most the [timeout](SqlConfig::with_timeout).
    pub async fn connect(config: SqlConfig) -> Result<Self> {
        let name = config.server.name();
        let engine = schema::engine(config.engine.as_ref(), name);
        let named = |error: Error| error.with_backend(name);
        let target = ConnectTarget::of(config).map_err(|failure| named(failure.into()))?;
        let target = Arc::new(target);
        let started = {
            let (own, target) = (engine.clone(), Arc::clone(&target));
            to_its_end(&engine, async move { start(&own, &target).await })
        };
        started.await.map_err(|failure| named(failure.into()))?;
        let kind = match target.config.mode {
            SqlMode::Lease => LockKind::Leases(leases(engine, &target)),
            SqlMode::Advisory | SqlMode::Row => {
                LockKind::Sessions(SqlSessions::new(&engine, &target))
            }
        };
        Ok(Self { kind })
    }

    /// Checks a server without creating the table; faults are no errors.
    pub(crate) async fn check_health(config: SqlConfig) -> Result<Vec<HealthCheck>> {
        let name = config.server.name();
        let engine = schema::engine(config.engine.as_ref(), name);
        let examined = engine.run(async move {
            let target = Arc::new(ConnectTarget::of(config)?);
            target.check_files().await?;
            Ok(checks::check_health(&target).await?)
        });
        examined.await.map_err(|error| error.with_backend(name))
    }
}

impl fmt::Debug for SqlLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlLock")
            .field("capabilities", &self.capabilities())
            .finish_non_exhaustive()
    }
}

fn leases(engine: Engine, target: &Arc<ConnectTarget>) -> Leases {
    let config = &target.config;
    let store = Arc::new(DatabaseStore::new(&engine, target));
    let mut leases = Leases::new(engine, store, target.fencing());
    if config.server.is_postgres() && config.notify && !target.is_pooled() {
        leases.capabilities.waiting = Waiting::Push;
    }
    leases
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for SqlLock {
    fn capabilities(&self) -> Capabilities {
        match &self.kind {
            LockKind::Leases(leases) => leases.capabilities,
            LockKind::Sessions(sessions) => sessions.capabilities,
        }
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        match &self.kind {
            LockKind::Leases(leases) => leases.acquire(request).await,
            LockKind::Sessions(sessions) => sessions.acquire(request).await,
        }
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        match &self.kind {
            LockKind::Leases(leases) => Some(leases),
            LockKind::Sessions(sessions) => Some(sessions),
        }
    }

    async fn shutdown(&self, within: Duration) -> bool {
        match &self.kind {
            LockKind::Leases(leases) => leases.engine.drain(within).await,
            LockKind::Sessions(sessions) => sessions.shutdown(within).await,
        }
    }
}
