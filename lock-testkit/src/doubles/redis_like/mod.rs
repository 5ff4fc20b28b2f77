//! A lease with a queue on the server: a release grants the lock to the next waiter and tells it.

mod flaw;
mod lease;
mod server;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::admin::LockAdmin;
use lock_core::engine::{Engine, LeaseId};
use lock_core::memory::{Fault, Reachable, Request};
use lock_core::{
    AcquireRequest, Capabilities, DistributedLock, Error, ErrorKind, Fencing, Grant, Lease,
    LockGuard, LockKey, Result, Waiting,
};
use tokio::sync::oneshot;

use super::wire::{Budget, contended};
use crate::harness::{Faults, Harness, Look};
use crate::lock;

pub use self::flaw::Flaw;
use self::lease::RedisLease;
use self::server::{Answer, Claim, Server};

/// A server in this process and a client of it.
///
/// Tokens come in blocks, so that a hand-over inside a process needs no word with the server.
/// Renewals travel together. A waiter repeats its request as a heartbeat; what the server pushes is
/// a hint, and a lost one costs a heartbeat.
pub struct RedisLike {
    server: Arc<Server>,
    inbox: Arc<Inbox>,
    engine: Engine,
}

const NAME: &str = "redis-like";

impl RedisLike {
    /// Starts a server.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Arc::default())
    }

    /// Starts a server that breaks a promise.
    #[must_use]
    pub fn flawed(flaw: Flaw) -> Self {
        Self::on(Arc::new(Server::with_flaw(flaw)))
    }

    fn is(&self, flaw: Flaw) -> bool {
        self.server.flaw == Some(flaw)
    }

    fn on(server: Arc<Server>) -> Self {
        Self {
            server,
            inbox: Arc::default(),
            engine: Engine::of_this_process(NAME),
        }
    }

    async fn wait(
        &self,
        request: &AcquireRequest,
        lease: &RedisLease,
        claim: &Claim,
        pushed: &mut Pushed<'_>,
    ) -> Result<Grant> {
        let budget = Budget::of(request);
        loop {
            // Before the request leaves: whatever the server grants from now on counts from here.
            let sent = self.engine.now();
            let call = self.server.acquire(request.key(), claim, &self.inbox);
            match budget.bound(call).await? {
                Answer::Granted(block) if self.is(Flaw::CountsFromReply) => {
                    return Ok(lease.granted(self.engine.now(), block));
                }
                Answer::Granted(block) => return Ok(lease.granted(sent, block)),
                Answer::Busy => return Err(contended(request)),
                Answer::Queued(free_at) => {
                    request.mark_contended();
                    let look_again = free_at.since(self.engine.now()).min(claim.ttl / 3);
                    let pause = budget.left(look_again.max(Duration::from_millis(1)));
                    // The last heartbeat was sent before the grant that is pushed.
                    if let Ok(block) = tokio::time::timeout(pause, pushed.next()).await {
                        return Ok(lease.granted(sent, block));
                    }
                    if budget.is_over() {
                        return Err(contended(request));
                    }
                }
            }
        }
    }
}

impl Default for RedisLike {
    fn default() -> Self {
        Self::new()
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for RedisLike {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::least(NAME);
        capabilities.fair = true;
        capabilities.fencing = Fencing::BestEffort;
        capabilities.waiting = Waiting::Push;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities().check(request)?;
        let claim = Claim {
            id: self.engine.lease_id(),
            ttl: request.ttl(),
            waits: Budget::waits(request),
        };
        let lease = Arc::new(RedisLease::new(&self.server, request.key(), claim.id));
        let undo: Arc<dyn Lease> = Arc::clone(&lease) as _;
        let pending = self.engine.pending(request.key(), undo, request.ttl());
        // Listen before asking, or a grant could be pushed to nobody.
        let mut pushed = self.inbox.expect(claim.id);
        let named = |e: Error| match self.is(Flaw::ErrorsAreContention) {
            true => contended(request),
            false => e.with_backend(NAME).with_key(request.key()),
        };
        match self
            .wait(request, &lease, &claim, &mut pushed)
            .await
            .map_err(named)
        {
            Ok(grant) => pending.granted(request, grant),
            Err(error) => {
                if error.kind() == ErrorKind::Contended && !claim.waits {
                    // The server refused, and keeps nothing of the claim.
                    pending.disarm();
                }
                Err(error)
            }
        }
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        None
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.engine.drain(within).await
    }
}

/// Where the one subscription of a process delivers grants.
#[derive(Debug, Default)]
struct Inbox(Mutex<HashMap<LeaseId, oneshot::Sender<u64>>>);

impl Inbox {
    fn expect(&self, id: LeaseId) -> Pushed<'_> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.0).insert(id, sender);
        Pushed {
            inbox: self,
            id,
            receiver,
        }
    }

    fn deliver(&self, id: LeaseId, block: u64) {
        if let Some(waiter) = lock(&self.0).remove(&id) {
            // A waiter that is gone undoes its claim by itself.
            let _gone = waiter.send(block);
        }
    }
}

/// A grant that may be pushed.
struct Pushed<'a> {
    inbox: &'a Inbox,
    id: LeaseId,
    receiver: oneshot::Receiver<u64>,
}

impl Pushed<'_> {
    async fn next(&mut self) -> u64 {
        match (&mut self.receiver).await {
            Ok(block) => block,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Pushed<'_> {
    fn drop(&mut self) {
        lock(&self.inbox.0).remove(&self.id);
    }
}

#[async_trait]
impl Harness for RedisLike {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        Arc::new(Self::on(Arc::clone(&self.server)))
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }

    async fn look(&self, key: &LockKey) -> Option<Look> {
        Some(self.server.look(key))
    }
}

#[async_trait]
impl Faults for RedisLike {
    fn plan(&self, request: Request, fault: Fault) {
        self.server.wire.plan(request, fault);
    }

    fn set_reachable(&self, reachable: Reachable) {
        self.server.wire.set_reachable(reachable);
    }

    async fn end(&self, key: &LockKey) {
        self.server.delete(key);
    }

    fn duplicates(&self) -> bool {
        true
    }
}

impl fmt::Debug for RedisLike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLike").finish_non_exhaustive()
    }
}
