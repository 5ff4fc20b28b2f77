//! Acquires locks for requests, and limits how many requests wait.

mod admission;
mod builder;
mod namespace;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use polylock_core::layers::acquire_all;
use polylock_core::{DistributedLock, Error, ErrorKind, LockKey, Mode, Wait};
use tokio::time::{Instant, timeout};

use crate::held_lock::{HeldLock, LockerGuard};
use crate::keys::{KeyError, Keys};
use crate::log_limit::LogLimit;
use crate::rejection::{ProblemDetails, Reason, RejectedRequest, Rejection, RejectionObserver};

use self::admission::AdmissionLimiter;
use self::builder::LockerOptions;

pub(crate) use self::admission::AdmissionSlot;
pub(crate) use self::namespace::Namespace;

pub use self::builder::{LockerBuilder, WhenUnavailable};

/// Locks for the requests of one purpose, with limits on how long and how many requests wait.
///
/// Clones share the limits and the queue; create one locker per purpose, and give clones to layers and
/// handlers. A handler that reads the key from the body of its request calls [`lock`](Locker::lock).
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use polylock_core::memory::Memory;
/// use polylock_tower::{Locker, Reason};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let accounts = Locker::builder(Arc::new(Memory::new()), "accounts")
///     .wait(Duration::from_millis(10))
///     .build()?;
/// let held = accounts.lock("42").await?;
/// assert!(held.fencing_token().is_some());
///
/// let rejected = accounts.lock("42").await.unwrap_err();
/// assert_eq!(rejected.reason(), Reason::TimedOut);
/// assert_eq!(rejected.reason().as_str(), "lock-timeout"); // what clients and metrics see
/// assert_eq!(rejected.retry_after(), Some(Duration::from_secs(1)));
/// held.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Locker(Arc<LockerState>);

#[derive(Debug)]
struct LockerState {
    locks: Arc<dyn DistributedLock>,
    namespace: Namespace,
    options: LockerOptions,
    admission: Arc<AdmissionLimiter>,
    logged: LogLimit,
}

const BYPASSED: &str = "requests run without their locks";

impl Locker {
    /// The default time that a request waits for its locks.
    pub const DEFAULT_WAIT: Duration = Duration::from_secs(2);

    /// The default time after which a handler that does not end loses its lock.
    pub const DEFAULT_MAX_HOLD: Duration = Duration::from_secs(5 * 60);

    /// Max locks of one request.
    pub const MAX_KEYS: usize = 64;

    /// Starts a locker for keys in `namespace`, which has 1 to 64 bytes and no colon.
    ///
    /// The lock service stores `<namespace>:<name>`. If that exceeds 255 bytes, the name keeps its
    /// beginning, and a SHA-256 hash replaces the rest.
    ///
    /// With the namespace in the URL of the lock service, a key has up to 321 bytes, which all built-in backends
    /// carry. Where [`max_key_len`](polylock_core::Capabilities::max_key_len) is smaller, requests with longer keys
    /// are answered with 400.
    pub fn builder(locks: Arc<dyn DistributedLock>, namespace: &str) -> LockerBuilder {
        LockerBuilder::new(locks, namespace)
    }

    /// Acquires the lock of a name, or a permit of it if the locker has
    /// [permits](LockerBuilder::permits).
    ///
    /// # Errors
    ///
    /// [`Rejection`], with the reasons that its table lists; with the feature `axum` a handler can
    /// return it.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves the queue at once. A lock that it was granted is released in the background,
    /// at worst after one ttl.
    pub async fn lock(&self, name: impl Into<String>) -> Result<LockerGuard, Rejection> {
        let keys = vec![self.key(&name.into())?];
        let held = self.acquire_keys(keys, self.mode(), None).await?;
        Ok(LockerGuard::new(held))
    }

