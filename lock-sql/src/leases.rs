use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylock_core::admin::LockAdmin;
use polylock_core::engine::{Engine, LeaseId, before};
use polylock_core::{
    AcquireRequest, Capabilities, Fencing, Grant, Lease, LockGuard, LockKey, Result, Ticket,
};
use tokio::time::{Instant, sleep_until};

use crate::budget::{RETRY_INTERVAL, SqlBudget, silent};
use crate::error::SqlFailure;
use crate::lease::TableLease;
use crate::store::{LeaseStore, ReleaseDetection};
use crate::table::{LockRefusal, SqlClaim, is_sharing};

/// `mode=lease` on any database: leases in a table, and waiters that poll it.
#[derive(Debug)]
pub(crate) struct Leases {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<dyn LeaseStore>,
    pub(crate) capabilities: Capabilities,
}

impl Leases {
    pub(crate) fn new(engine: Engine, store: Arc<dyn LeaseStore>, fencing: Fencing) -> Self {
        let mut capabilities = Capabilities::minimal(engine.backend());
        capabilities.admin = true;
        capabilities.downgrade = true;
        capabilities.clock_tokens = true;
        capabilities.fencing = fencing;
        capabilities.permits = true;
        capabilities.shared = true;
        capabilities.tickets = true;
        Self {
            engine,
            store,
            capabilities,
        }
    }

