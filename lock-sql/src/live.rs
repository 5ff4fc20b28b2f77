use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lock_core::engine::LeaseId;
use lock_core::{LeaseControl, LostReason};

/// The leases that this process holds, for when all of them are gone at once.
#[derive(Debug, Default)]
pub(crate) struct Live(Mutex<Leases>);

#[derive(Debug, Default)]
struct Leases {
    /// How many databases there were before the present one.
    epoch: u64,
    controls: HashMap<LeaseId, LeaseControl>,
}

impl Live {
    pub(crate) fn attach(&self, id: LeaseId, control: LeaseControl) {
        // Outside of the mutex: what is replaced may be the last of its kind.
        let replaced = self.lock().controls.insert(id, control);
        drop(replaced);
    }

    pub(crate) fn detach(&self, id: LeaseId) {
        let detached = self.lock().controls.remove(&id);
        drop(detached);
    }

    /// The database that is opened from here on.
    pub(crate) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// The database of that epoch is gone, and its leases with it; whoever notices it after another
    /// one has takes nothing from its successor.
    pub(crate) fn end(&self, epoch: u64) {
        let lost = {
            let mut leases = self.lock();
            if leases.epoch != epoch {
                return;
            }
            leases.epoch += 1;
            std::mem::take(&mut leases.controls)
        };
        for control in lost.into_values() {
            control.lose(LostReason::Stolen);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Leases> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
