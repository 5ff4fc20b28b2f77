use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many bytes of paths a session may watch.
///
/// A client that reconnects sends its watches, and zookeeper-client 0.11 does that wrong where the
/// paths take more than 128 KiB: no connection lasts, and the session ends. Waiters without a watch
/// poll instead.
#[derive(Debug)]
pub(crate) struct Watches {
    /// Of the root, which every path has before it.
    root: usize,
    watched: AtomicUsize,
}

/// All paths may take that much, with room for what the client has not given up yet.
const MAX_BYTES: usize = 96 * 1024;

/// Held locks leave the other half to waiters.
const MAX_HOLDER_BYTES: usize = MAX_BYTES / 2;

impl Watches {
    pub(super) fn of(root: &str) -> Self {
        Self {
            root: root.len(),
            watched: AtomicUsize::new(0),
        }
    }

    /// Room for the watch of a waiter; `None` if there is none left.
    pub(crate) fn for_waiter(self: &Arc<Self>, path: &str) -> Option<Watching> {
        self.reserve(path, MAX_BYTES)
    }

    /// A place for the watch on the node of a lock that is held.
    pub(super) fn for_holder(self: &Arc<Self>, path: &str) -> Option<Watching> {
        self.reserve(path, MAX_HOLDER_BYTES)
    }

    fn reserve(self: &Arc<Self>, path: &str, most: usize) -> Option<Watching> {
        let bytes = self.root + path.len();
        let more = |watched: usize| Some(watched + bytes).filter(|watched| *watched <= most);
        let reserved = self
            .watched
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        reserved.ok().map(|_| Watching {
            watches: Arc::clone(self),
            bytes,
        })
    }
}

/// A place for one watch, for as long as the value lasts.
#[derive(Debug)]
pub(crate) struct Watching {
    watches: Arc<Watches>,
    bytes: usize,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.watches
            .watched
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_leave_room_for_waiters_and_what_ends_makes_room() {
        let watches = Arc::new(Watches::of("/locks"));
        let path = "x".repeat(1018);
        let holders: Vec<_> = std::iter::from_fn(|| watches.for_holder(&path)).collect();
        assert_eq!(holders.len(), 48);
        let waiters: Vec<_> = std::iter::from_fn(|| watches.for_waiter(&path)).collect();
        assert_eq!(waiters.len(), 48);
        drop(waiters);
        assert!(watches.for_holder(&path).is_none());
        drop(holders);
        assert!(watches.for_holder(&path).is_some());
    }
}