    pub(crate) async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities.check(request)?;
        if let Some(ticket) = request.ticket() {
            return self.adopt(request, ticket).await;
        }
        let budget = SqlBudget::of(request);
        let may_queue = request.wait().waits();
        let place = WaiterPlace {
            store: Arc::clone(&self.store),
            engine: self.engine.clone(),
            key: request.key().clone(),
            ticket: may_queue.then(|| self.engine.lease_id()),
            is_taken: AtomicBool::new(false),
        };
        let acquired = self.wait(request, &budget, &place);
        let acquired = match budget.limit(Duration::ZERO) {
            // The database may hang with the time of the waiter.
            Some(limit) => budget.bound(limit, acquired, silent).await,
            None => acquired.await,
        };
        self.of(request.key(), acquired)
    }

    async fn adopt(&self, request: &AcquireRequest, ticket: &Ticket) -> Result<LockGuard> {
        let (key, ttl, id) = (request.key(), request.ttl(), self.engine.lease_id());
        let lease = Arc::new(TableLease::new(&self.store, key, id));
        let pending = self.engine.pending(key, lease, ttl);
        let ask = || self.adopt_lease(key, ticket.lease_id(), id, ttl);
        pending.adopt(request, ticket, ask).await
    }

    /// Acquires the lock, and polls while it is held. A waiter that has found it held keeps waiting
    /// while the database is unreachable, and while another transaction keeps the table or a row locked.
    async fn wait(
        &self,
        request: &AcquireRequest,
        budget: &SqlBudget,
        place: &WaiterPlace,
    ) -> Result<LockGuard> {
        let first = self.claim(request, place);
        if let AttemptOutcome::Granted(guard) = self.attempt(first, request, place).await? {
            return guard;
        }
        budget.mark_contended(request);
        let (releases, _waiting) = self.store.local().waiters.enter(request.key());
        let mut backoff = Duration::ZERO;
        let (mut is_woken, mut is_unknown) = (false, false);
        while budget.waits() {
            let mut released = pin!(releases.notified());
            // Listens before the poll, or a release in between would be missed.
            released.as_mut().enable();
            // Before the read as well: notifications count from there.
            let detection = self.store.release_detection();
            let is_notified =
                std::mem::take(&mut is_woken) && detection == ReleaseDetection::Notified;
            let polling = self.poll(request, place, is_notified);
            let LockRefusal { until, ahead } = match budget.polling(request, polling).await {
                Ok(AttemptOutcome::Granted(guard)) => return guard,
                Ok(AttemptOutcome::Held(refusal)) => refusal,
                Err(mut failure) if failure.is_outlasted() && self.store.outlasts_outages() => {
                    // A grant without a reply is released by its id, and the next attempt has another
                    // id. A reply to the next one does not say whether the first was granted.
                    is_unknown |= failure.outcome_unknown;
                    failure.outcome_unknown = is_unknown;
                    budget.note_outage(request, failure);
                    let retry_in = self.engine.jitter(RETRY_INTERVAL / 2, RETRY_INTERVAL);
                    sleep_until(budget.at_most(Instant::now() + retry_in)).await;
                    backoff = Duration::ZERO;
                    continue;
                }
                Err(mut failure) => {
                    failure.outcome_unknown |= is_unknown;
                    return Err(failure.into());
                }
            };
            budget.mark_contended(request);
            let left = until.since(self.engine.now());
            let (min, max) = detection.bounds(ahead);
            backoff = backoff.clamp(min, max);
            let delay = self.engine.jitter(backoff / 2, backoff).min(left);
            is_woken = before(budget.at_most(Instant::now() + delay), released)
                .await
                .is_some();
            backoff = if is_woken {
                Duration::ZERO
            } else {
                backoff * 2
            };
        }
        Err(budget.timed_out(silent))
    }

    /// Reads the lock, unless a notification says that it is free, and tries to acquire it if that can
    /// succeed.
    async fn poll(
        &self,
        request: &AcquireRequest,
        place: &WaiterPlace,
        is_notified: bool,
    ) -> Result<AttemptOutcome, SqlFailure> {
        if !is_notified {
            let claim = self.claim(request, place);
            let looked = self.store.look(request.key(), &claim).await;
            // The poll has requested nothing that could be granted.
            let looked = looked.map_err(|failure| SqlFailure {
                outcome_unknown: false,
                ..failure
            })?;
            if let Err(refusal) = looked {
                return Ok(AttemptOutcome::Held(refusal));
            }
        }
        let mut claim = self.claim(request, place);
        claim.is_notified = is_notified;
        self.attempt(claim, request, place).await
    }

    async fn attempt(
        &self,
        claim: SqlClaim,
        request: &AcquireRequest,
        place: &WaiterPlace,
    ) -> Result<AttemptOutcome, SqlFailure> {
        let key = request.key();
        let lease = Arc::new(TableLease::new(&self.store, key, claim.id));
        let armed: Arc<dyn Lease> = Arc::<TableLease>::clone(&lease);
        // Armed before the request is sent: if this is dropped from here on, the lock is released.
        let pending = self.engine.pending(key, armed, request.ttl());
        let queues = claim.queues;
        let was_taken = place
            .is_taken
            .swap(claim.ticket.is_some(), Ordering::Relaxed);
        // Before the request is sent as well: the lease counts from here.
        let sent = self.engine.now();
        match self.store.take(key, claim).await {
            Ok(Ok(tokens)) => {
                // A holder has no place in the queue.
                place.is_taken.store(false, Ordering::Relaxed);
                let grant = Grant::new(sent, Some(lease.granted(tokens)));
                Ok(AttemptOutcome::Granted(pending.granted(request, grant)))
            }
            Ok(Err(refusal)) => {
                pending.disarm();
                if !queues && refusal.ahead.is_none() {
                    // It did not have to queue.
                    place.is_taken.store(was_taken, Ordering::Relaxed);
                }
                Ok(AttemptOutcome::Held(refusal))
            }
            Err(failure) => {
                if !failure.outcome_unknown {
                    pending.disarm();
                }
                Err(failure)
            }
        }
    }

    fn claim(&self, request: &AcquireRequest, place: &WaiterPlace) -> SqlClaim {
        SqlClaim {
            id: self.engine.lease_id(),
            mode: request.mode(),
            ttl: request.ttl(),
            label: request.label().encode(),
            waits: request.wait().waits(),
            ticket: place.ticket,
            queues: self.store.has_queue() && !is_sharing(request.mode()),
            is_queued: place.is_taken.load(Ordering::Relaxed),
            is_notified: false,
        }
    }
}

/// The result of an attempt for a lock.
enum AttemptOutcome {
    /// The guard, or the error of a grant that came too late.
    Granted(Result<LockGuard>),
    /// Another client has the lock.
    Held(LockRefusal),
}

/// The place of a waiter in the queue of a key; dropping it leaves the queue.
struct WaiterPlace {
    store: Arc<dyn LeaseStore>,
    engine: Engine,
    key: LockKey,
    /// `None` for requests that do not wait.
    ticket: Option<LeaseId>,
    /// Whether it may be in the table.
    is_taken: AtomicBool,
}

impl Drop for WaiterPlace {
    fn drop(&mut self) {
        let is_taken = self.is_taken.load(Ordering::Relaxed);
        if let Some(ticket) = self.ticket.filter(|_| is_taken) {
            let (store, key) = (Arc::clone(&self.store), self.key.clone());
            self.engine.spawn(async move {
                if let Err(failure) = store.dequeue(&key, ticket).await {
                    tracing::debug!(cause = %failure.cause, "a place in the queue is left to end");
                }
            });
        }
    }
}
