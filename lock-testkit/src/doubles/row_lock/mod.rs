//! A lock that lives with a connection: a row that is locked in an open transaction.

mod connection;
mod server;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::admin::LockAdmin;
use lock_core::engine::Engine;
use lock_core::layers::in_order;
use lock_core::memory::{Fault, Reachable, Request};
use lock_core::{
    AcquireRequest, Bound, Capabilities, DistributedLock, Error, ErrorKind, Fencing, FencingToken,
    Grant, Lease, LeaseControl, LockGuard, LockKey, Released, Result, Upkeep, Waiting,
};

use super::wire::{Budget, contended};
use crate::harness::{Faults, Harness, Look};

use self::connection::Connection;
use self::server::Server;

/// A database in this process and a client of it.
///
/// Each acquisition has a connection with an open transaction; the server queues the statements
/// that want the same row, and frees the row when the connection ends, in whichever way.
pub struct RowLock {
    server: Arc<Server>,
    engine: Engine,
}

const NAME: &str = "row-lock";

/// Time after which the server closes the connection of a silent client.
const KEEPALIVE: Duration = Duration::from_secs(1);

impl RowLock {
    /// Starts a database.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Server::start())
    }

    fn on(server: Arc<Server>) -> Self {
        Self {
            server,
            engine: Engine::of_this_process(NAME),
        }
    }
}

impl Default for RowLock {
    fn default() -> Self {
        Self::new()
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for RowLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::least(NAME);
        capabilities.bound = Bound::Connection;
        capabilities.fair = true;
        capabilities.fencing = Fencing::Strong;
        capabilities.waiting = Waiting::Push;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities().check(request)?;
        let (key, budget) = (request.key(), Budget::of(request));
        let named = |e: Error| e.with_backend(NAME).with_key(key);
        let open = Connection::open(&self.server, key, &self.engine);
        let connection = budget.bound(open).await.map_err(named)?;
        let lease = Arc::new(RowLease {
            connection,
            key: key.clone(),
        });
        let undo: Arc<dyn Lease> = Arc::clone(&lease) as _;
        let pending = self.engine.pending(key, undo, request.ttl());
        let sent = self.engine.now();
        // The server ends a statement in time; the client only if the server is silent.
        let patient = budget.later(Duration::from_millis(200));
        let mut answer = patient.bound(lease.connection.lock(None)).await;
        if let (Ok(None), true) = (&answer, Budget::waits(request)) {
            // A statement that waits says nothing; the one before it has said why.
            request.note_held();
            let limit = budget.left(Duration::MAX);
            answer = patient.bound(lease.connection.lock(Some(limit))).await;
        }
        let error = match answer {
            Ok(Some(token)) => {
                let grant = Grant::new(sent, Some(FencingToken::new(token)));
                return pending.granted(request, grant);
            }
            Ok(None) => contended(request),
            Err(error) => error,
        };
        if error.kind() == ErrorKind::Contended && lease.release().await.is_ok() {
            pending.disarm();
        }
        Err(named(error))
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<Vec<LockGuard>> {
        in_order(self, requests).await
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        None
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.engine.drain(within).await
    }
}

/// One transaction.
struct RowLease {
    connection: Connection,
    key: LockKey,
}

#[async_trait]
impl Lease for RowLease {
    fn upkeep(&self) -> Upkeep {
        Upkeep::Reported
    }

    fn attach(&self, control: LeaseControl) {
        self.connection.attach(control);
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        Ok(self.connection.next_token().await?.map(FencingToken::new))
    }

    async fn downgrade(&self) -> Result<()> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "there are no shared locks",
        ))
    }

    async fn release(&self) -> Result<Released> {
        self.connection.release().await
    }
}

impl fmt::Debug for RowLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowLease")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Harness for RowLock {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        Arc::new(Self::on(Arc::clone(&self.server)))
    }

    fn shortest_ttl(&self) -> Duration {
        KEEPALIVE
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }

    async fn look(&self, key: &LockKey) -> Option<Look> {
        Some(self.server.look(key))
    }
}

#[async_trait]
impl Faults for RowLock {
    fn plan(&self, request: Request, fault: Fault) {
        self.server.wire.plan(request, fault);
    }

    fn set_reachable(&self, reachable: Reachable) {
        self.server.wire.set_reachable(reachable);
    }

    async fn end(&self, key: &LockKey) {
        self.server.terminate_holder(key);
    }

    fn duplicates(&self) -> bool {
        true
    }
}

impl fmt::Debug for RowLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowLock").finish_non_exhaustive()
    }
}