    /// Acquires the locks of all names or of none, in the same order everywhere. Takes 1 to 64 names.
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
    ) -> Result<LockerGuard, Rejection> {
        let names: Vec<_> = names.into_iter().map(Into::into).collect();
        let keys = self.sorted(&names)?;
        let held = self.acquire_keys(keys, self.mode(), None).await?;
        Ok(LockerGuard::new(held))
    }

    /// Returns how many keys are held or waited for in this process.
    #[must_use]
    pub fn live_keys(&self) -> usize {
        self.0.admission.live_keys()
    }

    /// Returns how many requests wait in this process; one for several keys counts once for each. The first
    /// request of each key is not counted, or with [permits](LockerBuilder::permits) the first N.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.0.admission.waiters()
    }

    /// Waits until no request waits for or holds a lock and all background releases are done; returns
    /// whether that was `within` the time. Call it when the server has stopped, before the process ends:
    /// handlers that run to completion may outlive their clients and the server.
    ///
    /// # Cancel safety
    ///
    /// The handlers and the releases go on.
    pub async fn shutdown(&self, within: Duration) -> bool {
        let began = Instant::now();
        let emptied = timeout(within, self.0.admission.emptied()).await.is_ok();
        let left = within.saturating_sub(began.elapsed());
        self.0.locks.shutdown(left).await && emptied
    }

    /// The wait of a request whose client sets no deadline.
    fn wait(&self) -> Wait {
        self.0.options.request.wait()
    }

    /// The mode of requests that change something: exclusive, or a permit.
    pub(crate) fn mode(&self) -> Mode {
        self.0.options.request.mode()
    }

    /// Whether requests in this mode could be granted.
    pub(crate) fn check(&self, mode: Mode) -> Result<(), Error> {
        let capabilities = self.0.locks.capabilities();
        let checked = capabilities.check(&self.0.options.request.clone().with_mode(mode));
        checked.map_err(|error| error.with_backend(capabilities.backend))
    }

    /// Rejects permits where a lock is required.
    pub(crate) fn expect_exclusive(&self, why: &str) -> Result<(), Error> {
        match self.mode() {
            Mode::Exclusive => Ok(()),
            _ => {
                let message = format!("{why}: build a locker without permits");
                Err(Error::config(message))
            }
        }
    }

    /// Acquires the locks in `keys`; `None` if the request passes. `client_timeout` is the time that the
    /// client still waits.
    pub(crate) async fn acquire(
        &self,
        keys: Keys,
        mode: Mode,
        client_timeout: Option<Duration>,
    ) -> Result<Option<HeldLock>, Rejection> {
        let keys = match keys {
            Keys::One(name) => vec![self.key(&name)?],
            Keys::Many(names) => self.sorted(&names)?,
            Keys::Skip => return Ok(None),
        };
        self.acquire_keys(keys, mode, client_timeout)
            .await
            .map(Some)
    }

    /// Acquires keys of this locker, which are sorted.
    pub(crate) async fn acquire_keys(
        &self,
        keys: Vec<LockKey>,
        mode: Mode,
        client_timeout: Option<Duration>,
    ) -> Result<HeldLock, Rejection> {
        let slots = self.enter(&keys, mode)?;
        let wait = match (self.wait(), client_timeout) {
            (Wait::AtMost(limit), Some(client_timeout)) => Wait::AtMost(limit.min(client_timeout)),
            (Wait::Forever, Some(client_timeout)) => Wait::AtMost(client_timeout),
            (wait, _) => wait,
        };
        let template = &self.0.options.request;
        let request_for = |key| template.clone().with_key(key).with_mode(mode);
        let requests = keys.into_iter().map(|key| request_for(key).with_wait(wait));
        let requests: Vec<_> = requests.collect();
        let acquired = match requests.as_slice() {
            [request] => self.0.locks.acquire(request).await.map(|guard| vec![guard]),
            requests => acquire_all(&*self.0.locks, requests).await,
        };
        match acquired {
            Ok(guards) => Ok(HeldLock::new(&self.0.namespace, guards, Vec::new(), slots)),
            Err(error) if self.bypasses(&error, wait) => {
                if self.warns(BYPASSED) {
                    tracing::warn!(class = requests[0].class(), %error, "{BYPASSED}");
                }
                let missing = requests.iter().map(|request| request.key().clone());
                let missing = missing.collect();
                Ok(HeldLock::new(&self.0.namespace, Vec::new(), missing, slots))
            }
            Err(error) => Err(self.rejection(error)),
        }
    }

    /// Announces reasons to the observer, so that their counters start at zero.
    pub(crate) fn announce(&self, reasons: impl IntoIterator<Item = Reason>) {
        for reason in reasons {
            let status = ProblemDetails::new().status(reason);
            self.observe(RejectionObserver::announced, reason, status);
        }
    }

    /// Reports a rejection to the observer, if there is one. A panic there changes nothing for the client.
    pub(crate) fn observe(
        &self,
        event: impl FnOnce(&dyn RejectionObserver, &RejectedRequest<'_>),
        reason: Reason,
        status: StatusCode,
    ) {
        let Some(observer) = &self.0.options.observer else {
            return;
        };
        let class = self.0.options.request.class();
        let rejected = RejectedRequest {
            class: class.unwrap_or_else(|| self.0.namespace.as_str()),
            reason: reason.as_str(),
            status,
        };
        drop(catch_unwind(AssertUnwindSafe(|| {
            event(&**observer, &rejected);
        })));
    }

    /// The key of a name.
    pub(crate) fn key(&self, name: &str) -> Result<LockKey, Rejection> {
        Ok(self.0.namespace.key(name)?)
    }

    fn sorted(&self, names: &[String]) -> Result<Vec<LockKey>, Rejection> {
        if names.is_empty() || names.len() > Self::MAX_KEYS {
            let detail = format!("a request needs 1 to {} locks", Self::MAX_KEYS);
            return Err(KeyError::Invalid(detail).into());
        }
        let mut keys = names
            .iter()
            .map(|name| self.key(name))
            .collect::<Result<Vec<_>, _>>()?;
        keys.sort();
        keys.dedup();
        Ok(keys)
    }

    fn enter(&self, keys: &[LockKey], mode: Mode) -> Result<Vec<AdmissionSlot>, Rejection> {
        let slots = keys.iter().map(|key| self.0.admission.enter(key, mode));
        slots
            .collect::<Result<_, _>>()
            .map_err(|limit| self.later(Reason::QueueFull).with_detail(limit))
    }

    /// Whether the service had the whole configured wait to answer.
    fn bypasses(&self, error: &Error, wait: Wait) -> bool {
        self.0.options.when_unavailable == WhenUnavailable::Bypass
            && error.kind() == ErrorKind::Unavailable
            && wait == self.wait()
    }

    fn rejection(&self, error: Error) -> Rejection {
        let rejection = match error.kind() {
            ErrorKind::Contended if !self.wait().waits() => self.later(Reason::Busy),
            ErrorKind::Contended => self.later(Reason::TimedOut),
            ErrorKind::QueueFull => self.later(Reason::QueueFull),
            // One of several may be lost while the others are acquired; no handler has run.
            ErrorKind::Lost | ErrorKind::Protocol | ErrorKind::Unavailable => {
                self.later(Reason::Unavailable)
            }
            ErrorKind::InvalidKey => Rejection::new(Reason::InvalidKey),
            _ => Rejection::new(Reason::Misconfigured),
        };
        let class = self.0.options.request.class();
        match rejection.reason() {
            reason @ Reason::Misconfigured if self.warns(reason.as_str()) => {
                tracing::error!(class, %error, "no request can get its lock");
            }
            reason @ (Reason::Unavailable | Reason::QueueFull) if self.warns(reason.as_str()) => {
                tracing::warn!(class, %error, "requests get no lock");
            }
            _ => {}
        }
        rejection.with_error(error)
    }

    /// Whether a cause that meets many requests may be logged again.
    pub(crate) fn warns(&self, cause: &'static str) -> bool {
        self.0.logged.is_due(cause)
    }

    /// A rejection that may be retried.
    pub(crate) fn later(&self, reason: Reason) -> Rejection {
        Rejection::new(reason).with_retry_after(self.0.options.retry_after)
    }
}
