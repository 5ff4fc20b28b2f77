//! The locks of a class or a backend, requested as the configuration says.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{
    AcquireRequest, Capabilities, DistributedLock, DistributedLockExt, Error, LockGuard, LockKey,
    MultiGuard, MultiRequestBuilder, RequestBuilder, Result, Wait,
};

use super::settings::LockSettings;

/// The locks of a class, or of a backend, requested as the configuration says.
///
/// The ttl, the wait and the holds are those of the file; each call may still differ by
/// [`request`](Self::request). A class is the [class](AcquireRequest::class) of its requests.
#[derive(Clone, Debug)]
pub struct ConfiguredLocks {
    locks: Arc<dyn DistributedLock>,
    settings: LockSettings,
    class: Option<Arc<str>>,
}

impl ConfiguredLocks {
    pub(super) fn new(
        locks: Arc<dyn DistributedLock>,
        settings: LockSettings,
        class: Option<Arc<str>>,
    ) -> Self {
        Self {
            locks,
            settings,
            class,
        }
    }

    /// Acquires an exclusive lock, and waits for it as long as the configuration says.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As for [`DistributedLockExt::lock`].
    pub async fn lock<K>(&self, key: K) -> Result<LockGuard>
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        self.request(key).acquire().await
    }

    /// Acquires an exclusive lock if it is free; `None` if it is held.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`] except
    /// [`Contended`](lock_core::ErrorKind::Contended).
    ///
    /// # Cancel safety
    ///
    /// As for [`DistributedLockExt::lock`].
    pub async fn try_lock<K>(&self, key: K) -> Result<Option<LockGuard>>
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        self.request(key).try_acquire().await
    }

    /// Acquires an exclusive lock, and waits for it for at most `limit`.
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`].
    ///
    /// # Cancel safety
    ///
    /// As for [`DistributedLockExt::lock`].
    pub async fn lock_within<K>(&self, key: K, limit: Duration) -> Result<LockGuard>
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        self.request(key).wait(Wait::AtMost(limit)).acquire().await
    }

    /// Acquires exclusive locks on all of the keys or on none, see
    /// [`DistributedLockExt::lock_all`].
    ///
    /// # Errors
    ///
    /// Those of [`DistributedLock::acquire`]; nothing stays held.
    ///
    /// # Cancel safety
    ///
    /// As for [`DistributedLockExt::lock`], for each key.
    pub async fn lock_all<I>(&self, keys: I) -> Result<MultiGuard>
    where
        I: IntoIterator<Item: TryInto<LockKey, Error: Into<Error>>>,
    {
        self.request_all(keys).acquire().await
    }

    /// Starts a request with the options of the configuration, which may be changed.
    pub fn request<K>(&self, key: K) -> RequestBuilder<'_, dyn DistributedLock>
    where
        K: TryInto<LockKey, Error: Into<Error>>,
    {
        let Self {
            locks,
            settings,
            class,
        } = self;
        let mut request = (**locks).request(key);
        if let Some(ttl) = settings.ttl() {
            request = request.ttl(ttl);
        }
        if let Some(wait) = settings.wait() {
            request = request.wait(wait);
        }
        if let Some(max_hold) = settings.max_hold() {
            request = request.max_hold(max_hold);
        }
        if let Some(min_hold) = settings.min_hold() {
            request = request.min_hold(min_hold);
        }
        match class {
            Some(class) => request.class(class),
            None => request,
        }
    }

    /// Starts a request for several keys with the options of the configuration.
    pub fn request_all<I>(&self, keys: I) -> MultiRequestBuilder<'_, dyn DistributedLock>
    where
        I: IntoIterator<Item: TryInto<LockKey, Error: Into<Error>>>,
    {
        (*self.locks)
            .request_all(keys)
            .with(|request| self.apply(request))
    }

    /// Sets what the configuration says, and leaves the rest of the request as it is.
    #[must_use]
    pub fn apply(&self, request: AcquireRequest) -> AcquireRequest {
        let request = self.settings.apply(request);
        match &self.class {
            Some(class) => request.with_class(Arc::clone(class)),
            None => request,
        }
    }

    /// The name of the class, if it is one.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        self.class.as_deref()
    }

    /// How locks are requested.
    #[must_use]
    pub fn lock_settings(&self) -> &LockSettings {
        &self.settings
    }

    /// What the backend can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.locks.capabilities()
    }

    /// The locks without the options of the configuration, for callers that build their own requests.
    #[must_use]
    pub fn locks(&self) -> &Arc<dyn DistributedLock> {
        &self.locks
    }
}
