use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::LockAdmin;
use polylock_core::memory::{Fault, Memory, Reachable, Request};
use polylock_core::{DistributedLock, LockKey};

use crate::taker::Taker;

/// Connects a backend to the conformance suite.
///
/// One value serves one case. Only [`client`](Harness::client) is required. The skip list of
/// [`conformance!`](crate::conformance!) names missing abilities, and checks that they are missing.
#[async_trait]
pub trait Harness: fmt::Debug + Send + Sync + 'static {
    /// Creates another client of the same store without any layer. Like those of separate processes,
    /// clients must share no queue, cache or connection.
    ///
    /// Called on several runtimes; each client is used on the runtime that created it.
    async fn client(&self) -> Arc<dyn DistributedLock>;

    /// Returns the ttl of the cases, long enough for a busy machine; for locks that live with a session or
    /// a connection, the max time until the lock of a dead client is free. Default: 2 s.
    fn shortest_ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// Returns the fault injection for the clients of this store.
    fn faults(&self) -> Option<&dyn Faults> {
        None
    }

    /// Returns the lock-taker of this backend and a URL of this store.
    fn taker(&self) -> Option<Taker> {
        None
    }

    /// Reads a key from the store directly, without the clients.
    async fn look(&self, key: &LockKey) -> Option<Look> {
        let _unused = key;
        None
    }
}

/// The state of one key in the store.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Look {
    /// Holders that have not expired.
    pub holders: usize,
    /// Entries in the queue; 0 where there is none.
    pub waiters: usize,
}

impl Look {
    /// A key with this many holders and entries in the queue.
    #[must_use]
    pub fn new(holders: usize, waiters: usize) -> Self {
        Self { holders, waiters }
    }
}

/// Injects faults between the clients and the store.
#[async_trait]
pub trait Faults: Send + Sync {
    /// Plans a fault for the next request of this kind, from any client.
    fn plan(&self, request: Request, fault: Fault);

    /// Returns how many planned faults have met no request yet, so that a case can tell that its fault
    /// happened. Default: `None`, it is not known; a harness whose faults never happen passes then.
    fn pending(&self) -> Option<usize> {
        None
    }

    /// Cuts off or reconnects the store for all clients.
    fn set_reachable(&self, reachable: Reachable);

    /// Takes a key from its holders, like a server that forgets a lease or drops a session or a connection.
    /// The holders are notified in the way that is usual there.
    async fn end(&self, key: &LockKey);

    /// Whether [`Fault::Duplicated`] can be planned.
    fn duplicates(&self) -> bool;
}

/// The memory backend of the core is its own harness.
#[async_trait]
impl Harness for Memory {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        Arc::new(Self::client(self))
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }

    async fn look(&self, key: &LockKey) -> Option<Look> {
        let held = self.inspect(key).await.ok()?;
        Some(Look::new(
            held.map_or(0, |info| info.holders.len()),
            self.waiters(key),
        ))
    }
}

#[async_trait]
impl Faults for Memory {
    fn plan(&self, request: Request, fault: Fault) {
        self.faults().plan(request, fault);
    }

    fn pending(&self) -> Option<usize> {
        Some(self.faults().pending())
    }

    fn set_reachable(&self, reachable: Reachable) {
        self.faults().set_reachable(reachable);
    }

    async fn end(&self, key: &LockKey) {
        self.expire(key);
    }

    fn duplicates(&self) -> bool {
        true
    }
}
