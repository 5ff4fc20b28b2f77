//! How many guards of one owner share a lock, and whether another may join them.

use super::atomic::{AtomicU32, Ordering};

/// The guards of one lock; once the last has left, or the lock is a shared one or closed, none enters.
#[derive(Debug)]
pub(super) struct Entries(AtomicU32);

/// Set for a lock that is not exclusive.
const SHARED: u32 = 1 << 31;

/// Set for a lock that is closed; the bits below count.
const CLOSED: u32 = 1 << 30;

impl Entries {
    /// The first guard.
    pub(super) fn one(exclusive: bool) -> Self {
        Self(AtomicU32::new(if exclusive { 1 } else { SHARED | 1 }))
    }

    /// Counts one guard more, unless the last has left or the lock is not exclusive.
    pub(super) fn enter(&self) -> bool {
        let count = |n: u32| (1..CLOSED - 1).contains(&n).then(|| n + 1);
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, count)
            .is_ok()
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.0.load(Ordering::Acquire) & SHARED == 0
    }

    /// Closes the lock to further guards, unless there is more than one. This is a single step: a
    /// guard that entered in between would rely on the lock being exclusive.
    pub(super) fn make_shared(&self) -> bool {
        self.0
            .compare_exchange(1, SHARED | 1, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Undoes [`make_shared`](Self::make_shared), unless the guard has left since.
    pub(super) fn make_exclusive(&self) {
        let _left = self
            .0
            .compare_exchange(SHARED | 1, 1, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Closes the lock to further guards as [`make_shared`](Self::make_shared) does, and leaves it exclusive.
    pub(super) fn close(&self) -> bool {
        self.0
            .compare_exchange(1, CLOSED | 1, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Counts one guard less; true for the last one.
    pub(super) fn leave(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) & !(SHARED | CLOSED) == 1
    }
}

#[cfg(all(test, not(polylock_loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_guard_enters_after_the_last_one_has_left() {
        let entries = Entries::one(true);
        assert!(entries.enter());
        assert!(!entries.leave());
        assert!(entries.leave());
        assert!(!entries.enter());
    }

    #[test]
    fn the_count_does_not_overflow() {
        for full in [CLOSED - 1, SHARED - 1] {
            let entries = Entries(AtomicU32::new(full));
            assert!(!entries.enter());
        }
    }

    #[test]
    fn a_lock_that_several_guards_count_on_stays_exclusive() {
        let entries = Entries::one(true);
        assert!(entries.enter());
        assert!(!entries.make_shared());
        assert!(!entries.leave());
        assert!(entries.make_shared());
        assert!(!entries.is_exclusive() && !entries.enter());
        entries.make_exclusive();
        assert!(entries.is_exclusive() && entries.enter());
        assert!(!entries.leave() && entries.make_shared());
        assert!(entries.leave());
        entries.make_exclusive();
        assert!(!entries.enter());
    }

    #[test]
    fn a_lock_that_is_closed_stays_exclusive() {
        let entries = Entries::one(true);
        assert!(entries.enter());
        assert!(!entries.close(), "another guard counts on the lock");
        assert!(!entries.leave() && entries.close());
        assert!(entries.is_exclusive() && !entries.enter());
        assert!(entries.leave());
        assert!(!entries.enter());
    }
}
