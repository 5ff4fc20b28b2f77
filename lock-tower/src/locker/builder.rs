use std::sync::Arc;
use std::time::Duration;

use lock_core::{
    AcquireRequest, DistributedLock, Error, ErrorKind, LockKey, Mode, Renewal, Result, Wait,
};

use crate::answer::RejectionObserver;

use super::crowd::{Bounds, Crowd};
use super::namespace::Namespace;
use super::{Locker, Shared, WhenUnavailable};

/// Options of a [`Locker`]; see [`Locker::builder`].
#[must_use = "there is no locker before `build`"]
#[derive(Debug)]
pub struct LockerBuilder {
    locks: Arc<dyn DistributedLock>,
    namespace: String,
    wait: Option<Duration>,
    request: AcquireRequest,
    retry_after: Duration,
    when_unavailable: WhenUnavailable,
    bounds: Bounds,
    observer: Option<Arc<dyn RejectionObserver>>,
}

impl LockerBuilder {
    pub(super) fn new(locks: Arc<dyn DistributedLock>, namespace: &str) -> Self {
        let any_key = LockKey::new("*").expect("BUG: a star is a key");
        Self {
            locks,
            namespace: namespace.to_owned(),
            wait: Some(Locker::DEFAULT_WAIT),
            request: AcquireRequest::new(any_key).with_max_hold(Locker::DEFAULT_MAX_HOLD),
            retry_after: Duration::from_secs(1),
            when_unavailable: WhenUnavailable::default(),
            bounds: Bounds {
                waiters_per_key: 64,
                waiters: 4096,
                keys: 100_000,
            },
            observer: None,
        }
    }

    /// Sets how long a request waits for its locks, all of them together. Default: 2 s.
    ///
    /// A longer wait answers more of a burst, and keeps more connections and memory meanwhile.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// Lets no request wait: where the lock is held, the answer is "busy" at once.
    pub fn try_only(mut self) -> Self {
        self.wait = None;
        self
    }

    /// Changes what is asked of the backend: ttl, longest hold, label, class.
    ///
    /// By default the ttl is 30 s, the longest hold 5 min and the class the namespace. Key, mode
    /// and wait are set for each request; there can be no owner, which would let all requests in at
    /// once, and the lease is renewed automatically.
    pub fn request(mut self, change: impl FnOnce(AcquireRequest) -> AcquireRequest) -> Self {
        self.request = change(self.request);
        self
    }

    /// Sets how many requests may wait for one key in this process. Default: 64; 0 serves one at a
    /// time and refuses the others.
    pub fn max_waiters_per_key(mut self, most: usize) -> Self {
        self.bounds.waiters_per_key = most;
        self
    }

    /// Sets how many requests may wait in this process for all keys. Default: 4,096.
    pub fn max_waiters(mut self, most: usize) -> Self {
        self.bounds.waiters = most;
        self
    }

    /// Sets how many keys may be wanted or held at a time in this process. Default: 100,000.
    pub fn max_live_keys(mut self, most: usize) -> Self {
        self.bounds.keys = most;
        self
    }

    /// Sets the retry delay for rejected clients. Default: 1 s, which is the least that
    /// `Retry-After` can express.
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = after;
        self
    }

    /// Sets what to do while the lock service does not answer. Default:
    /// [`WhenUnavailable::Reject`].
    pub fn when_unavailable(mut self, then: WhenUnavailable) -> Self {
        self.when_unavailable = then;
        self
    }

    /// Sets the observer of requests that the layers of this locker reject. What a handler does
    /// with a [`Rejection`](crate::Rejection) is not reported. Default: none.
    pub fn rejection_observer(mut self, observer: Arc<dyn RejectionObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Makes the locker.
    ///
    /// # Errors
    ///
    /// - [`InvalidConfig`](lock_core::ErrorKind::InvalidConfig) if the namespace is empty, longer
    ///   than 64 bytes, or contains a colon or a control character, and if the request has an owner
    ///   or is to be renewed by hand.
    /// - [`InvalidRequest`](lock_core::ErrorKind::InvalidRequest) and
    ///   [`Unsupported`](lock_core::ErrorKind::Unsupported) if no request of this kind could ever be
    ///   granted.
    pub fn build(self) -> Result<Locker> {
        let namespace = Namespace::new(&self.namespace)?;
        if self.request.owner().is_some() || self.request.renewal() != Renewal::Automatic {
            let message = "requests have no owner, and their leases are renewed automatically";
            return Err(Error::new(ErrorKind::InvalidConfig, message));
        }
        let request = match self.request.class() {
            None => self.request.with_class(namespace.as_str()),
            Some(_) => self.request,
        };
        let locker = Locker(Arc::new(Shared {
            locks: self.locks,
            namespace,
            wait: self.wait.map_or(Wait::Never, Wait::AtMost),
            request,
            retry_after: self.retry_after,
            when_unavailable: self.when_unavailable,
            crowd: Crowd::new(self.bounds),
            observer: self.observer,
        }));
        locker.check(Mode::Exclusive)?;
        locker.announce_refusals();
        Ok(locker)
    }
}
