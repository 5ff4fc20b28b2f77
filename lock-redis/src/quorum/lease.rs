use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use polylock_core::engine::{LeaseId, TokenBlock};
use polylock_core::{
    Error, FencingToken, Lease, LeaseControl, LeaseState, Liveness, LostReason, Mode, Released,
    Renewer, Result,
};

use super::node::{NodeReplies, Quorum};
use super::token::Agreement;
use super::votes::{Decision, Vote, Votes};
use crate::error::RedisFailure;
use crate::keys::RedisKeys;
use crate::locked;
use crate::server::RedisHolder;

/// One acquisition on several masters, which may become a lease.
#[derive(Debug)]
pub(super) struct QuorumAcquisition {
    pub(super) quorum: Arc<Quorum>,
    pub(super) keys: Arc<RedisKeys>,
    pub(super) id: LeaseId,
    pub(super) holder: RedisHolder,
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    /// The name under which a waiting writer keeps new readers out.
    pub(super) waiter: Option<LeaseId>,
    pub(super) tokens: TokenBlock,
    pub(super) states: NodeStates,
}

impl QuorumAcquisition {
    /// An acquisition of which only the holder is known.
    pub(super) fn new(
        quorum: &Arc<Quorum>,
        keys: Arc<RedisKeys>,
        id: LeaseId,
        holder: RedisHolder,
    ) -> Self {
        Self {
            quorum: Arc::clone(quorum),
            keys,
            id,
            holder,
            mode: Mode::Exclusive,
            ttl: Duration::ZERO,
            waiter: None,
            tokens: TokenBlock::default(),
            states: NodeStates::new(quorum.len()),
        }
    }

    /// Releases the lock on nodes that are known to have granted it.
    pub(super) async fn free_votes(self: &Arc<Self>) {
        let mut answers = self.ask_to_release();
        while self.states.is_granted() && answers.next().await.is_some() {}
    }

    /// Releases the lock on all nodes that may have it. Returns when a majority has replied, and
    /// continues with the others in the background.
    pub(super) async fn release(self: &Arc<Self>) -> Result<Released> {
        let mut answers = self.ask_to_release();
        let mut failures = Vec::new();
        let released = loop {
            match self.states.votes().verdict() {
                Decision::No => break Released::AlreadyLost,
                Decision::Yes => break Released::Clean,
                Decision::Open | Decision::Unknown => {}
            }
            match answers.next().await {
                Some((_, answer)) => failures.extend(answer.err()),
                None => return Err(self.quorum.unavailable(&failures, &[])),
            }
        };
        if self.states.open().contains(&true) {
            let rest = Arc::clone(self).release_rest(answers);
            self.quorum.engine.spawn(rest);
        }
        Ok(released)
    }

    /// Releases the lock on the nodes that were slow or did not reply.
    ///
    /// Such a node alone blocks no other client, but would count as failed until its lease expires.
    async fn release_rest(
        self: Arc<Self>,
        mut answers: NodeReplies<'static, Result<Released, RedisFailure>>,
    ) {
        for backoff in BACKOFFS {
            while answers.next().await.is_some() {}
            if !self.states.open().contains(&true) {
                return;
            }
            let backoff = self.quorum.engine.jitter(backoff / 2, backoff);
            tokio::time::sleep(backoff).await;
            answers = self.ask_to_release();
        }
        while answers.next().await.is_some() {}
    }

    fn ask_to_release(self: &Arc<Self>) -> NodeReplies<'static, Result<Released, RedisFailure>> {
        let open = self.states.open();
        self.quorum.ask_some(
            |node| open[node],
            |node| {
                let this = Arc::clone(self);
                async move {
                    let answer = node.server.withdraw(&this.keys, &this.holder).await;
                    this.states.released(node.number, &answer);
                    answer
                }
            },
        )
    }
}

/// Before the second and the third attempt with a node that did not answer.
const BACKOFFS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];

/// The possible states of one acquisition on each node.
#[derive(Debug)]
pub(super) struct NodeStates(Mutex<Vec<NodeState>>);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum NodeState {
    Granted,
    /// It certainly has nothing.
    Nothing,
    /// It had the lock until the release.
    Released,
    /// It may have granted the lock.
    Unknown,
}

impl NodeStates {
    pub(super) fn new(nodes: usize) -> Self {
        Self(Mutex::new(vec![NodeState::Unknown; nodes]))
    }

    /// Records the reply to an acquisition, which may arrive after the reply to the release.
    pub(super) fn voted(&self, node: usize, vote: &Result<Vote, RedisFailure>) {
        let state = &mut locked(&self.0)[node];
        match vote {
            _ if *state != NodeState::Unknown => {}
            // The request may have been executed.
            Err(failure) if failure.outcome_unknown => {}
            Ok(Vote::Granted(_)) => *state = NodeState::Granted,
            Ok(_) | Err(_) => *state = NodeState::Nothing,
        }
    }

