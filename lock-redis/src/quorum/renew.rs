use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use polylock_core::{AcquireRequest, LeaseState, LostReason, RenewalRequest, Renewer, Result};
use tokio::time::{Instant, sleep};

use super::node::{Quorum, await_rest};
use super::votes::{Decision, Votes};

/// Renews leases on all nodes: one call per node for all that are due.
#[async_trait]
impl Renewer for Quorum {
    /// A lost lease is not written to its node again: a restarted node may have voted for another
    /// holder, and so may a majority.
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        let all: Arc<[RenewalRequest]> = due.into();
        // Only the timeout of a node limits its calls.
        let limit = Instant::now() + AcquireRequest::MAX_TTL;
        let mut answers = self.ask(|node| {
            let due = Arc::clone(&all);
            async move {
                let server = &node.server;
                server.renew_until(limit, &due, &|_, _| (), &|_| None).await
            }
        });
        let mut votes = vec![Votes::new(self.len()); due.len()];
        let mut broken = vec![false; due.len()];
        let mut failures = Vec::new();
        // The scheduler abandons a round after the shortest timeout, with all replies that have arrived.
        let shortest = due.iter().map(|one| one.timeout).min();
        let shortest = shortest.unwrap_or_default();
        let late = sleep((shortest / 2).min(MAX_VOTES_TIMEOUT));
        tokio::pin!(late);
        loop {
            let open = votes
                .iter()
                .filter(|votes| votes.verdict() == Decision::Open);
            let open = open.count();
            // Known results do not wait for a node that only other leases need.
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
            if answers
                .iter()
                .any(|answer| matches!(answer, Ok(LeaseState::Lost(_))))
            {
                // It may have restarted. While this lock is held, its vote must not be requested.
                self.nodes[number].watch();
            }
            failures.extend(answers.iter().find_map(|a| a.as_ref().err()).cloned());
            for (n, answer) in answers.into_iter().enumerate() {
                broken[n] |= matches!(answer, Ok(LeaseState::Lost(LostReason::Broken)));
                votes[n].add(answer.ok().map(|state| state == LeaseState::Held));
            }
        }
        // A slow node renews as well.
        if !answers.is_empty() {
            self.engine.spawn_service(await_rest(answers));
        }
        let states = votes.iter().zip(broken);
        let states = states.map(|(votes, broken)| match votes.verdict() {
            Decision::Yes => Ok(LeaseState::Held),
            // Broken, if any node reported that before the majority was known.
            Decision::No if broken => Ok(LeaseState::Lost(LostReason::Broken)),
            Decision::No => Ok(LeaseState::Lost(LostReason::Stolen)),
            Decision::Open | Decision::Unknown => {
                Err(self.unavailable(&failures, &[]).with_unknown_outcome())
            }
        });
        states.collect()
    }

    /// A restarted node votes after that time, whatever it granted before.
    fn max_ttl(&self) -> Duration {
        match self.nodes[0].rejoin_delay {
            Duration::ZERO => AcquireRequest::MAX_TTL,
            delay => delay.min(AcquireRequest::MAX_TTL),
        }
    }
}

/// How long leases without a majority may delay the results of the others: half of the scheduler's
/// timeout for the renewal of a long lease.
const MAX_VOTES_TIMEOUT: Duration = Duration::from_millis(500);
