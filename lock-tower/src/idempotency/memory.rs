use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use polylock_core::{FencingToken, LockKey};
use tokio::time::Instant;

use super::{Put, ResponseStore, StoreError, StoredResponse};

/// Stores responses in the memory of this process, for services with one instance and for tests.
///
/// Beyond the limit, the responses that expire first are dropped, and a response that alone exceeds it is not
/// stored. A repetition of their requests is handled again.
///
/// The example of [`IdempotencyLayer`](super::IdempotencyLayer) uses it.
pub struct MemoryResponses {
    max_bytes: usize,
    kept: Mutex<Responses>,
}

#[derive(Default)]
struct Responses {
    /// What [`StoredResponse::to_bytes`] made: body and header values of the response itself can be parts of
    /// larger buffers, which they would keep in memory.
    responses: HashMap<LockKey, Bytes>,
    /// Keys by expiry; the number distinguishes those that expire at the same time.
    ends: BTreeMap<(Instant, u64), LockKey>,
    next: u64,
    bytes: usize,
}

impl MemoryResponses {
    /// Creates a store for up to 256 MiB of responses.
    #[must_use]
    pub fn new() -> Self {
        Self {
            max_bytes: 256 << 20,
            kept: Mutex::default(),
        }
    }

    /// Sets the approximate max size in bytes, counting bodies, heads, keys and entries in the tables.
    /// Default: 256 MiB; 0 stores nothing.
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Returns the number of stored responses.
    #[must_use]
    pub fn len(&self) -> usize {
        let mut kept = self.kept();
        kept.purge(Instant::now());
        kept.responses.len()
    }

    /// Returns whether no response is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn kept(&self) -> MutexGuard<'_, Responses> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryResponses {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl ResponseStore for MemoryResponses {
    async fn get(&self, key: &LockKey) -> Result<Option<StoredResponse>, StoreError> {
        let stored = {
            let mut kept = self.kept();
            kept.purge(Instant::now());
            kept.responses.get(key).cloned()
        };
        stored.map(StoredResponse::from_bytes).transpose()
    }

    async fn put(
        &self,
        key: &LockKey,
        response: &StoredResponse,
        _: Option<FencingToken>,
        retention: Duration,
    ) -> Result<Put, StoreError> {
        let stored = Bytes::from(response.to_bytes());
        let now = Instant::now();
        let mut kept = self.kept();
        kept.purge(now);
        if let Some(there) = kept.responses.get(key) {
            let there = StoredResponse::from_bytes(there.clone())?;
            return Ok(Put::beside(&there, response));
        }
        if weight(key, &stored) > self.max_bytes {
            // It would evict all others and then itself.
            return Ok(Put::Stored);
        }
        let end = now.checked_add(retention.min(MAX_KEEP)).unwrap_or(now);
        kept.insert(key, stored, end);
        while kept.bytes > self.max_bytes {
            kept.drop_first();
        }
        Ok(Put::Stored)
    }
}

/// Longer than a process runs, and short enough to be added to a time.
const MAX_KEEP: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

impl Responses {
    fn insert(&mut self, key: &LockKey, stored: Bytes, end: Instant) {
        self.bytes += weight(key, &stored);
        self.ends.insert((end, self.next), key.clone());
        self.next += 1;
        self.responses.insert(key.clone(), stored);
    }

    fn purge(&mut self, now: Instant) {
        let is_over = |(end, _): (&(Instant, u64), &LockKey)| end.0 <= now;
        while self.ends.first_key_value().is_some_and(is_over) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let Some((_, key)) = self.ends.pop_first() else {
            return;
        };
        if let Some(stored) = self.responses.remove(&key) {
            self.bytes -= weight(&key, &stored);
        }
    }
}

/// What an entry takes in addition to its key and its response, including its places in both tables.
const ENTRY_BYTES: usize = 640;

fn weight(key: &LockKey, stored: &Bytes) -> usize {
    ENTRY_BYTES + 2 * key.as_bytes().len() + stored.len()
}

impl fmt::Debug for MemoryResponses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.kept();
        f.debug_struct("MemoryResponses")
            .field("responses", &kept.responses.len())
            .field("bytes", &kept.bytes)
            .finish_non_exhaustive()
    }
}
