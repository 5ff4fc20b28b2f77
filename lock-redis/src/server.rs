//! What the scripts do, in types.

use std::sync::Arc;
use std::time::Duration;

use lock_core::engine::LeaseId;
use lock_core::{LeaseState, LockKey, LostReason, Mode, Released, RenewalRequest};
use redis::Value;

use crate::error::Failure;
use crate::keys::Keys;
use crate::link::{Call, Link};
use crate::reply;
use crate::script::{
    ACQUIRE, ACQUIRE_ALL, BREAK, DOWNGRADE, INSPECT, RELEASE, RENEW, RESERVE, Script, WHY,
};

/// The server, or the cluster, that has the keys.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) link: Arc<dyn Link>,
    /// How long the token counter of a lock is kept after its last use, in ms.
    retention: String,
}

/// What an acquisition asks for.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) id: LeaseId,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) label: String,
}

/// What a waiter tells with each heartbeat.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) beat: u32,
    /// How long the server takes the waiter for alive.
    pub(crate) alive: Duration,
    /// The lease of a grant that is pushed.
    pub(crate) window: Duration,
    /// Where a grant is published to; nowhere if it is empty.
    pub(crate) channel: Arc<str>,
}

/// What the server says to an acquisition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    /// The first token of a block in exclusive mode.
    Granted(u64),
    /// Granted before, and ended since; or released before it came.
    Gone,
    Held,
    /// Permits are taken with another limit.
    Limit(u32),
    Queued {
        /// When the lock may come free by time alone.
        next: Option<Duration>,
        /// How many wait before this one.
        ahead: u64,
    },
}

impl Server {
    pub(crate) fn new(link: Arc<dyn Link>, retention: Duration) -> Self {
        Self {
            link,
            retention: millis(retention),
        }
    }

    pub(crate) async fn acquire(
        &self,
        keys: &Keys,
        claim: &Claim,
        place: Option<&Place>,
    ) -> Result<Answer, Failure> {
        let (id, ttl) = (claim.id.to_hex(), millis(claim.ttl));
        let (mode, place) = (mode_text(claim.mode), place_text(place));
        let args = [
            self.retention.as_bytes(),
            id.as_bytes(),
            mode.as_bytes(),
            ttl.as_bytes(),
            claim.label.as_bytes(),
            place.as_bytes(),
        ];
        reply::answer(self.run(&ACQUIRE, keys, &args).await?)
    }

    /// The same, and how many replicas have it `within` a time.
    pub(crate) async fn acquire_and_wait(
        &self,
        keys: &Keys,
        claim: &Claim,
        place: Option<&Place>,
        (acks, within): (u32, Duration),
    ) -> Result<(Answer, u32), Failure> {
        let (id, ttl) = (claim.id.to_hex(), millis(claim.ttl));
        let (mode, place) = (mode_text(claim.mode), place_text(place));
        let args = [
            self.retention.as_bytes(),
            id.as_bytes(),
            mode.as_bytes(),
            ttl.as_bytes(),
            claim.label.as_bytes(),
            place.as_bytes(),
        ];
        let call = Call {
            script: &ACQUIRE,
            keys: &keys.all(),
            args: &args,
        };
        let (value, acked) = self.link.call_and_wait(call, acks, within).await?;
        Ok((reply::answer(value)?, acked))
    }

    /// Takes all of these locks or none; the tokens in the order of the claims.
    pub(crate) async fn acquire_all(
        &self,
        claims: &[(Keys, Claim)],
    ) -> Result<Option<Vec<u64>>, Failure> {
        let keys: Vec<&[u8]> = claims.iter().flat_map(|(keys, _)| keys.all()).collect();
        let texts: Vec<[String; 3]> = claims
            .iter()
            .map(|(_, claim)| [claim.id.to_hex(), millis(claim.ttl), claim.label.clone()])
            .collect();
        let mut args = vec![self.retention.as_bytes()];
        args.extend(texts.iter().flatten().map(String::as_bytes));
        let call = Call {
            script: &ACQUIRE_ALL,
            keys: &keys,
            args: &args,
        };
        reply::tokens(self.link.call(call).await?, claims.len())
    }

    pub(crate) async fn release(&self, keys: &Keys, id: LeaseId) -> Result<Released, Failure> {
        let reply = self.with_id(&RELEASE, keys, id).await?;
        Ok(if reply::flag(&reply)? {
            Released::Clean
        } else {
            Released::AlreadyLost
        })
    }

    /// Sets tokens aside; the first one, or `None` if this id does not hold the lock.
    pub(crate) async fn reserve(&self, keys: &Keys, id: LeaseId) -> Result<Option<u64>, Failure> {
        reply::optional(self.with_id(&RESERVE, keys, id).await?, |reply| {
            reply::token(&reply)
        })
    }

