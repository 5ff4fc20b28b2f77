use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::Memory;
use super::faults::Request;
use crate::admin::{LockAdmin, LockEvent, LockInfo, Record, watch_by_polling};
use crate::engine::LeaseId;
use crate::error::Result;
use crate::key::LockKey;
use crate::lease::{LeaseState, Released, RenewalRequest, renew};
use crate::lost_reason::LostReason;
use crate::token::FencingToken;

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for Memory {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        self.store.list(prefix)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        self.store.faults.arrives()?;
        Ok(self.store.info(key))
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        self.store.faults.arrives()?;
        let broken = self.store.evict(key, Some(LostReason::Broken));
        if broken.is_some() {
            tracing::warn!(%key, reason, "lock broken by an administrator");
        }
        Ok(broken)
    }

    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        let (store, prefix) = (Arc::clone(&self.store), prefix.to_owned());
        watch_by_polling(move || {
            let held = store.list(&prefix);
            async move { held }
        })
        .await
    }

    async fn renew_lease(&self, key: &LockKey, id: LeaseId, ttl: Duration) -> Result<LeaseState> {
        let request = RenewalRequest::new(key.clone(), id, ttl);
        renew(&*self.store.as_renewer(), &[request], ttl)
            .await
            .remove(0)
    }

    async fn release_lease(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        self.store.release(key, id).await
    }

    async fn adopt_lease(
        &self,
        key: &LockKey,
        id: LeaseId,
        new: LeaseId,
        ttl: Duration,
    ) -> Result<Option<FencingToken>> {
        let adopt = || self.store.adopt(key, id, new, ttl);
        self.store.faults.send(Request::Adopt, adopt).await
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Record>> {
        self.store.faults.arrives()?;
        Ok(self.store.record(key))
    }

    async fn write_record(&self, key: &LockKey, record: &Record, keep: Duration) -> Result<bool> {
        record.check()?;
        let write = || self.store.write_record(key, record, keep);
        self.store.faults.send(Request::Record, write).await
    }
}
