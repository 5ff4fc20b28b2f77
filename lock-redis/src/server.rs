//! What the scripts do, in types.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::engine::{LeaseId, is_mutant};
use lock_core::{Label, LeaseState, LockKey, LostReason, Mode, Released, RenewalRequest};
use redis::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::clock::ServerClock;
use crate::config::RedisConfig;
use crate::error::{Cause, Failure};
use crate::keys::Keys;
use crate::link::{Call, Done, Link};
use crate::reply;
use crate::script::{
    ACQUIRE, ACQUIRE_ALL, BREAK, DOWNGRADE, GIVE, INSPECT, RELEASE, RENEW, RESERVE, Script, TAKE,
    WHY,
};

/// The server, or the cluster, that has the keys.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) link: Arc<dyn Link>,
    /// How long the token counter of a lock is kept after its last grant or new waiter, in ms.
    pub(crate) retention: String,
    /// How many replicas have to know of a renewal, and how long they are waited for.
    replicas: Option<(u32, Duration)>,
    clock: ServerClock,
    /// How long a request may take, and how long those are waited for who confirm that the master is one.
    timeout: Duration,
    /// For messages.
    pub(crate) database: u32,
}

/// What an acquisition asks for.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) holder: Holder,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
}

/// Who asks: `<id>|<label>`, as the server stores it. The label may be missing.
#[derive(Clone)]
pub(crate) struct Holder(pub(crate) Arc<str>);

impl Holder {
    pub(crate) fn new(id: LeaseId, label: &Label) -> Self {
        // Nearly every request has this one.
        static OF_THIS_PROCESS: LazyLock<(Label, String)> = LazyLock::new(|| {
            let label = Label::of_this_process();
            let encoded = label.encode();
            (label, encoded)
        });
        let (usual, encoded) = &*OF_THIS_PROCESS;
        let id = u128::from_be_bytes(*id.as_bytes());
        Self(if label == usual {
            format!("{id:032x}|{encoded}").into()
        } else {
            format!("{id:032x}|{}", label.encode()).into()
        })
    }

    /// The identity of an acquisition, in hexadecimal digits.
    pub(crate) fn id(&self) -> &[u8] {
        &self.0.as_bytes()[..32]
    }
}

impl From<LeaseId> for Holder {
    fn from(id: LeaseId) -> Self {
        Self(id.to_hex().into())
    }
}

/// Shows no id: whoever knows it can release the lock.
impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Holder").field(&self.0.get(32..)).finish()
    }
}

/// What a waiter tells with each heartbeat.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) beat: u32,
    /// Whether the server has said that this attempt stands in the queue.
    pub(crate) again: bool,
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

/// Called with each lease that is certainly lost.
pub(crate) type Lost<'a> = dyn Fn(LeaseId, LostReason) + Send + Sync + 'a;

impl Server {
    pub(crate) fn new(link: Arc<dyn Link>, retention: Duration) -> Self {
        Self {
            link,
            retention: millis(retention),
            replicas: None,
            clock: ServerClock::default(),
            timeout: RedisConfig::DEFAULT_TIMEOUT,
            database: 0,
        }
    }

    /// Names this database in messages.
    pub(crate) fn in_database(self, database: u32) -> Self {
        Self { database, ..self }
    }

    /// Knows how late it is at the servers.
    pub(crate) fn with_clock(mut self, clock: ServerClock) -> Self {
        self.clock = clock;
        self
    }

    /// How late it is at the servers.
    pub(crate) fn clock(&self) -> &ServerClock {
        &self.clock
    }

    /// Has renewals count only if replicas have them, and confirmed within a time.
    pub(crate) fn with_proof(
        mut self,
        replicas: Option<(u32, Duration)>,
        timeout: Duration,
    ) -> Self {
        (self.replicas, self.timeout) = (replicas, timeout);
        self
    }

    /// Whether what a server grants or extends has to be confirmed before it counts.
    pub(crate) fn wants_proof(&self) -> bool {
        !is_mutant("sentinel-minority")
    }

