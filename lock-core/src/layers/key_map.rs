//! What a process knows of each key, for layers that queue or count.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};

use crate::engine::Mutex;
use crate::key::LockKey;

/// One state for each key; a state that is idle takes no memory.
///
/// The keys are in shards, so that busy ones do not wait for each other.
///
/// # Examples
///
/// ```
/// use polylock_core::LockKey;
/// use polylock_core::layers::{KeyMap, KeyState};
///
/// #[derive(Default)]
/// struct Waiters(usize);
///
/// impl KeyState for Waiters {
///     fn is_idle(&self) -> bool {
///         self.0 == 0
///     }
/// }
///
/// let waiters = KeyMap::<Waiters>::default();
/// let key = waiters.hashed(LockKey::new("orders/42")?);
/// waiters.change(&key, |waiters| waiters.0 += 1);
/// assert_eq!(waiters.count(), 1);
/// waiters.change(&key, |waiters| waiters.0 -= 1);
/// assert_eq!(waiters.count(), 0); // the key is idle, and its state is gone
/// # Ok::<(), polylock_core::Error>(())
/// ```
pub struct KeyMap<V> {
    hasher: RandomState,
    shards: Box<[Mutex<Shard<V>>]>,
}

/// The state of a key.
///
/// The example of [`KeyMap`] implements it.
pub trait KeyState: Default {
    /// Whether it is as at first, and can be forgotten.
    fn is_idle(&self) -> bool;
}

type Shard<V> = HashMap<HashedKey, V, BuildHasherDefault<KnownHash>>;

/// A key with its hash in one [`KeyMap`], by which its state is found several times.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HashedKey {
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
struct KnownHash(u64);

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

/// Room that an empty shard keeps.
const SPARE: usize = 64;

impl<V: KeyState> KeyMap<V> {
    /// Hashes a key for the other methods.
    #[must_use]
    pub fn hashed(&self, key: LockKey) -> HashedKey {
        let hash = self.hasher.hash_one(&key);
        HashedKey { hash, key }
    }

    /// Changes the state of a key, which begins idle. Other keys may wait meanwhile: it must not block.
    pub fn change<T>(&self, key: &HashedKey, change: impl FnOnce(&mut V) -> T) -> T {
        // Bits that no map of a shard uses: it takes the lowest ones and the seven highest.
        let [.., bits, _] = key.hash.to_le_bytes();
        let mut shard = self.shards[usize::from(bits) % SHARDS].lock();
        let state = shard.entry(key.clone()).or_default();
        let result = change(state);
        if state.is_idle() {
            shard.remove(key);
            if shard.capacity() > SPARE && shard.len() < shard.capacity() / 4 {
                let room = SPARE.max(shard.len() * 2);
                shard.shrink_to(room);
            }
        }
        result
    }

    /// How many keys are not idle.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

impl<V> Default for KeyMap<V> {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }
}

impl<V> fmt::Debug for KeyMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyMap").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(polylock_loom)))]
mod tests {
    use super::*;

    impl KeyState for usize {
        fn is_idle(&self) -> bool {
            *self == 0
        }
    }

    #[test]
    fn keys_that_are_idle_leave_no_memory_behind() {
        let map = KeyMap::<usize>::default();
        let keys = (0..100_000).map(|n| map.hashed(LockKey::new(n.to_string()).unwrap()));
        let keys: Vec<_> = keys.collect();
        keys.iter().for_each(|key| map.change(key, |n| *n += 1));
        assert_eq!(map.count(), keys.len());
        keys.iter().for_each(|key| map.change(key, |n| *n -= 1));
        assert_eq!(map.count(), 0);
        for shard in &map.shards {
            assert!(shard.lock().capacity() <= 4 * SPARE);
        }
    }
}
