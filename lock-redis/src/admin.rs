use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use polylock_core::admin::{HolderInfo, LockAdmin, LockEvent, LockInfo, Record, watch_by_polling};
use polylock_core::engine::LeaseId;
use polylock_core::{
    Error, FencingToken, Label, LeaseState, LockKey, Mode, Released, RenewalRequest, Result,
};
use tokio::sync::mpsc;

use crate::error::Refusal;
use crate::keys::RedisKeys;
use crate::lock::{NAME, RedisClient};
use crate::reply::{SeenHolder, SeenLock};
use crate::script::BLOCK;
use crate::server::{ReleaseReply, Server};

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for RedisClient {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        list(&self.server, prefix).await.map_err(named)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        let server = &self.server;
        let seen = server.inspect(key).await;
        let seen = server.explained(&server.keys(key).all(), seen).await;
        Ok(seen.map_err(of(key))?.map(|seen| info(key.clone(), &seen)))
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        let reason = &reason[..reason.floor_char_boundary(MAX_REASON)];
        let server = &self.server;
        let broken = server.break_all(key, reason).await;
        let broken = server.explained(&server.keys(key).all(), broken).await;
        let broken = broken.map_err(of(key))?;
        if broken.is_some() {
            tracing::warn!(%key, reason, "lock broken by an administrator");
        }
        Ok(broken.map(|seen| info(key.clone(), &seen)))
    }

    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        let (server, prefix) = (Arc::clone(&self.server), prefix.to_owned());
        watch_by_polling(move || {
            let (server, prefix) = (Arc::clone(&server), prefix.clone());
            async move { list(&server, &prefix).await.map_err(named) }
        })
        .await
    }

    async fn renew_lease(&self, key: &LockKey, id: LeaseId, ttl: Duration) -> Result<LeaseState> {
        let mut due = RenewalRequest::new(key.clone(), id, ttl);
        // No scheduler waits for this renewal: only the configured timeouts count.
        due.timeout = due.timeout.max(self.longest * 2);
        let mut renewed = self.server.renew(&[due], &|_, _| (), &|_| None).await;
        renewed.remove(0).map_err(of(key))
    }

    async fn release_lease(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        let server = &self.server;
        let released = server.release(&server.keys(key), &id.into(), None).await;
        Ok(match released.map_err(of(key))? {
            ReleaseReply::Nothing => Released::AlreadyLost,
            ReleaseReply::Granted | ReleaseReply::Lock => Released::Clean,
        })
    }

    async fn adopt_lease(
        &self,
        key: &LockKey,
        id: LeaseId,
        new: LeaseId,
        ttl: Duration,
    ) -> Result<Option<FencingToken>> {
        let token = self.server.adopt(key, [id, new], ttl, None).await;
        Ok(token.map_err(of(key))?.map(FencingToken::new))
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Record>> {
        let at = RedisKeys::record(key).map_err(of(key))?;
        let found = self.server.record(&at).await.map_err(of(key))?;
        Ok(found.map(|stored| stored.record))
    }

    async fn write_record(&self, key: &LockKey, record: &Record, keep: Duration) -> Result<bool> {
        record.check().map_err(of(key))?;
        let at = RedisKeys::record(key).map_err(of(key))?;
        let written = self.server.write_record(&at, record, keep).await;
        written.map_err(of(key))
    }
}

fn named(error: Error) -> Error {
    error.with_backend(NAME)
}

fn of<E: Into<Error>>(key: &LockKey) -> impl Fn(E) -> Error {
    move |error| error.into().with_backend(NAME).with_key(key)
}

/// Longest reason that is stored, in bytes.
pub(crate) const MAX_REASON: usize = 1024;

/// The locks of this library under a prefix. Locks of other programs are plain strings, which look like
/// any other value; only `inspect` finds them.
async fn list(server: &Server, prefix: &str) -> Result<Vec<LockInfo>> {
    let mut found = Vec::new();
    let pattern = pattern(prefix);
    let names = server.topology.scan(&pattern, server.timeout).await?;
    for key in keys(names) {
        match server.inspect(&key).await {
            Ok(Some(seen)) if seen.is_ours() => found.push(info(key, &seen)),
            // A key of another type is no lock.
            Ok(_) => {}
            Err(failure) if failure.refusal() == Some(Refusal::WrongType) => {}
            Err(failure) => return Err(Error::from(failure).with_key(&key)),
        }
    }
    Ok(found)
}

/// The names that may be locks, sorted and without duplicates.
pub(crate) fn keys(names: impl IntoIterator<Item = Vec<u8>>) -> BTreeSet<LockKey> {
    let key = |name: Vec<u8>| LockKey::from_stored(&name).ok();
    let keys = names.into_iter().filter_map(key);
    keys.filter(|key| !RedisKeys::is_companion(key)).collect()
}

/// A glob for all keys that begin with `prefix`.
pub(crate) fn pattern(prefix: &str) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for byte in prefix.bytes() {
        if b"*?[]\\^".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.push(b'*');
    pattern
}

fn info(key: LockKey, seen: &SeenLock) -> LockInfo {
    let holders = seen.holders.iter().map(|holder| seen.holder(holder));
    let waiters = seen.waiters.iter().map(|label| Label::decode(label));
    LockInfo::new(key, seen.mode(), holders.collect()).with_waiters(waiters.collect())
}