    pub(crate) async fn downgrade(
        &self,
        keys: &Keys,
        id: LeaseId,
        token: u64,
    ) -> Result<LeaseState, Failure> {
        let (hex, token) = (id.to_hex(), token.to_string());
        let args = [
            self.retention.as_bytes(),
            hex.as_bytes(),
            token.as_bytes(),
        ];
        if reply::flag(&self.run(&DOWNGRADE, keys, &args).await?)? {
            Ok(LeaseState::Held)
        } else {
            Ok(LeaseState::Lost(self.why(keys, id).await))
        }
    }

    /// Extends leases in as few calls as the slots of their keys allow.
    pub(crate) async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState, Failure>> {
        if self.link.one_slot() {
            let mut answers = Vec::with_capacity(due.len());
            for chunk in due.chunks(MOST_RENEWALS) {
                answers.extend(self.renew_together(chunk).await);
            }
            return answers;
        }
        let alone = due.iter().map(std::slice::from_ref);
        let renewed = alone.map(|one| self.renew_together(one));
        let answers = futures_util::future::join_all(renewed).await;
        answers.into_iter().flatten().collect()
    }

    async fn renew_together(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState, Failure>> {
        let keys: Vec<&[u8]> = due.iter().map(|one| one.key.as_bytes()).collect();
        let texts: Vec<[String; 2]> = due
            .iter()
            .map(|one| [one.id.to_hex(), millis(one.ttl)])
            .collect();
        let args: Vec<&[u8]> = texts.iter().flatten().map(String::as_bytes).collect();
        let call = Call {
            script: &RENEW,
            keys: &keys,
            args: &args,
        };
        let renewed = match self.link.call(call).await {
            Ok(reply) => reply::flags(reply, due.len()),
            Err(failure) => Err(failure),
        };
        let held = match renewed {
            Ok(held) => held,
            Err(failure) => return due.iter().map(|_| Err(failure.clone())).collect(),
        };
        let mut states = Vec::with_capacity(due.len());
        for (one, held) in due.iter().zip(held) {
            states.push(Ok(if held {
                LeaseState::Held
            } else {
                LeaseState::Lost(self.why(&Keys::of(&one.key), one.id).await)
            }));
        }
        states
    }

    /// Why this id does not hold the lock any more.
    async fn why(&self, keys: &Keys, id: LeaseId) -> LostReason {
        match self.with_id(&WHY, keys, id).await {
            Ok(reply) if reply != Value::Nil => LostReason::Broken,
            _ => LostReason::Stolen,
        }
    }

    pub(crate) async fn inspect(&self, key: &LockKey) -> Result<Option<reply::Seen>, Failure> {
        let keys = Keys::of(key);
        let args = [self.retention.as_bytes()];
        reply::optional(self.run(&INSPECT, &keys, &args).await?, reply::seen)
    }

    pub(crate) async fn break_all(
        &self,
        key: &LockKey,
        reason: &str,
    ) -> Result<Option<reply::Seen>, Failure> {
        let keys = Keys::of(key);
        let args = [self.retention.as_bytes(), reason.as_bytes()];
        reply::optional(self.run(&BREAK, &keys, &args).await?, reply::seen)
    }

    async fn with_id(
        &self,
        script: &'static Script,
        keys: &Keys,
        id: LeaseId,
    ) -> Result<Value, Failure> {
        let id = id.to_hex();
        let args = [self.retention.as_bytes(), id.as_bytes()];
        self.run(script, keys, &args).await
    }

    async fn run(
        &self,
        script: &'static Script,
        keys: &Keys,
        args: &[&[u8]],
    ) -> Result<Value, Failure> {
        let keys = &keys.all();
        self.link.call(Call { script, keys, args }).await
    }
}

/// More would keep the server from its other clients for milliseconds.
const MOST_RENEWALS: usize = 2_000;

fn millis(duration: Duration) -> String {
    // Rounded up: a lease may last longer than asked for, and never shorter.
    duration.as_nanos().div_ceil(1_000_000).to_string()
}

fn mode_text(mode: Mode) -> std::borrow::Cow<'static, str> {
    match mode {
        Mode::Permit { limit } => format!("p{limit}").into(),
        Mode::Shared => "s".into(),
        _ => "x".into(),
    }
}

fn place_text(place: Option<&Place>) -> String {
    place.map_or_else(String::new, |place| {
        let Place { beat, channel, .. } = place;
        let (alive, window) = (millis(place.alive), millis(place.window));
        format!("{beat}|{alive}|{window}|{channel}")
    })
}
