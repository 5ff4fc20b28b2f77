use std::future::{Ready, ready};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::LockAdmin;
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, Error, Fencing, HealthCheck, LockGuard, Result,
};

use crate::checks::check_file;
use crate::config::SqliteConfig;
use crate::error::Failure;
use crate::leases::Leases;
use crate::schema;
use crate::sqlite::SqliteStore;

/// Locks in a SQLite file, for the processes of one machine.
///
/// Serves all modes. A lock is a row of a table with the time at which its lease ends, by the clock
/// that counts from the boot of the machine; a waiter asks again every few milliseconds.
///
/// # Guarantees
///
/// Two guards exclude each other across processes that open the same file on one machine, in
/// containers with a boot id or a time namespace of their own too. Crashed processes, full disks and
/// a wall clock that jumps break nothing. Leases end with the boot that they were taken in: at once if
/// boot id, boot clock and wall clock show a reboot, and else when a waiter has seen the row unchanged
/// for one ttl. Fencing tokens are stored before a guard is handed out,
/// and survive a crash of the machine as far as its disk keeps what it was told to.
///
/// A network file system is refused. Who replaces or deletes the file makes a new set of locks:
/// processes that have the old one open get errors, lose what they hold at the next renewal, and
/// use the new one after that. Who edits the table by hand breaks what is stated here.
///
/// The [example of the crate](crate#examples) opens one file twice.
#[derive(Debug)]
pub struct Sqlite {
    leases: Leases,
}

impl Sqlite {
    /// Opens a database file with the defaults of [`SqliteConfig`].
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Sqlite::connect).
    ///
    /// # Cancel safety
    ///
    /// As for [`connect`](Sqlite::connect).
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::connect(SqliteConfig::new(path)).await
    }

    /// Opens a database file, and makes it and the table in it if there are none.
    ///
    /// A file that is made can be read by its owner only.
    ///
    /// # Errors
    ///
    /// - [`Unavailable`](polylock_core::ErrorKind::Unavailable) if the file cannot be opened, made,
    ///   read or written, or is no database.
    /// - [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is on a network file system,
    ///   or cannot have a write-ahead log.
    /// - [`Foreign`](polylock_core::ErrorKind::Foreign) if the table was made by something else.
    /// - [`Protocol`](polylock_core::ErrorKind::Protocol) if the table has another layout.
    /// - [`Unsupported`](polylock_core::ErrorKind::Unsupported) on systems without a boot id.
    ///
    /// # Cancel safety
    ///
    /// The file and the table may have been made; no lock is touched.
    pub async fn connect(config: SqliteConfig) -> Result<Self> {
        let named = |error: Error| error.with_backend(NAME);
        let engine = schema::engine(config.engine.as_ref(), NAME);
        let store = SqliteStore::new(&config, &engine).map_err(Failure::from);
        let store = store.map_err(|failure| named(failure.into()))?;
        store
            .open()
            .await
            .map_err(|failure| named(failure.into()))?;
        let leases = Leases::new(engine, Arc::new(store), capabilities());
        Ok(Self { leases })
    }

    /// Looks where a file is, makes nothing, and refuses nothing that it finds.
    pub(crate) fn check_health(config: SqliteConfig) -> Ready<Result<Vec<HealthCheck>>> {
        let path = config.path;
        ready(Ok(check_file(&path)))
    }
}

/// Name of the backend.
const NAME: &str = "sqlite";

fn capabilities() -> Capabilities {
    let mut capabilities = Capabilities::least(NAME);
    capabilities.admin = true;
    capabilities.downgrade = true;
    capabilities.clock_tokens = true;
    capabilities.fencing = Fencing::Strong;
    capabilities.permits = true;
    capabilities.shared = true;
    capabilities.tickets = true;
    capabilities
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for Sqlite {
    fn capabilities(&self) -> Capabilities {
        self.leases.capabilities()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.leases.acquire(request).await
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(&self.leases)
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.leases.shutdown(within).await
    }
}
