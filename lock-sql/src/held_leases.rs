use std::collections::HashMap;
use std::time::Duration;

use polylock_core::engine::{LeaseId, Mutex};
use polylock_core::{LeaseControl, LockKey, LostReason};
use tokio::time::Instant;

/// The leases that this process holds, for when all of them are gone at once, or one is broken.
#[derive(Default)]
pub(crate) struct HeldSqlLeases(Mutex<EpochLeases>);

#[derive(Default)]
struct EpochLeases {
    /// How many databases there were before the present one.
    epoch: u64,
    held: HashMap<LeaseId, HeldSqlLease>,
}

struct HeldSqlLease {
    key: LockKey,
    control: LeaseControl,
    since: Instant,
}

impl HeldSqlLeases {
    pub(crate) fn attach(&self, id: LeaseId, key: &LockKey, control: LeaseControl) {
        let held = HeldSqlLease {
            key: key.clone(),
            control,
            since: Instant::now(),
        };
        self.0.lock().held.insert(id, held);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().held.is_empty()
    }

    /// Whether one of them is held for this time already.
    pub(crate) fn is_held_for(&self, time: Duration) -> bool {
        let leases = self.0.lock();
        leases
            .held
            .values()
            .any(|held| held.since.elapsed() >= time)
    }

    /// Renews those of these keys now, which shows whether they are broken.
    pub(crate) fn check(&self, is_it: impl Fn(&LockKey) -> bool) {
        let doubtful: Vec<_> = {
            let leases = self.0.lock();
            let held = leases.held.values().filter(|held| is_it(&held.key));
            held.map(|held| held.control.clone()).collect()
        };
        for control in doubtful {
            control.check();
        }
    }

    pub(crate) fn detach(&self, id: LeaseId) {
        self.0.lock().held.remove(&id);
    }

    /// Another process has adopted a lease, if it is one of them.
    pub(crate) fn take_away(&self, id: LeaseId) {
        let adopted = self.0.lock().held.remove(&id);
        if let Some(adopted) = adopted {
            adopted.control.lose(LostReason::Stolen);
        }
    }

    /// The database that is opened from here on.
    pub(crate) fn epoch(&self) -> u64 {
        self.0.lock().epoch
    }

    /// The database of that epoch and its leases are gone. A late call does not affect the leases of its
    /// successor.
    pub(crate) fn end(&self, epoch: u64) {
        let lost = {
            let mut leases = self.0.lock();
            if leases.epoch != epoch {
                return;
            }
            leases.epoch += 1;
            std::mem::take(&mut leases.held)
        };
        for held in lost.into_values() {
            held.control.lose(LostReason::Stolen);
        }
    }
}
