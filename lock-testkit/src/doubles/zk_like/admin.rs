use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::admin::{HolderInfo, LockAdmin, LockEvent, LockInfo};
use lock_core::engine::LeaseId;
use lock_core::{Error, ErrorKind, FencingToken, LeaseState, LockKey, Released, Result};
use tokio::sync::{broadcast, mpsc};

use super::ZkLike;
use super::recipe::holders;
use super::server::Server;
use super::tree::Contender;

/// The lock as its nodes show it; `None` if there are none.
fn info(server: &Server, key: &LockKey) -> Option<LockInfo> {
    let nodes = server.children(key).nodes;
    let holding: Vec<&Contender> = holders(&nodes).collect();
    let mode = holding.first()?.mode;
    let shown = |node: &&Contender| {
        let mut holder = HolderInfo::new(node.label.clone());
        holder.token = node.token.map(FencingToken::new);
        holder
    };
    let waiting = nodes
        .iter()
        .filter(|node| !holding.iter().any(|held| held.id == node.id));
    let waiting = waiting.map(|node| node.label.clone()).collect();
    let holding = holding.iter().map(shown).collect();
    Some(LockInfo::new(key.clone(), mode, holding).with_waiters(waiting))
}

fn no_lease<T>() -> Result<T> {
    Err(Error::new(
        ErrorKind::Unsupported,
        "locks live with the session of their client",
    ))
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for ZkLike {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        let keys = self.server.wire.send(|| self.server.keys()).await?;
        let keys = keys.iter().filter(|key| key.as_str().starts_with(prefix));
        Ok(keys.filter_map(|key| info(&self.server, key)).collect())
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        self.server.wire.send(|| info(&self.server, key)).await
    }

    async fn break_lock(&self, key: &LockKey, _reason: &str) -> Result<Option<LockInfo>> {
        let nodes = self
            .server
            .wire
            .send(|| self.server.children(key))
            .await?
            .nodes;
        let shown = info(&self.server, key);
        for node in holders(&nodes) {
            self.server.delete(key, node.id);
        }
        Ok(shown)
    }

    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        let (server, prefix) = (std::sync::Arc::clone(&self.server), prefix.to_owned());
        let mut changes = server.changes();
        let (out, events) = mpsc::channel(64);
        tokio::spawn(async move {
            let mut seen: HashMap<LockKey, Vec<Option<FencingToken>>> = HashMap::new();
            loop {
                let key = tokio::select! {
                    key = changes.recv() => key,
                    () = out.closed() => return,
                };
                let key = match key {
                    Ok(key) if key.as_str().starts_with(&prefix) => key,
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => continue,
                    Err(broadcast::error::RecvError::Closed) => return,
                };
                let event = match info(&server, &key) {
                    Some(info) => {
                        let tokens: Vec<_> = info.holders.iter().map(|h| h.token).collect();
                        // A node without a token is of a contender that has not seen its luck yet.
                        let news = seen.get(&key) != Some(&tokens) && !tokens.contains(&None);
                        seen.insert(key, tokens);
                        news.then_some(LockEvent::Acquired(info))
                    }
                    None => seen.remove(&key).map(|_| LockEvent::Free(key)),
                };
                let Some(event) = event else { continue };
                if out.send(event).await.is_err() {
                    return;
                }
            }
        });
        Ok(events)
    }

    async fn renew_lease(&self, _: &LockKey, _: LeaseId, _: Duration) -> Result<LeaseState> {
        no_lease()
    }

    async fn release_lease(&self, _: &LockKey, _: LeaseId) -> Result<Released> {
        no_lease()
    }
}
