use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::join_all;
use lock_core::{LeaseState, LostReason, RenewalRequest, Renewer, Result};

use super::ensemble::Ensemble;
use super::vote::{Verdict, Votes};
use crate::keys::{Counter, Keys};

/// Renews leases on all nodes: one call per node for all that are due.
#[derive(Debug)]
pub(super) struct QuorumRenewer(pub(super) Arc<Ensemble>);

#[async_trait]
impl Renewer for QuorumRenewer {
    /// A lease that is gone on a node is not written there again: if the node has restarted, it may
    /// have voted for somebody else, and if a majority has, nobody knows.
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        let ensemble = &self.0;
        let all: Arc<[RenewalRequest]> = due.into();
        let mut asking = ensemble.ask(
            |_| true,
            |node| {
                let due = Arc::clone(&all);
                async move { node.extend(&due).await }
            },
        );
        let mut votes = vec![Votes::new(ensemble.len()); due.len()];
        let mut failures = Vec::new();
        let timeouts = RoundTimeouts::of(due);
        let late = tokio::time::sleep(timeouts.votes);
        tokio::pin!(late);
        let mut is_late = false;
        while votes.iter().any(is_open) {
            // What is known of some leases does not wait for a node that others need.
            if is_late && !votes.iter().all(is_open) {
                break;
            }
            let answered = tokio::select! {
                answered = asking.next() => answered,
                () = &mut late, if !is_late => {
                    is_late = true;
                    continue;
                }
            };
            let Some((number, answers)) = answered else {
                break;
            };
            if answers.iter().any(|answer| matches!(answer, Ok(false))) {
                // It may have restarted, and while this lock is held nobody may ask for a vote.
                ensemble.nodes[number].watch();
            }
            failures.extend(answers.iter().find_map(|a| a.as_ref().err()).cloned());
            for (votes, answer) in votes.iter_mut().zip(&answers) {
                match answer {
                    Ok(true) => votes.yes += 1,
                    Ok(false) => votes.no += 1,
                    Err(_) => votes.silent += 1,
                }
            }
        }
        // A slow node renews as well.
        if !asking.is_empty() {
            tokio::spawn(async move { while asking.next().await.is_some() {} });
        }
        let lost = due.iter().zip(&votes);
        let lost = lost.filter(|(_, votes)| votes.verdict() == Verdict::No);
        let reasons = lost.take(MAX_REASONS).map(|(one, _)| async move {
            let why = tokio::time::timeout(timeouts.reasons, why(ensemble, one));
            why.await.unwrap_or(LostReason::Stolen)
        });
        // All at once: one deadline for however many are lost.
        let mut reasons = join_all(reasons).await.into_iter();
        let states = votes.iter().map(|votes| match votes.verdict() {
            Verdict::Yes => Ok(LeaseState::Held),
            Verdict::No => {
                let reason = reasons.next().unwrap_or(LostReason::Stolen);
                Ok(LeaseState::Lost(reason))
            }
            Verdict::Open | Verdict::Unknown => {
                Err(ensemble.silence(&failures, &[]).with_unknown_outcome())
            }
        });
        states.collect()
    }
}

fn is_open(votes: &Votes) -> bool {
    votes.verdict() == Verdict::Open
}

/// How long one round of renewals waits, in all: the keeper gives up a round after a fifth of the
/// shortest ttl, and with it the answers that are there.
#[derive(Clone, Copy, Debug)]
struct RoundTimeouts {
    /// For the votes that some leases lack while others have theirs.
    votes: Duration,
    /// For the reasons of all losses.
    reasons: Duration,
}

impl RoundTimeouts {
    fn of(due: &[RenewalRequest]) -> Self {
        let shortest = due.iter().map(|one| one.ttl).min().unwrap_or_default();
        Self {
            votes: (shortest / 10).min(MAX_VOTES_TIMEOUT),
            reasons: (shortest / 20).min(MAX_REASONS_TIMEOUT),
        }
    }
}

/// Half of the time in which the keeper gives up the renewal of a long lease.
const MAX_VOTES_TIMEOUT: Duration = Duration::from_millis(500);

/// As long as a loss may be reported later for the sake of its reason.
const MAX_REASONS_TIMEOUT: Duration = Duration::from_millis(100);

/// Why a majority does not have a lease any more: broken if any node was told so.
async fn why(ensemble: &Ensemble, lost: &RenewalRequest) -> LostReason {
    let (keys, id) = (Arc::new(Keys::of(&lost.key, Counter::Lock)), lost.id);
    let mut asking = ensemble.ask(
        |_| true,
        |node| {
            let keys = Arc::clone(&keys);
            async move { node.server.why(&keys, id).await }
        },
    );
    while let Some((_, reason)) = asking.next().await {
        if reason == LostReason::Broken {
            return reason;
        }
    }
    LostReason::Stolen
}

/// A renewal that loses more at once, because nodes have restarted, does not ask why for the rest.
const MAX_REASONS: usize = 16;
