use std::sync::Arc;

use lock_core::engine::{LeaseId, Moment};
use lock_core::{AcquireRequest, Grant, LockGuard, PendingRelease, Result};

use super::client::SimLock;
use super::lease::{Remote, SimLease};
use super::mail::Pushed;
use crate::mutants::Mutation;

/// An acquisition under way, which is undone on drop.
pub(super) struct Attempt<'a> {
    pub(super) request: &'a AcquireRequest,
    pub(super) id: LeaseId,
    lease: Arc<SimLease>,
    pending: Option<PendingRelease>,
    /// Whether a dropped attempt forgets what it may have been granted.
    forgets: bool,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(lock: &SimLock, request: &'a AcquireRequest) -> Self {
        let reused = lock.world.is(Mutation::IdReused);
        let id = if reused {
            lock.only_id
        } else {
            lock.engine.lease_id()
        };
        lock.world.bind(id, request.class());
        let remote = Remote {
            world: Arc::clone(&lock.world),
            process: Arc::clone(&lock.process),
            key: request.key().clone(),
            id,
            ttl: request.ttl(),
        };
        let lease = Arc::new(SimLease::new(remote, Arc::clone(&lock.renewer)));
        // Armed before anything is sent: dropped from here on, it takes the claim back.
        let pending = lock
            .engine
            .pending(request.key(), Arc::clone(&lease) as _, request.ttl());
        let forgets = lock.world.is(Mutation::AcknowledgedOnly);
        Self {
            request,
            id,
            lease,
            pending: Some(pending),
            forgets,
        }
    }

    /// Makes the guard of a grant that names the beat that came before it.
    pub(super) fn granted_at(
        self,
        lock: &SimLock,
        beats: &[Moment],
        grant: Pushed,
    ) -> Result<LockGuard> {
        let beat = usize::try_from(grant.beat).unwrap_or(usize::MAX);
        let sent = beats.get(beat).copied().unwrap_or(Moment::from_nanos(0));
        self.granted(lock, sent, grant)
    }

    pub(super) fn granted(
        mut self,
        lock: &SimLock,
        sent: Moment,
        grant: Pushed,
    ) -> Result<LockGuard> {
        let now = lock.engine.now();
        let over = now.since(sent) + self.request.ttl() / 10 >= self.request.ttl();
        let sent = match lock.world.mutation {
            Some(Mutation::DeadlineFromReply) => now,
            Some(Mutation::LateGrant) if over => now,
            _ => sent,
        };
        self.lease.take(grant.token, grant.block_end);
        let grant = Grant::new(sent, Some(self.lease.token()));
        let pending = self
            .pending
            .take()
            .expect("BUG: taken by what consumes the attempt only");
        pending.granted(self.request, grant)
    }

    pub(super) fn refused(&mut self) {
        if let Some(pending) = self.pending.take() {
            pending.disarm();
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.forgets {
            self.refused();
        }
    }
}
