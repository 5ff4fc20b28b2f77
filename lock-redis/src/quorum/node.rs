use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::RenewalRequest;
use lock_core::engine::{Engine, LeaseId};
use redis::Value;

use super::age::{KnownRun, left};
use crate::error::Failure;
use crate::keys::Keys;
use crate::link::Call;
use crate::reply;
use crate::script::{RAISE, VOTE};
use crate::server::{Claim, Holder, MOST_RENEWALS, Server, millis, mode_text};

/// One independent master.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) server: Server,
    pub(super) name: String,
    pub(super) engine: Engine,
    pub(super) rejoin_delay: Duration,
    seen: Mutex<Option<KnownRun>>,
    pub(super) is_watched: AtomicBool,
}

/// What a vote is asked for with, besides the claim.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) proposal: u64,
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
    /// It may have restarted and forgotten a holder, and does not vote for so long.
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
    pub(super) fn new(
        server: Server,
        name: String,
        engine: Engine,
        rejoin_delay: Duration,
    ) -> Self {
        Self {
            server,
            name,
            engine,
            rejoin_delay,
            seen: Mutex::new(None),
            is_watched: AtomicBool::new(false),
        }
    }

    pub(super) async fn vote(
        self: &Arc<Self>,
        keys: &Keys,
        claim: &Claim,
        terms: &Terms,
    ) -> Ballot {
        let first = self.ask_for_vote(keys, claim, terms).await;
        if !matches!(first, Ballot::Young(_)) {
            return first;
        }
        // Another client may know that this run is old enough.
        let compared = self.compare_ages().await;
        if compared.is_ok() && self.left().is_zero() {
            return self.ask_for_vote(keys, claim, terms).await;
        }
        self.watch();
        Ballot::Young(self.left())
    }

    async fn ask_for_vote(&self, keys: &Keys, claim: &Claim, terms: &Terms) -> Ballot {
        let (ttl, mode) = (millis(claim.ttl), mode_text(claim.mode));
        let (proposal, elder) = (terms.proposal.to_string(), self.elder());
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
            elder.as_bytes(),
            waiter.as_deref().unwrap_or_default().as_bytes(),
        ];
        let call = Call {
            script: &VOTE,
            keys: &keys.all(),
            args: &args,
        };
        let answer = async {
            self.learn_time().await.map_err(Failure::before_request)?;
            let done = self.server.take_in_time(call, args.len(), None).await?;
            self.ballot(&done.value)
        };
        answer.await.unwrap_or_else(Ballot::Failed)
    }

    /// Learns how late it is at the node, unless that is known.
    async fn learn_time(&self) -> Result<(), Failure> {
        if !self.server.clock().is_known() {
            let time = redis::cmd("TIME");
            for said in self.server.link.on_each_master(&time).await? {
                self.server.clock().learn(reply::time(&said.value)?);
            }
        }
        Ok(())
    }

    fn ballot(&self, reply: &Value) -> Result<Ballot, Failure> {
        let Value::Array(parts) = reply else {
            return reply::token(reply).map(Ballot::Granted);
        };
        let [word, detail] = &parts[..] else {
            return Err(reply::strange(reply));
        };
        let time = match detail {
            Value::Int(number) => u64::try_from(*number).ok().map(Duration::from_millis),
            _ => None,
        };
        match (reply::text(word), reply::text(detail)) {
            // Its release has been here; for this acquisition the node is lost.
            (Some("gone"), _) => Ok(Ballot::Held(None)),
            (Some("held"), _) => Ok(Ballot::Held(time)),
            (Some("young"), Some(run)) => {
                self.saw(run, Duration::ZERO);
                Ok(Ballot::Young(self.left()))
            }
            _ => Err(reply::strange(reply)),
        }
    }

    /// The run of the node that may vote: nothing for any, a dash for none.
    fn elder(&self) -> Arc<str> {
        if self.rejoin_delay.is_zero() {
            return "".into();
        }
        let seen = self.seen();
        match seen.filter(|seen| self.left_of(Some(seen)).is_zero()) {
            Some(seen) => Arc::clone(seen.run_id()),
            None => "-".into(),
        }
    }

    /// For how long the node does not vote, for all that is known of it.
    pub(super) fn left(&self) -> Duration {
        self.left_of(self.seen().as_ref())
    }

    fn left_of(&self, seen: Option<&KnownRun>) -> Duration {
        left(seen, self.engine.now(), self.rejoin_delay)
    }

    pub(super) fn seen(&self) -> Option<KnownRun> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    /// An answer of this run has come, which is known to be so old.
    pub(super) fn saw(&self, run: &str, age: Duration) {
        let now = self.engine.now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let new = KnownRun::new(run, now, age);
        *seen = Some(match seen.take() {
            Some(before) => before.and(new),
            None => new,
        });
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
}

/// For how long a writer that waits keeps new readers out after each attempt: longer than it pauses
/// and asks.
const CLAIM: Duration = Duration::from_millis(750);
