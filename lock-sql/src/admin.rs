use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::{LockAdmin, LockEvent, LockInfo, Record, watch_by_polling};
use polylock_core::engine::LeaseId;
use polylock_core::{
    AcquireRequest, Error, FencingToken, LeaseState, LockKey, Released, RenewalRequest, Result,
};
use tokio::sync::mpsc;

use crate::leases::Leases;

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for Leases {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        let listed = self.store.list(prefix).await;
        listed.map_err(|failure| self.named(failure))
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        self.of(key, self.store.inspect(key).await)
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        let reason = cut(reason);
        let broken = self.of(key, self.store.break_all(key, reason).await)?;
        if broken.is_some() {
            tracing::warn!(%key, reason, "lock broken by an administrator");
            self.store.local().waiters.wake(key);
        }
        Ok(broken)
    }

    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        let (store, prefix) = (Arc::clone(&self.store), prefix.to_owned());
        let backend = self.capabilities.backend;
        watch_by_polling(move || {
            let (store, prefix) = (Arc::clone(&store), prefix.clone());
            async move {
                let held = store.list(&prefix).await;
                held.map_err(|failure| Error::from(failure).with_backend(backend))
            }
        })
        .await
    }

    async fn renew_lease(&self, key: &LockKey, id: LeaseId, ttl: Duration) -> Result<LeaseState> {
        let mut due = RenewalRequest::new(key.clone(), id, ttl);
        // No scheduler waits for this renewal: only the configured timeouts count.
        due.timeout = AcquireRequest::MAX_TTL;
        self.of(key, self.store.renew(&[due]).await.remove(0))
    }

    async fn release_lease(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        let released = self.of(key, self.store.release(key, id).await)?;
        self.store.local().waiters.wake(key);
        Ok(released)
    }

    async fn adopt_lease(
        &self,
        key: &LockKey,
        id: LeaseId,
        new: LeaseId,
        ttl: Duration,
    ) -> Result<Option<FencingToken>> {
        let renewal = RenewalRequest::new(key.clone(), new, ttl);
        let adopted = self.of(key, self.store.adopt(id, &renewal).await)?;
        if adopted.is_some() {
            self.store.local().held.take_away(id);
        }
        Ok(adopted)
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Record>> {
        self.of(key, self.store.record(key).await)
    }

    async fn write_record(&self, key: &LockKey, record: &Record, keep: Duration) -> Result<bool> {
        self.of(key, record.check())?;
        self.of(key, self.store.write_record(key, record, keep).await)
    }
}

impl Leases {
    fn named(&self, failure: impl Into<Error>) -> Error {
        failure.into().with_backend(self.capabilities.backend)
    }

    /// What was done with a key, with its name in the error.
    pub(crate) fn of<T>(&self, key: &LockKey, done: Result<T, impl Into<Error>>) -> Result<T> {
        done.map_err(|failure| self.named(failure).with_key(key))
    }
}

/// As much of a reason as is stored.
pub(crate) fn cut(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(MAX_REASON)]
}

/// Longest reason that is stored, in bytes.
const MAX_REASON: usize = 1024;
