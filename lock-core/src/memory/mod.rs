//! Locks inside one process: the reference backend, for tests, examples and single-process services.

mod backend;
mod faults;
mod store;
mod table;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::admin::{LockAdmin, LockEvent, LockInfo, Record, watch_by_polling};
use crate::capabilities::{Capabilities, Fencing, Waiting};
use crate::engine::{Engine, LeaseId, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::LockGuard;
use crate::key::LockKey;
use crate::lease::{Grant, Lease, LeaseState, Released, RenewalRequest, renew};
use crate::lock::DistributedLock;
use crate::lost_reason::LostReason;
use crate::mode::Wait;
use crate::request::AcquireRequest;
use crate::ticket::Ticket;
use crate::token::FencingToken;

use self::store::{GrantPush, MemoryLease, MemoryStore};
use self::table::{ClaimReply, MemoryClaim};

pub use self::backend::MemoryBackend;
pub use self::faults::{Fault, MemoryFaults, Reachable, Request};

/// A client of a store in the memory of this process.
///
/// Serves all modes, first come, first served, with leases that expire like those of any server.
/// Fencing tokens come from one counter of the store: strictly increasing for as long as the store
/// lives, and gone with it.
///
/// # Examples
///
/// Two clients stand for two processes:
///
/// ```
/// use polylock_core::memory::Memory;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let here = Memory::new();
/// let there = here.client();
/// let first = here.lock("job").await?;
/// assert!(there.try_lock("job").await?.is_none());
/// let old = first.fencing_token();
/// drop(first);
/// let second = there.lock("job").await?;
/// assert!(second.fencing_token() > old);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Memory {
    store: Arc<MemoryStore>,
    engine: Engine,
}

impl Memory {
    /// Makes a store and its first client.
    #[must_use]
    pub fn new() -> Self {
        Self::with_engine(Engine::of_this_process(NAME))
    }

    /// The same on an engine of the caller's, whose clock is the store's as well. For tests.
    #[must_use]
    pub fn with_engine(engine: Engine) -> Self {
        Self {
            store: Arc::new(MemoryStore::new(engine.for_backend(NAME))),
            engine,
        }
    }

    /// Another client of the same store, as another process would be.
    #[must_use]
    pub fn client(&self) -> Self {
        Self::with_store(Arc::clone(&self.store))
    }

    /// Another client with an engine of its own, for tests that stop or bend one client's time.
    #[must_use]
    pub fn client_with(&self, engine: Engine) -> Self {
        Self {
            store: Arc::clone(&self.store),
            engine,
        }
    }

    fn with_store(store: Arc<MemoryStore>) -> Self {
        let engine = store.engine.for_backend(NAME);
        Self { store, engine }
    }

    /// The faults between the clients and the store.
    #[must_use]
    pub fn faults(&self) -> &MemoryFaults {
        &self.store.faults
    }

    /// Ends the leases of a key now, as if they had expired. The holders are not notified.
    pub fn expire(&self, key: &LockKey) {
        self.store.evict(key, None);
    }

    /// How many acquisitions wait for a key in the store.
    #[must_use]
    pub fn waiters(&self, key: &LockKey) -> usize {
        self.store.table(|_, table| table.waiters(key))
    }

    /// How many keys the store knows: held or waited for.
    #[must_use]
    pub fn live_keys(&self) -> usize {
        self.store.table(|_, table| table.len())
    }

    /// Acquires the lease of a ticket.
    async fn adopt(&self, request: &AcquireRequest, ticket: &Ticket) -> Result<LockGuard> {
        let (key, id) = (request.key(), self.engine.lease_id());
        let lease = MemoryLease::new(Arc::clone(&self.store), key.clone(), id);
        let pending = self.engine.pending(key, Arc::new(lease), request.ttl());
        let ask = || self.adopt_lease(key, ticket.lease_id(), id, request.ttl());
        pending.adopt(request, ticket, ask).await
    }

    /// Waits for the grant of a request that was sent at a moment, and ends leases that run out meanwhile.
    async fn wait(&self, request: &AcquireRequest, sent: Moment, push: GrantPush) -> Result<Grant> {
        let deadline = match request.wait() {
            Wait::AtMost(limit) => sent + limit,
            _ => Moment::NEVER,
        };
        tokio::pin!(push);
        loop {
            let now = self.engine.now();
            if now >= deadline {
                return Err(Error::contended(request.wait()).with_key(request.key()));
            }
            // By the clock of the store, which ends the lease. That of a client may be ahead of it.
            let held_for = self.store.table(|now, table| {
                let next = table.next_expiry(request.key());
                next.map_or(RECHECK_INTERVAL, |next| next.since(now))
            });
            let pause = held_for.min(deadline.since(now)).min(RECHECK_INTERVAL);
            match tokio::time::timeout(pause, &mut push).await {
                Ok(Ok(grant)) => return Ok(grant),
                // The claim was dropped by the store, which happens to no live waiter.
                Ok(Err(_)) => return Err(Error::new(ErrorKind::Unavailable, "the store is gone")),
                Err(_) => self.store.expire(request.key()),
            }
        }
    }
}

