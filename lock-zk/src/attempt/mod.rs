//! One acquisition, from its first request to its grant.

mod enter;
mod look;
mod wait;

use lock_core::engine::before;
use lock_core::{AcquireRequest, Error, ErrorKind, FencingToken, Grant, Mode, Result};
use tokio::time::Instant;
use zookeeper_client::Error as ClientError;

use self::look::Seen;
use crate::error::{Failure, PAUSE};
use crate::lease::ZooKeeperLease;
use crate::lock::Client;
use crate::node::Node;
use crate::recipe::queue_position::QueuePosition;
use crate::time_budget::TimeBudget;

/// How an attempt ends.
#[derive(Debug)]
pub(crate) enum Outcome {
    Granted(Grant),
    /// The session or the node has ended: there is nothing left of this attempt, and the next one goes
    /// to the end of the line.
    Gone,
    /// The lock is held, or not to be had in this way; the node is still there.
    Refused(Error),
}

pub(crate) struct Attempt<'a> {
    pub(crate) client: &'a Client,
    pub(crate) request: &'a AcquireRequest,
    pub(crate) budget: &'a TimeBudget,
    pub(crate) lease: &'a ZooKeeperLease,
}

/// Why an attempt does not go on.
enum AttemptError {
    Failed(Failure),
    /// The session or the node is gone.
    Gone,
    /// No answer in time.
    Late,
}

impl Attempt<'_> {
    /// Queues and waits until no predecessor excludes it.
    pub(crate) async fn run(&self) -> Result<Outcome> {
        match self.stand_in_line().await {
            Ok(outcome) => Ok(outcome),
            Err(AttemptError::Gone) => Ok(Outcome::Gone),
            Err(AttemptError::Failed(failure)) => Err(failure.into()),
            Err(AttemptError::Late) => Err(self.budget.gives_up()),
        }
    }

    async fn stand_in_line(&self) -> Result<Outcome, AttemptError> {
        let mut entered = self.client.engine.now();
        let (node, mut seen) = self.enter().await?;
        loop {
            let blocker = match self.queue_position(&mut seen, &node).await? {
                QueuePosition::Gone => return Err(AttemptError::Gone),
                QueuePosition::Holds => {
                    self.budget.note_free();
                    if self.lease.session.broke_since(entered) {
                        entered = self.client.engine.now();
                        self.look_at_own(&node).await?;
                        seen = self.list().await?;
                        continue;
                    }
                    if self.lease.session.is_unproven() {
                        self.prove().await?;
                    }
                    let token = self.token(&seen, &node).await?;
                    if self.lease.session.proves(seen.sent) {
                        self.lease.is_first(seen.sent);
                        return Ok(Outcome::Granted(Grant::new(seen.sent, Some(token))));
                    }
                    seen = self.look_again().await?;
                    continue;
                }
                QueuePosition::OtherLimit(limit) => {
                    return Ok(Outcome::Refused(other_limit(limit)));
                }
                QueuePosition::Behind(blocker) => blocker,
            };
            self.budget.mark_contended();
            if !self.budget.waits() || self.budget.is_over() {
                return Ok(Outcome::Refused(self.budget.contended()));
            }
            self.request.mark_contended();
            seen = match self.wait(&blocker, &node).await? {
                Some(seen) => seen,
                None => self.list().await?,
            };
        }
    }

    /// The token of a holder: the last change of the directory that shows that it is the first.
    ///
    /// That is later than the end of every holder before it, and so than all tokens that were
    /// handed over. Several may hold shared locks and permits at a time: unless the last change was
    /// the own one, a write of its own gives them a unique token. Permit waiters learn by the write
    /// that one is granted.
    async fn token(&self, seen: &Seen, node: &Node) -> Result<FencingToken, AttemptError> {
        if self.request.mode() == Mode::Exclusive || seen.pzxid == node.czxid {
            return self.lease.drawn(seen.pzxid).map_err(AttemptError::Failed);
        }
        let until = self.budget.step();
        let path = self.lease.path(node);
        loop {
            let client = &self.lease.session.client;
            let written = client.set_data(&path, &self.lease.data, None);
            match self.until(until, written).await? {
                Ok(stat) => return self.lease.drawn(stat.mzxid).map_err(AttemptError::Failed),
                Err(ClientError::NoNode) => return Err(AttemptError::Gone),
                Err(error) => self.pause_if_ambiguous(error.into()).await?,
            }
        }
    }

    /// Commits a write before the lock is granted after a long wait: the session may have been
    /// served by a leader that was replaced.
    async fn prove(&self) -> Result<(), AttemptError> {
        let until = self.budget.step();
        match self.until(until, self.lease.session.prove()).await? {
            Ok(()) => Ok(()),
            Err(ClientError::NoNode) => Err(AttemptError::Gone),
            Err(error) => self.pause_if_ambiguous(error.into()).await,
        }
    }

    /// Bounds one step.
    async fn until<T>(
        &self,
        until: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T, AttemptError> {
        before(until, work).await.ok_or(AttemptError::Late)
    }

    /// Lets the client reconnect before the next request; returns errors that a repetition does not
    /// change.
    async fn pause_if_ambiguous(&self, failure: Failure) -> Result<(), AttemptError> {
        if failure.is_over() {
            // It may not be reported yet, and the next attempt needs the next session.
            self.lease.session.end();
            return Err(AttemptError::Gone);
        }
        if !failure.is_ambiguous() {
            return Err(AttemptError::Failed(failure));
        }
        tokio::time::sleep(self.client.engine.jitter(PAUSE / 2, PAUSE)).await;
        Ok(())
    }
}

fn other_limit(limit: u32) -> Error {
    let message = format!("permits of this key are taken with the limit {limit}");
    Error::new(ErrorKind::InvalidRequest, message)
}
