//! The client of the simulated store: a backend like any other, against the public API alone.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::LockAdmin;
use polylock_core::engine::{Engine, LeaseId, Moment};
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, Error, ErrorKind, Fencing, FencingToken, Grant,
    Lease, LeaseControl, LeaseState, Liveness, LockGuard, LockKey, LostReason, PendingRelease,
    Released, RenewalRequest, Renewer, Result, Wait, Waiting,
};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, sleep};

use super::message::{NoAnswer, SimClaim, SimGrant, SimReply, SimRequest};
use super::process::SimProcess;
use super::world::SimWorld;
use crate::lock;
use crate::mutants::Mutation;

/// One process's connection to the store.
#[derive(Debug)]
pub(crate) struct SimLock {
    connection: Arc<SimConnection>,
    engine: Engine,
    /// The id of every acquisition of a client that reuses it.
    only_id: LeaseId,
}

impl SimLock {
    pub(crate) fn new(world: Arc<SimWorld>, process: Arc<SimProcess>, engine: Engine) -> Self {
        let only_id = engine.lease_id();
        Self {
            connection: Arc::new(SimConnection { world, process }),
            engine,
            only_id,
        }
    }

    /// Sends the same claim again and again, so that an attempt whose reply was lost counts. In a
    /// queue of the store each request is a heartbeat, and a grant may come between two of them.
    async fn attempt(&self, mut attempt: SimAttempt<'_>) -> Result<LockGuard> {
        let SimConnection { world, process } = &*self.connection;
        let request = attempt.request;
        let wait = match request.wait() {
            Wait::Never if world.is(Mutation::TriesWait) => Wait::AtMost(LONG),
            wait => wait,
        };
        let queues = world.plan.waiting == Waiting::Push && wait != Wait::Never;
        let deadline = wait.deadline();
        let (waiter, mut pushed) = unbounded_channel();
        let mut beats: Vec<Moment> = Vec::new();
        let mut last = self.failed(request, NoAnswer::TimedOut);
        let mut unanswered = 0;
        loop {
            let claim = SimClaim {
                key: attempt.key.clone(),
                id: attempt.id,
                mode: request.mode(),
                ttl: request.ttl(),
                process: process.number(),
                beat: beats.len(),
                queues,
                waiter: waiter.clone(),
            };
            beats.push(self.engine.now());
            let answer = self.connection.call(SimRequest::Acquire(claim));
            let answer = tokio::select! {
                biased;
                Some(grant) = pushed.recv() => Some(Ok(SimReply::Granted(grant))),
                answer = until(deadline, answer) => answer,
            };
            let free_in = match answer {
                Some(Ok(SimReply::Granted(grant))) => return attempt.granted(self, &beats, grant),
                Some(Ok(SimReply::Held { .. })) if wait == Wait::Never => {
                    attempt.refused();
                    return Err(self.contended(request));
                }
                Some(Ok(SimReply::Held { free_in })) => {
                    request.mark_contended();
                    unanswered = 0;
                    last = self.contended(request);
                    free_in
                }
                Some(Ok(other)) => unreachable!("BUG: {other:?} answers no claim"),
                // The place in the queue outlives a few heartbeats that are lost.
                Some(Err(_)) if queues && unanswered < 2 => {
                    unanswered += 1;
                    Some(BIT)
                }
                Some(Err(cause)) => return Err(self.failed(request, cause)),
                None => return Err(last),
            };
            let pause = match queues {
                true => world.plan.beat,
                false => self.engine.jitter(MIN_POLL, MAX_POLL),
            };
            let pause = free_in.map_or(pause, |free_in| pause.min(free_in + BIT));
            let in_time = tokio::select! {
                biased;
                Some(grant) = pushed.recv() => return attempt.granted(self, &beats, grant),
                in_time = sleep_until(deadline, pause) => in_time,
            };
            if !in_time {
                return Err(last);
            }
        }
    }

    fn contended(&self, request: &AcquireRequest) -> Error {
        if self.connection.world.is(Mutation::ContentionAsError) {
            return unavailable(NoAnswer::Reset).with_key(request.key());
        }
        Error::new(ErrorKind::Contended, "the lock is held").with_key(request.key())
    }

