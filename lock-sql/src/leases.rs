use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylock_core::admin::LockAdmin;
use polylock_core::engine::{Engine, LeaseId, before};
use polylock_core::{
    AcquireRequest, Capabilities, Error, ErrorKind, Grant, Lease, LockGuard, LockKey, Result,
    Ticket,
};
use tokio::time::Instant;

use crate::lease::TableLease;
use crate::store::Store;
use crate::table::{Claim, Refusal, is_sharing};

/// `mode=lease` on any database: leases in a table, and waiters that ask again.
#[derive(Debug)]
pub(crate) struct Leases {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<dyn Store>,
    capabilities: Capabilities,
}

impl Leases {
    pub(crate) fn new(engine: Engine, store: Arc<dyn Store>, capabilities: Capabilities) -> Self {
        Self {
            engine,
            store,
            capabilities,
        }
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    pub(crate) async fn shutdown(&self, within: Duration) -> bool {
        self.engine.drain(within).await
    }

    pub(crate) async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities.check(request)?;
        if let Some(ticket) = request.ticket() {
            return self.adopt(request, ticket).await;
        }
        let deadline = match request.wait().waits() {
            true => request.wait().deadline(),
            false => Some(Instant::now()),
        };
        let answered = AtomicBool::new(false);
        let place = Place::of(self, request);
        let acquired = self.wait(request, deadline, &answered, &place);
        let acquired = match deadline.filter(|_| request.wait().waits()) {
            // The database may hang with the time of the waiter.
            Some(deadline) => {
                match before(deadline.max(Instant::now() + MIN_TIME), acquired).await {
                    Some(acquired) => acquired,
                    None if answered.load(Ordering::Relaxed) => {
                        Err(Error::contended(request.wait()))
                    }
                    None => Err(silent()),
                }
            }
            None => acquired.await,
        };
        acquired.map_err(|e| {
            e.with_backend(self.capabilities.backend)
                .with_key(request.key())
        })
    }

    /// Goes on with the lease of a ticket.
    async fn adopt(&self, request: &AcquireRequest, ticket: &Ticket) -> Result<LockGuard> {
        let (key, ttl, id) = (request.key(), request.ttl(), self.engine.lease_id());
        let lease = Arc::new(TableLease::new(&self.store, key, id));
        let pending = self.engine.pending(key, lease, ttl);
        let ask = || self.adopt_lease(key, ticket.lease_id(), id, ttl);
        pending.adopt(request, ticket, ask).await
    }

    /// Acquires the lock, and polls until it can; `answered` reports another holder.
    async fn wait(
        &self,
        request: &AcquireRequest,
        deadline: Option<Instant>,
        answered: &AtomicBool,
        place: &Place,
    ) -> Result<LockGuard> {
        if let Ok(guard) = self.attempt(request, place, false).await? {
            return Ok(guard);
        }
        answered.store(true, Ordering::Relaxed);
        request.mark_contended();
        let waiting = self.store.release_notifier().enter(request.key());
        let mut backoff = Duration::ZERO;
        let (mut is_told, mut was_soon) = (false, false);
        while deadline.is_none_or(|deadline| Instant::now() < deadline) {
            let mut released = pin!(waiting.released.notified());
            // Listen before looking, or a release in between would be missed.
            released.as_mut().enable();
            // Before reading as well: notifications count from there.
            let pace = self.store.pace();
            let seen = match is_told && pace.is_told {
                true => None,
                false => self.look(request, place).await?,
            };
            let Refusal { until, is_soon } = match seen {
                Some(held) => held,
                None => match self.attempt(request, place, true).await? {
                    Ok(guard) => return Ok(guard),
                    // Another waiter was faster, and notifies only those that have read since.
                    Err(_) if std::mem::take(&mut is_told) && pace.is_told => continue,
                    Err(held) => held,
                },
            };
            if is_soon && !std::mem::replace(&mut was_soon, is_soon) {
                backoff = Duration::ZERO;
            }
            let left = until.since(self.engine.now());
            // There are two of them for each key at most.
            let last = if is_soon { pace.last / 4 } else { pace.last };
            backoff = backoff.clamp(pace.first, last);
            let wake_at = Instant::now() + self.engine.jitter(backoff / 2, backoff).min(left);
            let wake_at = deadline.map_or(wake_at, |deadline| deadline.min(wake_at));
            is_told = before(wake_at, released).await.is_some();
            backoff = if is_told { Duration::ZERO } else { backoff * 2 };
        }
        Err(Error::contended(request.wait()))
    }