impl SeenLock {
    pub(crate) fn mode(&self) -> Mode {
        let limit = self.mode.strip_prefix('p').and_then(|n| n.parse().ok());
        match limit {
            Some(limit) => Mode::Permit { limit },
            None if self.mode == "s" => Mode::Shared,
            None => Mode::Exclusive,
        }
    }

    /// Whether a lock has been written by this library.
    pub(crate) fn is_ours(&self) -> bool {
        let id = |value: &str| {
            value
                .split('|')
                .next()
                .and_then(LeaseId::from_hex)
                .is_some()
        };
        self.holders.iter().all(|holder| id(&holder.value))
    }

    pub(crate) fn holder(&self, holder: &SeenHolder) -> HolderInfo {
        let mut parts = holder.value.split('|');
        let (id, label) = (parts.next().unwrap_or_default(), parts.next());
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
        let (token, since) = (number(parts.next()), number(parts.next()));
        let noted = holder.note.split_once('|');
        let label = noted.map_or_else(|| label.unwrap_or_default(), |(_, label)| label);
        // redis-py stores what looks like an id, without a label.
        let is_ours = LeaseId::from_hex(id).is_some() && label.contains('=');
        let mut info = HolderInfo::new(match is_ours || self.mode() != Mode::Exclusive {
            true => Label::decode(label),
            false => of_other_client(&holder.value),
        });
        let token = match noted {
            Some((token, _)) => token.parse().ok(),
            None => self.first_token(id).or(token),
        };
        info.token = token.map(FencingToken::new);
        // A token drawn by a script is at least the server's time, and usually equal to it.
        let drawn = token.map(Duration::from_micros);
        info.since = since.map(Duration::from_millis).or(drawn).map(at);
        info.time_left = u64::try_from(holder.left).ok().map(Duration::from_millis);
        info
    }

    /// The token of an exclusive quorum holder: the first of the last block, if that is its own.
    fn first_token(&self, id: &str) -> Option<u64> {
        let mut parts = self.fence.split('|');
        let last: u64 = parts.next()?.parse().ok()?;
        (parts.next()? == id).then(|| last.saturating_sub(BLOCK - 1))
    }
}

/// A label that tells the holders of other libraries apart. It does not show the value, by which anybody
/// could release the lock.
fn of_other_client(value: &str) -> Label {
    // The SHA-1 of its text.
    let script = redis::Script::new(value);
    Label::of_note(format!("other client, {}", &script.get_hash()[..8]))
}

fn at(since_epoch: Duration) -> SystemTime {
    UNIX_EPOCH + since_epoch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_taken_as_it_is_written() {
        assert_eq!(pattern("lock:a"), b"lock:a*");
        assert_eq!(pattern(""), b"*");
        assert_eq!(pattern("a*[b]?\\"), b"a\\*\\[b\\]\\?\\\\*");
    }

    #[test]
    fn shows_holders_of_every_kind() {
        let id = "000102030405060708090a0b0c0d0e0f";
        let label = Label::of_this_process().with_note("a|b");
        let holder = |value: String, note: &str| SeenHolder {
            value,
            left: 1500,
            note: note.to_owned(),
        };
        let mut seen = SeenLock {
            mode: "x".into(),
            holders: vec![holder(format!("{id}|{}", label.encode()), "")],
            fence: format!("0000000000000131|{id}"),
            waiters: vec![],
        };
        let shown = seen.holder(&seen.holders[0]);
        assert_eq!(shown.label, label);
        assert_eq!(shown.token, Some(FencingToken::new(100)));
        assert_eq!(shown.time_left, Some(Duration::from_millis(1500)));
        assert!(seen.is_ours());

        seen.fence = "999".into();
        assert_eq!(seen.holder(&seen.holders[0]).token, None, "not told yet");
        let told = holder(format!("{id}|{}|7|1500", label.encode()), "");
        let shown = seen.holder(&told);
        assert_eq!(shown.token, Some(FencingToken::new(7)));
        assert_eq!(shown.since, Some(at(Duration::from_millis(1_500))));
        assert_eq!(shown.label, label);
        seen.mode = "p3".into();
        seen.holders = vec![holder(id.into(), &format!("55|{}", label.encode()))];
        assert_eq!(
            seen.holder(&seen.holders[0]).token,
            Some(FencingToken::new(55))
        );
        assert!(matches!(seen.mode(), Mode::Permit { limit } if limit.get() == 3));

        seen.mode = "x".into();
        seen.holders = vec![SeenHolder {
            left: -1,
            ..holder("redis-py".into(), "")
        }];
        let foreign = seen.holder(&seen.holders[0]);
        assert_eq!((foreign.token, foreign.time_left), (None, None));
        assert_eq!(foreign.label, Label::of_note("other client, bf6694a6"));
        assert!(!seen.is_ours());
        let uuid = seen.holder(&holder("9f8c2b1e4d5a11ee8c990242ac120002".into(), ""));
        assert_eq!(uuid.label, Label::of_note("other client, 2374e4d5"));
    }
}
