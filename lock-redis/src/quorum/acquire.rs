//! Requests votes from the nodes until a majority has granted them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use polylock_core::engine::{MIN_ATTEMPT, Moment, WaitDeadline, before};
use polylock_core::{
    AcquireRequest, Error, ErrorKind, FencingToken, Grant, Lease, LockGuard, Mode, Result,
};
use redis::Value;
use tokio::time::Instant;

use super::QuorumClient;
use super::lease::{QuorumAcquisition, QuorumLease};
use super::node::{NodeReplies, Quorum, QuorumNode, await_rest};
use super::token::{Agreement, MAX_SKEW, proposal};
use super::votes::{Decision, Vote, Votes};
use crate::error::{RedisCause, RedisFailure};
use crate::keys::{RedisKeys, TokenCounter};
use crate::reply;
use crate::script::VOTE;
use crate::server::{RedisHolder, millis, mode_text};
use crate::topology::Call;

impl QuorumClient {
    /// Makes attempts until one wins. Releases the votes of an attempt before the next one, so that one
    /// of several competing clients succeeds.
    pub(super) async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        let Self(quorum) = self;
        // A release within the min hold asks for a lease of the rest of it.
        quorum.check_ttl(request.ttl().max(request.min_hold()))?;
        let keys = Arc::new(RedisKeys::checked(request.key(), TokenCounter::Lock)?);
        let mut backoff = QuorumBackoff::new(request);
        let is_waiting_writer = request.mode() == Mode::Exclusive && backoff.budget.waits();
        let mut waiter = None;
        loop {
            let sent = quorum.engine.now();
            let id = quorum.engine.lease_id();
            if is_waiting_writer {
                waiter.get_or_insert(id);
            }
            let holder = RedisHolder::new(id, request.label());
            let attempt = Arc::new(QuorumAcquisition {
                mode: request.mode(),
                ttl: request.ttl(),
                waiter,
                ..QuorumAcquisition::new(quorum, Arc::clone(&keys), id, holder)
            });
            // Armed before the first request.
            let lease: Arc<dyn Lease> = Arc::new(QuorumLease(Arc::clone(&attempt)));
            let pending = quorum.engine.pending(request.key(), lease, request.ttl());
            let grace = backoff.clock_grace(request.ttl());
            let votes = attempt.ask_for_votes(proposal(), grace);
            let Some(outcome) = backoff.bound(votes).await else {
                return Err(backoff.unanswered());
            };
            match &outcome {
                QuorumOutcome::Won(token) => {
                    let guard = pending.granted(request, Grant::new(sent, Some(*token)))?;
                    for node in &quorum.nodes {
                        let held_leases = &quorum.held_leases;
                        held_leases.listen(node.number, &node.server.topology);
                    }
                    return Ok(guard);
                }
                QuorumOutcome::Lost { .. } => request.mark_contended(),
                QuorumOutcome::Unreachable { error, .. } => {
                    request.mark_unavailable(error.message());
                }
            }
            let took = quorum.engine.now().since(sent);
            attempt.free_votes().await;
            // Unknown grants delay no one: their release continues in the background.
            drop(pending);
            let pause = backoff.after(outcome, took, quorum)?;
            tokio::time::sleep(backoff.budget.left(pause)).await;
            if backoff.budget.is_over() {
                return Err(backoff.error);
            }
        }
    }
}