/// Name of the backend.
const NAME: &str = "memory";

/// Time for an answer where the wait gives none.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Max time between two checks of the leases before a waiter, which renewals extend.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Bounds the time that the store may take to answer by the wait, of which it is a part.
async fn within<T>(
    request: &AcquireRequest,
    answer: impl Future<Output = Result<T>> + Send,
) -> Result<T> {
    let limit = match request.wait() {
        Wait::AtMost(limit) => limit,
        _ => ANSWER_WITHIN,
    };
    let answer = tokio::time::timeout(limit, answer).await;
    answer.unwrap_or_else(|_| {
        let message = "the store does not answer";
        Err(Error::new(ErrorKind::Unavailable, message).with_unknown_outcome())
    })
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for Memory {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::minimal(NAME);
        capabilities.admin = true;
        capabilities.downgrade = true;
        capabilities.fair = true;
        capabilities.fencing = Fencing::Strong;
        capabilities.min_ttl = AcquireRequest::MIN_TTL;
        capabilities.permits = true;
        capabilities.shared = true;
        capabilities.tickets = true;
        capabilities.waiting = Waiting::Push;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities().check(request)?;
        if let Some(ticket) = request.ticket() {
            return self.adopt(request, ticket).await;
        }
        let key = request.key();
        let claim = MemoryClaim {
            id: self.engine.lease_id(),
            mode: request.mode(),
            ttl: request.ttl(),
            label: request.label().clone(),
        };
        let waiter = (request.wait() != Wait::Never).then_some(&self.engine);
        let lease = MemoryLease::new(Arc::clone(&self.store), key.clone(), claim.id);
        let lease: Arc<dyn Lease> = Arc::new(lease);
        // Armed before the request leaves: dropped from here on, it takes the claim back.
        let pending = self.engine.pending(key, lease, request.ttl());
        let sent = self.engine.now();
        let answer = within(request, self.store.acquire(key, &claim, waiter)).await;
        let (answer, push) = answer.map_err(|e| e.with_backend(NAME).with_key(key))?;
        match answer {
            ClaimReply::Granted(token) => pending.granted(request, Grant::new(sent, Some(token))),
            ClaimReply::Queued => {
                request.mark_contended();
                let grant = self.wait(request, sent, push).await;
                pending.granted(request, grant.map_err(|e| e.with_backend(NAME))?)
            }
            ClaimReply::Busy => {
                request.mark_contended();
                pending.disarm();
                let error = Error::contended(request.wait()).with_key(key);
                Err(error.with_backend(NAME))
            }
        }
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(self)
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.engine.drain(within).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl LockAdmin for Memory {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        self.store.list(prefix)
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        self.store.faults.arrives()?;
        Ok(self.store.table(|now, table| table.info(now, key)))
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        self.store.faults.arrives()?;
        let broken = self.store.evict(key, Some(LostReason::Broken));
        if broken.is_some() {
            tracing::warn!(%key, reason, "lock broken by an administrator");
        }
        Ok(broken)
    }

    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        let (store, prefix) = (Arc::clone(&self.store), prefix.to_owned());
        watch_by_polling(move || {
            let held = store.list(&prefix);
            async move { held }
        })
        .await
    }

    async fn renew_lease(&self, key: &LockKey, id: LeaseId, ttl: Duration) -> Result<LeaseState> {
        let request = RenewalRequest::new(key.clone(), id, ttl);
        let limit = ttl.min(ANSWER_WITHIN);
        renew(&*self.store, &[request], limit).await.remove(0)
    }

    async fn release_lease(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        self.store.release(key, id).await
    }

    async fn adopt_lease(
        &self,
        key: &LockKey,
        id: LeaseId,
        new: LeaseId,
        ttl: Duration,
    ) -> Result<Option<FencingToken>> {
        let adopt = || self.store.adopt(key, id, new, ttl);
        self.store.faults.send(Request::Adopt, adopt).await
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Record>> {
        self.store.faults.arrives()?;
        Ok(self.store.table(|now, table| table.record(now, key)))
    }

    async fn write_record(&self, key: &LockKey, record: &Record, keep: Duration) -> Result<bool> {
        record.check()?;
        let store = &self.store;
        let write = || store.table(|now, table| table.write_record(now, key, record, keep));
        store.faults.send(Request::Record, write).await
    }
}
