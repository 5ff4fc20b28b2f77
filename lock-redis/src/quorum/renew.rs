use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::join_all;
use polylock_core::{AcquireRequest, LeaseState, LostReason, RenewalRequest, Renewer, Result};
use tokio::time::{sleep, timeout};

use super::node::{Quorum, QuorumNode, await_rest};
use super::votes::{Decision, Votes};
use crate::error::Failure;
use crate::keys::{Counter, Keys};
use crate::server::MAX_RENEWALS;

/// Renews leases on all nodes: one call per node for all that are due.
#[async_trait]
impl Renewer for Quorum {
    /// A lease that is gone on a node is not written there again: if the node has restarted, it may
    /// have voted for another holder, and perhaps a majority has.
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        let all: Arc<[RenewalRequest]> = due.into();
        let mut answers = self.ask(|node| {
            let due = Arc::clone(&all);
            async move { node.extend(&due).await }
        });
        let mut votes = vec![Votes::new(self.len()); due.len()];
        let mut failures = Vec::new();
        // The scheduler gives up a round after the shortest timeout, and with it the answers that are
        // there.
        let shortest = due.iter().map(|one| one.timeout).min();
        let shortest = shortest.unwrap_or_default();
        let late = sleep((shortest / 2).min(MAX_VOTES_TIMEOUT));
        tokio::pin!(late);
        loop {
            let open = votes
                .iter()
                .filter(|votes| votes.verdict() == Decision::Open);
            let open = open.count();
            // What is known of some leases does not wait for a node that others need.
            if open == 0 || late.is_elapsed() && open < due.len() {
                break;
            }
            let answered = tokio::select! {
                answered = answers.next() => answered,
                () = &mut late, if !late.is_elapsed() => continue,
            };
            let Some((number, answers)) = answered else {
                break;
            };
            if answers.iter().any(|answer| matches!(answer, Ok(false))) {
                // It may have restarted, and while this lock is held its vote must not be
                // requested.
                self.nodes[number].watch();
            }
            failures.extend(answers.iter().find_map(|a| a.as_ref().err()).cloned());
            for (votes, answer) in votes.iter_mut().zip(answers) {
                votes.add(answer.ok());
            }
        }
        // A slow node renews as well.
        if !answers.is_empty() {
            self.engine.spawn_service(await_rest(answers));
        }
        let lost = due.iter().zip(&votes);
        let lost = lost.filter(|(_, votes)| votes.verdict() == Decision::No);
        let within = (shortest / 4).min(MAX_REASON_TIMEOUT);
        // All at once: one deadline for however many are lost.
        let reasons = lost.take(MAX_REASONS).map(|(one, _)| async move {
            let reason = timeout(within, self.reason(one)).await;
            reason.unwrap_or(LostReason::Stolen)
        });
        let mut reasons = join_all(reasons).await.into_iter();
        let states = votes.iter().map(|votes| match votes.verdict() {
            Decision::Yes => Ok(LeaseState::Held),
            Decision::No => {
                let reason = reasons.next().unwrap_or(LostReason::Stolen);
                Ok(LeaseState::Lost(reason))
            }
            Decision::Open | Decision::Unknown => {
                Err(self.unavailable(&failures, &[]).with_unknown_outcome())
            }
        });
        states.collect()
    }

    /// A restarted node votes after that time, whatever it has granted before.
    fn max_ttl(&self) -> Duration {
        match self.nodes[0].rejoin_delay {
            Duration::ZERO => AcquireRequest::MAX_TTL,
            delay => delay.min(AcquireRequest::MAX_TTL),
        }
    }
}

impl Quorum {
    /// Why a majority does not have a lease any more: broken if any node says so.
    async fn reason(&self, lost: &RenewalRequest) -> LostReason {
        let (keys, id) = (Arc::new(Keys::of(&lost.key, Counter::Lock)), lost.id);
        let mut answers = self.ask(|node| {
            let keys = Arc::clone(&keys);
            async move { node.server.why(&keys, id).await }
        });
        while let Some((_, reason)) = answers.next().await {
            if reason == LostReason::Broken {
                return reason;
            }
        }
        LostReason::Stolen
    }
}

impl QuorumNode {
    /// Extends leases; whether each is held here.
    async fn extend(&self, due: &[RenewalRequest]) -> Vec<Result<bool, Failure>> {
        let mut answers = Vec::with_capacity(due.len());
        for chunk in due.chunks(MAX_RENEWALS) {
            match self.server.extend(chunk).await {
                Ok(held) => answers.extend(held.into_iter().map(Ok)),
                Err(failure) => answers.extend(chunk.iter().map(|_| Err(failure.clone()))),
            }
        }
        answers
    }
}

/// For the votes that some leases lack while others have theirs: half of the time in which the scheduler
/// gives up the renewal of a long lease.
const MAX_VOTES_TIMEOUT: Duration = Duration::from_millis(500);

/// For the reasons of all losses: a loss may be reported this much later for the sake of its reason.
const MAX_REASON_TIMEOUT: Duration = Duration::from_millis(100);

/// A round that loses more at once, because nodes have restarted, does not ask why for the rest.
const MAX_REASONS: usize = 16;
