//! The leases that this process holds, for when one is broken or all are in doubt at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lock_core::engine::LeaseId;
use lock_core::{LeaseControl, LostReason};

#[derive(Debug, Default)]
pub(crate) struct HeldLeases(Mutex<HashMap<LeaseId, Held>>);

/// A lease that this process holds.
#[derive(Clone, Debug)]
struct Held {
    control: LeaseControl,
    /// Its token, and since when it is held, if the server may not know them.
    untold: Option<(u64, Instant)>,
}

impl HeldLeases {
    /// `untold` is the token, if the server may not know it.
    pub(crate) fn attach(&self, id: LeaseId, control: LeaseControl, untold: Option<u64>) {
        let untold = untold.map(|token| (token, Instant::now()));
        // Outside of the mutex: what is replaced may be the last of its kind.
        let replaced = self.lock().insert(id, Held { control, untold });
        drop(replaced);
    }

    /// What the server may not know of a lease: `<token>|<held for (ms)>`.
    pub(crate) fn untold(&self, id: LeaseId) -> Option<String> {
        let (token, since) = self.lock().get(&id)?.untold?;
        Some(format!("{token}|{}", since.elapsed().as_millis()))
    }

    /// The server knows it now.
    pub(crate) fn told(&self, id: LeaseId) {
        if let Some(held) = self.lock().get_mut(&id) {
            held.untold = None;
        }
    }

    pub(crate) fn detach(&self, id: LeaseId) {
        let detached = self.lock().remove(&id);
        drop(detached);
    }

    /// Handles a message `broken|<id>`; returns whether it is one. The message is trusted: a client
    /// that may publish on this channel may break locks as well.
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
        let held = self.lock().get(&id).cloned();
        if let Some(Held { control, .. }) = held {
            control.lose(reason);
        }
    }

    /// Another server answers from now on, which may not know of these leases: all are renewed now.
    pub(crate) fn check(&self) {
        let all: Vec<_> = self.lock().values().cloned().collect();
        for Held { control, .. } in all {
            control.check();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseId, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
