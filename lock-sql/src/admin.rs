use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::{LockAdmin, LockEvent, LockInfo, Record, watch_by_polling};
use polylock_core::engine::LeaseId;
use polylock_core::{
    AcquireRequest, Error, FencingToken, LeaseState, LockKey, Released, RenewalRequest, Result,
};
use tokio::sync::mpsc;

use crate::error::SqlFailure;
use crate::leases::Leases;

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for Leases {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        self.store
            .list(prefix)
            .await
            .map_err(|failure| self.named(failure))
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        let found = self.store.inspect(key).await;
        found.map_err(|failure| self.named(failure).with_key(key))
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        let reason = cut(reason);
        let broken = self.store.break_all(key, reason).await;
        let broken = broken.map_err(|failure| self.named(failure).with_key(key))?;
        if broken.is_some() {
            tracing::warn!(%key, reason, "lock broken by an administrator");
            self.store.release_notifier().wake(key);
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
        let renewed = self.store.renew(&[due]).await.remove(0);
        let backend = self.capabilities.backend;
        renewed.map_err(|error| error.with_backend(backend).with_key(key))
    }

    async fn release_lease(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        let released = self.store.release(key, id).await;
        let released = released.map_err(|failure| self.named(failure).with_key(key))?;
        self.store.release_notifier().wake(key);
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
        let adopted = self.store.adopt(id, &renewal).await;
        let adopted = adopted.map_err(|failure| self.named(failure).with_key(key))?;
        if adopted.is_some() {
            self.store.held_leases().take_away(id);
        }
        Ok(adopted)
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Record>> {
        let record = self.store.record(key).await;
        record.map_err(|failure| self.named(failure).with_key(key))
    }

    async fn write_record(&self, key: &LockKey, record: &Record, keep: Duration) -> Result<bool> {
        let backend = self.capabilities.backend;
        let checked = record.check();
        checked.map_err(|error| error.with_backend(backend).with_key(key))?;
        let written = self.store.write_record(key, record, keep).await;
        written.map_err(|failure| self.named(failure).with_key(key))
    }
}

impl Leases {
    fn named(&self, failure: SqlFailure) -> Error {
        Error::from(failure).with_backend(self.capabilities.backend)
    }
}

/// As much of a reason as is stored.
pub(crate) fn cut(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(MAX_REASON)]
}

/// Longest reason that is stored, in bytes.
const MAX_REASON: usize = 1024;
