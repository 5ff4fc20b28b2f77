use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::RenewalRequest;
use lock_core::engine::LeaseId;
use redis::Value;

use crate::error::Failure;
use crate::keys::Keys;
use crate::reply;
use crate::script::{RAISE, VOTE};
use crate::server::{Claim, Holder, MOST_RENEWALS, Server, millis, mode_text};

/// One independent master.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) server: Server,
    pub(super) name: String,
    has_warned: AtomicBool,
}

/// What a vote is asked for with, besides the claim.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) proposal: u64,
    pub(super) rejoin_delay: Duration,
    /// The name under which a waiter keeps new readers out.
    pub(super) waiter: Option<LeaseId>,
}

/// What a node says to an acquisition.
#[derive(Clone, Debug)]
pub(super) enum Ballot {
    Failed(Failure),
    Granted(u64),
    /// By somebody else, for at most so long unless it is renewed.
    Held(Option<Duration>),
    /// It has restarted, and may have forgotten a holder.
    Young(Duration),
}

/// What a node says to a token.
#[derive(Clone, Debug)]
pub(super) enum Raised {
    Done,
    Failed(Failure),
    NotHeld,
    /// A larger one has been given here.
    Overtaken(u64),
}

impl Node {
    pub(super) fn new(server: Server, name: String) -> Self {
        Self {
            server,
            name,
            has_warned: AtomicBool::new(false),
        }
    }

    pub(super) async fn vote(&self, keys: &Keys, claim: &Claim, terms: &Terms) -> Ballot {
        let (ttl, mode) = (millis(claim.ttl), mode_text(claim.mode));
        let (proposal, delay) = (terms.proposal.to_string(), millis(terms.rejoin_delay));
        let waiter = terms.waiter.map(|waiter| {
            let patience = millis(CLAIM);
            format!("{patience}|{}", waiter.to_hex())
        });
        let args = [
            self.server.retention.as_bytes(),
            claim.holder.id(),
            claim.holder.0.as_bytes(),
            mode.as_bytes(),
            ttl.as_bytes(),
            proposal.as_bytes(),
            delay.as_bytes(),
            waiter.as_deref().unwrap_or_default().as_bytes(),
        ];
        let answer = self.server.run(&VOTE, keys, &args).await;
        match answer.and_then(|reply| self.ballot(&reply)) {
            Ok(ballot) => ballot,
            Err(failure) => Ballot::Failed(failure),
        }
    }

    fn ballot(&self, reply: &Value) -> Result<Ballot, Failure> {
        let Value::Array(parts) = reply else {
            return reply::token(reply).map(Ballot::Granted);
        };
        let [word, Value::Int(number)] = &parts[..] else {
            return Err(reply::strange(reply));
        };
        let time = u64::try_from(*number).ok().map(Duration::from_millis);
        match (reply::text(word), time) {
            (Some("blind"), _) => {
                self.warn_of_blindness();
                reply::token(&parts[1]).map(Ballot::Granted)
            }
            // Its release has been here; for this acquisition the node is lost.
            (Some("gone"), _) => Ok(Ballot::Held(None)),
            (Some("held"), left) => Ok(Ballot::Held(left)),
            (Some("young"), Some(left)) => Ok(Ballot::Young(left)),
            _ => Err(reply::strange(reply)),
        }
    }

    /// Records a token and those up to `top`.
    pub(super) async fn raise(&self, keys: &Keys, holder: &Holder, token: u64, top: u64) -> Raised {
        let (token, top) = (token.to_string(), top.to_string());
        let args = [
            self.server.retention.as_bytes(),
            holder.id(),
            token.as_bytes(),
            top.as_bytes(),
        ];
        match self.server.run(&RAISE, keys, &args).await {
            Ok(Value::Int(0)) => Raised::NotHeld,
            Ok(Value::Int(1)) => Raised::Done,
            Ok(reply) => match reply::token(&reply) {
                Ok(last) => Raised::Overtaken(last),
                Err(failure) => Raised::Failed(failure),
            },
            Err(failure) => Raised::Failed(failure),
        }
    }

    /// Extends leases; whether each is held here.
    pub(super) async fn extend(&self, due: &[RenewalRequest]) -> Vec<Result<bool, Failure>> {
        let mut answers = Vec::with_capacity(due.len());
        for chunk in due.chunks(MOST_RENEWALS) {
            match self.server.extend(chunk).await {
                Ok(held) => answers.extend(held.into_iter().map(Ok)),
                Err(failure) => answers.extend(chunk.iter().map(|_| Err(failure.clone()))),
            }
        }
        answers
    }

    fn warn_of_blindness(&self) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = self.name,
                "its ACL denies INFO, so it votes although it may have forgotten a lock"
            );
        }
    }
}

/// For how long a writer that waits keeps new readers out after each attempt: longer than it pauses
/// and asks.
const CLAIM: Duration = Duration::from_millis(750);
