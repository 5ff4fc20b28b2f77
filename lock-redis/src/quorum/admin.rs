use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream;
use polylock_core::admin::{HolderInfo, LockAdmin, LockEvent, LockInfo, Record, watch_by_polling};
use polylock_core::engine::LeaseId;
use polylock_core::{
    Error, ErrorKind, FencingToken, LeaseState, LockKey, Mode, Released, RenewalRequest, Renewer,
    Result,
};
use tokio::sync::mpsc;

use super::lease::QuorumAcquisition;
use super::node::Quorum;
use super::votes::majority;
use super::{NAME, QuorumClient, record};
use crate::admin::{MAX_REASON, keys, pattern};
use crate::keys::{RedisKeys, TokenCounter};
use crate::reply::SeenLock;

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for QuorumClient {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        list(&self.0, prefix).await
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        let seen = inspect(&self.0, key).await.map_err(of(key))?;
        Ok(merged(key, self.0.len(), &seen))
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        let reason = &reason[..reason.floor_char_boundary(MAX_REASON)];
        let quorum = &self.0;
        let seen = quorum.ask_all(|node| async move { node.server.break_all(key, reason).await });
        // Nodes that have not replied may keep the holder: only a majority breaks the lock.
        let seen = seen.await.map_err(|e| of(key)(e).with_unknown_outcome())?;
        let broken = merged(key, self.0.len(), &seen);
        if broken.is_some() {
            tracing::warn!(%key, %reason, "lock broken by an administrator");
        }
        Ok(broken)
    }

    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        let (quorum, prefix) = (Arc::clone(&self.0), prefix.to_owned());
        watch_by_polling(move || {
            let (quorum, prefix) = (Arc::clone(&quorum), prefix.clone());
            async move { list(&quorum, &prefix).await }
        })
        .await
    }

    async fn renew_lease(&self, key: &LockKey, id: LeaseId, ttl: Duration) -> Result<LeaseState> {
        self.0.check_ttl(ttl).map_err(of(key))?;
        let due = [RenewalRequest::new(key.clone(), id, ttl)];
        self.0.renew(&due).await.remove(0).map_err(of(key))
    }

    async fn release_lease(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        let keys = Arc::new(RedisKeys::of(key, TokenCounter::Lock));
        let acquisition = Arc::new(QuorumAcquisition::new(&self.0, keys, id, id.into()));
        acquisition.release().await.map_err(of(key))
    }

    async fn adopt_lease(
        &self,
        key: &LockKey,
        _: LeaseId,
        _: LeaseId,
        _: Duration,
    ) -> Result<Option<FencingToken>> {
        let message = "a lease of a quorum cannot be adopted: two adopters could have half of its nodes \
                       each, and neither of them the lock";
        Err(of(key)(Error::new(ErrorKind::Unsupported, message)))
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Record>> {
        let newest = record::newest(&self.0, key).await.map_err(of(key))?;
        Ok(newest.map(|stored| stored.record))
    }

    async fn write_record(&self, key: &LockKey, record: &Record, keep: Duration) -> Result<bool> {
        let written = record::write(&self.0, key, record, keep).await;
        written.map_err(of(key))
    }
}

fn of(key: &LockKey) -> impl Fn(Error) -> Error {
    move |error| error.with_backend(NAME).with_key(key)
}

/// The state of a lock on each node that replies.
async fn inspect(quorum: &Quorum, key: &LockKey) -> Result<Vec<Option<SeenLock>>> {
    let seen = quorum.ask_all(|node| async move { node.server.inspect(key).await });
    seen.await
}

/// The locks of this library under a prefix.
async fn list(quorum: &Quorum, prefix: &str) -> Result<Vec<LockInfo>> {
    let named = |error: Error| error.with_backend(NAME);
    let pattern = &*pattern(prefix);
    let names = quorum.ask_all(|node| async move {
        let server = &node.server;
        server.topology.scan(pattern, server.timeout).await
    });
    let keys = keys(names.await.map_err(named)?.into_iter().flatten());
    // In order, a limited number at a time.
    let seen = stream::iter(keys).map(|key| async move { (inspect(quorum, &key).await, key) });
    let mut seen = seen.buffered(MAX_INSPECTIONS);
    let mut found = Vec::new();
    while let Some((seen, key)) = seen.next().await {
        match seen {
            Ok(seen) if seen.iter().flatten().all(SeenLock::is_ours) => {
                found.extend(merged(&key, quorum.len(), &seen));
            }
            Ok(_) => {}
            // A key of another type is not a lock. A missing right must not look like an empty list.
            Err(error) if matches!(error.kind(), ErrorKind::Foreign | ErrorKind::Protocol) => {}
            Err(error) => return Err(named(error)),
        }
    }
    Ok(found)
}

