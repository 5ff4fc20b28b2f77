//! The leases of this process, and which nodes say that one was broken.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::engine::LeaseId;
use lock_core::{LeaseControl, LostReason};

use super::vote::majority;
use crate::link::Ears;

/// What the nodes say of leases. One of them decides nothing, a majority does.
#[derive(Debug)]
pub(super) struct Notices {
    nodes: usize,
    leases: Mutex<HashMap<LeaseId, Noticed>>,
}

#[derive(Debug)]
struct Noticed {
    control: LeaseControl,
    /// Which nodes.
    by: Vec<bool>,
}

impl Notices {
    pub(super) fn new(nodes: usize) -> Self {
        let leases = Mutex::default();
        Self { nodes, leases }
    }

    pub(super) fn attach(&self, id: LeaseId, control: LeaseControl) {
        let by = vec![false; self.nodes];
        // Outside of the mutex: what is replaced may be the last of its kind.
        let replaced = self.lock().insert(id, Noticed { control, by });
        drop(replaced);
    }

    pub(super) fn detach(&self, id: LeaseId) {
        let detached = self.lock().remove(&id);
        drop(detached);
    }

    fn broken(&self, node: usize, id: LeaseId) {
        let found = self.lock().get_mut(&id).map(|noticed| {
            noticed.by[node] = true;
            (noticed.control.clone(), is_lost(&noticed.by))
        });
        match found {
            Some((control, true)) => control.lose(LostReason::Broken),
            // Other nodes may have the lease still, or not tell: a renewal shows it.
            Some((control, false)) => control.check(),
            None => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseId, Noticed>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether too few nodes are left that can have a lease, of which these have said that it is broken.
fn is_lost(by: &[bool]) -> bool {
    let left = by.iter().filter(|told| !**told).count();
    left < majority(by.len())
}

/// Hears one node.
#[derive(Debug)]
pub(super) struct NodeEars {
    pub(super) node: usize,
    pub(super) notices: Arc<Notices>,
}

impl Ears for NodeEars {
    /// Takes `broken|<id>` at its word: who may publish on this channel may break locks as well.
    fn heard(&self, payload: &[u8]) {
        let id = payload.strip_prefix(b"broken|");
        let id = id.and_then(|id| std::str::from_utf8(id).ok());
        if let Some(id) = id.and_then(LeaseId::from_hex) {
            self.notices.broken(self.node, id);
        }
    }

    fn deaf(&self) {}

    fn moved(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_broken_when_no_majority_can_have_it() {
        let cases: [(&[u8], bool); 7] = [
            (&[1, 0, 0], false),
            (&[0, 1, 1], true),
            // Of four nodes three have to have it.
            (&[1, 0, 0, 0], false),
            (&[1, 0, 0, 1], true),
            (&[1, 0, 1, 0, 0], false),
            (&[1, 0, 1, 1, 0], true),
            (&[1, 1, 1], true),
        ];
        for (by, expected) in cases {
            let by: Vec<_> = by.iter().map(|told| *told == 1).collect();
            assert_eq!(is_lost(&by), expected, "{by:?}");
        }
    }
}