    fn failed(&self, request: &AcquireRequest, cause: NoAnswer) -> Error {
        if self.connection.world.is(Mutation::ErrorAsContention) {
            return Error::new(ErrorKind::Contended, "the lock is held").with_key(request.key());
        }
        unavailable(cause).with_key(request.key())
    }
}

/// A bit later than the lease of the holder ends.
const BIT: Duration = Duration::from_millis(5);
const MIN_POLL: Duration = Duration::from_millis(20);
const MAX_POLL: Duration = Duration::from_millis(150);

/// How long the mutation lets a nonblocking request wait.
const LONG: Duration = Duration::from_secs(6);

fn unavailable(cause: NoAnswer) -> Error {
    let error = Error::new(ErrorKind::Unavailable, cause.message());
    match cause {
        NoAnswer::Refused => error,
        NoAnswer::Reset | NoAnswer::TimedOut => error.with_unknown_outcome(),
    }
}

/// What the store says, or none if the deadline comes first.
async fn until(
    deadline: Option<Instant>,
    said: impl Future<Output = SimResult>,
) -> Option<SimResult> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, said).await.ok(),
        None => Some(said.await),
    }
}

type SimResult = std::result::Result<SimReply, NoAnswer>;

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
        let mut capabilities = Capabilities::minimal("sim");
        capabilities.fencing = Fencing::Strong;
        capabilities.permits = true;
        capabilities.shared = true;
        capabilities.waiting = self.connection.world.plan.waiting;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities().check(request)?;
        self.attempt(SimAttempt::new(self, request)).await
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        None
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.engine.drain(within).await
    }
}

/// An acquisition under way, which is undone on drop.
struct SimAttempt<'a> {
    request: &'a AcquireRequest,
    /// As the store knows it.
    key: LockKey,
    id: LeaseId,
    lease: Arc<SimLease>,
    pending: Option<PendingRelease>,
    /// Whether a dropped attempt forgets what it may have been granted.
    forgets: bool,
}

impl<'a> SimAttempt<'a> {
    fn new(lock: &SimLock, request: &'a AcquireRequest) -> Self {
        let world = &lock.connection.world;
        let reused = world.is(Mutation::IdReused);
        let id = if reused {
            lock.only_id
        } else {
            lock.engine.lease_id()
        };
        world.bind(id, request.class());
        let folds = world.is(Mutation::FoldsNames);
        let folded = LockKey::new(request.key().as_str().to_ascii_lowercase());
        let key = folded.ok().filter(|_| folds);
        let key = key.unwrap_or_else(|| request.key().clone());
        let remote = Remote {
            connection: Arc::clone(&lock.connection),
            key: key.clone(),
            id,
            ttl: request.ttl(),
        };
        let lease = Arc::new(SimLease {
            remote,
            tokens: Mutex::default(),
        });
        // Armed before anything is sent: from here on, a drop undoes the claim.
        let pending = lock
            .engine
            .pending(request.key(), Arc::clone(&lease) as _, request.ttl());
        let forgets = world.is(Mutation::AcknowledgedOnly);
        Self {
            request,
            key,
            id,
            lease,
            pending: Some(pending),
            forgets,
        }
    }

    /// Makes the guard of a grant. The lease counts from the request that the grant names, which left
    /// before the grant.
    fn granted(mut self, lock: &SimLock, beats: &[Moment], grant: SimGrant) -> Result<LockGuard> {
        let sent = beats.get(grant.beat).copied();
        let sent = sent.unwrap_or(Moment::from_nanos(0));
        let now = lock.engine.now();
        let over = now.since(sent) + self.request.ttl() / 10 >= self.request.ttl();
        let sent = match lock.connection.world.mutation {
            Some(Mutation::DeadlineFromReply) => now,
            Some(Mutation::LateGrant) if over => now,
            _ => sent,
        };
        self.lease.take(grant.tokens);
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

impl Drop for SimAttempt<'_> {
    fn drop(&mut self) {
        if self.forgets {
            self.refused();
        }
    }
}

/// One acquisition on the simulated store.
#[derive(Debug)]
struct SimLease {
    remote: Remote,
    /// The token of the holder and the last one that is reserved for hand-overs.
    tokens: Mutex<(u64, u64)>,
}

/// What it takes to talk to the store about one acquisition.
#[derive(Clone, Debug)]
struct Remote {
    connection: Arc<SimConnection>,
    key: LockKey,
    id: LeaseId,
    ttl: Duration,
}

impl SimLease {
    fn take(&self, tokens: (u64, u64)) {
        *lock(&self.tokens) = tokens;
    }

