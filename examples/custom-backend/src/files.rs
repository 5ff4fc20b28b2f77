//! The backend: a directory with one file per key, and in each file the lease of its holder.
//!
//! Each step (acquire, renew, hand over, release) reads the file, decides and writes it, and holds a
//! flock(2) of the file meanwhile. A service such as etcd or DynamoDB has a conditional update in that
//! place; the rest stays as it is here.

use std::fs::{OpenOptions, TryLockError};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::LockAdmin;
use polylock_core::engine::{Engine, LeaseId};
use polylock_core::{
    AcquireRequest, Backend, Capabilities, DistributedLock, Error, ErrorKind, Fencing,
    FencingToken, Grant, Lease, LeaseControl, LeaseState, Liveness, LockGuard, LockKey, LockUrl,
    LostReason, Released, RenewalRequest, Renewer, Result, Wait,
};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::record::{NOBODY, Record, io_error};

/// Opens `files:DIRECTORY`.
#[derive(Debug)]
pub struct FilesBackend;

#[async_trait]
impl Backend for FilesBackend {
    fn schemes(&self) -> &'static [&'static str] {
        &["files"]
    }

    /// None: a URL names a directory.
    fn default_port(&self, _: &str) -> Option<u16> {
        None
    }

    fn default_namespace(&self) -> &'static str {
        ""
    }

    async fn connect(&self, url: &LockUrl) -> Result<Arc<dyn DistributedLock>> {
        url.params().finish()?;
        Ok(Arc::new(Files::open(url.expect_file()?.into())?))
    }
}

/// A client of the locks in a directory.
///
/// Exclusive locks with leases and fencing tokens, for the processes of one Linux machine. It has no
/// other modes, no order among waiters (they poll), no administration, no names of more than 127
/// bytes, and it never deletes a file. Nothing is synced to the disk, so a power failure may undo the
/// latest tokens: its fencing is `BestEffort`.
#[derive(Debug)]
pub struct Files {
    directory: Arc<Directory>,
    engine: Engine,
}

impl Files {
    /// Opens the locks in this directory, and makes it if it does not exist.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](ErrorKind::Unavailable) if the directory cannot be made.
    pub fn open(path: PathBuf) -> Result<Self> {
        let opened = std::fs::create_dir_all(&path)
            .and_then(|()| std::fs::read_to_string("/proc/sys/kernel/random/boot_id"));
        let engine = Engine::of_this_process(NAME);
        let directory = Directory {
            path,
            boot: opened.map_err(io_error)?.trim().to_owned(),
            engine: engine.clone(),
        };
        Ok(Self {
            directory: Arc::new(directory),
            engine,
        })
    }

    /// Tries once; `None` if another client holds the lock.
    async fn attempt(&self, request: &AcquireRequest) -> Result<Option<LockGuard>> {
        let (key, id) = (request.key(), self.engine.lease_id());
        let lease = FileLease {
            directory: Arc::clone(&self.directory),
            key: key.clone(),
            id,
        };
        // Armed before anything is written: dropped from here on, it releases the lease.
        let pending = self.engine.pending(key, Arc::new(lease), request.ttl());
        // The lease counts from before it is granted.
        let sent = self.engine.now();
        let mut record = self.directory.record(key).await?;
        if record.is_held() {
            pending.disarm();
            return Ok(None);
        }
        record.token += 1;
        record.holder = id.to_hex();
        record.expires = sent + request.ttl();
        record.write()?;
        let token = FencingToken::new(record.token);
        pending
            .granted(request, Grant::new(sent, Some(token)))
            .map(Some)
    }
}

const NAME: &str = "files";

#[async_trait]
impl DistributedLock for Files {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::minimal(NAME);
        capabilities.fencing = Fencing::BestEffort;
        // A file name has at most 255 bytes, and each byte of a key takes two.
        capabilities.max_key_len = 127;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities().check(request)?;
        let named = |error: Error| error.with_backend(NAME).with_key(request.key());
        let deadline = match request.wait() {
            Wait::AtMost(limit) => Instant::now().checked_add(limit),
            Wait::Never => Some(Instant::now()),
            _ => None,
        };
        loop {
            if let Some(guard) = self.attempt(request).await.map_err(named)? {
                return Ok(guard);
            }
            request.mark_contended();
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Err(named(Error::new(ErrorKind::Contended, "the lock is held")));
            }
            let next = now + self.engine.jitter(MAX_POLL_INTERVAL / 2, MAX_POLL_INTERVAL);
            sleep_until(deadline.map_or(next, |deadline| deadline.min(next))).await;
        }
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        None
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.engine.drain(within).await
    }
}

/// Between two attempts of a waiter.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// One acquisition. It has its id before it is granted, and never touches the lease of another.
#[derive(Debug)]
struct FileLease {
    directory: Arc<Directory>,
    key: LockKey,
    id: LeaseId,
}

#[async_trait]
impl Lease for FileLease {
    fn liveness(&self) -> Liveness {
        Liveness::Renewed {
            id: self.id,
            renewer: Arc::clone(&self.directory) as _,
        }
    }

    /// A file sends no notifications.
    fn attach(&self, _control: LeaseControl) {}

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        let mut record = self.directory.record(&self.key).await?;
        if !record.is_held_by(self.id) {
            return Ok(None);
        }
        record.token += 1;
        record.write()?;
        Ok(Some(FencingToken::new(record.token)))
    }

    async fn downgrade(&self) -> Result<()> {
        let message = "there are no shared locks";
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    async fn release(&self) -> Result<Released> {
        let mut record = self.directory.record(&self.key).await?;
        if !record.is_held_by(self.id) {
            return Ok(Released::AlreadyLost);
        }
        record.holder = NOBODY.to_owned();
        record.write()?;
        Ok(Released::Clean)
    }
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    /// The boot of this machine, because its clock begins anew with each.
    boot: String,
    engine: Engine,
}

#[async_trait]
impl Renewer for Directory {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        let mut states = Vec::new();
        for request in due {
            states.push(self.renew_one(request).await);
        }
        states
    }
}

impl Directory {
    async fn renew_one(&self, due: &RenewalRequest) -> Result<LeaseState> {
        let sent = self.engine.now();
        let mut record = self.record(&due.key).await?;
        if !record.is_held_by(due.id) {
            return Ok(LeaseState::Lost(LostReason::Expired));
        }
        record.expires = due.renewed_end(sent, record.expires);
        record.write()?;
        Ok(LeaseState::Held)
    }

    /// Opens the file of a key and holds its flock until the record is dropped.
    ///
    /// A future that is dropped while it waits has done nothing. Nothing awaits while there is a record,
    /// so that no step is left half done.
    async fn record(&self, key: &LockKey) -> Result<Record> {
        let name: String = key.as_bytes().iter().map(|b| format!("{b:02x}")).collect();
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(self.path.join(name)).map_err(io_error)?;
        let flock = async {
            loop {
                match file.try_lock() {
                    // Not `lock`, which would stop the thread that renews all leases.
                    Err(TryLockError::WouldBlock) => sleep(Duration::from_millis(1)).await,
                    locked => return locked.map_err(io::Error::from),
                }
            }
        };
        let locked = timeout(FLOCK_TIMEOUT, flock).await;
        let locked = locked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        locked.map_err(io_error)?;
        Record::read(file, &self.boot, self.engine.now())
    }
}

/// A step takes microseconds, unless its process is stopped in the middle of it.
const FLOCK_TIMEOUT: Duration = Duration::from_secs(2);