/// Locks that a list asks the nodes for at the same time.
const MAX_INSPECTIONS: usize = 32;

/// Merges the states of a lock on its nodes; `None` for a free lock. Pure. There are `nodes` nodes;
/// those missing in `seen` have not replied, and may have the state of any other.
fn merged(key: &LockKey, nodes: usize, seen: &[Option<SeenLock>]) -> Option<LockInfo> {
    let missing = nodes - seen.len();
    let counts = |count: usize| count + missing >= majority(nodes);
    let mut holders: BTreeMap<&str, Vec<HolderInfo>> = BTreeMap::new();
    let mut exclusive = 0;
    for seen in seen.iter().flatten() {
        exclusive += usize::from(seen.mode() == Mode::Exclusive);
        for holder in &seen.holders {
            let id = holder.value.split('|').next().unwrap_or_default();
            holders.entry(id).or_default().push(seen.holder(holder));
        }
    }
    // Holders with fewer votes have not acquired the lock, or have lost it.
    let holders = holders.into_values().filter(|shown| counts(shown.len()));
    let mut holders: Vec<_> = holders
        .map(|shown| agreed(shown, majority(nodes)))
        .collect();
    if holders.is_empty() {
        return None;
    }
    holders.sort_by_key(|holder| holder.token);
    let mode = if counts(exclusive) {
        Mode::Exclusive
    } else {
        Mode::Shared
    };
    Some(LockInfo::new(key.clone(), mode, holders))
}

/// Merges the reports of one holder, from a majority or from fewer nodes.
fn agreed(mut shown: Vec<HolderInfo>, majority: usize) -> HolderInfo {
    let nth = majority.min(shown.len()) - 1;
    // The lease lasts for as long as a majority has it.
    shown.sort_by_key(|holder| std::cmp::Reverse(holder.time_left));
    let time_left = shown[nth].time_left;
    // A majority has the token on record; a late vote may have given a larger one.
    shown.sort_by_key(|holder| std::cmp::Reverse(holder.token));
    let mut holder = shown.swap_remove(nth);
    holder.time_left = time_left;
    holder
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use polylock_core::FencingToken;

    use super::*;
    use crate::reply::SeenHolder;

    const A: &str = "000102030405060708090a0b0c0d0e0f";
    const B: &str = "100102030405060708090a0b0c0d0e0f";

    fn key() -> LockKey {
        LockKey::new("a").unwrap()
    }

    fn held(id: &str, left: i64, token: u64) -> Option<SeenLock> {
        Some(SeenLock {
            mode: "x".into(),
            holders: vec![SeenHolder {
                value: format!("{id}|"),
                left,
                note: String::new(),
            }],
            fence: format!("{:016}|{id}", token + 31),
            waiters: vec![],
        })
    }

    #[test]
    fn a_holder_has_a_majority() {
        let seen = [
            held(A, 900, 5),
            held(B, 100, 9),
            held(A, 500, 5),
            held(A, 700, 7),
            None,
        ];
        let info = merged(&key(), 5, &seen).unwrap();
        let [holder] = &info.holders[..] else {
            panic!("{info:?}")
        };
        assert_eq!(info.mode, Mode::Exclusive);
        assert_eq!(holder.time_left, Some(Duration::from_millis(500)));
        assert_eq!(holder.token, Some(FencingToken::new(5)));
        let split = [
            held(A, 900, 5),
            held(B, 100, 9),
            held(A, 500, 5),
            held(B, 1, 1),
            None,
        ];
        assert_eq!(merged(&key(), 5, &split), None, "nobody has won");
        assert_eq!(merged(&key(), 5, &[None, None, None]), None);
    }

    #[test]
    fn nodes_without_a_reply_may_be_the_majority() {
        let seen = [held(A, 900, 5), None, held(A, 900, 5)];
        assert!(merged(&key(), 5, &seen).is_some());
        let seen = [held(A, 900, 5), None, None, None];
        assert!(merged(&key(), 5, &seen).is_none());
    }

    #[test]
    fn readers_are_shown_together() {
        let seen = SeenLock {
            mode: "s".into(),
            holders: [(A, "7|"), (B, "5|")]
                .map(|(id, note)| SeenHolder {
                    value: id.into(),
                    left: 10,
                    note: note.into(),
                })
                .to_vec(),
            fence: String::new(),
            waiters: vec![],
        };
        let info = merged(&key(), 3, &[Some(seen.clone()), None, Some(seen)]).unwrap();
        assert_eq!(info.mode, Mode::Shared);
        let tokens: Vec<_> = info
            .holders
            .iter()
            .map(|h| h.token.unwrap().value())
            .collect();
        assert_eq!(tokens, [5, 7]);
    }
}
