use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::engine::{LeaseId, TokenBlock, WaitDeadline};
use polylock_core::{
    FencingToken, Lease, LeaseControl, LeaseState, Liveness, Mode, Released, RenewalRequest,
    Renewer, Result,
};

use crate::error::RedisFailure;
use crate::lock::RedisClient;
use crate::reply::QueueTicket;
use crate::script::{BLOCK, RELEASE};
use crate::server::{Acquisition, ReleaseReply};
use crate::topology::Unanswered;

/// One acquisition on one server.
pub(crate) struct RedisLease {
    client: Arc<RedisClient>,
    pub(crate) id: LeaseId,
    pub(crate) claim: Acquisition,
    tokens: TokenBlock,
    /// How many tokens the next draw for hand-overs reserves.
    block: AtomicU64,
    attached: AtomicBool,
    /// Whether a request of this acquisition may still be in flight.
    has_copies: AtomicBool,
    /// The connection of the last request of this acquisition without a reply.
    pub(crate) unanswered: Unanswered,
    /// Its place in the queue.
    ticket: OnceLock<QueueTicket>,
}

impl RedisLease {
    pub(crate) fn new(client: &Arc<RedisClient>, id: LeaseId, claim: Acquisition) -> Self {
        Self {
            client: Arc::clone(client),
            id,
            claim,
            tokens: TokenBlock::default(),
            block: AtomicU64::new(BLOCK),
            attached: AtomicBool::new(false),
            has_copies: AtomicBool::new(false),
            unanswered: Unanswered::default(),
            ticket: OnceLock::new(),
        }
    }

    /// Bounds a request by the deadline of the caller.
    pub(crate) async fn answered<T>(
        &self,
        budget: WaitDeadline,
        request: impl Future<Output = Result<T, RedisFailure>>,
    ) -> Option<Result<T, RedisFailure>> {
        let longest = self.client.longest;
        budget.bound(longest, self.reckoned(request)).await
    }

    /// Runs a request. Until its outcome is known, and if it is dropped, a release expects it to arrive
    /// later.
    pub(crate) async fn reckoned<T>(
        &self,
        request: impl Future<Output = Result<T, RedisFailure>>,
    ) -> Result<T, RedisFailure> {
        let before = self.has_copies.swap(true, Ordering::Relaxed);
        let answer = request.await;
        if !matches!(&answer, Err(failure) if failure.outcome_unknown) {
            self.has_copies.store(before, Ordering::Relaxed);
        }
        answer
    }

    /// Whether a request of this acquisition may still be in flight.
    pub(crate) fn is_under_way(&self) -> bool {
        self.has_copies.load(Ordering::Relaxed)
    }

    /// Makes a release expect late requests of this acquisition.
    pub(crate) fn doubt(&self) {
        self.has_copies.store(true, Ordering::Relaxed);
    }

    /// Stores the place in the queue; an id has only one.
    pub(crate) fn joined(&self, ticket: QueueTicket) {
        self.ticket.get_or_init(|| ticket);
    }

    pub(crate) fn ticket(&self) -> Option<&QueueTicket> {
        self.ticket.get()
    }

    /// Keeps the token that was granted.
    pub(crate) fn granted(&self, token: u64) -> FencingToken {
        self.tokens.begin(token, token)
    }

    /// Releases again behind a request without a reply, which the first release may have overtaken on
    /// another connection; a shutdown waits for that. Releases once more later, for a connection that
    /// does not reply and for copies on others. A copy that arrives even later costs a ttl, and so do
    /// all if the process ends before.
    fn release_copies(&self) {
        let (client, unanswered) = (Arc::clone(&self.client), self.unanswered.take());
        let Acquisition { keys, holder, .. } = self.claim.clone();
        self.client.engine.spawn(async move {
            let server = Arc::clone(&client.server);
            let (all, args) = (keys.all(), [holder.id(), b""]);
            let released = unanswered.run_behind(&RELEASE, &all, &args, server.timeout);
            released.await;
            client.engine.clone().spawn_service(async move {
                tokio::time::sleep(client.longest.max(LATE_REQUESTS)).await;
                drop(server.release(&keys, &holder, None).await);
            });
        });
    }
}

/// Max tokens in one draw: many locks share a counter, which must not run ahead of the clock.
const MAX_BLOCK: u64 = 256;

/// Min time to wait for a request that may be in flight on an abandoned connection.
const LATE_REQUESTS: Duration = Duration::from_secs(1);

#[async_trait]
impl Lease for RedisLease {
    fn liveness(&self) -> Liveness {
        Liveness::Renewed {
            id: self.id,
            renewer: Arc::clone(&self.client) as Arc<dyn Renewer>,
        }
    }

    fn attach(&self, control: LeaseControl) {
        self.attached.store(true, Ordering::Relaxed);
        let unconfirmed = (self.claim.mode == Mode::Exclusive).then(|| self.tokens.current());
        self.client
            .held_leases
            .attach(self.id, control, unconfirmed);
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        if let Some(token) = self.tokens.next() {
            return Ok(Some(token));
        }
        let count = self.block.load(Ordering::Relaxed);
        let server = &self.client.server;
        let first = server.reserve(&self.claim.keys, self.id, count).await?;
        self.block
            .store((2 * count).min(MAX_BLOCK), Ordering::Relaxed);
        Ok(first.map(|first| self.tokens.begin(first, first + count - 1)))
    }

    async fn downgrade(&self) -> Result<()> {
        let (server, token) = (&self.client.server, self.tokens.current());
        match server.downgrade(&self.claim.keys, self.id, token).await? {
            LeaseState::Lost(reason) => Err(polylock_core::Error::lost(reason)),
            _ => Ok(()),
        }
    }

    async fn release(&self) -> Result<Released> {
        let RedisClient {
            server, contention, ..
        } = &*self.client;
        let Acquisition { keys, holder, .. } = &self.claim;
        let freed = server.release(keys, holder, self.ticket()).await?;
        if self.has_copies.swap(false, Ordering::Relaxed) {
            self.release_copies();
        }
        match freed {
            ReleaseReply::Nothing => return Ok(Released::AlreadyLost),
            ReleaseReply::Granted => contention.record(keys.name()),
            // It has deleted the queue.
            ReleaseReply::Lock => contention.forget_queue(keys.name()),
        }
        Ok(Released::Clean)
    }
}

impl Drop for RedisLease {
    fn drop(&mut self) {
        if *self.attached.get_mut() {
            self.client.held_leases.detach(self.id);
        }
    }
}

impl fmt::Debug for RedisLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLease")
            .field("keys", &self.claim.keys)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Renews the leases on one server, in as few calls as possible.
#[async_trait]
impl Renewer for RedisClient {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        let held_leases = &self.held_leases;
        let lost = |id, reason| held_leases.lost(id, reason);
        let note = |id| held_leases.unconfirmed(id);
        let answers = self.server.renew(due, &lost, &note).await;
        let answers = answers.into_iter().zip(due).map(|(answer, one)| {
            if matches!(answer, Ok(LeaseState::Held)) {
                held_leases.confirm(one.id);
            }
            answer.map_err(RedisFailure::into)
        });
        answers.collect()
    }

    fn adopts(&self) -> bool {
        true
    }
}
