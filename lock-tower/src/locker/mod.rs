//! Admission: which keys requests wait for, and how many may wait.

mod builder;
mod claim;
mod crowd;
mod locked;
mod namespace;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use lock_core::layers::acquire_all;
use lock_core::{AcquireRequest, DistributedLock, Error, ErrorKind, LockKey, Mode, Wait};

use tokio::time::{Instant, timeout};

use crate::answer::{Problem, Reason, RefusedRequest, Rejection, RejectionObserver};
use crate::keys::{KeyError, Keys};

use self::crowd::{Access, Crowd, Full, Place};

pub(crate) use self::claim::Claim;
pub(crate) use self::namespace::Namespace;

pub use self::builder::LockerBuilder;
pub use self::locked::Locked;

/// Locks for requests: keys of one purpose, how long requests wait for them, and how many may.
///
/// Clones share the bounds and the queue; make one for each purpose and hand clones of it to layers
/// and handlers. A handler that learns the key from the body of its request calls
/// [`lock`](Locker::lock).
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use lock_core::memory::Memory;
/// use lock_tower::{Locker, Reason};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let accounts = Locker::builder(Arc::new(Memory::new()), "accounts")
///     .wait(Duration::from_millis(10))
///     .build()?;
/// let held = accounts.lock("42").await?;
/// assert!(held.fencing_token().is_some());
///
/// let refused = accounts.lock("42").await.unwrap_err();
/// assert_eq!(refused.reason(), Reason::TimedOut);
/// held.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Locker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    locks: Arc<dyn DistributedLock>,
    namespace: Namespace,
    wait: Wait,
    request: AcquireRequest,
    retry_after: Duration,
    when_unavailable: WhenUnavailable,
    crowd: Arc<Crowd>,
    observer: Option<Arc<dyn RejectionObserver>>,
}

/// What becomes of requests while the lock service does not answer.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum WhenUnavailable {
    /// They run without a lock, with a warning in the log, and
    /// [`HeldLock::is_unprotected`](crate::HeldLock::is_unprotected) tells the handler. Two may run
    /// at once. Calls of gRPC with a deadline that is shorter than the wait are rejected all the
    /// same: a short deadline is no way around the lock.
    Bypass,
    /// They are rejected.
    #[default]
    Reject,
}

impl Locker {
    /// Time that a request waits for its locks unless set.
    pub const DEFAULT_WAIT: Duration = Duration::from_secs(2);

    /// Time after which a lock is taken from a handler that does not end, unless set.
    pub const DEFAULT_MAX_HOLD: Duration = Duration::from_secs(5 * 60);

    /// Most locks that one request takes.
    pub const MAX_KEYS: usize = 64;

    /// Starts a locker for keys in `namespace`, which has 1 to 64 bytes and no colon.
    ///
    /// The lock service stores `<namespace>:<name>`. Names that make more than 255 bytes with it
    /// keep their beginning, and a hash (SHA-256) stands for the rest.
    pub fn builder(locks: Arc<dyn DistributedLock>, namespace: &str) -> LockerBuilder {
        LockerBuilder::new(locks, namespace)
    }

    /// Acquires the lock of a name.
    ///
    /// # Errors
    ///
    /// [`Rejection`], with the reasons that its table lists; with the feature `axum` a handler can
    /// return it.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves the queue at once; what it was granted is released in the
    /// background, at worst after one ttl.
    pub async fn lock(&self, name: impl Into<String>) -> Result<Locked, Rejection> {
        let key = self.key(&name.into())?;
        self.claim_key(key).await.map(Locked::new)
    }

