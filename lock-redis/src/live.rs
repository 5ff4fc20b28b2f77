//! The leases that this process holds, for when one is broken or all are in doubt at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lock_core::engine::LeaseId;
use lock_core::{LeaseControl, LostReason};

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

    /// Takes a message, `broken|<id>`; whether it is one. A message of the server is taken at its
    /// word: who may publish on this channel may break locks as well.
    pub(crate) fn broken(&self, payload: &[u8]) -> bool {
        let Some(id) = payload.strip_prefix(b"broken|") else {
            return false;
        };
        let id = std::str::from_utf8(id).ok().and_then(LeaseId::from_hex);
        if let Some(id) = id {
            self.lost(id, LostReason::Broken);
        }
        true
    }

    /// The server says that a lease is lost.
    pub(crate) fn lost(&self, id: LeaseId, reason: LostReason) {
        let control = self.lock().get(&id).cloned();
        if let Some(control) = control {
            control.lose(reason);
        }
    }

    /// Another server answers from now on, which may not know of these leases: all are renewed now.
    pub(crate) fn check(&self) {
        let all: Vec<_> = self.lock().values().cloned().collect();
        for control in all {
            control.check();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseId, LeaseControl>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
