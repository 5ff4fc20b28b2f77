//! The keys that were contended lately: for them, plain commands would be a wasted round trip.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use polylock_core::LockKey;
use polylock_core::engine::Moment;

/// Keys that were contended lately: a hint in constant memory. Keys that share a cell share the
/// hint.
pub(crate) struct ContentionHint {
    /// 0: the lock was free. 1: it was contended, without a known queue. Else the time (ns) until which
    /// its queue exists.
    cells: [AtomicU64; CELLS],
    hasher: RandomState,
    /// Whether the server lacks the command that joins a queue.
    cannot_join: AtomicBool,
}

const CELLS: usize = 1024;

/// Min lifetime of a queue after a script was sent that names a place in it; the script sets 30 s.
const QUEUE_TTL: Duration = Duration::from_secs(20);

impl ContentionHint {
    pub(crate) fn is_contended(&self, key: &LockKey) -> bool {
        self.cell(key).load(Ordering::Relaxed) > 0
    }

    /// Whether a queue of the key, if it exists, lasts until the first heartbeat of a waiter.
    pub(crate) fn has_lasting_queue(&self, key: &LockKey, now: Moment) -> bool {
        let until = self.cell(key).load(Ordering::Relaxed);
        until > now.as_nanos() && !self.cannot_join.load(Ordering::Relaxed)
    }

    /// Scripts join queues from now on.
    pub(crate) fn forbid_joining(&self) {
        self.cannot_join.store(true, Ordering::Relaxed);
    }

    /// Another client holds the lock or waits for it.
    pub(crate) fn record(&self, key: &LockKey) {
        self.cell(key).fetch_max(1, Ordering::Relaxed);
    }

    /// A script that was sent at this time has kept the queue from expiring.
    pub(crate) fn record_queue(&self, key: &LockKey, sent: Moment) {
        let until = (sent + QUEUE_TTL).as_nanos();
        self.cell(key).fetch_max(until, Ordering::Relaxed);
    }

    /// The queue is gone.
    pub(crate) fn forget_queue(&self, key: &LockKey) {
        self.cell(key).fetch_min(1, Ordering::Relaxed);
    }

    /// The lock was free.
    pub(crate) fn clear(&self, key: &LockKey) {
        self.cell(key).store(0, Ordering::Relaxed);
    }

    fn cell(&self, key: &LockKey) -> &AtomicU64 {
        &self.cells[self.hasher.hash_one(key.as_bytes()) as usize % CELLS]
    }
}

impl Default for ContentionHint {
    fn default() -> Self {
        Self {
            cells: [const { AtomicU64::new(0) }; CELLS],
            hasher: RandomState::new(),
            cannot_join: AtomicBool::new(false),
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
    fn remembers_a_key_until_it_was_free_and_its_queue_until_it_may_expire() {
        let (contended, key) = (ContentionHint::default(), LockKey::new("a").unwrap());
        let at = |seconds| Moment::from_nanos(0) + Duration::from_secs(seconds);
        let seen = |now| {
            (
                contended.is_contended(&key),
                contended.has_lasting_queue(&key, now),
            )
        };
        assert_eq!(seen(at(5)), (false, false));
        contended.record(&key);
        assert_eq!(seen(at(5)), (true, false));
        contended.record_queue(&key, at(5));
        contended.record(&key);
        assert_eq!(seen(at(24)), (true, true));
        assert_eq!(seen(at(25)), (true, false));
        contended.forget_queue(&key);
        assert_eq!(seen(at(24)), (true, false));
        contended.clear(&key);
        assert_eq!(seen(at(5)), (false, false));
        contended.record_queue(&key, at(5));
        contended.forbid_joining();
        assert_eq!(seen(at(6)), (true, false));
    }
}
