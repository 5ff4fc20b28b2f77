//! One attempt to win a majority.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use lock_core::engine::LeaseId;
use lock_core::{Error, Grant};

use super::agreement::Agreement;
use super::ensemble::{Asking, Ensemble};
use super::lease::QuorumLease;
use super::node::{Ballot, Terms};
use super::pace::proposal;
use super::settle::settle;
use super::shares::Shares;
use super::vote::{Election, Votes};
use crate::error::Failure;
use crate::server::Claim;

/// How an attempt ends.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Somebody else has votes.
    Lost {
        /// When the votes of others end by time alone.
        next: Option<Duration>,
        /// Whether there is a holder, and not only others that compete.
        is_held: bool,
    },
    Unreachable {
        error: Error,
        /// Whether nodes will vote after a known time.
        passes: bool,
    },
    Won(Grant),
}

/// What the nodes have said so far.
struct Count {
    votes: Votes,
    agreement: Agreement,
    next: Option<Duration>,
    failures: Vec<Failure>,
    young: Vec<String>,
}

/// Asks all nodes at once, until a majority has voted or cannot any more.
///
/// # Cancel safety
///
/// Whatever the nodes have granted is for the lease to release.
pub(super) async fn run(
    ensemble: &Arc<Ensemble>,
    lease: &QuorumLease,
    claim: Claim,
    waiter: Option<LeaseId>,
) -> Outcome {
    let (holder, mode) = (claim.holder.clone(), claim.mode);
    let sent = ensemble.engine.now();
    lease.shares.ask();
    let terms = Terms {
        proposal: proposal(),
        waiter,
    };
    let question = Arc::new((Arc::clone(&lease.keys), claim, terms));
    let mut asking = ensemble.ask(
        |_| true,
        |node| {
            let question = Arc::clone(&question);
            async move { node.vote(&question.0, &question.1, &question.2).await }
        },
    );
    let mut count = Count::new(ensemble.len());
    let election = loop {
        match count.votes.election() {
            Election::Open => {}
            election => break election,
        }
        match asking.next().await {
            Some((node, ballot)) => count.take(ensemble, &lease.shares, node, ballot),
            None => break Election::Unreachable,
        }
    };
    if election == Election::Won {
        collect_late(Arc::clone(&lease.shares), asking);
        return match settle(ensemble, &lease.keys, &holder, mode, count.agreement).await {
            Ok(Some(token)) => Outcome::Won(Grant::new(sent, Some(lease.granted(token)))),
            // Its votes ended before the token was on record.
            Ok(None) => Outcome::Lost {
                next: None,
                is_held: false,
            },
            Err(error) => Outcome::Unreachable {
                error,
                passes: false,
            },
        };
    }
    // Nodes that are about to answer need no release in the dark.
    let grace = ensemble.engine.now().since(sent) + GRACE;
    let rest = async {
        while let Some((node, ballot)) = asking.next().await {
            count.take(ensemble, &lease.shares, node, ballot);
        }
    };
    let _is_complete = tokio::time::timeout(grace, rest).await;
    count.outcome(ensemble, election)
}

/// Shorter than anybody notices, and longer than a node takes that is not slow.
const GRACE: Duration = Duration::from_millis(2);

impl Count {
    fn new(nodes: usize) -> Self {
        Self {
            votes: Votes::new(nodes),
            agreement: Agreement::new(nodes),
            next: None,
            failures: Vec::new(),
            young: Vec::new(),
        }
    }

    fn take(&mut self, ensemble: &Ensemble, shares: &Shares, node: usize, ballot: Ballot) {
        note(shares, node, &ballot);
        match ballot {
            Ballot::Failed(failure) => {
                self.votes.silent += 1;
                self.failures.push(failure);
            }
            Ballot::Granted(token) => {
                self.votes.yes += 1;
                self.agreement.granted(node, token);
            }
            Ballot::Held(left) => {
                self.votes.no += 1;
                self.next = self.next.max(left);
            }
            Ballot::Young(left) => {
                self.votes.silent += 1;
                let name = &ensemble.nodes[node].name;
                let text =
                    format!("{name} may have restarted and does not vote for another {left:?}");
                self.young.push(text);
            }
        }
    }

    fn outcome(self, ensemble: &Ensemble, election: Election) -> Outcome {
        match election {
            Election::Unreachable => Outcome::Unreachable {
                error: ensemble.silence(&self.failures, &self.young),
                passes: !self.young.is_empty(),
            },
            _ => Outcome::Lost {
                next: self.next,
                is_held: self.votes.is_held(),
            },
        }
    }
}

fn note(shares: &Shares, node: usize, ballot: &Ballot) {
    match ballot {
        Ballot::Granted(_) => shares.granted(node),
        // The request may have been executed.
        Ballot::Failed(failure) if failure.outcome_unknown => {}
        Ballot::Failed(_) | Ballot::Held(_) | Ballot::Young(_) => shares.refused(node),
    }
}

/// Lets the slow nodes vote as well: each one is a node that may fail later.
fn collect_late(shares: Arc<Shares>, mut asking: Asking<Ballot>) {
    if !asking.is_empty() {
        tokio::spawn(async move {
            while let Some((node, ballot)) = asking.next().await {
                note(&shares, node, &ballot);
            }
        });
    }
}