impl Quorum {
    /// A lease must not outlast the time during which a node that forgot it does not vote.
    pub(super) fn check_ttl(&self, ttl: Duration) -> Result<()> {
        let delay = self.nodes[0].rejoin_delay;
        if !delay.is_zero() && ttl > delay {
            let message = format!(
                "a ttl or min_hold of {ttl:?} is longer than a restarted node stays out: raise rejoin-delay, \
                 which is {delay:?}, for all clients"
            );
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        Ok(())
    }
}

/// The result of an attempt.
#[derive(Debug)]
pub(super) enum QuorumOutcome {
    /// Other clients have votes.
    Lost {
        /// When the votes of other clients expire.
        next: Option<Duration>,
        /// Whether another client holds the lock, rather than only competes for it.
        is_held: bool,
    },
    Unreachable {
        error: Error,
        /// Whether nodes will vote after a known time.
        passes: bool,
    },
    Won(FencingToken),
}

/// What the nodes have answered to an attempt so far.
struct VoteRound {
    votes: Votes,
    agreement: Agreement,
    /// The largest token on record at a node that has not voted for this attempt.
    last_of_others: u64,
    next: Option<Duration>,
    failures: Vec<RedisFailure>,
    rejoining: Vec<String>,
}

impl QuorumAcquisition {
    /// Asks all nodes at once, until a majority has voted or has become impossible.
    ///
    /// # Cancel safety
    ///
    /// The lease releases every vote that was granted.
    pub(super) async fn ask_for_votes(
        self: &Arc<Self>,
        proposal: u64,
        clock_grace: Duration,
    ) -> QuorumOutcome {
        let quorum = &*self.quorum;
        let sent = quorum.engine.now();
        let mut answers = quorum.ask(|node| {
            let this = Arc::clone(self);
            async move {
                let vote = node.vote(&this, proposal).await;
                this.states.voted(node.number, &vote);
                vote
            }
        });
        let mut round = VoteRound {
            votes: Votes::new(quorum.len()),
            agreement: Agreement::new(quorum.len(), 0),
            last_of_others: 0,
            next: None,
            failures: Vec::new(),
            rejoining: Vec::new(),
        };
        while round.votes.election() == Decision::Open
            && let Some((node, vote)) = answers.next().await
        {
            round.count(&quorum.nodes[node], vote);
        }
        if round.votes.election() == Decision::Yes {
            // The clocks of all voters are behind the one of this client. If the voters have forgotten
            // their last token as well, another node may know it.
            let is_late = round.agreement.token < proposal;
            if is_late {
                let left = clock_grace.saturating_sub(quorum.engine.now().since(sent));
                round.count_rest(&quorum.nodes, &mut answers, left).await;
            }
            // A smaller one may be of a client that competes and has not got the lock: it would cost a
            // round trip.
            if is_late || round.last_of_others > proposal.saturating_add(MAX_SKEW) {
                round.agreement.overtaken(round.last_of_others);
            }
            // Slow nodes vote in the background, in case other nodes fail later. A shutdown waits for
            // requests that may still write the lock to a node.
            if !answers.is_empty() {
                quorum.engine.spawn(await_rest(answers));
            }
            let passes = false;
            return match self.agree(round.agreement).await {
                Ok(Some(token)) => QuorumOutcome::Won(token),
                Ok(None) => QuorumOutcome::Unreachable {
                    error: votes_lost(),
                    passes,
                },
                Err(error) => QuorumOutcome::Unreachable { error, passes },
            };
        }
        // Waits briefly for replies that are about to arrive, to avoid releases with an unknown outcome.
        let grace = quorum.engine.now().since(sent) + GRACE;
        round.count_rest(&quorum.nodes, &mut answers, grace).await;
        if round.votes.election() == Decision::No {
            let (next, is_held) = (round.next, round.votes.is_held());
            return QuorumOutcome::Lost { next, is_held };
        }
        let error = quorum.unavailable(&round.failures, &round.rejoining);
        let passes = !round.rejoining.is_empty();
        QuorumOutcome::Unreachable { error, passes }
    }
}

impl QuorumNode {
    pub(super) async fn vote(
        self: &Arc<Self>,
        of: &QuorumAcquisition,
        proposal: u64,
    ) -> Result<Vote, RedisFailure> {
        let (ttl, mode, proposal) = (millis(of.ttl), mode_text(of.mode), proposal.to_string());
        let run = self.voting_run();
        let claim = of.waiter.map(|waiter| {
            let claim = millis(WRITER_CLAIM);
            format!("{claim}|{}", waiter.to_hex())
        });
        let args = [
            self.retention.as_bytes(),
            of.holder.id(),
            of.holder.0.as_bytes(),
            mode.as_bytes(),
            ttl.as_bytes(),
            proposal.as_bytes(),
            run.as_bytes(),
            claim.as_deref().unwrap_or_default().as_bytes(),
        ];
        let reply = &self.ask_in_time(&of.keys, &args).await?;
        let Value::Array(parts) = reply else {
            return reply::token(reply).map(Vote::Granted);
        };
        match &parts[..] {
            [word, Value::Int(left), Value::Int(last)] if reply::text(word) == Some("held") => {
                let left = u64::try_from(*left).ok().map(Duration::from_millis);
                let last = last_token(*last).ok_or_else(|| reply::strange(reply))?;
                Ok(Vote::Held { left, last })
            }
            // The release of this acquisition arrived first: the node cannot vote for it any more.
            [word, _] if reply::text(word) == Some("gone") => Ok(Vote::Held {
                left: None,
                last: 0,
            }),
            [word, run, Value::Int(last)] if reply::text(word) == Some("rejoining") => {
                let run = reply::text(run).ok_or_else(|| reply::strange(reply))?;
                let last = last_token(*last).ok_or_else(|| reply::strange(reply))?;
                self.saw(run, Duration::ZERO);
                self.watch();
                let left = self.rejoins_in();
                Ok(Vote::Rejoining { left, last })
            }
            _ => Err(reply::strange(reply)),
        }
    }

