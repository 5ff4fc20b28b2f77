//! How many requests want or have which keys, and how many may.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::LockKey;
use tokio::sync::Notify;

/// Greatest numbers; see [`LockerBuilder`](crate::LockerBuilder).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) waiters_per_key: usize,
    pub(crate) waiters: usize,
    pub(crate) keys: usize,
}

/// Which bound a request would pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Full {
    Keys,
    Waiters,
    WaitersOfKey,
}

/// The requests for a key. The first one, and a single one for a key that is held elsewhere, does
/// not count as a waiter: with no waiters allowed, one request at a time is still served.
///
/// Readers do not queue in this process. They count among all waiters while they ask, and not among
/// those of their key: many that are not kept waiting ask at a time.
#[derive(Clone, Copy, Default)]
struct Count {
    asking: usize,
    reading: usize,
    holding: usize,
}

impl Count {
    fn waiters_in_line(self) -> usize {
        match self.holding {
            0 => self.asking.saturating_sub(1),
            _ => self.asking,
        }
    }

    fn waiters(self) -> usize {
        self.waiters_in_line() + self.reading
    }

    fn is_idle(self) -> bool {
        self.asking + self.reading + self.holding == 0
    }
}

/// How a request wants a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Access {
    Exclusive,
    Shared,
}

/// The counts of all keys, in shards so that busy keys do not wait for each other. An unused key
/// takes no memory.
pub(crate) struct Crowd {
    bounds: Bounds,
    waiters: AtomicUsize,
    keys: AtomicUsize,
    emptied: Notify,
    hasher: RandomState,
    shards: Box<[Mutex<HashMap<LockKey, Count>>]>,
}

impl Crowd {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            waiters: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
            emptied: Notify::new(),
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        })
    }

    /// Counts a request in that asks for `key`.
    pub(crate) fn enter(self: &Arc<Self>, key: &LockKey, access: Access) -> Result<Place, Full> {
        self.change(key, |count| {
            let mut after = *count;
            match access {
                Access::Exclusive => after.asking += 1,
                Access::Shared => after.reading += 1,
            }
            let in_line = access == Access::Exclusive;
            if in_line && after.waiters_in_line() > self.bounds.waiters_per_key {
                return Err(Full::WaitersOfKey);
            }
            let waits = after.waiters() > count.waiters();
            if waits && !rises(&self.waiters, self.bounds.waiters) {
                return Err(Full::Waiters);
            }
            if count.is_idle() && !rises(&self.keys, self.bounds.keys) {
                if waits {
                    self.waiters.fetch_sub(1, Ordering::Relaxed);
                }
                return Err(Full::Keys);
            }
            *count = after;
            Ok(())
        })?;
        Ok(Place {
            crowd: Arc::clone(self),
            key: key.clone(),
            state: match access {
                Access::Exclusive => Stands::Asking,
                Access::Shared => Stands::Reading,
            },
        })
    }

    /// Waits until a key is unused.
    pub(crate) async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            if self.live_keys() == 0 {
                return;
            }
            emptied.await;
        }
    }

    pub(crate) fn live_keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    pub(crate) fn waiters(&self) -> usize {
        self.waiters.load(Ordering::Relaxed)
    }

    /// Changes the count of a key in a way that makes no more waiters; only `enter` does.
    fn lessen(&self, key: &LockKey, change: impl FnOnce(&mut Count)) {
        self.change(key, |count| {
            let before = count.waiters();
            change(count);
            // The granted request need not be the first one, so none of them is a waiter by itself.
            let fewer = before - count.waiters();
            self.waiters.fetch_sub(fewer, Ordering::Relaxed);
            if count.is_idle() && self.keys.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.emptied.notify_waiters();
            }
        });
    }

    fn change<T>(&self, key: &LockKey, change: impl FnOnce(&mut Count) -> T) -> T {
        let mut shard = self.shard(key);
        let count = shard.entry(key.clone()).or_default();
        let result = change(count);
        if count.is_idle() {
            shard.remove(key);
            if shard.capacity() > SPARE && shard.len() < shard.capacity() / 4 {
                let room = SPARE.max(shard.len() * 2);
                shard.shrink_to(room);
            }
        }
        result
    }

    fn shard(&self, key: &LockKey) -> MutexGuard<'_, HashMap<LockKey, Count>> {
        let hash = self.hasher.hash_one(key);
        let index = usize::try_from(hash % SHARDS as u64).expect("BUG: less than the shards");
        self.shards[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

const SHARDS: usize = 64;
/// Room that an empty shard keeps.
const SPARE: usize = 64;

/// Adds one to `number` unless it is at its bound.
fn rises(number: &AtomicUsize, bound: usize) -> bool {
    number
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            (now < bound).then_some(now + 1)
        })
        .is_ok()
}

/// One request among those that want or have a key; dropped, it is gone from there.
pub(crate) struct Place {
    crowd: Arc<Crowd>,
    key: LockKey,
    state: Stands,
}

#[derive(Clone, Copy)]
enum Stands {
    Asking,
    Holding,
    Reading,
}

impl Stands {
    fn leave(self, count: &mut Count) {
        match self {
            Self::Asking => count.asking -= 1,
            Self::Holding => count.holding -= 1,
            Self::Reading => count.reading -= 1,
        }
    }
}

impl Place {
    /// The request has the lock.
    pub(crate) fn granted(&mut self) {
        let before = std::mem::replace(&mut self.state, Stands::Holding);
        self.crowd.lessen(&self.key, |count| {
            before.leave(count);
            count.holding += 1;
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd
            .lessen(&self.key, |count| self.state.leave(count));
    }
}

impl fmt::Debug for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crowd")
            .field("bounds", &self.bounds)
            .field("live_keys", &self.live_keys())
            .field("waiters", &self.waiters())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_counted_whoever_is_granted_first() {
        let bounds = Bounds {
            waiters_per_key: 2,
            waiters: 2,
            keys: 1,
        };
        let (crowd, key) = (Crowd::new(bounds), LockKey::new("k").unwrap());
        let enter = || crowd.enter(&key, Access::Exclusive);
        let (first, mut second) = (enter().unwrap(), enter().unwrap());
        assert_eq!(crowd.waiters(), 1);
        second.granted();
        assert_eq!(crowd.waiters(), 1, "the first one waits");
        let mut third = enter().unwrap();
        assert_eq!(enter().err(), Some(Full::WaitersOfKey));
        drop(second);
        assert_eq!(crowd.waiters(), 1, "one of two does not count");
        drop(first);
        assert_eq!(crowd.waiters(), 0);
        third.granted();
        drop(third);
        assert_eq!((crowd.waiters(), crowd.live_keys()), (0, 0));
    }

    #[test]
    fn readers_do_not_stand_in_line() {
        let bounds = Bounds {
            waiters_per_key: 1,
            waiters: 3,
            keys: 1,
        };
        let (crowd, key) = (Crowd::new(bounds), LockKey::new("k").unwrap());
        let mut readers: Vec<_> = (0..3)
            .map(|_| crowd.enter(&key, Access::Shared).unwrap())
            .collect();
        assert_eq!(crowd.enter(&key, Access::Shared).err(), Some(Full::Waiters));
        readers.iter_mut().for_each(Place::granted);
        assert_eq!(crowd.waiters(), 0);
        let writer = crowd.enter(&key, Access::Exclusive).unwrap();
        assert_eq!(crowd.waiters(), 1, "it waits for the readers");
        drop(readers);
        assert_eq!(crowd.waiters(), 0);
        drop(writer);
        assert_eq!((crowd.waiters(), crowd.live_keys()), (0, 0));
    }
}