    fn released(&self, node: usize, answer: &Result<Released, RedisFailure>) {
        locked(&self.0)[node] = match answer {
            Ok(Released::Clean) => NodeState::Released,
            Ok(_) => NodeState::Nothing,
            Err(_) => NodeState::Unknown,
        };
    }

    /// Whether a node is known to have the lock.
    fn is_granted(&self) -> bool {
        locked(&self.0).contains(&NodeState::Granted)
    }

    /// Which nodes may have the lock.
    fn open(&self) -> Vec<bool> {
        let is_open = |state: &_| matches!(state, NodeState::Granted | NodeState::Unknown);
        locked(&self.0).iter().map(is_open).collect()
    }

    /// The answers to the release.
    fn votes(&self) -> Votes {
        let states = locked(&self.0);
        let mut votes = Votes::new(states.len());
        for state in states.iter() {
            match state {
                NodeState::Released => votes.add(Some(true)),
                NodeState::Nothing => votes.add(Some(false)),
                NodeState::Granted | NodeState::Unknown => {}
            }
        }
        votes
    }
}

/// The lease of an acquisition. Its requests may outlive it.
#[derive(Debug)]
pub(super) struct QuorumLease(pub(super) Arc<QuorumAcquisition>);

#[async_trait]
impl Lease for QuorumLease {
    fn liveness(&self) -> Liveness {
        Liveness::Renewed {
            id: self.0.id,
            renewer: Arc::clone(&self.0.quorum) as Arc<dyn Renewer>,
        }
    }

    fn attach(&self, control: LeaseControl) {
        self.0.quorum.held_leases.attach(self.0.id, control, None);
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        if let Some(token) = self.0.tokens.next() {
            return Ok(Some(token));
        }
        let next = self.0.tokens.last() + 1;
        let agreement = Agreement::new(self.0.quorum.len(), next);
        self.0.agree(agreement).await
    }

    async fn downgrade(&self) -> Result<()> {
        let Self(this) = self;
        let (keys, id, token) = (&this.keys, this.id, this.tokens.current());
        let mut answers = this
            .quorum
            .ask(|node| async move { node.server.downgrade(keys, id, token).await });
        let mut votes = Votes::new(this.quorum.len());
        let (mut failures, mut reason) = (Vec::new(), LostReason::Stolen);
        while let Some((_, answer)) = answers.next().await {
            let state = answer.as_ref().ok();
            votes.add(state.map(|state| *state == LeaseState::Held));
            match answer {
                Ok(LeaseState::Lost(LostReason::Broken)) => reason = LostReason::Broken,
                Ok(_) => {}
                Err(failure) => failures.push(failure),
            }
            match votes.verdict() {
                Decision::No => return Err(Error::lost(reason)),
                Decision::Yes => return Ok(()),
                Decision::Open | Decision::Unknown => {}
            }
        }
        Err(this.quorum.unavailable(&failures, &[]))
    }

    async fn release(&self) -> Result<Released> {
        self.0.release().await
    }
}

impl Drop for QuorumLease {
    fn drop(&mut self) {
        self.0.quorum.held_leases.detach(self.0.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::RedisCause;

    #[test]
    fn what_may_be_held_is_released_and_counted() {
        let states = NodeStates::new(3);
        states.voted(0, &Ok(Vote::Granted(1)));
        states.voted(1, &Err(RedisCause::LateRenewal.unknown()));
        let refused = Vote::Held {
            left: None,
            last: 0,
        };
        states.voted(2, &Ok(refused));
        assert_eq!(states.open(), [true, true, false]);
        states.released(0, &Ok(Released::Clean));
        assert_eq!(states.votes().verdict(), Decision::Open);
        states.released(1, &Ok(Released::AlreadyLost));
        assert_eq!(states.votes().verdict(), Decision::No);
        assert_eq!(states.open(), [false; 3]);
    }

    #[test]
    fn a_late_vote_does_not_undo_a_release() {
        let states = NodeStates::new(3);
        states.released(1, &Ok(Released::AlreadyLost));
        states.voted(1, &Ok(Vote::Granted(1)));
        assert_eq!(states.open(), [true, false, true]);
    }

    #[test]
    fn a_node_whose_release_fails_may_have_the_lock() {
        let states = NodeStates::new(3);
        states.voted(0, &Ok(Vote::Granted(1)));
        assert!(states.is_granted());
        states.released(0, &Err(RedisCause::LateRenewal.unknown()));
        assert!(!states.is_granted());
        assert_eq!(states.open(), [true; 3]);
    }
}
