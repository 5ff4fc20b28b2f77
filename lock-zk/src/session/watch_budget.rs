//! Limits the bytes of paths that a session may watch.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many bytes of paths a session may watch.
///
/// A client that reconnects sends its watches in packets of 128 KiB of paths, all with one id.
/// zookeeper-client 0.11.2 takes the reply to the second packet for a protocol error, on every
/// connection, until the session ends. It sends them before it takes new requests, so that dropping
/// some does not help.
/// Locks without a watch are looked at with heartbeats, and waiters without one poll.
///
/// Held locks and waiters have one half each: neither takes the watches of the other.
#[derive(Debug)]
pub(crate) struct WatchBudget {
    /// The length of the root, the prefix of every path.
    root: usize,
    for_holders: Arc<Semaphore>,
    for_waiters: Arc<Semaphore>,
}

/// All paths may take that much, with room for what the client has not given up yet.
const MAX_BYTES: usize = 96 * 1024;

impl WatchBudget {
    pub(super) fn of(root: &str) -> Self {
        let half = || Arc::new(Semaphore::new(MAX_BYTES / 2));
        Self {
            root: root.len(),
            for_holders: half(),
            for_waiters: half(),
        }
    }

    /// Room for the watch of a waiter; `None` if there is none left.
    pub(crate) fn for_waiter(&self, path: &str) -> Option<OwnedSemaphorePermit> {
        self.reserve(&self.for_waiters, path)
    }

    /// Room for the watch on the node of a held lock; `None` if there is none left.
    pub(super) fn for_holder(&self, path: &str) -> Option<OwnedSemaphorePermit> {
        self.reserve(&self.for_holders, path)
    }

    fn reserve(&self, half: &Arc<Semaphore>, path: &str) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(self.root + path.len()).ok()?;
        Arc::clone(half).try_acquire_many_owned(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Reserve = fn(&WatchBudget, &str) -> Option<OwnedSemaphorePermit>;

    /// And holders for waiters; what ends makes room.
    #[test]
    fn waiters_leave_room_for_holders() {
        let (waiter, holder): (Reserve, Reserve) =
            (WatchBudget::for_waiter, WatchBudget::for_holder);
        let path = "x".repeat(1018);
        for (first, second) in [(waiter, holder), (holder, waiter)] {
            let budget = WatchBudget::of("/locks");
            let [all, others] = [first, second].map(|reserve| -> Vec<_> {
                std::iter::from_fn(|| reserve(&budget, &path)).collect()
            });
            assert_eq!((all.len(), others.len()), (48, 48));
            drop(others);
            assert!(first(&budget, &path).is_none());
            drop(all);
            assert!(first(&budget, &path).is_some());
        }
    }
}
