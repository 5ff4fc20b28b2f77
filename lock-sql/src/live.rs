use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lock_core::engine::LeaseId;
use lock_core::{LeaseControl, LostReason};

/// The leases that this process holds, for when all of them are gone at once.
#[derive(Debug, Default)]
pub(crate) struct Live(Mutex<HashMap<LeaseId, LeaseControl>>);

impl Live {
    pub(crate) fn attach(&self, id: LeaseId, control: LeaseControl) {
        // Outside of the mutex: what is replaced may be the last of its kind.
        let replaced = self.lock().insert(id, control);
        drop(replaced);
    }

    pub(crate) fn detach(&self, id: LeaseId) {
        let detached = self.lock().remove(&id);
        drop(detached);
    }

    /// The database is not the one that the leases are in.
    pub(crate) fn lose_all(&self) {
        let lost = std::mem::take(&mut *self.lock());
        for control in lost.into_values() {
            control.lose(LostReason::Stolen);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseId, LeaseControl>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
