//! The keys where the plain commands that take a free lock would be a wasted round trip.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use lock_core::LockKey;

/// Keys that were contended lately: a hint in constant memory. Keys that share a bit share the
/// hint.
pub(crate) struct ContentionHint {
    bits: [AtomicU64; WORDS],
    hasher: RandomState,
}

const WORDS: usize = 64;

impl ContentionHint {
    pub(crate) fn is_contended(&self, key: &LockKey) -> bool {
        let (word, bit) = self.place(key);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Another client holds the lock or waits for it.
    pub(crate) fn record(&self, key: &LockKey) {
        let (word, bit) = self.place(key);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The lock was free.
    pub(crate) fn clear(&self, key: &LockKey) {
        let (word, bit) = self.place(key);
        word.fetch_and(!bit, Ordering::Relaxed);
    }

    fn place(&self, key: &LockKey) -> (&AtomicU64, u64) {
        let hash = self.hasher.hash_one(key.as_bytes());
        let word = &self.bits[(hash >> 6) as usize % WORDS];
        (word, 1 << (hash & 63))
    }
}

impl Default for ContentionHint {
    fn default() -> Self {
        Self {
            bits: [const { AtomicU64::new(0) }; WORDS],
            hasher: RandomState::new(),
        }
    }
}

impl std::fmt::Debug for ContentionHint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContentionHint").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_a_key_until_it_was_free() {
        let (contended, key) = (ContentionHint::default(), LockKey::new("a").unwrap());
        assert!(!contended.is_contended(&key));
        contended.record(&key);
        assert!(contended.is_contended(&key));
        contended.clear(&key);
        assert!(!contended.is_contended(&key));
    }
}
