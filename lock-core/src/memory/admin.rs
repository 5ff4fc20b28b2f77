use async_trait::async_trait;
use tokio::sync::{broadcast, mpsc};

use super::Memory;
use crate::admin::{LockAdmin, LockEvent, LockInfo};
use crate::engine::LeaseId;
use crate::error::Result;
use crate::key::LockKey;
use crate::lease::{LeaseState, Released, RenewalRequest, renew};
use crate::lost_reason::LostReason;

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for Memory {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        let keys = self.store.keys().into_iter();
        let keys = keys.filter(|key| key.as_str().starts_with(prefix));
        Ok(keys.filter_map(|key| self.store.info(&key)).collect())
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        Ok(self.store.info(key))
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        let broken = self.store.evict(key, Some(LostReason::Broken));
        if broken.is_some() {
            tracing::warn!(%key, reason, "lock broken by an administrator");
        }
        Ok(broken)
    }

    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        let mut events = self.store.events();
        let prefix = prefix.to_owned();
        let (out, receiver) = mpsc::channel(64);
        tokio::spawn(async move {
            loop {
                let event = tokio::select! {
                    event = events.recv() => event,
                    () = out.closed() => return,
                };
                match event {
                    Ok(event) if event.key().as_str().starts_with(&prefix) => {
                        if out.send(event).await.is_err() {
                            return;
                        }
                    }
                    // A slow receiver misses events, as it would on any server.
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return,
                }
            }
        });
        Ok(receiver)
    }

    async fn renew_lease(
        &self,
        key: &LockKey,
        id: LeaseId,
        ttl: std::time::Duration,
    ) -> Result<LeaseState> {
        let request = RenewalRequest::new(key.clone(), id, ttl);
        renew(&*self.store.as_renewer(), &[request], ttl)
            .await
            .remove(0)
    }

    async fn release_lease(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        self.store.release(key, id).await
    }
}
