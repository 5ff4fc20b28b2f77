use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::{AcquireRequest, DistributedLock, Error, LockKey, Mode, Renewal, Result, Wait};

use crate::log_limit::LogLimit;
use crate::rejection::{DEFAULT_RETRY_AFTER, Reason, RejectionObserver};

use super::admission::{AdmissionLimiter, AdmissionLimits};
use super::namespace::Namespace;
use super::{Locker, LockerState};

/// Options of a [`Locker`]; see [`Locker::builder`].
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use polylock_core::memory::{Memory, Reachable};
/// use polylock_tower::{Locker, NotHeld, WhenUnavailable};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = Memory::new();
/// let carts = Locker::builder(Arc::new(memory.client()), "carts")
///     .wait(Duration::from_millis(500))
///     .max_waiters_per_key(8)
///     .request(|request| request.with_ttl(Duration::from_secs(10)))
///     .when_unavailable(WhenUnavailable::Bypass)
///     .build()?;
/// let guard = carts.lock("17").await?;
/// assert_eq!(guard.key().as_str(), "carts:17");
///
/// memory.faults().set_reachable(Reachable::Cut);
/// let guard = carts.lock("18").await?; // an error with `WhenUnavailable::Reject`
/// assert_eq!(guard.ensure_held(), Err(NotHeld::Unprotected));
///
/// // A colon would let two namespaces make the same key.
/// assert!(Locker::builder(Arc::new(memory), "carts:eu").build().is_err());
/// # Ok(()) }
/// ```
#[must_use = "there is no locker before `build`"]
#[derive(Debug)]
pub struct LockerBuilder {
    locks: Arc<dyn DistributedLock>,
    namespace: String,
    options: LockerOptions,
}

#[derive(Debug)]
pub(super) struct LockerOptions {
    pub(super) request: AcquireRequest,
    pub(super) retry_after: Duration,
    pub(super) when_unavailable: WhenUnavailable,
    pub(super) limits: AdmissionLimits,
    pub(super) observer: Option<Arc<dyn RejectionObserver>>,
}

/// What happens to requests while the lock service does not answer.
///
/// The example of [`LockerBuilder`] sets it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum WhenUnavailable {
    /// They run without a lock, so two may run at once. A warning is logged, and
    /// [`HeldLock::is_unprotected`](crate::HeldLock::is_unprotected) tells the handler. gRPC calls with a
    /// deadline that is shorter than the wait are still rejected: a short deadline must not bypass the
    /// lock.
    Bypass,
    /// They are rejected. The default.
    #[default]
    Reject,
}

impl LockerBuilder {
    pub(super) fn new(locks: Arc<dyn DistributedLock>, namespace: &str) -> Self {
        let any_key = LockKey::new("*").expect("BUG: a star is a key");
        let request = AcquireRequest::new(any_key)
            .with_wait(Wait::AtMost(Locker::DEFAULT_WAIT))
            .with_max_hold(Locker::DEFAULT_MAX_HOLD);
        Self {
            locks,
            namespace: namespace.to_owned(),
            options: LockerOptions {
                request,
                retry_after: DEFAULT_RETRY_AFTER,
                when_unavailable: WhenUnavailable::default(),
                limits: AdmissionLimits {
                    holders_per_key: 1,
                    waiters_per_key: 64,
                    waiters: 4096,
                    keys: 100_000,
                },
                observer: None,
            },
        }
    }

    /// Sets how long a request waits for its locks, all of them together. Default: 2 s.
    ///
    /// A longer wait serves more of a burst, and uses more connections and memory meanwhile.
    pub fn wait(self, limit: Duration) -> Self {
        self.request(|request| request.with_wait(Wait::AtMost(limit)))
    }

    /// Disables waiting: a request for a held lock is rejected as busy at once. Requests on their way to the lock
    /// service count as waiters, so those of a burst beyond the max are rejected as such: nothing is known of the
    /// lock then.
    pub fn try_only(self) -> Self {
        self.request(|request| request.with_wait(Wait::Never))
    }

    /// Lets up to `limit` requests with the same key run at once, in all processes together. Default:
    /// one.
    ///
    /// Use the same limit in every process: a request is granted while fewer than its own limit hold the
    /// key. Each permit is acquired at the lock service and not handed over inside the process, so permits
    /// are granted in arrival order if the backend is [fair](polylock_core::Capabilities::fair). A limit of
    /// one costs more than a lock and does the same.
    ///
    /// Fencing tokens give the order of the grants. The holders of a key run at the same time, so a store
    /// that rejects smaller tokens would reject the writes of some of them.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use std::sync::Arc;
    ///
    /// use polylock_core::memory::Memory;
    /// use polylock_tower::{Locker, Reason};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// const LIMIT: NonZeroU32 = NonZeroU32::new(2).unwrap();
    /// let exports = Locker::builder(Arc::new(Memory::new()), "exports")
    ///     .permits(LIMIT)
    ///     .try_only()
    ///     .build()?;
    /// let first = exports.lock("tenant-7").await?;
    /// let _second = exports.lock("tenant-7").await?;
    /// let third = exports.lock("tenant-7").await.unwrap_err();
    /// assert_eq!(third.reason(), Reason::Busy);
    ///
    /// first.release().await?;
    /// exports.lock("tenant-7").await?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "semaphore")]
    pub fn permits(self, limit: NonZeroU32) -> Self {
        self.request(|request| request.with_mode(Mode::Permit { limit }))
    }

