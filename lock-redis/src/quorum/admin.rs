use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream;
use lock_core::admin::{LockAdmin, LockEvent, LockInfo, watch_by_looking};
use lock_core::engine::LeaseId;
use lock_core::{Error, ErrorKind, Lease, LeaseState, LockKey, Released, RenewalRequest, Result};
use tokio::sync::mpsc;

use super::NAME;
use super::client::Client;
use super::ensemble::Ensemble;
use super::view::merged;
use crate::admin::{MAX_REASON, pattern};
use crate::error::Failure;
use crate::keys::{Counter, Keys};
use crate::reply::Seen;

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for Client {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        list(&self.ensemble, prefix).await.map_err(named)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        let shown = inspect(&self.ensemble, key).await;
        Ok(shown.map_err(|error| named(error).with_key(key))?.info)
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        let reason: Arc<str> = reason[..reason.floor_char_boundary(MAX_REASON)].into();
        let (seen, failures) = self
            .ensemble
            .ask_all(|node| {
                let (key, reason) = (key.clone(), Arc::clone(&reason));
                async move { node.server.break_all(&key, &reason).await }
            })
            .await;
        // Nodes that have not answered may keep the holder in: only a majority takes the lock.
        let shown = shown(&self.ensemble, key, &seen, &failures);
        let broken = shown.map_err(|e| named(e).with_key(key).with_unknown_outcome())?;
        if broken.info.is_some() {
            tracing::warn!(%key, %reason, "lock broken by an administrator");
        }
        Ok(broken.info)
    }

    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        let (ensemble, prefix) = (Arc::clone(&self.ensemble), prefix.to_owned());
        watch_by_looking(move || {
            let (ensemble, prefix) = (Arc::clone(&ensemble), prefix.clone());
            async move { list(&ensemble, &prefix).await.map_err(named) }
        })
        .await
    }

    async fn renew_lease(&self, key: &LockKey, id: LeaseId, ttl: Duration) -> Result<LeaseState> {
        let name = |error: Error| named(error).with_key(key);
        self.check_ttl(ttl).map_err(name)?;
        let due = [RenewalRequest::new(key.clone(), id, ttl)];
        self.renewer.renew(&due).await.remove(0).map_err(name)
    }

    async fn release_lease(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        let released = self
            .lease_of(Keys::of(key, Counter::Lock), id)
            .release()
            .await;
        released.map_err(|error| named(error).with_key(key))
    }
}

fn named(error: Error) -> Error {
    error.with_backend(NAME)
}

/// What the nodes show of a lock.
struct Shown {
    info: Option<LockInfo>,
    /// Whether this library has written it, on every node that has it.
    is_ours: bool,
}

async fn inspect(ensemble: &Ensemble, key: &LockKey) -> Result<Shown> {
    let (seen, failures) = ensemble
        .ask_all(|node| {
            let key = key.clone();
            async move { node.server.inspect(&key).await }
        })
        .await;
    shown(ensemble, key, &seen, &failures)
}

fn shown(
    ensemble: &Ensemble,
    key: &LockKey,
    seen: &[Option<Seen>],
    failures: &[Failure],
) -> Result<Shown> {
    if ensemble.is_too_few(failures.len()) {
        return Err(ensemble.silence(failures, &[]));
    }
    Ok(Shown {
        info: merged(key, ensemble.len(), seen),
        is_ours: seen.iter().flatten().all(Seen::is_ours),
    })
}

/// The locks of this library under a prefix.
async fn list(ensemble: &Ensemble, prefix: &str) -> Result<Vec<LockInfo>> {
    let pattern: Arc<[u8]> = pattern(prefix).into();
    let (names, failures) = ensemble
        .ask_all(|node| {
            let pattern = Arc::clone(&pattern);
            async move { node.server.link.scan(&pattern).await }
        })
        .await;
    if ensemble.is_too_few(failures.len()) {
        return Err(ensemble.silence(&failures, &[]));
    }
    let names: BTreeSet<_> = names.into_iter().flatten().collect();
    let keys = names.into_iter().filter_map(|name| {
        let key = LockKey::new(String::from_utf8(name).ok()?).ok()?;
        (!Keys::is_companion(&key)).then_some(key)
    });
    // In their order, and some at a time.
    let shown = stream::iter(keys).map(|key| async move { inspect(ensemble, &key).await });
    let mut shown = shown.buffered(AT_A_TIME);
    let mut found = Vec::new();
    while let Some(shown) = shown.next().await {
        match shown {
            Ok(Shown {
                info,
                is_ours: true,
            }) => found.extend(info),
            Ok(_) => {}
            // A key of another type is no lock. A missing right is no empty list.
            Err(error) if matches!(error.kind(), ErrorKind::Foreign | ErrorKind::Protocol) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Locks that a list asks the nodes for at the same time.
const AT_A_TIME: usize = 32;
