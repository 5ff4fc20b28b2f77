//! How many guards of one owner share a lock.

use super::atomic::{AtomicU32, Ordering};

/// The guards of one lock; once the last has left, none enters.
#[derive(Debug)]
pub(super) struct Entries(AtomicU32);

impl Entries {
    /// The first guard.
    pub(super) fn one() -> Self {
        Self(AtomicU32::new(1))
    }

    /// Counts one guard more, unless the last has left.
    pub(super) fn enter(&self) -> bool {
        let count = |n: u32| if n == 0 { None } else { n.checked_add(1) };
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, count)
            .is_ok()
    }

    /// Whether there is one guard.
    pub(super) fn is_one(&self) -> bool {
        self.0.load(Ordering::Acquire) == 1
    }

    /// Counts one guard less; true for the last one.
    pub(super) fn leave(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

#[cfg(all(test, not(polylock_loom)))]
mod tests {
    use super::*;

    #[test]
    fn nobody_enters_after_the_last_has_left() {
        let entries = Entries::one();
        assert!(entries.enter());
        assert!(!entries.leave());
        assert!(entries.leave());
        assert!(!entries.enter());
    }

    #[test]
    fn the_count_does_not_overflow() {
        let entries = Entries(AtomicU32::new(u32::MAX));
        assert!(!entries.enter());
    }
}
