//! The leases that this process holds, to find one that is broken, or to check all of them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use polylock_core::engine::LeaseId;
use polylock_core::{LeaseControl, LostReason};

use crate::quorum::is_too_few;

/// Leases on one server, or on a majority of several nodes.
#[derive(Debug)]
pub(crate) struct HeldRedisLeases {
    leases: Mutex<HashMap<LeaseId, HeldRedisLease>>,
    nodes: usize,
}

/// A lease that this process holds.
#[derive(Clone, Debug)]
struct HeldRedisLease {
    control: LeaseControl,
    /// Its token, and the start of the hold, if the server may not know them.
    untold: Option<(u64, Instant)>,
    /// The nodes that reported the lock as broken.
    broken_by: Vec<usize>,
}

impl HeldRedisLeases {
    /// Leases on this many servers.
    pub(crate) fn on(nodes: usize) -> Self {
        let leases = Mutex::default();
        Self { leases, nodes }
    }

    /// `untold` is the token if the server may not know it yet.
    pub(crate) fn attach(&self, id: LeaseId, control: LeaseControl, untold: Option<u64>) {
        let held = HeldRedisLease {
            control,
            untold: untold.map(|token| (token, Instant::now())),
            broken_by: Vec::new(),
        };
        // Dropped outside of the mutex: the replaced value may be the last reference.
        let replaced = self.lock().insert(id, held);
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

    /// Handles a message `broken|<id>` of a node; returns false for other messages. The message is
    /// trusted: a client that may publish on this channel may also break locks.
    pub(crate) fn broken(&self, payload: &[u8], node: usize) -> bool {
        let Some(id) = payload.strip_prefix(b"broken|") else {
            return false;
        };
        let id = std::str::from_utf8(id).ok().and_then(LeaseId::from_hex);
        let found = id.and_then(|id| {
            let mut leases = self.lock();
            let held = leases.get_mut(&id)?;
            if !held.broken_by.contains(&node) {
                held.broken_by.push(node);
            }
            Some((held.control.clone(), held.broken_by.len()))
        });
        match found {
            Some((control, by)) if is_too_few(self.nodes, by) => control.lose(LostReason::Broken),
            // Other nodes may still have the lease, or send nothing: a renewal decides.
            Some((control, _)) => control.check(),
            None => {}
        }
        true
    }

    /// The server says that a lease is lost.
    pub(crate) fn lost(&self, id: LeaseId, reason: LostReason) {
        let held = self.lock().get(&id).cloned();
        if let Some(HeldRedisLease { control, .. }) = held {
            control.lose(reason);
        }
    }

    /// Renews all leases now: the new master may not know them.
    pub(crate) fn check(&self) {
        let all: Vec<_> = self.lock().values().cloned().collect();
        for HeldRedisLease { control, .. } in all {
            control.check();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseId, HeldRedisLease>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
