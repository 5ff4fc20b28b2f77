//! Notifications of the nodes that an operator has broken a lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::engine::LeaseId;
use lock_core::{LeaseControl, LostReason};

use super::votes::majority;
use crate::topology::ConnectionEvents;

/// The leases of this process, and the nodes that say that one was broken. One node decides nothing,
/// a majority does.
#[derive(Debug, Default)]
pub(super) struct Notifications(Mutex<HashMap<LeaseId, (LeaseControl, Vec<usize>)>>);

impl Notifications {
    pub(super) fn attach(&self, id: LeaseId, control: LeaseControl) {
        // Outside of the mutex: what is replaced may be the last of its kind.
        let replaced = self.lock().insert(id, (control, Vec::new()));
        drop(replaced);
    }

    pub(super) fn detach(&self, id: LeaseId) {
        let detached = self.lock().remove(&id);
        drop(detached);
    }

    fn broken(&self, id: LeaseId, node: usize, nodes: usize) {
        let found = self.lock().get_mut(&id).map(|(control, by)| {
            if !by.contains(&node) {
                by.push(node);
            }
            (control.clone(), is_lost(by.len(), nodes))
        });
        match found {
            Some((control, true)) => control.lose(LostReason::Broken),
            // Other nodes may have the lease still, or send nothing: a renewal shows it.
            Some((control, false)) => control.check(),
            None => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseId, (LeaseControl, Vec<usize>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether no majority can have a lease that so many nodes say is broken.
const fn is_lost(broken: usize, nodes: usize) -> bool {
    nodes - broken < majority(nodes)
}

/// Receives the messages of one node.
#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) node: usize,
    pub(super) nodes: usize,
    pub(super) notifications: Arc<Notifications>,
}

impl ConnectionEvents for Subscriber {
    /// Trusts `broken|<id>`: a client that may publish on this channel may break locks as well.
    fn on_message(&self, payload: &[u8]) {
        let id = payload.strip_prefix(b"broken|");
        let id = id.and_then(|id| std::str::from_utf8(id).ok());
        if let Some(id) = id.and_then(LeaseId::from_hex) {
            self.notifications.broken(id, self.node, self.nodes);
        }
    }

    fn on_disconnect(&self) {}

    fn on_failover(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_broken_when_no_majority_can_have_it() {
        let least = [(3, 2), (4, 2), (5, 3), (6, 3)];
        for (nodes, least) in least {
            for broken in 0..=nodes {
                assert_eq!(
                    is_lost(broken, nodes),
                    broken >= least,
                    "{broken} of {nodes}"
                );
            }
        }
    }
}
