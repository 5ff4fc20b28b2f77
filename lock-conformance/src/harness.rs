use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::memory::{Fault, Reachable, Request};
use polylock_core::{DistributedLock, LockKey};

use crate::taker::Taker;

/// What a backend gives the conformance suite.
///
/// One value serves one case. Only [`client`](Harness::client) is required; an ability that is
/// missing belongs into the skip list of [`conformance!`](crate::conformance!), and is checked
/// there.
#[async_trait]
pub trait Harness: fmt::Debug + Send + Sync + 'static {
    /// Another client of the same store without any layer, as another process would be: no queue,
    /// cache or connection of one may serve another.
    ///
    /// Called on several runtimes; the client is used on the one that it was made on.
    async fn client(&self) -> Arc<dyn DistributedLock>;

    /// The ttl of the cases, long enough for a busy machine; where locks live with a session or a connection,
    /// the time after which the lock of a dead client is free at the latest. Default: 1 s.
    fn shortest_ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// The means to disturb the clients of this store.
    fn faults(&self) -> Option<&dyn Faults> {
        None
    }

    /// The lock-taker of this backend and a URL that leads to this store.
    fn taker(&self) -> Option<Taker> {
        None
    }

    /// What the store itself says of a key, past the clients.
    async fn look(&self, key: &LockKey) -> Option<Look> {
        let _unused = key;
        None
    }
}

/// What a store has of one key.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Look {
    /// Holders whose time is not over.
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

/// What can be made to go wrong between the clients and the store.
#[async_trait]
pub trait Faults: Send + Sync {
    /// Plans a fault for the next request of this kind, by whichever client.
    fn plan(&self, request: Request, fault: Fault);

    /// Cuts off or reconnects the store for all clients.
    fn set_reachable(&self, reachable: Reachable);

    /// Takes a key from its holders, as a server does that forgets a lease or drops a session or a
    /// connection. The holders learn it in the way that is usual there.
    async fn end(&self, key: &LockKey);

    /// Whether [`Fault::Duplicated`] can be planned.
    fn duplicates(&self) -> bool;
}