    /// Makes sure that a grant stands, while enough of its lease is left.
    async fn confirm_grant(&self, done: &Done, ttl: Duration) -> Result<(), Failure> {
        if !self.wants_proof() {
            return Ok(());
        }
        let within = self.timeout.min(ttl / 3);
        self.link.confirm(done, MAX_AGE, within).await
    }

    /// Sends a request that may take locks, with the time after which the server has to refuse it: a
    /// copy that comes later takes nothing. A clock that has jumped is learned of by a refusal.
    pub(crate) async fn take_in_time(
        &self,
        call: Call<'_>,
        limit_at: usize,
        wait: Option<(u32, Duration)>,
    ) -> Result<Done, Failure> {
        // A request that waits for replicas is given up that much later.
        let longest = wait.map_or(Duration::ZERO, |(_, longest)| longest);
        for _ in 0..2 {
            let limit = self.clock.limit(self.timeout + longest);
            let mut args = call.args.to_vec();
            args.insert(limit_at, limit.as_bytes());
            let call = Call {
                args: &args,
                ..call
            };
            let done = self.link.call_with(call, wait).await;
            let done = self.explained(call.keys, done).await?;
            match reply::late(&done.value) {
                Some(now) => self.clock.learn(now),
                None => return Ok(done),
            }
        }
        Err(Cause::Late.into())
    }

    /// Takes a free lock that nobody waits for; its token, or `None` if there is more to say.
    pub(crate) async fn take(&self, keys: &Keys, claim: &Claim) -> Result<Option<u64>, Failure> {
        let ttl = millis(claim.ttl);
        let call = Call {
            script: &TAKE,
            keys: &keys.first_two(),
            args: &[
                claim.holder.0.as_bytes(),
                ttl.as_bytes(),
                self.retention.as_bytes(),
            ],
        };
        let mut done = self.take_in_time(call, 3, None).await?;
        let value = std::mem::replace(&mut done.value, Value::Nil);
        let token = reply::optional(value, |reply| reply::token(&reply))?;
        if token.is_some() {
            self.confirm_grant(&done, claim.ttl).await?;
        }
        Ok(token)
    }

    /// Gives back a lock that nobody waits for; whether that was so.
    pub(crate) async fn give(&self, keys: &Keys, holder: &Holder) -> Result<bool, Failure> {
        let call = Call {
            script: &GIVE,
            keys: &[keys.lock()],
            args: &[holder.0.as_bytes()],
        };
        reply::flag(&self.link.call(call).await?)
    }

    /// Takes the lock or a place in its queue. A grant counts only if as many replicas have it as are
    /// waited for.
    pub(crate) async fn acquire(
        &self,
        keys: &Keys,
        claim: &Claim,
        place: Option<&Place>,
        wait: Option<(u32, Duration)>,
    ) -> Result<Answer, Failure> {
        let (mode, ttl, place) = texts(claim, place);
        let args = self.acquisition(claim, [&mode, &ttl, &place]);
        let call = Call {
            script: &ACQUIRE,
            keys: &keys.all(),
            args: &args,
        };
        let mut done = self.take_in_time(call, 5, wait).await?;
        let answer = reply::answer(std::mem::replace(&mut done.value, Value::Nil))?;
        match (answer, wait) {
            (Answer::Granted(_), Some((acks, _))) if done.acked < acks => {
                return Err(Failure::too_few_replicas(done.acked, acks));
            }
            // Where replicas have to know of it, the grant is asked for again.
            (Answer::Granted(_), None) if self.replicas.is_some() => {}
            (Answer::Granted(_), _) => self.confirm_grant(&done, claim.ttl).await?,
            _ => {}
        }
        Ok(answer)
    }

