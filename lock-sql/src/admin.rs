use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::admin::{LockAdmin, LockEvent, LockInfo};
use lock_core::engine::LeaseId;
use lock_core::{Error, FencingToken, LeaseState, LockKey, Released, RenewalRequest, Result};
use tokio::sync::mpsc;

use crate::error::Failure;
use crate::leases::Leases;
use crate::store::Store;

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for Leases {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        self.shared
            .store
            .list(prefix)
            .await
            .map_err(|failure| self.named(failure))
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        let found = self.shared.store.inspect(key).await;
        found.map_err(|failure| self.named(failure).with_key(key))
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        let reason = &reason[..reason.floor_char_boundary(MAX_REASON)];
        let broken = self.shared.store.break_all(key, reason).await;
        let broken = broken.map_err(|failure| self.named(failure).with_key(key))?;
        if broken.is_some() {
            tracing::warn!(%key, reason, "lock broken by an administrator");
            self.shared.wakes.wake(key);
        }
        Ok(broken)
    }

    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        let mut seen = Seen::default();
        // What is held when the watch begins is no event.
        seen.events(self.list(prefix).await?);
        let (out, receiver) = mpsc::channel(64);
        tokio::spawn(watch(
            Arc::clone(&self.shared.store),
            prefix.to_owned(),
            seen,
            out,
        ));
        Ok(receiver)
    }

    async fn renew_lease(&self, key: &LockKey, id: LeaseId, ttl: Duration) -> Result<LeaseState> {
        let due = [RenewalRequest::new(key.clone(), id, ttl)];
        let renewed = self.shared.store.renew(&due).await.remove(0);
        renewed.map_err(|failure| self.named(failure).with_key(key))
    }

    async fn release_lease(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        let released = self.shared.store.release(key, id).await;
        let released = released.map_err(|failure| self.named(failure).with_key(key))?;
        self.shared.wakes.wake(key);
        Ok(released)
    }
}

impl Leases {
    fn named(&self, failure: Failure) -> Error {
        Error::from(failure).with_backend(self.capabilities().backend)
    }
}

/// Longest reason that is stored, in bytes.
const MAX_REASON: usize = 1024;

/// Time between two looks of a watch.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Compares what is held until nobody listens any more.
async fn watch(
    store: Arc<dyn Store>,
    prefix: String,
    mut seen: Seen,
    out: mpsc::Sender<LockEvent>,
) {
    loop {
        if tokio::time::timeout(LOOK_EVERY, out.closed()).await.is_ok() {
            return;
        }
        // A database that does not answer shows nothing; the next look may see more.
        let Ok(held) = store.list(&prefix).await else {
            continue;
        };
        for event in seen.events(held) {
            if out.send(event).await.is_err() {
                return;
            }
        }
    }
}

/// The locks of the last look, each with its largest token.
#[derive(Default)]
struct Seen(BTreeMap<LockKey, Option<FencingToken>>);

impl Seen {
    /// What happened since the last look.
    fn events(&mut self, held: Vec<LockInfo>) -> Vec<LockEvent> {
        let newest = |info: &LockInfo| info.holders.iter().filter_map(|holder| holder.token).max();
        let now: BTreeMap<_, _> = held.iter().map(|i| (i.key.clone(), newest(i))).collect();
        let gone = self.0.keys().filter(|key| !now.contains_key(*key));
        let mut events: Vec<_> = gone.cloned().map(LockEvent::Free).collect();
        let is_new = |info: &LockInfo| {
            self.0
                .get(&info.key)
                .is_none_or(|last| *last < newest(info))
        };
        events.extend(held.into_iter().filter(is_new).map(LockEvent::Acquired));
        self.0 = now;
        events
    }
}

#[cfg(test)]
mod tests {
    use lock_core::admin::HolderInfo;
    use lock_core::{Label, Mode};

    use super::*;

    fn held(key: &str, tokens: &[u64]) -> LockInfo {
        let holder = |token: &u64| {
            let mut holder = HolderInfo::new(Label::of_this_process());
            holder.token = Some(FencingToken::new(*token));
            holder
        };
        let key = LockKey::new(key).unwrap();
        LockInfo::new(key, Mode::Shared, tokens.iter().map(holder).collect())
    }

    fn shown(events: &[LockEvent]) -> Vec<String> {
        let show = |event: &LockEvent| match event {
            LockEvent::Acquired(info) => format!("+{}", info.key),
            LockEvent::Free(key) => format!("-{key}"),
            other => format!("{other:?}"),
        };
        events.iter().map(show).collect()
    }

    #[test]
    fn a_watch_sees_new_holders_and_locks_that_nobody_holds() {
        let mut seen = Seen::default();
        assert_eq!(
            shown(&seen.events(vec![held("a", &[1]), held("b", &[2])])),
            ["+a", "+b"]
        );
        assert_eq!(
            shown(&seen.events(vec![held("a", &[1]), held("b", &[2])])),
            [""; 0]
        );
        assert_eq!(shown(&seen.events(vec![held("b", &[2, 3])])), ["-a", "+b"]);
        assert_eq!(shown(&seen.events(vec![held("b", &[3])])), [""; 0]);
        assert_eq!(shown(&seen.events(vec![held("b", &[4])])), ["+b"]);
        assert_eq!(shown(&seen.events(vec![])), ["-b"]);
    }
}
