use std::sync::Arc;
use std::time::Duration;

use lock_core::engine::{LeaseId, Moment};
use lock_core::{
    AcquireRequest, Error, ErrorKind, Lease, LockGuard, Mode, PendingRelease, Renewer, Result,
};

use super::ensemble::Ensemble;
use super::lease::QuorumLease;
use super::pace::longest_pause;
use super::round::{Outcome, run};
use super::shares::Shares;
use crate::budget::Budget;
use crate::keys::{Counter, Keys};
use crate::server::{Claim, Holder};

/// What the locks of one ensemble are taken with.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) ensemble: Arc<Ensemble>,
    pub(super) renewer: Arc<dyn Renewer>,
}

impl Client {
    /// Asks for a majority of votes until there is one; releases what it has between two attempts,
    /// so that of several that compete one gets through.
    pub(super) async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.check_ttl(request.ttl())?;
        let keys = Arc::new(Keys::checked(request.key(), Counter::Lock)?);
        let mut waiting = Waiting::new(self, request);
        loop {
            let began = self.ensemble.engine.now();
            let (pending, lease, claim) = self.arm(request, &keys);
            let waiter = waiting.name(lease.id);
            let round = run(&self.ensemble, &lease, claim, waiter);
            let Some(outcome) = waiting.budget.bound(round).await else {
                return Err(waiting.gives_up());
            };
            match outcome {
                Outcome::Won(grant) => {
                    let guard = pending.granted(request, grant)?;
                    self.ensemble.listening.begin(&self.ensemble);
                    return Ok(guard);
                }
                Outcome::Lost { .. } => request.note_held(),
                Outcome::Unreachable { .. } => request.note_unanswered(),
            }
            let took = self.ensemble.engine.now().since(began);
            // A node that is not known to have granted holds up nobody: its release goes on in the
            // background.
            tokio::select! {
                biased;
                () = pending.undo() => {}
                () = lease.shares.freed() => {}
            }
            let pause = waiting.pause(outcome, took)?;
            tokio::time::sleep(waiting.budget.left(pause)).await;
            if waiting.budget.is_over() {
                return Err(waiting.gives_up());
            }
        }
    }

    /// A lease must not outlast the time for which a node that has forgotten it stays out.
    pub(super) fn check_ttl(&self, ttl: Duration) -> Result<()> {
        let delay = self.ensemble.rejoin_delay;
        if !delay.is_zero() && ttl > delay {
            let message = format!(
                "a ttl of {ttl:?} is longer than a restarted node stays out: raise rejoin-delay, \
                 which is {delay:?}, for all clients"
            );
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        Ok(())
    }

    /// The lease of an acquisition of which nothing is known but its id.
    pub(super) fn lease_of(&self, keys: Keys, id: LeaseId) -> QuorumLease {
        let shares = Shares::unknown(self.ensemble.len());
        let of = (id, id.into(), Mode::Exclusive);
        QuorumLease::new(&self.ensemble, &self.renewer, &Arc::new(keys), of, shares)
    }

    /// Arms the undoing of an attempt before anything is sent.
    fn arm(
        &self,
        request: &AcquireRequest,
        keys: &Arc<Keys>,
    ) -> (PendingRelease, Arc<QuorumLease>, Claim) {
        let engine = &self.ensemble.engine;
        let id = engine.lease_id();
        let claim = Claim {
            holder: Holder::new(id, request.label()),
            mode: request.mode(),
            ttl: request.ttl(),
        };
        let of = (id, claim.holder.clone(), claim.mode);
        let shares = Shares::none(self.ensemble.len());
        let lease = QuorumLease::new(&self.ensemble, &self.renewer, keys, of, shares);
        let lease = Arc::new(lease);
        let armed: Arc<dyn Lease> = Arc::<QuorumLease>::clone(&lease);
        (
            engine.pending(request.key(), armed, request.ttl()),
            lease,
            claim,
        )
    }
}

/// A request between two attempts.
struct Waiting<'a> {
    client: &'a Client,
    budget: Budget,
    is_writer: bool,
    name: Option<LeaseId>,
    /// How often in a row others were in the way.
    attempts: u32,
    /// Whether a majority has answered.
    answered: bool,
    /// Since when there is no majority, and the last reason.
    silent: Option<(Moment, Error)>,
}

impl<'a> Waiting<'a> {
    fn new(client: &'a Client, request: &AcquireRequest) -> Self {
        Self {
            client,
            budget: Budget::of(request, Duration::MAX),
            is_writer: request.mode() == Mode::Exclusive,
            name: None,
            attempts: 0,
            answered: false,
            silent: None,
        }
    }

    /// The name under which this waiter is known to the nodes: that of its first attempt.
    fn name(&mut self, id: LeaseId) -> Option<LeaseId> {
        let claims = self.is_writer && self.budget.waits();
        claims.then(|| *self.name.get_or_insert(id))
    }

    /// How long to wait after an attempt in vain, or why there is no other one.
    fn pause(&mut self, outcome: Outcome, took: Duration) -> Result<Duration> {
        let engine = &self.client.ensemble.engine;
        match outcome {
            Outcome::Won(_) => Ok(Duration::ZERO),
            Outcome::Lost { next, is_held } => {
                (self.answered, self.silent) = (true, None);
                self.attempts += 1;
                let again = !is_held && self.attempts < ATTEMPTS_AT_ONCE;
                if !self.budget.waits() && !again {
                    return Err(self.budget.contended());
                }
                let longest = longest_pause(self.attempts - 1, took, is_held);
                let pause = engine.jitter(Duration::ZERO, longest);
                Ok(next.map_or(pause, |next| pause.min(next + Duration::from_millis(1))))
            }
            Outcome::Unreachable { error, passes } => {
                let now = engine.now();
                let since = self.silent.as_ref().map_or(now, |(since, _)| *since);
                let is_over = now.since(since) >= PATIENCE && !passes;
                if is_over || !self.budget.waits() || !error.is_retryable() {
                    return Err(error);
                }
                self.silent = Some((since, error));
                Ok(engine.jitter(LONGEST_SILENCE / 2, LONGEST_SILENCE))
            }
        }
    }

    /// The error of a caller whose time is over.
    fn gives_up(&mut self) -> Error {
        match self.silent.take() {
            Some((_, error)) => error,
            None if self.answered => self.budget.contended(),
            None => {
                let message = "no majority of the nodes answered before the wait was over";
                Error::new(ErrorKind::Unavailable, message).with_unknown_outcome()
            }
        }
    }
}

/// Attempts of a request that does not wait, as long as nobody is known to hold the lock: others
/// that compete may have taken votes from each other.
const ATTEMPTS_AT_ONCE: u32 = 3;

/// How long nodes that do not answer are asked again by one who waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time between two attempts with nodes that do not answer.
const LONGEST_SILENCE: Duration = Duration::from_millis(200);