    /// Sends the request with a time after which the server refuses it, so that a late copy acquires
    /// nothing. A refusal shows that the clock has jumped.
    async fn ask_in_time(&self, keys: &RedisKeys, args: &[&[u8]]) -> Result<Value, RedisFailure> {
        let server = &self.server;
        let keys = keys.all();
        for _ in 0..2 {
            let limit = self.clock.limit(server.timeout);
            let args = [args, &[limit.as_bytes()]].concat();
            let done = server
                .topology
                .call(Call::script(&VOTE, &keys, &args))
                .await;
            let reply = server.explained(&keys, done).await?.value;
            match reply::late(&reply) {
                Some(now) => self.clock.learn(now),
                None => return Ok(reply),
            }
        }
        Err(RedisCause::Late.into())
    }
}

/// Reads the last token on record at a node: 0 if there is none, or if it is larger than any token of a client.
fn last_token(last: i64) -> Option<u64> {
    let last = u64::try_from(last).ok()?;
    Some(if reply::is_token(last) { last } else { 0 })
}

/// How long a waiting writer keeps new readers out after each attempt: longer than its backoff and its
/// next attempt take.
const WRITER_CLAIM: Duration = Duration::from_millis(750);

/// Negligible, but longer than the reply of a fast node takes.
const GRACE: Duration = Duration::from_millis(2);

/// How long an attempt waits at most for the other nodes if the clocks of its voters are behind.
const CLOCK_GRACE: Duration = Duration::from_millis(500);

impl VoteRound {
    /// Counts the replies that arrive within the limit.
    async fn count_rest(
        &mut self,
        nodes: &[Arc<QuorumNode>],
        answers: &mut NodeReplies<'_, Result<Vote, RedisFailure>>,
        limit: Duration,
    ) {
        let rest = async {
            while let Some((node, vote)) = answers.next().await {
                self.count(&nodes[node], vote);
            }
        };
        // After a stall of the process, replies may wait in the sockets.
        let _is_complete = before(Instant::now() + limit, rest).await;
    }

    fn count(&mut self, node: &QuorumNode, vote: Result<Vote, RedisFailure>) {
        self.votes.add(match vote {
            Ok(Vote::Granted(_)) => Some(true),
            Ok(Vote::Held { .. }) => Some(false),
            Ok(Vote::Rejoining { .. }) | Err(_) => None,
        });
        match vote {
            Ok(Vote::Granted(token)) => self.agreement.recorded(node.number, token),
            Ok(Vote::Held { left, last }) => {
                self.next = self.next.max(left);
                self.last_of_others = self.last_of_others.max(last);
            }
            Ok(Vote::Rejoining { left, last }) => {
                self.last_of_others = self.last_of_others.max(last);
                // Rounded up, so that it does vote then.
                let left = left.as_millis().div_ceil(1000).max(1);
                self.rejoining.push(format!(
                    "{} may have restarted, and votes again in {left}s (rejoin-delay)",
                    node.name
                ));
            }
            Err(failure) => self.failures.push(failure),
        }
    }
}

/// A request between two attempts.
pub(super) struct QuorumBackoff {
    budget: WaitDeadline,
    /// The number of attempts that lost to other clients.
    attempts: u32,
    unreachable_since: Option<Moment>,
    /// The error for the caller after its deadline.
    error: Error,
}

impl QuorumBackoff {
    pub(super) fn new(request: &AcquireRequest) -> Self {
        Self {
            budget: WaitDeadline::of(request),
            attempts: 0,
            unreachable_since: None,
            error: no_majority(),
        }
    }