    /// Takes all of these locks or none; the tokens in the order of the claims.
    pub(crate) async fn acquire_all(
        &self,
        claims: &[(Keys, Claim)],
    ) -> Result<Option<Vec<u64>>, Failure> {
        let keys: Vec<&[u8]> = claims.iter().flat_map(|(keys, _)| keys.all()).collect();
        let ttls: Vec<String> = claims.iter().map(|(_, claim)| millis(claim.ttl)).collect();
        let mut args = vec![self.retention.as_bytes()];
        for ((_, claim), ttl) in claims.iter().zip(&ttls) {
            args.extend([claim.holder.id(), claim.holder.0.as_bytes(), ttl.as_bytes()]);
        }
        let call = Call {
            script: &ACQUIRE_ALL,
            keys: &keys,
            args: &args,
        };
        let mut done = self.take_in_time(call, args.len(), None).await?;
        let tokens = reply::tokens(std::mem::replace(&mut done.value, Value::Nil), claims.len())?;
        if tokens.is_some() {
            let least = claims.iter().map(|(_, claim)| claim.ttl).min();
            self.confirm_grant(&done, least.unwrap_or_default()).await?;
        }
        Ok(tokens)
    }

    /// Gives back the lock or the place in its queue.
    pub(crate) async fn release(&self, keys: &Keys, holder: &Holder) -> Result<Released, Failure> {
        self.release_with(keys, holder, false).await
    }

    /// The same; `copies` says that another request of this acquisition may still be under way.
    pub(crate) async fn release_with(
        &self,
        keys: &Keys,
        holder: &Holder,
        copies: bool,
    ) -> Result<Released, Failure> {
        let copies: &[u8] = if copies { b"1" } else { b"0" };
        let args = [self.retention.as_bytes(), holder.id(), copies];
        let reply = self.run(&RELEASE, keys, &args).await?;
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
        let args = [self.retention.as_bytes(), hex.as_bytes(), token.as_bytes()];
        if reply::flag(&self.run(&DOWNGRADE, keys, &args).await?)? {
            Ok(LeaseState::Held)
        } else {
            Ok(LeaseState::Lost(self.why(keys, id).await))
        }
    }

    /// Extends leases in as few calls as the slots of their keys allow. `lost` gets each loss as soon as
    /// its reason is known, at most 100 ms after the loss is: to confirm the others takes longer.
    pub(crate) async fn renew(
        &self,
        due: &[RenewalRequest],
        lost: &Lost<'_>,
    ) -> Vec<Result<LeaseState, Failure>> {
        // The keeper drops all answers of a round that takes longer than its shortest timeout.
        let shortest = due.iter().map(|one| one.timeout).min();
        let limit = Instant::now() + shortest.unwrap_or_default() * 3 / 4;
        let (most, at_once) = match self.link.one_slot() {
            true => (MOST_RENEWALS, 1),
            false => (1, usize::MAX),
        };
        // One call after the other, for the sake of the other clients of the server.
        let turns = Semaphore::new(at_once.min(Semaphore::MAX_PERMITS));
        let chunks = due
            .chunks(most)
            .map(|chunk| self.renew_together(chunk, limit, &turns, lost));
        let states = join_all(chunks).await;
        states.into_iter().flatten().collect()
    }

