use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::admin::{LockAdmin, LockEvent, LockInfo, Record};
use crate::capabilities::Capabilities;
use crate::engine::LeaseId;
use crate::error::{Error, Result};
use crate::guard::LockGuard;
use crate::key::LockKey;
use crate::lease::{LeaseState, Released};
use crate::lock::DistributedLock;
use crate::request::AcquireRequest;
use crate::token::FencingToken;

/// Puts a namespace in front of every key, so that services on one server do not collide.
///
/// The backend sees `<namespace>:<key>`; guards, errors and the administration show the key alone.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use polylock_core::layers::Prefix;
/// use polylock_core::memory::Memory;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let server = Memory::new();
/// let shop = Prefix::new(Arc::new(server.client()), "shop")?;
/// let blog = Prefix::new(Arc::new(server.client()), "blog")?;
///
/// let guard = shop.lock("cleanup").await?;
/// assert_eq!(guard.key().as_str(), "cleanup");
/// assert!(blog.try_lock("cleanup").await?.is_some()); // another lock
/// assert!(server.try_lock("shop:cleanup").await?.is_none()); // how the server knows it
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Prefix {
    inner: Arc<dyn DistributedLock>,
    namespace: String,
}

impl Prefix {
    /// Wraps `inner`.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) if the namespace is empty, longer than
    /// [`LockKey::MAX_NAMESPACE_LEN`] bytes, or contains a colon or a control character. Without
    /// colons, two namespaces can never make the same stored key.
    pub fn new(inner: Arc<dyn DistributedLock>, namespace: &str) -> Result<Self> {
        check_namespace(namespace)?;
        Ok(Self {
            inner,
            namespace: namespace.to_owned(),
        })
    }

    /// The key as the backend stores it, for clients without this layer.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) as for [`new`](Self::new).
    pub fn stored_key(namespace: &str, key: &LockKey) -> Result<LockKey> {
        check_namespace(namespace)?;
        Ok(key.within(namespace))
    }

    fn inside(&self, request: &AcquireRequest) -> AcquireRequest {
        request
            .clone()
            .stored_as(request.key().within(&self.namespace))
    }

    fn admin_of_inner(&self) -> Result<&dyn LockAdmin> {
        let missing = || Error::new(crate::ErrorKind::Unsupported, "there is no administration");
        self.inner.admin().ok_or_else(missing)
    }

    fn outside(&self, info: LockInfo) -> Option<LockInfo> {
        let key = strip(&self.namespace, &info.key)?;
        Some(LockInfo { key, ..info })
    }
}

/// Checks a namespace without an inner lock to put it on.
pub(crate) fn check_namespace(namespace: &str) -> Result<()> {
    let fits = !namespace.is_empty() && namespace.len() <= LockKey::MAX_NAMESPACE_LEN;
    if !fits || namespace.contains(|c: char| c == ':' || c.is_control()) {
        return Err(Error::config(format!(
            "a namespace has 1 to {} bytes without colons and control characters",
            LockKey::MAX_NAMESPACE_LEN
        )));
    }
    Ok(())
}

/// The user's key in a stored one; `None` if that is not of this namespace.
fn strip(namespace: &str, stored: &LockKey) -> Option<LockKey> {
    let key = stored.as_str().strip_prefix(namespace)?.strip_prefix(':')?;
    LockKey::from_stored(key.as_bytes()).ok()
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for Prefix {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        let taken = self.namespace.len() + 1;
        capabilities.max_key_len = capabilities.max_key_len.saturating_sub(taken);
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        let acquired = self.inner.acquire(&self.inside(request)).await;
        acquired.map_err(|error| error.with_key(request.key()))
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        self.inner.admin().map(|_| self as &dyn LockAdmin)
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.inner.shutdown(within).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for Prefix {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        let inside = format!("{}:{prefix}", self.namespace);
        let locks = self.admin_of_inner()?.list(&inside).await?;
        Ok(locks
            .into_iter()
            .filter_map(|info| self.outside(info))
            .collect())
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        let info = self
            .admin_of_inner()?
            .inspect(&key.within(&self.namespace))
            .await;
        let info = info.map_err(|error| error.with_key(key))?;
        Ok(info.and_then(|info| self.outside(info)))
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        let inside = key.within(&self.namespace);
        let broken = self.admin_of_inner()?.break_lock(&inside, reason).await;
        let broken = broken.map_err(|error| error.with_key(key))?;
        Ok(broken.and_then(|info| self.outside(info)))
    }

    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        let inside = format!("{}:{prefix}", self.namespace);
        let mut events = self.admin_of_inner()?.watch(&inside).await?;
        let namespace = self.namespace.clone();
        let (out, renamed) = mpsc::channel(64);
        tokio::spawn(async move {
            loop {
                let event = tokio::select! {
                    event = events.recv() => event,
                    () = out.closed() => return,
                };
                let Some(event) = event else { return };
                let event = match event {
                    LockEvent::Acquired(info) => strip(&namespace, &info.key)
                        .map(|key| LockEvent::Acquired(LockInfo { key, ..info })),
                    LockEvent::Free(key) => strip(&namespace, &key).map(LockEvent::Free),
                };
                // A receiver that is gone ends the watch of the backend as well.
                let Some(event) = event else { continue };
                if out.send(event).await.is_err() {
                    return;
                }
            }
        });
        Ok(renamed)
    }

    async fn renew_lease(&self, key: &LockKey, id: LeaseId, ttl: Duration) -> Result<LeaseState> {
        let inside = key.within(&self.namespace);
        let renewed = self.admin_of_inner()?.renew_lease(&inside, id, ttl).await;
        renewed.map_err(|error| error.with_key(key))
    }

    async fn release_lease(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        let inside = key.within(&self.namespace);
        let released = self.admin_of_inner()?.release_lease(&inside, id).await;
        released.map_err(|error| error.with_key(key))
    }

    async fn adopt_lease(
        &self,
        key: &LockKey,
        id: LeaseId,
        new: LeaseId,
        ttl: Duration,
    ) -> Result<Option<FencingToken>> {
        let inside = key.within(&self.namespace);
        let admin = self.admin_of_inner()?;
        let adopted = admin.adopt_lease(&inside, id, new, ttl).await;
        adopted.map_err(|error| error.with_key(key))
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Record>> {
        let inside = key.within(&self.namespace);
        let record = self.admin_of_inner()?.record(&inside).await;
        record.map_err(|error| error.with_key(key))
    }

    async fn write_record(&self, key: &LockKey, record: &Record, keep: Duration) -> Result<bool> {
        let inside = key.within(&self.namespace);
        let admin = self.admin_of_inner()?;
        let written = admin.write_record(&inside, record, keep).await;
        written.map_err(|error| error.with_key(key))
    }
}
