//! The client of the simulated store: a backend like any other, against the public API alone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::LockAdmin;
use polylock_core::engine::{Engine, LeaseId, Moment};
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, Error, ErrorKind, Fencing, Grant, LockGuard,
    PendingRelease, Result, Wait, Waiting,
};
use tokio::time::Instant;

use super::call::NoAnswer;
use super::lease::{Remote, SimLease, SimRenewer};
use super::mail::Listening;
use super::message::{Claim, Granted, Reply, Request};
use super::process::Process;
use super::world::World;
use crate::mutants::Mutation;

/// One process's connection to the store.
pub(crate) struct SimLock {
    world: Arc<World>,
    process: Arc<Process>,
    engine: Engine,
    renewer: Arc<SimRenewer>,
    /// The id of every acquisition of a client that reuses it.
    only_id: LeaseId,
}

impl SimLock {
    pub(crate) fn new(world: Arc<World>, process: Arc<Process>, engine: Engine) -> Self {
        let renewer = Arc::new(SimRenewer::new(Arc::clone(&world), Arc::clone(&process)));
        let only_id = engine.lease_id();
        Self {
            world,
            process,
            engine,
            renewer,
            only_id,
        }
    }

    /// Asks again and again, with the same id, so that an attempt whose reply was lost counts.
    async fn poll(&self, mut attempt: Attempt<'_>) -> Result<LockGuard> {
        let deadline = deadline(attempt.request);
        let mut last = self.failed(attempt.request, NoAnswer::TimedOut);
        loop {
            let sent = self.engine.now();
            let free_in = match until(deadline, self.ask(&attempt, None)).await {
                Some(Ok(Reply::Granted(grant))) => return attempt.granted(self, sent, grant),
                Some(Ok(Reply::Held { .. })) if attempt.request.wait() == Wait::Never => {
                    attempt.refused();
                    return Err(self.contended(attempt.request));
                }
                Some(Ok(Reply::Held { free_in })) => {
                    attempt.request.mark_contended();
                    last = self.contended(attempt.request);
                    free_in
                }
                Some(Ok(other)) => unreachable!("BUG: {other:?} answers no claim"),
                Some(Err(cause)) => return Err(self.failed(attempt.request, cause)),
                None => return Err(last),
            };
            let pause = self
                .engine
                .jitter(Duration::from_millis(20), Duration::from_millis(150));
            let pause = free_in.map_or(pause, |free_in| pause.min(free_in + BIT));
            if !sleep_until(deadline, pause).await {
                return Err(last);
            }
        }
    }

    /// Stands in the queue of the store, and shows every now and then that it is alive.
    async fn queue(&self, attempt: Attempt<'_>) -> Result<LockGuard> {
        let deadline = deadline(attempt.request);
        let mut mail = Listening::open(&self.process, attempt.id);
        let mut beats: Vec<Moment> = Vec::new();
        let mut last = self.failed(attempt.request, NoAnswer::TimedOut);
        let mut unanswered = 0;
        loop {
            // The lease counts from the beat that the grant names, which left before the grant.
            let beat = u32::try_from(beats.len()).unwrap_or(u32::MAX);
            beats.push(self.engine.now());
            let answer = tokio::select! {
                biased;
                grant = mail.grant() => Some(Ok(Reply::Granted(grant))),
                answer = until(deadline, self.ask(&attempt, Some(beat))) => answer,
            };
            let free_in = match answer {
                Some(Ok(Reply::Granted(grant))) => return attempt.granted_at(self, &beats, grant),
                Some(Ok(Reply::Held { free_in })) => {
                    attempt.request.mark_contended();
                    unanswered = 0;
                    last = self.contended(attempt.request);
                    free_in
                }
                // The place in the queue outlives a few beats that are lost.
                Some(Err(_)) if unanswered < 2 => {
                    unanswered += 1;
                    Some(BIT)
                }
                Some(Ok(other)) => unreachable!("BUG: {other:?} answers no claim"),
                Some(Err(cause)) => return Err(self.failed(attempt.request, cause)),
                None => return Err(last),
            };
            let pause = self.world.plan.beat;
            let pause = free_in.map_or(pause, |free_in| pause.min(free_in + BIT));
            let in_time = tokio::select! {
                biased;
                grant = mail.grant() => return attempt.granted_at(self, &beats, grant),
                in_time = sleep_until(deadline, pause) => in_time,
            };
            if !in_time {
                return Err(last);
            }
        }
    }

