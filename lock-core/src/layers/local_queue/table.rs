use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::key_queue::{HandoverLimits, KeyQueue};
use crate::key::LockKey;

/// The lines of all keys, in shards so that busy keys do not wait for each other.
pub(super) struct Table {
    pub(super) handovers: HandoverLimits,
    pub(super) max_waiters: usize,
    hasher: RandomState,
    shards: Box<[Mutex<HashMap<LockKey, KeyQueue>>]>,
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

    /// Changes the line of a key, which begins idle; a line that is idle afterwards vanishes.
    pub(super) fn change<T>(&self, key: &LockKey, change: impl FnOnce(&mut KeyQueue) -> T) -> T {
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

    fn shard(&self, key: &LockKey) -> MutexGuard<'_, HashMap<LockKey, KeyQueue>> {
        let hash = self.hasher.hash_one(key);
        let index = usize::try_from(hash % SHARDS as u64).expect("BUG: less than the shards");
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
