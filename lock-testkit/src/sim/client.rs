//! The client of the simulated store: a backend like any other, against the public API alone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::admin::LockAdmin;
use lock_core::engine::{Engine, LeaseId, Moment};
use lock_core::{
    AcquireRequest, Capabilities, DistributedLock, Error, ErrorKind, Fencing, LockGuard, Result,
    Wait, Waiting,
};
use tokio::time::Instant;

use super::attempt::Attempt;
use super::call::NoAnswer;
use super::lease::SimRenewer;
use super::mail::{Listening, Pushed};
use super::message::{Claim, Reply, Request};
use super::process::Process;
use super::world::World;
use crate::mutants::Mutation;

/// One process's connection to the store.
pub(crate) struct SimLock {
    pub(super) world: Arc<World>,
    pub(super) process: Arc<Process>,
    pub(super) engine: Engine,
    pub(super) renewer: Arc<SimRenewer>,
    /// The id of every acquisition of a client that reuses it.
    pub(super) only_id: LeaseId,
}

/// What the store said last to an acquisition.
enum Answer {
    Granted(Pushed),
    Held {
        free_in: Option<Duration>,
    },
    None(NoAnswer),
    /// The wait is over.
    TooLate,
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

    /// Asks once.
    async fn once(&self, mut attempt: Attempt<'_>) -> Result<LockGuard> {
        let sent = self.engine.now();
        match self.ask(&attempt, None).await {
            Answer::Granted(grant) => attempt.granted(self, sent, grant),
            Answer::Held { .. } => {
                attempt.refused();
                Err(self.contended(attempt.request))
            }
            Answer::None(cause) => Err(self.failed(attempt.request, cause)),
            Answer::TooLate => Err(self.failed(attempt.request, NoAnswer::TimedOut)),
        }
    }

    /// Asks again and again, with the same id, so that an attempt whose reply was lost counts.
    async fn poll(&self, attempt: Attempt<'_>) -> Result<LockGuard> {
        let deadline = deadline(attempt.request);
        let mut last = self.failed(attempt.request, NoAnswer::TimedOut);
        loop {
            let sent = self.engine.now();
            let free_in = match until(deadline, self.ask(&attempt, None)).await {
                Answer::Granted(grant) => return attempt.granted(self, sent, grant),
                Answer::Held { free_in } => {
                    attempt.request.mark_contended();
                    last = self.contended(attempt.request);
                    free_in
                }
                Answer::None(cause) => return Err(self.failed(attempt.request, cause)),
                Answer::TooLate => return Err(last),
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
        let mail = Listening::open(&self.process, attempt.id);
        let mut beats: Vec<Moment> = Vec::new();
        let mut last = self.failed(attempt.request, NoAnswer::TimedOut);
        let mut unanswered = 0;
        loop {
            // The lease counts from the beat that the grant names, which left before the grant.
            let beat = u32::try_from(beats.len()).unwrap_or(u32::MAX);
            beats.push(self.engine.now());
            let answer = tokio::select! {
                biased;
                grant = mail.grant() => Answer::Granted(grant),
                answer = until(deadline, self.ask(&attempt, Some(beat))) => answer,
            };
            let free_in = match answer {
                Answer::Granted(grant) => return attempt.granted_at(self, &beats, grant),
                Answer::Held { free_in } => {
                    attempt.request.mark_contended();
                    unanswered = 0;
                    last = self.contended(attempt.request);
                    free_in
                }
                // The place in the queue outlives a few beats that are lost.
                Answer::None(_) if unanswered < 2 => {
                    unanswered += 1;
                    Some(BIT)
                }
                Answer::None(cause) => return Err(self.failed(attempt.request, cause)),
                Answer::TooLate => return Err(last),
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

    async fn ask(&self, attempt: &Attempt<'_>, beat: Option<u32>) -> Answer {
        let request = attempt.request;
        let claim = Claim {
            key: request.key().clone(),
            id: attempt.id,
            mode: request.mode(),
            ttl: request.ttl(),
            process: self.process.number(),
            beat,
        };
        match self
            .world
            .call(&self.process, Request::Acquire(claim))
            .await
        {
            Ok(Reply::Granted {
                token,
                block_end,
                beat,
            }) => Answer::Granted(Pushed {
                token,
                block_end,
                beat: beat.unwrap_or(0),
            }),
            Ok(Reply::Busy { free_in } | Reply::Queued { free_in }) => Answer::Held { free_in },
            Ok(Reply::Released(_) | Reply::Renewed(_)) => Answer::None(NoAnswer::Reset),
            Err(cause) => Answer::None(cause),
        }
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

async fn until(deadline: Option<Instant>, answer: impl Future<Output = Answer>) -> Answer {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, answer)
            .await
            .unwrap_or(Answer::TooLate),
        None => answer.await,
    }
}

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
        match (request.wait(), self.world.plan.waiting) {
            (Wait::Never, _) => self.once(attempt).await,
            (_, Waiting::Push) => self.queue(attempt).await,
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
