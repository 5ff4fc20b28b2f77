use std::future::{Ready, ready};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::LockAdmin;
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, Fencing, HealthCheck, LockGuard, Result,
};

use crate::checks::check_file;
use crate::config::SqliteConfig;
use crate::leases::Leases;
use crate::schema;
use crate::sqlite::SqliteStore;

/// Locks in a SQLite file, for the processes of one machine.
///
/// Supports all lock modes. A lock is a row with the end of its lease, by the boot clock of the machine.
/// Waiters poll every few milliseconds.
///
/// # Guarantees
///
/// Two guards exclude each other across processes that open the same file on one machine, also in
/// containers with their own boot id or time namespace. Crashed processes, full disks and jumps of the
/// wall clock do not break this. A reboot ends all leases: at once if boot id, boot clock and wall clock
/// show the reboot, otherwise when a waiter has seen the row unchanged for one ttl. Fencing tokens are
/// stored before a guard is returned. They survive a crash of the machine if the disk keeps synced data.
///
/// A network file system is refused, and so is a file with hard links or one that is mounted without its
/// directory: clients under different names of the file would not exclude each other. Replacing or
/// deleting the file creates a new set of locks: processes that have the old file open get errors, lose
/// their locks at the next renewal, and then use the new file. Editing the table by hand breaks these
/// guarantees.
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

    /// Opens a database file; creates it and its table if they are missing.
    ///
    /// A new file can be read by its owner only.
    ///
    /// # Errors
    ///
    /// - [`Unavailable`](polylock_core::ErrorKind::Unavailable) if the file cannot be opened, made,
    ///   read or written, or is no database.
    /// - [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is a directory, is on a network
    ///   file system, has hard links, is mounted without its directory, or cannot have a write-ahead log.
    /// - [`Foreign`](polylock_core::ErrorKind::Foreign) if the table belongs to another program.
    /// - [`Protocol`](polylock_core::ErrorKind::Protocol) if the table has another layout.
    /// - [`Unsupported`](polylock_core::ErrorKind::Unsupported) on systems without a boot id.
    ///
    /// # Cancel safety
    ///
    /// The file and the table may have been created; no lock is touched.
    pub async fn connect(config: SqliteConfig) -> Result<Self> {
        let engine = schema::engine(config.engine.as_ref(), "sqlite");
        let (store, _) = SqliteStore::open(&config, &engine).await?;
        let leases = Leases::new(engine, Arc::new(store), Fencing::Strong);
        Ok(Self { leases })
    }

    /// Checks the location of a file without creating it; faults are no errors.
    pub(crate) fn check_health(config: SqliteConfig) -> Ready<Result<Vec<HealthCheck>>> {
        let path = config.path;
        ready(Ok(check_file(&path)))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for Sqlite {
    fn capabilities(&self) -> Capabilities {
        self.leases.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.leases.acquire(request).await
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(&self.leases)
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.leases.engine.drain(within).await
    }
}
