//! The content of the table, and the effect of each operation on it. Pure: no I/O and no clock.

mod lock_rows;
mod purge;
mod queue;
mod row;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use polylock_core::admin::LockInfo;
use polylock_core::engine::{LeaseId, Moment};
use polylock_core::{LockKey, Mode};

pub(crate) use self::lock_rows::LockRows;
#[cfg(feature = "_server")]
pub(crate) use self::lock_rows::{CLAIM, TOKENS_AT_ONCE};
#[cfg(feature = "sqlite")]
pub(crate) use self::purge::purge;
pub(crate) use self::queue::MAX_WAITERS;
#[cfg(feature = "_server")]
pub(crate) use self::queue::{FAR, TICKET};
#[cfg(feature = "sqlite")]
pub(crate) use self::row::RECORD;
#[cfg(feature = "_server")]
pub(crate) use self::row::holder_info;
pub(crate) use self::row::{
    BootId, Broken, Claimed, LockRow, QUEUE, ReadContext, SlotHolder, unreadable,
};

/// What an acquisition asks for.
#[derive(Clone, Debug)]
pub(crate) struct SqlClaim {
    pub(crate) id: LeaseId,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) label: String,
    /// Whether it polls after a refusal.
    pub(crate) waits: bool,
    /// Its place in the queue, if it waits.
    pub(crate) ticket: Option<LeaseId>,
    /// Whether it queues when it is refused. Otherwise it queues behind others, and after a lost race.
    pub(crate) queues: bool,
    /// Whether it may have a place.
    pub(crate) is_queued: bool,
    /// Whether it follows a notification. If another waiter was faster, it requests the next one, and
    /// queues.
    pub(crate) is_notified: bool,
}

/// Whether several may hold a lock in this mode.
pub(crate) fn is_sharing(mode: Mode) -> bool {
    matches!(mode, Mode::Shared | Mode::Permit { .. })
}

/// Another holder has the lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LockRefusal {
    /// When its lease ends, unless it releases or renews.
    pub(crate) until: Moment,
    /// How many waiters are ahead of this one in the queue, if it has a place, but less than
    /// [`MAX_WAITERS`]. If it found the queue full: the length of the queue.
    pub(crate) ahead: Option<usize>,
}

impl LockRefusal {
    pub(crate) const fn held(until: Moment) -> Self {
        Self { until, ahead: None }
    }
}

/// Tokens for one holder.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TokenRange {
    pub(crate) next: u64,
    pub(crate) last: u64,
}

/// What one transaction works on.
pub(crate) struct LoadedLocks {
    pub(crate) ctx: ReadContext,
    locks: HashMap<LockKey, LockRows>,
    /// The keys in a list with a row that polylock has not written.
    pub(crate) unreadable: BTreeSet<LockKey>,
}

impl LoadedLocks {
    pub(crate) fn new(ctx: ReadContext) -> Self {
        Self {
            ctx,
            locks: HashMap::new(),
            unreadable: BTreeSet::new(),
        }
    }

    pub(crate) fn rows_of(&mut self, key: &LockKey) -> &mut LockRows {
        self.locks.entry(key.clone()).or_default()
    }

    /// The rows to store, with their keys.
    pub(crate) fn changed(&self) -> impl Iterator<Item = (&[u8], &LockRow)> {
        let locks = self.locks.iter();
        locks.flat_map(|(key, lock)| lock.changed().map(move |row| (key.as_bytes(), row)))
    }

    /// How many keys are new to the table.
    pub(crate) fn grown(&self) -> usize {
        self.locks.values().filter(|lock| lock.is_new()).count()
    }

    /// Whether something was read or written under the key.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        std::str::from_utf8(key).is_ok_and(|key| self.locks.contains_key(key))
    }

    pub(crate) fn infos(&self) -> Vec<LockInfo> {
        let locks = self.locks.iter();
        let locks = locks.filter(|(key, _)| !self.unreadable.contains(*key));
        let infos = locks.filter_map(|(key, lock)| lock.info(key, &self.ctx));
        let others = self.unreadable.iter().cloned().map(unreadable);
        let mut infos: Vec<_> = infos.chain(others).collect();
        infos.sort_by(|a, b| a.key.cmp(&b.key));
        infos
    }
}