    fn token(&self) -> FencingToken {
        FencingToken::new(lock(&self.tokens).0)
    }

    fn is(&self, mutation: Mutation) -> bool {
        self.remote.connection.world.is(mutation)
    }
}

impl Remote {
    async fn release(&self) -> Result<Released> {
        let noted = self.connection.world.releasing(self.id);
        let request = SimRequest::Release(self.key.clone(), self.id);
        let answer = self.connection.call(request).await;
        if answer.is_ok() {
            self.connection.world.answered_release(self.id, noted);
        }
        match answer {
            Ok(SimReply::Released(true)) => Ok(Released::Clean),
            Ok(SimReply::Released(false)) => Ok(Released::AlreadyLost),
            Ok(_) => {
                let message = "not the answer to a release";
                Err(Error::new(ErrorKind::Protocol, message))
            }
            Err(cause) => Err(unavailable(cause)),
        }
    }

    /// Says that the lock is released, and goes on renewing it for a while.
    fn renew_after_release(&self) -> Released {
        let remote = self.clone();
        self.connection.process.run(async move {
            for _ in 0..6 {
                sleep(remote.ttl / 3).await;
                let due = RenewalRequest::new(remote.key.clone(), remote.id, remote.ttl);
                let request = SimRequest::Renew(vec![due]);
                drop(remote.connection.call(request).await);
            }
            drop(remote.release().await);
        });
        Released::Clean
    }
}

#[async_trait]
impl Lease for SimLease {
    fn liveness(&self) -> Liveness {
        let renewer = Arc::clone(&self.remote.connection) as Arc<dyn Renewer>;
        Liveness::Renewed {
            id: self.remote.id,
            renewer,
        }
    }

    fn attach(&self, _control: LeaseControl) {}

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        let mut tokens = lock(&self.tokens);
        let (token, block_end) = *tokens;
        if self.is(Mutation::HandOverKeepsToken) {
            return Ok(Some(FencingToken::new(token)));
        }
        if token >= block_end {
            return Ok(None);
        }
        tokens.0 = token + 1;
        Ok(Some(FencingToken::new(token + 1)))
    }

    async fn downgrade(&self) -> Result<()> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "the simulated store does not downgrade",
        ))
    }

    async fn release(&self) -> Result<Released> {
        if self.is(Mutation::RenewalAfterRelease) {
            return Ok(self.remote.renew_after_release());
        }
        self.remote.release().await
    }
}

/// The way of one process to the store, which renews its leases together.
struct SimConnection {
    world: Arc<SimWorld>,
    process: Arc<SimProcess>,
}

impl SimConnection {
    async fn call(&self, request: SimRequest) -> SimResult {
        self.world.call(&self.process, request).await
    }
}

#[async_trait]
impl Renewer for SimConnection {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        self.world.renewing(due.iter().map(|due| due.id));
        let optimistic = self.world.is(Mutation::SilenceIsConsent);
        let answer = self.call(SimRequest::Renew(due.to_vec())).await;
        let state = |held| match held {
            true => LeaseState::Held,
            false => LeaseState::Lost(LostReason::Stolen),
        };
        match answer {
            Ok(SimReply::Renewed(held)) => held.into_iter().map(|held| Ok(state(held))).collect(),
            Ok(_) => Vec::new(),
            Err(_) if optimistic => due.iter().map(|_| Ok(LeaseState::Held)).collect(),
            Err(cause) => due.iter().map(|_| Err(unavailable(cause))).collect(),
        }
    }
}

/// Without the world, which has the connection in it.
impl fmt::Debug for SimConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimConnection")
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}
