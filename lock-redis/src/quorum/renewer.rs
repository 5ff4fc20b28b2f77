use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use lock_core::{LeaseState, LostReason, RenewalRequest, Renewer, Result};

use super::ensemble::Ensemble;
use super::vote::{Verdict, Votes};
use crate::keys::Keys;

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
        while let Some((_, answers)) = asking.next().await {
            failures.extend(answers.iter().find_map(|a| a.as_ref().err()).cloned());
            for (votes, answer) in votes.iter_mut().zip(&answers) {
                match answer {
                    Ok(true) => votes.yes += 1,
                    Ok(false) => votes.no += 1,
                    Err(_) => votes.silent += 1,
                }
            }
            if votes.iter().all(|votes| votes.verdict() != Verdict::Open) {
                break;
            }
        }
        // A slow node renews as well.
        if !asking.is_empty() {
            tokio::spawn(async move { while asking.next().await.is_some() {} });
        }
        let mut states = Vec::with_capacity(due.len());
        let mut asked = 0;
        for (one, votes) in due.iter().zip(votes) {
            states.push(match votes.verdict() {
                Verdict::Yes => Ok(LeaseState::Held),
                Verdict::No if asked < MOST_REASONS => {
                    asked += 1;
                    Ok(LeaseState::Lost(why(ensemble, one).await))
                }
                Verdict::No => Ok(LeaseState::Lost(LostReason::Stolen)),
                Verdict::Open | Verdict::Unknown => {
                    Err(ensemble.silence(&failures, &[]).with_unknown_outcome())
                }
            });
        }
        states
    }
}

/// Why a majority does not have a lease any more: broken if any node was told so.
async fn why(ensemble: &Ensemble, lost: &RenewalRequest) -> LostReason {
    let (keys, id) = (Arc::new(Keys::of(&lost.key)), lost.id);
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

/// A renewal that loses more at once, because nodes have restarted, does not stop to ask why.
const MOST_REASONS: usize = 16;