    /// Changes the request to the backend: wait, ttl, max hold, label, class, and the mode, which
    /// [`permits`](Self::permits) sets.
    ///
    /// By default the ttl is 30 s, the max hold 5 min and the class the namespace. The key is set for each
    /// request, and the lease is renewed automatically. An owner is not allowed: it would let all requests
    /// in at once.
    pub fn request(mut self, change: impl FnOnce(AcquireRequest) -> AcquireRequest) -> Self {
        self.options.request = change(self.options.request);
        self
    }

    /// Sets how many requests may wait for one key in this process. Default: 64; 0 serves one at a
    /// time, or as many as there are [permits](Self::permits), and refuses the others.
    ///
    /// As many requests that [share](crate::SafeMethods::Shared) the lock may wait in addition. They are refused
    /// only while they wait: because this process holds the lock exclusively, or because none of them has got
    /// it for a second. A burst that is faster than that has the limit of [all keys](Self::max_waiters) alone.
    pub fn max_waiters_per_key(mut self, max: usize) -> Self {
        self.options.limits.waiters_per_key = max;
        self
    }

    /// Sets how many requests may wait in this process for all keys. Default: 4,096. A request for several
    /// keys counts once for each. For each key, one request is not counted, or as many as there are
    /// [permits](Self::permits). Requests that [share](crate::SafeMethods::Shared) a lock count while they
    /// acquire it, although they may get it at once. With 0 and no permits, a second request with the same key is
    /// rejected (429) while the first acquires or holds it, also if both only read.
    pub fn max_waiters(mut self, max: usize) -> Self {
        self.options.limits.waiters = max;
        self
    }

    /// Sets how many keys may be held or waited for in this process. Default: 100,000.
    pub fn max_live_keys(mut self, max: usize) -> Self {
        self.options.limits.keys = max;
        self
    }

    /// Sets the retry delay for rejected clients. Default: 1 s, the minimum that
    /// `Retry-After` can express. A handler that returns [`NotHeld`](crate::NotHeld) does not use it.
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.options.retry_after = after;
        self
    }

    /// Sets what to do while the lock service does not answer. Default:
    /// [`WhenUnavailable::Reject`].
    pub fn when_unavailable(mut self, then: WhenUnavailable) -> Self {
        self.options.when_unavailable = then;
        self
    }

    /// Sets the observer of requests that the layers of this locker reject. A
    /// [`Rejection`](crate::Rejection) that a handler gets itself is not reported. Default: none.
    pub fn rejection_observer(mut self, observer: Arc<dyn RejectionObserver>) -> Self {
        self.options.observer = Some(observer);
        self
    }

    /// Makes the locker.
    ///
    /// # Errors
    ///
    /// - [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the namespace is empty, longer
    ///   than 64 bytes, or contains a colon or a control character, or if the request has an owner, manual
    ///   renewal, or is [shared](Mode::Shared): only [requests with a safe
    ///   method](crate::SafeMethods::Shared) share a lock.
    /// - [`InvalidRequest`](polylock_core::ErrorKind::InvalidRequest) and
    ///   [`Unsupported`](polylock_core::ErrorKind::Unsupported) if no request of this kind could ever be
    ///   granted, such as for a permit of a backend without permits.
    pub fn build(self) -> Result<Locker> {
        let namespace = Namespace::new(&self.namespace)?;
        let mut options = self.options;
        if options.request.owner().is_some() || options.request.renewal() != Renewal::Automatic {
            let message = "requests have no owner, and their leases are renewed automatically";
            return Err(Error::config(message));
        }
        options.limits.holders_per_key = match options.request.mode() {
            Mode::Exclusive => 1,
            Mode::Permit { limit } => usize::try_from(limit.get()).unwrap_or(usize::MAX),
            _ => {
                let message = "requests of a locker are exclusive or have permits: only those with a \
                               safe method share a lock, see SafeMethods::Shared";
                return Err(Error::config(message));
            }
        };
        if options.request.class().is_none() {
            options.request = options.request.with_class(namespace.as_str());
        }
        let locker = Locker(Arc::new(LockerState {
            locks: self.locks,
            namespace,
            admission: AdmissionLimiter::new(options.limits),
            logged: LogLimit::new(),
            options,
        }));
        locker.check(locker.mode())?;
        locker.announce(Reason::OF_LOCKS);
        Ok(locker)
    }
}
