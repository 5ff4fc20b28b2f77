//! How many guards of one owner share a lock, and whether another may join them.

use super::atomic::{AtomicU32, Ordering};

/// The guards of one lock; once the last has left, or the lock is a shared one or closed, none enters.
#[derive(Debug)]
pub(super) struct Entries(AtomicU32);

/// Set for a lock that is not exclusive.
const SHARED: u32 = 1 << 31;

/// Set for a lock that is closed.
const CLOSED: u32 = 1 << 30;

/// Set for a shared lock whose downgrade is not known to be done; the bits below count.
const DOWNGRADING: u32 = 1 << 29;

impl Entries {
    /// The first guard.
    pub(super) fn one(exclusive: bool) -> Self {
        Self(AtomicU32::new(if exclusive { 1 } else { SHARED | 1 }))
    }

    /// Counts one guard more, unless the last has left or the lock is not exclusive.
    pub(super) fn enter(&self) -> bool {
        let count = |n: u32| (1..DOWNGRADING - 1).contains(&n).then(|| n + 1);
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, count)
            .is_ok()
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.0.load(Ordering::Acquire) & SHARED == 0
    }

    /// Begins a downgrade, which closes the lock to further guards, unless there is more than one. This is a single
    /// step: a guard that entered in between would rely on the lock being exclusive.
    pub(super) fn make_shared(&self) -> bool {
        self.replace(1, SHARED | DOWNGRADING | 1)
    }

    /// Undoes [`make_shared`](Self::make_shared), unless the guard has left since.
    pub(super) fn make_exclusive(&self) {
        self.replace(SHARED | DOWNGRADING | 1, 1);
    }

    /// Whether a downgrade was sent and its caller does not know that it is done. It can be repeated.
    pub(super) fn is_downgrading(&self) -> bool {
        self.0.load(Ordering::Acquire) & DOWNGRADING != 0
    }

    /// Ends a downgrade that the server has confirmed.
    pub(super) fn end_downgrade(&self) {
        self.replace(SHARED | DOWNGRADING | 1, SHARED | 1);
    }

    /// Closes the lock to further guards as [`make_shared`](Self::make_shared) does, and leaves it exclusive.
    pub(super) fn close(&self) -> bool {
        self.replace(1, CLOSED | 1)
    }

    fn replace(&self, from: u32, to: u32) -> bool {
        let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
        self.0.compare_exchange(from, to, set, get).is_ok()
    }

    /// Counts one guard less; true for the last one.
    pub(super) fn leave(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) & (DOWNGRADING - 1) == 1
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
        for full in [DOWNGRADING - 1, CLOSED - 1, SHARED - 1] {
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
        assert!(!entries.is_exclusive() && !entries.enter() && entries.is_downgrading());
        entries.make_exclusive();
        assert!(entries.is_exclusive() && entries.enter() && !entries.is_downgrading());
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