    /// Tries once to acquire the lock; otherwise returns until when it is held.
    async fn attempt(
        &self,
        request: &AcquireRequest,
        place: &Place,
        is_queued: bool,
    ) -> Result<Result<LockGuard, Refusal>> {
        let key = request.key();
        let claim = self.claim(request, place, is_queued);
        let lease = Arc::new(TableLease::new(&self.store, key, claim.id));
        let armed: Arc<dyn Lease> = Arc::<TableLease>::clone(&lease);
        // Armed before the request leaves: dropped from here on, it releases what was acquired.
        let pending = self.engine.pending(key, armed, request.ttl());
        // Before the request leaves as well: the lease counts from here.
        let sent = self.engine.now();
        let refusal = match self.store.take(key, claim).await {
            Ok(Ok(tokens)) => {
                // With the lock the place is given up.
                place.is_taken.store(false, Ordering::Relaxed);
                let grant = Grant::new(sent, Some(lease.granted(tokens)));
                return pending.granted(request, grant).map(Ok);
            }
            Ok(Err(refusal)) => refusal,
            Err(failure) if failure.outcome_unknown => return Err(failure.into()),
            Err(failure) => {
                pending.disarm();
                return Err(failure.into());
            }
        };
        pending.disarm();
        Ok(Err(refusal))
    }

    /// Until when another client has the lock; `None` if it is time for an attempt.
    async fn look(&self, request: &AcquireRequest, place: &Place) -> Result<Option<Refusal>> {
        let claim = self.claim(request, place, true);
        let seen = self.store.look(request.key(), &claim).await?;
        Ok(seen.err())
    }

    fn claim(&self, request: &AcquireRequest, place: &Place, is_queued: bool) -> Claim {
        let mut claim = Claim::new(self.engine.lease_id(), request);
        claim.ticket = place.ticket;
        claim.is_queued = is_queued && place.ticket.is_some();
        if claim.ticket.is_some() {
            place.is_taken.store(true, Ordering::Relaxed);
        }
        claim
    }
}

/// The place of a waiter in the queue of a key, which it leaves when it waits no more.
struct Place {
    store: Arc<dyn Store>,
    engine: Engine,
    key: LockKey,
    /// `None` for requests that do not queue.
    ticket: Option<LeaseId>,
    /// Whether it may be in the table.
    is_taken: AtomicBool,
}

impl Place {
    fn of(leases: &Leases, request: &AcquireRequest) -> Self {
        let queues =
            !is_sharing(request.mode()) && request.wait().waits() && leases.store.has_queue();
        Self {
            store: Arc::clone(&leases.store),
            engine: leases.engine.clone(),
            key: request.key().clone(),
            ticket: queues.then(|| leases.engine.lease_id()),
            is_taken: AtomicBool::new(false),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(ticket) = self
            .ticket
            .filter(|_| self.is_taken.load(Ordering::Relaxed))
        {
            let (store, key) = (Arc::clone(&self.store), self.key.clone());
            self.engine.spawn(async move {
                if let Err(failure) = store.dequeue(&key, ticket).await {
                    tracing::debug!(cause = %failure.cause, "a place in the queue is left to end");
                }
            });
        }
    }
}

/// What an attempt gets at least before a wait ends, so that a short one is an attempt at all.
const MIN_TIME: Duration = Duration::from_millis(100);

fn silent() -> Error {
    let message = "the database did not answer before the wait was over";
    Error::new(ErrorKind::Unavailable, message).with_unknown_outcome()
}