    async fn renew_together(
        &self,
        due: &[RenewalRequest],
        limit: Instant,
        turns: &Semaphore,
        lost: &Lost<'_>,
    ) -> Vec<Result<LeaseState, Failure>> {
        let extending = async {
            let _turn = turns.acquire().await;
            let left = limit.saturating_duration_since(Instant::now());
            let wait = self.replicas.filter(|_| self.wants_proof());
            let wait = wait.map(|(acks, longest)| (acks, longest.min(left / 2)));
            (wait, self.extend_with(due, wait).await)
        };
        let extended = match timeout_at(limit, extending).await {
            Ok((wait, extended)) => extended.map(|(held, done)| (wait, held, done)),
            Err(_) => Err(Failure::late_renewal()),
        };
        let (wait, held, done) = match extended {
            Ok(extended) => extended,
            Err(failure) => return due.iter().map(|_| Err(failure.clone())).collect(),
        };
        let proof = async {
            match wait {
                Some((acks, _)) if done.acked < acks => {
                    Err(Failure::unacknowledged(done.acked, acks))
                }
                _ if !held.contains(&true) || !self.wants_proof() => Ok(()),
                // Questions from before the renewal prove nothing about it.
                _ => {
                    let left = limit.saturating_duration_since(Instant::now());
                    self.link.confirm(&done, Duration::ZERO, left).await
                }
            }
        };
        // All at once: those that are held must not wait for what became of many others.
        let gone = due.iter().zip(&held).filter(|(_, held)| !**held);
        let why = |one: RenewalRequest| async move {
            let keys = Keys::of(&one.key);
            let until = limit.min(Instant::now() + LONGEST_WHY);
            let reason = timeout_at(until, self.why(&keys, one.id)).await;
            let reason = reason.unwrap_or(LostReason::Stolen);
            lost(one.id, reason);
            reason
        };
        let reasons = join_all(gone.map(|(one, _)| why(one.clone())));
        let (reasons, proof) = tokio::join!(reasons, proof);
        let mut reasons = reasons.into_iter();
        let states = held.iter().map(|held| {
            if *held {
                return proof.clone().map(|()| LeaseState::Held);
            }
            let reason = reasons.next().unwrap_or(LostReason::Stolen);
            Ok(LeaseState::Lost(reason))
        });
        states.collect()
    }

    /// Extends leases in one call; whether each is held.
    pub(crate) async fn extend(&self, due: &[RenewalRequest]) -> Result<Vec<bool>, Failure> {
        Ok(self.extend_with(due, None).await?.0)
    }

    async fn extend_with(
        &self,
        due: &[RenewalRequest],
        wait: Option<(u32, Duration)>,
    ) -> Result<(Vec<bool>, Done), Failure> {
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
        let mut done = self.link.call_with(call, wait).await?;
        let held = reply::flags(std::mem::replace(&mut done.value, Value::Nil), due.len())?;
        Ok((held, done))
    }

    /// Why this id does not hold the lock any more.
    pub(crate) async fn why(&self, keys: &Keys, id: LeaseId) -> LostReason {
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

    fn acquisition<'a>(&'a self, claim: &'a Claim, texts: [&'a str; 3]) -> [&'a [u8]; 6] {
        let [mode, ttl, place] = texts.map(str::as_bytes);
        let Holder(holder) = &claim.holder;
        let (id, holder) = (claim.holder.id(), holder.as_bytes());
        [self.retention.as_bytes(), id, holder, mode, ttl, place]
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

    pub(crate) async fn run(
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
pub(crate) const MOST_RENEWALS: usize = 2_000;

/// How long before a grant the master may have been confirmed last, so that nobody waits for that
/// who acquires often. Usually less than a failover takes; a forced one can be faster.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(1);

/// How long the reason of a loss may take: it must not hold up what is known of other leases.
const LONGEST_WHY: Duration = Duration::from_millis(100);

pub(crate) fn millis(duration: Duration) -> String {
    // Rounded up: a lease may last longer than asked for, and never shorter.
    duration.as_nanos().div_ceil(1_000_000).to_string()
}

/// The mode, the ttl and the place in the queue as the script reads them.
fn texts(claim: &Claim, place: Option<&Place>) -> (Cow<'static, str>, String, String) {
    let place = place.map_or_else(String::new, |place| {
        let Place { beat, channel, .. } = place;
        let again = u8::from(place.again);
        let (alive, window) = (millis(place.alive), millis(place.window));
        format!("{beat}|{alive}|{window}|{again}|{channel}")
    });
    (mode_text(claim.mode), millis(claim.ttl), place)
}

pub(crate) fn mode_text(mode: Mode) -> Cow<'static, str> {
    match mode {
        Mode::Permit { limit } => format!("p{limit}").into(),
        Mode::Shared => "s".into(),
        _ => "x".into(),
    }
}

#[cfg(test)]
mod tests;