    async fn ask(&self, attempt: &Attempt<'_>, beat: Option<u32>) -> Said {
        let request = attempt.request;
        let claim = Claim {
            key: request.key().clone(),
            id: attempt.id,
            mode: request.mode(),
            ttl: request.ttl(),
            process: self.process.number(),
            beat,
        };
        let request = Request::Acquire(claim);
        self.world.call(&self.process, request).await
    }

    fn contended(&self, request: &AcquireRequest) -> Error {
        if self.world.is(Mutation::ContentionAsError) {
            return unavailable(NoAnswer::Reset).with_key(request.key());
        }
        Error::new(ErrorKind::Contended, "the lock is held").with_key(request.key())
    }

    fn failed(&self, request: &AcquireRequest, cause: NoAnswer) -> Error {
        if self.world.is(Mutation::ErrorAsContention) {
            return Error::new(ErrorKind::Contended, "the lock is held").with_key(request.key());
        }
        unavailable(cause).with_key(request.key())
    }
}

/// A bit later than somebody's lease ends.
const BIT: Duration = Duration::from_millis(5);

pub(super) fn unavailable(cause: NoAnswer) -> Error {
    let error = Error::new(ErrorKind::Unavailable, cause.message());
    match cause {
        NoAnswer::Refused => error,
        NoAnswer::Reset | NoAnswer::TimedOut => error.with_unknown_outcome(),
    }
}

fn deadline(request: &AcquireRequest) -> Option<Instant> {
    match request.wait() {
        Wait::AtMost(limit) => Some(Instant::now() + limit),
        _ => None,
    }
}

/// What the store says, or none if the deadline comes first.
async fn until(deadline: Option<Instant>, said: impl Future<Output = Said>) -> Option<Said> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, said).await.ok(),
        None => Some(said.await),
    }
}

type Said = std::result::Result<Reply, NoAnswer>;

/// Sleeps; false if the deadline comes first.
async fn sleep_until(deadline: Option<Instant>, pause: Duration) -> bool {
    let wake = Instant::now() + pause;
    tokio::time::sleep_until(deadline.map_or(wake, |deadline| deadline.min(wake))).await;
    deadline.is_none_or(|deadline| wake < deadline)
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for SimLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::least("sim");
        capabilities.fencing = Fencing::Strong;
        capabilities.permits = true;
        capabilities.shared = true;
        capabilities.waiting = self.world.plan.waiting;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities().check(request)?;
        let attempt = Attempt::new(self, request);
        match self.world.plan.waiting {
            Waiting::Push if request.wait() != Wait::Never => self.queue(attempt).await,
            _ => self.poll(attempt).await,
        }
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        None
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.engine.drain(within).await
    }
}

impl fmt::Debug for SimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimLock")
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

/// An acquisition under way, which is undone on drop.
struct Attempt<'a> {
    request: &'a AcquireRequest,
    id: LeaseId,
    lease: Arc<SimLease>,
    pending: Option<PendingRelease>,
    /// Whether a dropped attempt forgets what it may have been granted.
    forgets: bool,
}

impl<'a> Attempt<'a> {
    fn new(lock: &SimLock, request: &'a AcquireRequest) -> Self {
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
    fn granted_at(self, lock: &SimLock, beats: &[Moment], grant: Granted) -> Result<LockGuard> {
        let beat = usize::try_from(grant.beat).unwrap_or(usize::MAX);
        let sent = beats.get(beat).copied().unwrap_or(Moment::from_nanos(0));
        self.granted(lock, sent, grant)
    }

    fn granted(mut self, lock: &SimLock, sent: Moment, grant: Granted) -> Result<LockGuard> {
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

    fn refused(&mut self) {
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
