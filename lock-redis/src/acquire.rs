//! One acquisition, from its first request to its guard.

use std::pin::pin;
use std::sync::Arc;

use polylock_core::engine::WaitDeadline;
use polylock_core::{
    AcquireRequest, Error, ErrorKind, Grant, Lease, LockGuard, Mode, PendingRelease, Result, Ticket,
};

use crate::error::RedisFailure;
use crate::keys::RedisKeys;
use crate::lease::RedisLease;
use crate::lock::RedisClient;
use crate::queue::RedisWaiter;
use crate::reply::PlainReply;
use crate::server::{Acquisition, RedisHolder};
use crate::topology::{Done, MAX_AGE};

/// How an acquisition ends.
#[derive(Debug)]
pub(crate) enum RedisOutcome {
    Granted(Grant),
    /// The lease ended before the client received the grant; another attempt may follow.
    Gone,
    Refused(Error),
}

impl RedisClient {
    pub(crate) async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<LockGuard> {
        let budget = WaitDeadline::of(request);
        loop {
            if let Some(guard) = self.attempt(request, budget).await? {
                return Ok(guard);
            }
        }
    }

    /// Adopts the lease of a ticket.
    pub(crate) async fn adopt(
        self: &Arc<Self>,
        request: &AcquireRequest,
        ticket: &Ticket,
    ) -> Result<LockGuard> {
        let (pending, lease) = self.arm(request)?;
        let (key, ids) = (request.key(), [ticket.lease_id(), lease.id]);
        let ask = || async {
            let unanswered = Some(&lease.unanswered);
            let adopting = self.server.adopt(key, ids, request.ttl(), unanswered);
            let token = lease.reckoned(adopting).await?;
            Ok(token.map(|token| lease.granted(token)))
        };
        let guard = pending.adopt(request, ticket, ask).await?;
        self.listen();
        Ok(guard)
    }

    /// Requests the messages about broken locks, if that is necessary.
    fn listen(&self) {
        self.held_leases.listen(0, &self.server.topology);
    }

    /// One attempt with an id of its own; `None` if its lease ended unnoticed.
    ///
    /// A free lock is acquired on the caller's runtime; a waiter runs on the engine.
    async fn attempt(
        self: &Arc<Self>,
        request: &AcquireRequest,
        budget: WaitDeadline,
    ) -> Result<Option<LockGuard>> {
        let (pending, lease) = self.arm(request)?;
        let key = lease.claim.keys.name();
        let mut taken = None;
        // The plain commands wait for replicas also if they acquire nothing.
        let has_acks = self.server.replicas.is_some();
        if request.mode() == Mode::Exclusive
            && !((budget.waits() || has_acks) && self.contention.is_contended(key))
        {
            let sent = self.engine.now();
            let server = &self.server;
            let taking = pin!(server.take(&lease.claim, &lease.unanswered));
            match lease.answered(budget, taking).await {
                Some(Ok((PlainReply::Granted(token), _))) => {
                    let grant = Grant::new(sent, Some(lease.granted(token)));
                    return self.settle(pending, &lease, request, RedisOutcome::Granted(grant));
                }
                Some(Ok((PlainReply::Held, done))) if !budget.waits() => {
                    if has_acks {
                        self.contention.record(key);
                    }
                    let refused = self.refused(&lease, budget, &done).await;
                    return self.settle(pending, &lease, request, RedisOutcome::Refused(refused));
                }
                answer => taken = Some(answer),
            }
        }
        let waiter = RedisWaiter::new(self, request, budget, &lease);
        // Boxed: most acquisitions do not wait, and would otherwise have a larger future.
        Box::pin(self.wait(pending, waiter, taken)).await
    }

    /// Continues an acquisition whose lock was not free. `taken` is the result of the attempt to acquire
    /// it by plain commands.
    async fn wait(
        self: &Arc<Self>,
        // Declared first, so dropped last: the release follows the last requests of the waiter.
        pending: PendingRelease,
        mut waiter: RedisWaiter,
        taken: Option<Option<Result<(PlainReply, Done), RedisFailure>>>,
    ) -> Result<Option<LockGuard>> {
        let asks = match taken {
            Some(taken) => waiter.note(taken).await,
            None => Ok(true),
        };
        let first = match asks {
            Ok(true) => waiter.ask_first().await,
            asks => asks.map(|_| None),
        };
        let first = first.unwrap_or_else(|error| Some(RedisOutcome::Refused(error)));
        if let Some(outcome) = first {
            return self.settle(pending, &waiter.lease, &waiter.request, outcome);
        }
        let waiting = self.engine.run(async move {
            let outcome = waiter.run().await;
            let outcome = outcome.unwrap_or_else(RedisOutcome::Refused);
            let (client, request) = (&waiter.client, &waiter.request);
            client.settle(pending, &waiter.lease, request, outcome)
        });
        waiting.await
    }

    /// The error of an acquisition whose lock is held, by the reply of a server that may be a former master: its
    /// successor may have the lock free.
    pub(crate) async fn refused(
        &self,
        lease: &RedisLease,
        budget: WaitDeadline,
        held: &Done,
    ) -> Error {
        // A waiter asks for the confirmation after its deadline.
        let within = match budget.waits() {
            true => budget.with_grace().left(self.server.timeout),
            false => self.server.timeout,
        };
        match self.server.confirm_master(held, MAX_AGE, within).await {
            Ok(()) => budget.contended(),
            Err(mut failure) => {
                failure.outcome_unknown = lease.is_under_way();
                failure.into()
            }
        }
    }

    /// Arms the release of an acquisition before its first request.
    fn arm(
        self: &Arc<Self>,
        request: &AcquireRequest,
    ) -> Result<(PendingRelease, Arc<RedisLease>)> {
        let key = request.key();
        let keys = RedisKeys::checked(key, self.server.counter)?;
        let id = self.engine.lease_id();
        let claim = Acquisition {
            keys,
            holder: RedisHolder::new(id, request.label()),
            mode: request.mode(),
            ttl: request.ttl(),
        };
        let lease = Arc::new(RedisLease::new(self, id, claim));
        let armed: Arc<dyn Lease> = Arc::<RedisLease>::clone(&lease);
        Ok((self.engine.pending(key, armed, request.ttl()), lease))
    }

    /// Makes the guard, or disarms the release if there is nothing to release.
    fn settle(
        &self,
        pending: PendingRelease,
        lease: &RedisLease,
        request: &AcquireRequest,
        outcome: RedisOutcome,
    ) -> Result<Option<LockGuard>> {
        let (ended, leaves_nothing) = match outcome {
            RedisOutcome::Granted(grant) => {
                let guard = pending.granted(request, grant)?;
                self.listen();
                return Ok(Some(guard));
            }
            RedisOutcome::Gone => (Ok(None), true),
            RedisOutcome::Refused(error) => {
                let is_queued = lease.ticket().is_some();
                let leaves_nothing = !is_queued && comes_before_writes(error.kind());
                (Err(error), leaves_nothing)
            }
        };
        // If a copy of an earlier request may still acquire the lock, the release stays armed.
        if leaves_nothing && !lease.is_under_way() {
            pending.disarm();
        }
        ended
    }
}

/// Whether an error of this kind with a known outcome comes before the first write of a request. A key of another
/// program and a command that the user may not run can end a script halfway.
fn comes_before_writes(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Contended | ErrorKind::Unavailable)
}
