//! Administration: list, inspect, watch and break locks.

mod record;
mod watch;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::engine::LeaseId;
use crate::error::Result;
use crate::key::LockKey;
use crate::label::Label;
use crate::lease::{LeaseState, Released};
use crate::mode::Mode;
use crate::token::FencingToken;

pub use self::record::Record;
pub use self::watch::{watch_by_polling, watch_holders_by_polling};
pub use crate::holder::HolderInfo;

/// The administration of the locks of one service.
///
/// # Examples
///
/// ```
/// use polylock_core::LostReason;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = polylock_core::memory::Memory::new();
/// let guard = locks.lock("orders/42").await?;
///
/// let admin = locks.admin().ok_or("the backend has no administration")?;
/// let held = admin.list("orders/").await?;
/// assert_eq!(held[0].key, *guard.key());
///
/// admin.break_lock(guard.key(), "its host is gone").await?;
/// assert_eq!(guard.lost().await, LostReason::Broken);
/// # Ok(()) }
/// ```
#[async_trait]
pub trait LockAdmin: Send + Sync {
    /// The locks that are held and whose key begins with `prefix`, sorted by key.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Denied`](crate::ErrorKind::Denied).
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>>;

    /// One lock in full; `None` if it is free.
    ///
    /// # Errors
    ///
    /// As for [`list`](LockAdmin::list).
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>>;

    /// Breaks the lock for all of its holders. Returns the broken lock, or `None` if it was free.
    ///
    /// The holders lose it as [`Broken`](crate::LostReason::Broken) with the reply to their next renewal, or
    /// sooner if the backend notifies them. A holder with [`Renewal::Manual`](crate::Renewal::Manual) that sends
    /// none loses it as [`Expired`](crate::LostReason::Expired) at the end of its lease. Until then they continue.
    /// The next holder has a larger fencing token.
    ///
    /// # Errors
    ///
    /// As for [`list`](LockAdmin::list), with
    /// [`is_outcome_unknown`](crate::Error::is_outcome_unknown) if the lock may be broken.
    ///
    /// # Cancel safety
    ///
    /// The lock may or may not be broken.
    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>>;

    /// Reports changes of the locks whose key begins with `prefix`, until the receiver is dropped.
    ///
    /// Backends without push poll a few times a second, and may miss a lock that was held in between.
    ///
    /// # Errors
    ///
    /// As for [`list`](LockAdmin::list).
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>>;

    /// Renews a lease that another process acquired and left, by its id; for scripts that keep a lock
    /// across commands.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where locks live with a session or a
    /// connection; else as for [`list`](LockAdmin::list), with an unknown outcome if the server may
    /// have acted.
    ///
    /// # Cancel safety
    ///
    /// The lease may or may not be extended.
    async fn renew_lease(&self, key: &LockKey, id: LeaseId, ttl: Duration) -> Result<LeaseState>;

    /// Releases a lease that another process acquired and left, by its id.
    ///
    /// # Errors
    ///
    /// As for [`renew_lease`](LockAdmin::renew_lease).
    ///
    /// # Cancel safety
    ///
    /// The lock may or may not be released.
    async fn release_lease(&self, key: &LockKey, id: LeaseId) -> Result<Released>;

    /// Gives a held exclusive lease another id, with a larger fencing token and a new ttl; `None` if `id`
    /// no longer holds the lock.
    ///
    /// The old id is invalid afterwards, so that of two callers with different new ids only one gets the
    /// lease. A repeated call with the same new id gets the same reply while the lease is held, and
    /// extends it to the ttl from then on.
    ///
    /// # Errors
    ///
    /// As for [`renew_lease`](LockAdmin::renew_lease).
    ///
    /// # Cancel safety
    ///
    /// The lease may have either id.
    async fn adopt_lease(
        &self,
        key: &LockKey,
        id: LeaseId,
        new: LeaseId,
        ttl: Duration,
    ) -> Result<Option<FencingToken>>;

    /// The record that a holder of the key stored beside the lock; `None` if there is none, or its time is
    /// over.
    ///
    /// The key need not be locked.
    ///
    /// # Errors
    ///
    /// As for [`list`](LockAdmin::list), and [`Unsupported`](crate::ErrorKind::Unsupported) where
    /// nothing can be stored.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    async fn record(&self, key: &LockKey) -> Result<Option<Record>>;

    /// Stores the record of a key in place of the current one. Returns false, and changes nothing, if the
    /// current one has a larger token.
    ///
    /// The record is kept for at least `keep`, also when the holder changes; some backends keep it until
    /// it is replaced.
    ///
    /// # Errors
    ///
    /// As for [`record`](LockAdmin::record), with an unknown outcome if it may be stored;
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if it is longer than [`Record::MAX_LEN`].
    ///
    /// # Cancel safety
    ///
    /// The record may or may not be stored.
    async fn write_record(&self, key: &LockKey, record: &Record, keep: Duration) -> Result<bool>;
}

/// A held lock, as the server knows it.
///
/// # Examples
///
/// ```
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = polylock_core::memory::Memory::new();
/// let key = LockKey::new("report")?;
/// let _reader = locks.request(&key).shared().acquire().await?;
/// let _another = locks.request(&key).shared().acquire().await?;
///
/// let admin = locks.admin().ok_or("the backend has no administration")?;
/// let info = admin.inspect(&key).await?.ok_or("the lock is free")?;
/// assert_eq!((info.mode, info.holders.len()), (Mode::Shared, 2));
/// for holder in &info.holders {
///     println!("{holder}"); // etl-7c9 (pid 4121) for 3m 12s
/// }
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LockInfo {
    /// The key.
    pub key: LockKey,
    /// The mode in which it is held.
    pub mode: Mode,
    /// The holders.
    pub holders: Vec<HolderInfo>,
    /// The waiters, in order; `None` where the backend keeps no queue.
    pub waiters: Option<Vec<Label>>,
}

impl LockInfo {
    /// A lock with the given holders and an unknown queue. For implementors.
    #[must_use]
    pub fn new(key: LockKey, mode: Mode, holders: Vec<HolderInfo>) -> Self {
        Self {
            key,
            mode,
            holders,
            waiters: None,
        }
    }

    /// Adds the waiters. For implementors.
    #[must_use]
    pub fn with_waiters(mut self, waiters: Vec<Label>) -> Self {
        self.waiters = Some(waiters);
        self
    }
}

/// What happened to a lock.
///
/// # Examples
///
/// ```
/// use polylock_core::admin::LockEvent;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = polylock_core::memory::Memory::new();
/// let admin = locks.admin().ok_or("the backend has no administration")?;
/// let mut events = admin.watch("orders/").await?;
///
/// let guard = locks.lock("orders/42").await?;
/// let event = events.recv().await.ok_or("the watch has ended")?;
/// println!("{event}"); // acquired orders/42 by etl-7c9 pid 4121
/// assert!(matches!(&event, LockEvent::Acquired(info) if info.key == *guard.key()));
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LockEvent {
    /// The lock was acquired; the whole lock as it is then.
    Acquired(LockInfo),
    /// The lock is free.
    Free(LockKey),
}

impl LockEvent {
    /// The key of the lock.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        match self {
            Self::Acquired(info) => &info.key,
            Self::Free(key) => key,
        }
    }
}

impl fmt::Display for LockEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquired(info) => {
                write!(f, "acquired {}", info.key)?;
                info.holders
                    .iter()
                    .try_for_each(|holder| write!(f, " by {}", holder.label))
            }
            Self::Free(key) => write!(f, "free {key}"),
        }
    }
}