    /// Acquires the locks of all of the names or of none, in one order for everybody. There have to
    /// be 1 to 64 names.
    ///
    /// # Errors
    ///
    /// As for [`lock`](Locker::lock); nothing stays held.
    ///
    /// # Cancel safety
    ///
    /// As for [`lock`](Locker::lock).
    pub async fn lock_all<N: Into<String>>(
        &self,
        names: impl IntoIterator<Item = N> + Send,
    ) -> Result<Locked, Rejection> {
        let names: Vec<_> = names.into_iter().map(Into::into).collect();
        let keys = self.sorted(&names)?;
        let claim = self.acquire(keys, Mode::Exclusive, None).await?;
        Ok(Locked::new(claim))
    }

    /// How many keys are wanted or held in this process.
    #[must_use]
    pub fn live_keys(&self) -> usize {
        self.0.crowd.live_keys()
    }

    /// How many requests wait in this process, not counting the first of each key.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.0.crowd.waiters()
    }

    /// Waits until no request wants or has a lock, and for releases that go on in the background;
    /// true if all were done `within` the time. Call it when the server has stopped, before the
    /// process ends: handlers that run to completion may outlive their clients, and the server.
    ///
    /// # Cancel safety
    ///
    /// The handlers and the releases go on.
    pub async fn shutdown(&self, within: Duration) -> bool {
        let began = Instant::now();
        let emptied = timeout(within, self.0.crowd.emptied()).await.is_ok();
        let left = within.saturating_sub(began.elapsed());
        self.0.locks.shutdown(left).await && emptied
    }

    /// Whether requests in this mode could be granted.
    pub(crate) fn check(&self, mode: Mode) -> Result<(), Error> {
        let capabilities = self.0.locks.capabilities();
        capabilities.check(&self.0.request.clone().with_mode(mode))
    }

    /// Acquires what `keys` says; `None` if that is to pass. `patience` is what the client has left.
    pub(crate) async fn claim(
        &self,
        keys: Keys,
        mode: Mode,
        patience: Option<Duration>,
    ) -> Result<Option<Claim>, Rejection> {
        let keys = match keys {
            Keys::One(name) => vec![self.key(&name)?],
            Keys::Many(names) => self.sorted(&names)?,
            Keys::Skip => return Ok(None),
        };
        self.acquire(keys, mode, patience).await.map(Some)
    }

    /// Acquires a key of this locker.
    pub(crate) async fn claim_key(&self, key: LockKey) -> Result<Claim, Rejection> {
        self.acquire(vec![key], Mode::Exclusive, None).await
    }

    async fn acquire(
        &self,
        keys: Vec<LockKey>,
        mode: Mode,
        patience: Option<Duration>,
    ) -> Result<Claim, Rejection> {
        let places = self.enter(&keys, mode)?;
        let wait = match (self.0.wait, patience) {
            (Wait::AtMost(limit), Some(patience)) => Wait::AtMost(limit.min(patience)),
            (wait, _) => wait,
        };
        let requests = self.requests(keys, mode, wait);
        let acquired = match requests.as_slice() {
            [request] => self.0.locks.acquire(request).await.map(|guard| vec![guard]),
            requests => acquire_all(&*self.0.locks, requests).await,
        };
        match acquired {
            Ok(guards) => Ok(Claim::new(&self.0.namespace, guards, places)),
            Err(error) if self.bypasses(&error, wait) => {
                tracing::warn!(
                    class = requests[0].class(),
                    %error,
                    "a request runs without its lock"
                );
                Ok(Claim::unprotected(&self.0.namespace, &requests, places))
            }
            Err(error) => Err(self.rejection(error)),
        }
    }

    /// Tells the observer of an answer that is not the handler's.
    pub(crate) fn tell_refused(&self, reason: &'static str, status: StatusCode) {
        if let Some(observer) = &self.0.observer {
            self.refused(reason, status).tell(&**observer);
        }
    }

    /// Tells the observer of the answers that may come.
    fn announce_refusals(&self) {
        if let Some(observer) = &self.0.observer {
            for reason in Reason::ALL {
                let status = Problem::new().status(reason);
                self.refused(reason.as_str(), status).announce(&**observer);
            }
        }
    }

    fn refused(&self, reason: &'static str, status: StatusCode) -> RefusedRequest<'_> {
        let class = self.0.request.class();
        RefusedRequest {
            class: class.unwrap_or_else(|| self.0.namespace.as_str()),
            reason,
            status,
        }
    }

    /// The key of a name.
    pub(crate) fn key(&self, name: &str) -> Result<LockKey, Rejection> {
        self.0.namespace.key(name).map_err(no_key)
    }

    fn sorted(&self, names: &[String]) -> Result<Vec<LockKey>, Rejection> {
        if names.is_empty() || names.len() > Self::MAX_KEYS {
            let detail = format!("a request needs 1 to {} locks", Self::MAX_KEYS);
            return Err(no_key(KeyError::Invalid(detail)));
        }
        let mut keys = names
            .iter()
            .map(|name| self.key(name))
            .collect::<Result<Vec<_>, _>>()?;
        keys.sort();
        keys.dedup();
        Ok(keys)
    }

    fn enter(&self, keys: &[LockKey], mode: Mode) -> Result<Vec<Place>, Rejection> {
        let access = match mode {
            Mode::Shared => Access::Shared,
            _ => Access::Exclusive,
        };
        let places = keys.iter().map(|key| self.0.crowd.enter(key, access));
        places.collect::<Result<_, _>>().map_err(|full| {
            let detail = match full {
                Full::Keys => "too many locks are wanted at once",
                Full::Waiters => "too many requests wait",
                Full::WaitersOfKey => "too many requests wait for the same lock",
            };
            self.later(Reason::QueueFull).with_detail(detail)
        })
    }

    fn requests(&self, keys: Vec<LockKey>, mode: Mode, wait: Wait) -> Vec<AcquireRequest> {
        let request = self.0.request.clone().with_mode(mode).with_wait(wait);
        match <[LockKey; 1]>::try_from(keys) {
            Ok([key]) => vec![request.with_key(key)],
            Err(keys) => keys
                .into_iter()
                .map(|key| request.clone().with_key(key))
                .collect(),
        }
    }

    /// Whether the service has had the time to answer that it was set up with.
    fn bypasses(&self, error: &Error, wait: Wait) -> bool {
        self.0.when_unavailable == WhenUnavailable::Bypass
            && error.kind() == ErrorKind::Unavailable
            && wait == self.0.wait
    }

    fn rejection(&self, error: Error) -> Rejection {
        let rejection = match error.kind() {
            ErrorKind::Contended if self.0.wait == Wait::Never => self.later(Reason::Busy),
            ErrorKind::Contended => self.later(Reason::TimedOut),
            ErrorKind::QueueFull => self.later(Reason::QueueFull),
            // One of several may be lost while the others are acquired; no handler has run.
            ErrorKind::Lost | ErrorKind::Protocol | ErrorKind::Unavailable => {
                self.later(Reason::Unavailable)
            }
            ErrorKind::InvalidKey => Rejection::new(Reason::InvalidKey),
            _ => Rejection::new(Reason::Misconfigured),
        };
        if rejection.reason() == Reason::Misconfigured {
            tracing::error!(%error, "no request can get its lock");
        }
        rejection.with_error(error)
    }

    /// Rejects what may be tried again.
    fn later(&self, reason: Reason) -> Rejection {
        Rejection::new(reason).with_retry_after(self.0.retry_after)
    }
}

pub(crate) fn no_key(error: KeyError) -> Rejection {
    match error {
        KeyError::Invalid(detail) | KeyError::Missing(detail) => {
            Rejection::new(Reason::InvalidKey).with_detail(detail)
        }
        KeyError::Misconfigured(detail) => {
            tracing::error!(detail, "no key can be told from a request");
            Rejection::new(Reason::Misconfigured)
        }
        KeyError::Response(response) => Rejection::new(Reason::InvalidKey).with_response(*response),
    }
}
