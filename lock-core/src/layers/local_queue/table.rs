use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::key_queue::{HandoverLimits, KeyQueue};
use crate::key::LockKey;

/// The lines of all keys, in shards so that busy keys do not wait for each other.
pub(super) struct Table {
    pub(super) handovers: HandoverLimits,
    pub(super) max_waiters: usize,
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
}

type Shard = HashMap<HashedKey, KeyQueue, BuildHasherDefault<KnownHash>>;

/// A key with its hash, by which an acquisition and its release find their line several times.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct HashedKey {
    hash: u64,
    key: LockKey,
}

impl Hash for HashedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Takes the hash of a [`HashedKey`] as it is.
#[derive(Default)]
pub(super) struct KnownHash(u64);

impl Hasher for KnownHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("BUG: hashes nothing but the number of a HashedKey")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

const SHARDS: usize = 64;

impl Table {
    pub(super) fn new(handovers: HandoverLimits, max_waiters: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self {
            handovers,
            max_waiters,
            hasher: RandomState::new(),
            shards,
        }
    }

    pub(super) fn hashed(&self, key: LockKey) -> HashedKey {
        let hash = self.hasher.hash_one(&key);
        HashedKey { hash, key }
    }

    /// Changes the line of a key, which begins idle; a line that is idle afterwards vanishes.
    pub(super) fn change<T>(&self, key: &HashedKey, change: impl FnOnce(&mut KeyQueue) -> T) -> T {
        let mut shard = self.shard(key);
        let queue = shard.entry(key.clone()).or_default();
        let result = change(queue);
        if queue.is_idle() {
            shard.remove(key);
            if shard.capacity() > SPARE && shard.len() < shard.capacity() / 4 {
                let room = SPARE.max(shard.len() * 2);
                shard.shrink_to(room);
            }
        }
        result
    }

    /// Keys that are held or waited for.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    fn shard(&self, key: &HashedKey) -> MutexGuard<'_, Shard> {
        // Bits that no map of a shard uses: it takes the lowest ones and the seven highest.
        let index = key.hash >> 48 & (SHARDS as u64 - 1);
        let index = usize::try_from(index).expect("BUG: less than the shards");
        lock(&self.shards[index])
    }
}

/// Room that an empty shard keeps.
const SPARE: usize = 64;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("handovers", &self.handovers)
            .field("max_waiters", &self.max_waiters)
            .finish_non_exhaustive()
    }
}
