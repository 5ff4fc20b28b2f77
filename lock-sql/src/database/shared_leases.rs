use std::collections::HashMap;
use std::time::Duration;

use polylock_core::engine::{LeaseId, Moment, Mutex};

/// The shared leases that this process remembers. The short statements would fail for them, so other
/// statements renew and release them.
#[derive(Default)]
pub(super) struct SharedLeases(Mutex<HashMap<LeaseId, Moment>>);

impl SharedLeases {
    /// One shares a lock.
    pub(super) fn note(&self, id: LeaseId, now: Moment) {
        let mut shared_leases = self.0.lock();
        let is_new = shared_leases.insert(id, now).is_none();
        // Abandoned leases are not removed otherwise.
        if is_new && shared_leases.len().is_power_of_two() && shared_leases.len() >= MANY {
            shared_leases.retain(|_, last| now.since(*last) < FORGOTTEN);
        }
    }

    /// Those of them that share a lock still do.
    pub(super) fn refresh(&self, ids: impl Iterator<Item = LeaseId>, now: Moment) {
        let mut shared_leases = self.0.lock();
        for id in ids {
            if let Some(last) = shared_leases.get_mut(&id) {
                *last = now;
            }
        }
    }

    pub(super) fn has(&self, id: LeaseId) -> bool {
        self.0.lock().contains_key(&id)
    }

    pub(super) fn forget(&self, id: LeaseId) {
        self.0.lock().remove(&id);
    }
}

const MANY: usize = 1024;
const FORGOTTEN: Duration = Duration::from_secs(60 * 60);