    /// Whether the last attempt lost to other clients.
    fn has_lost(&self) -> bool {
        self.error.kind() == ErrorKind::Contended
    }

    /// How long after its begin an attempt may still wait for the other nodes if the clocks of its voters
    /// are behind. It leaves time for the agreement.
    pub(super) fn clock_grace(&self, ttl: Duration) -> Duration {
        let longest = CLOCK_GRACE.min(ttl / 4);
        if !self.budget.waits() {
            return longest;
        }
        let left = self.budget.left(2 * longest).max(MIN_ATTEMPT);
        longest.min(left / 2)
    }

    /// Bounds an attempt by the deadline, and by a little more if the last one lost.
    async fn bound<T>(&self, attempt: impl Future<Output = T>) -> Option<T> {
        let budget = match self.has_lost() {
            true => self.budget.with_grace(),
            false => self.budget,
        };
        budget.bound(Duration::MAX, attempt).await
    }

    /// The error of an attempt that has no result by the deadline. What the nodes said before may be over.
    fn unanswered(self) -> Error {
        match self.has_lost() {
            true => no_majority(),
            // Its votes may arrive.
            false => self.error.with_unknown_outcome(),
        }
    }

    /// The backoff after an attempt that did not win, or the error if there is no other attempt.
    fn after(
        &mut self,
        outcome: QuorumOutcome,
        took: Duration,
        quorum: &Quorum,
    ) -> Result<Duration> {
        let engine = &quorum.engine;
        match outcome {
            QuorumOutcome::Won(_) => Ok(Duration::ZERO),
            QuorumOutcome::Lost { next, is_held } => {
                self.unreachable_since = None;
                self.error = self.budget.contended();
                let max = max_backoff(self.attempts, took, is_held);
                self.attempts += 1;
                if !self.budget.waits() && (is_held || self.attempts >= MAX_ATTEMPTS) {
                    return Err(self.budget.contended());
                }
                let backoff = engine.jitter(Duration::ZERO, max);
                Ok(next.map_or(backoff, |next| backoff.min(next + Duration::from_millis(1))))
            }
            QuorumOutcome::Unreachable { error, passes } => {
                let now = engine.now();
                let since = *self.unreachable_since.get_or_insert(now);
                let is_over = now.since(since) >= OUTAGE_TIMEOUT && !passes;
                if is_over || !self.budget.waits() || !error.is_retryable() {
                    return Err(error);
                }
                self.error = error;
                Ok(engine.jitter(MAX_BACKOFF / 2, MAX_BACKOFF))
            }
        }
    }
}

fn no_majority() -> Error {
    let message = "no majority of the nodes answered before the wait was over";
    Error::new(ErrorKind::Unavailable, message).with_unknown_outcome()
}

fn votes_lost() -> Error {
    let message = "the votes expired or were withdrawn before the token was on record";
    Error::new(ErrorKind::Unavailable, message)
}

/// The max backoff after this many attempts.
///
/// Every backoff is random, from zero up to this max: two clients that took votes from each other
/// separate with a probability that grows with each attempt.
fn max_backoff(attempts: u32, took: Duration, is_held: bool) -> Duration {
    let first = match is_held {
        true => Duration::from_millis(10),
        false => 2 * took.max(Duration::from_millis(1)),
    };
    let grown = first.saturating_mul(1 << attempts.min(10));
    grown.min(MAX_BACKOFF)
}

/// Between two attempts of a request that waits.
const MAX_BACKOFF: Duration = Duration::from_millis(200);

/// Max attempts of a request that does not wait while no holder is known: competing clients may have
/// taken votes from each other. They can do so again after a short backoff.
const MAX_ATTEMPTS: u32 = 5;

/// How long a waiter retries while no majority answers.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoffs_grow_to_a_limit() {
        let took = Duration::from_millis(3);
        let backoffs = [0, 1, 4, 10, 1_000].map(|n| max_backoff(n, took, false).as_millis());
        assert_eq!(backoffs, [6, 12, 96, 200, 200]);
        let backoffs = [0, 1, 4, 10].map(|n| max_backoff(n, took, true).as_millis());
        assert_eq!(backoffs, [10, 20, 160, 200]);
        assert!(max_backoff(0, Duration::ZERO, false) > Duration::ZERO);
    }
}
