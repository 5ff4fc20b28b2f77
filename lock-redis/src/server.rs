//! What the scripts do, in types.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::join_all;
use polylock_core::engine::{Engine, LeaseId, is_mutant};
use polylock_core::{
    Label, LeaseState, LockKey, LostReason, Mode, Released, RenewalRequest, TtlRule,
};
use redis::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::config::RedisConfig;
use crate::error::{Cause, Failure};
use crate::keys::{Counter, Keys};
use crate::queue::HEARTBEAT_TIMEOUT;
use crate::reply::{self, AcquireReply, Taken, Ticket};
use crate::script::{
    ACQUIRE, ADOPT, BREAK, DOWNGRADE, INSPECT, LOSS_REASON, RELEASE, RENEW, RESERVE, Script,
    WITHDRAW,
};
use crate::topology::{Call, CallKind, Done, ReplicaWait, Topology, Unanswered, whole_millis};

/// The server, or the cluster, that has the keys.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) topology: Arc<dyn Topology>,
    counter: Counter,
    /// The replicas that have to know of a grant and of a renewal.
    pub(crate) replicas: Option<ReplicaWait>,
    /// Timeout of a request, and of the confirmation that the master is one.
    pub(crate) timeout: Duration,
    /// For messages.
    pub(crate) database: u32,
    /// Whether it was asked to tell of locks that are broken.
    listens: AtomicBool,
}

/// What an acquisition asks for.
#[derive(Clone, Debug)]
pub(crate) struct Acquisition {
    pub(crate) holder: Holder,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
}

/// The caller: `<id>|<label>`, as the server stores it. The label may be missing.
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
        let label = match label == usual {
            true => Cow::Borrowed(&**encoded),
            false => Cow::Owned(label.encode()),
        };
        let mut hex = [0; 32];
        Self([id.encode_hex(&mut hex), "|", &*label].concat().into())
    }

    /// The identity of an acquisition, in hexadecimal digits.
    pub(crate) fn id(&self) -> &[u8] {
        &self.0.as_bytes()[..ID_LEN]
    }
}

impl From<LeaseId> for Holder {
    fn from(id: LeaseId) -> Self {
        Self(id.to_hex().into())
    }
}

/// Shows no id: it is a capability to release the lock.
impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Holder")
            .field(&self.0.get(ID_LEN..))
            .finish()
    }
}

/// The content of a waiter's heartbeat.
#[derive(Clone, Debug)]
pub(crate) struct QueueEntry {
    pub(crate) beat: u32,
    pub(crate) position: Position,
    /// How long the server takes the waiter for alive.
    pub(crate) alive: Duration,
    /// The lease of a grant that is pushed.
    pub(crate) window: Duration,
    /// Where a grant is published to; nowhere if it is empty.
    pub(crate) channel: Arc<str>,
}

/// What a waiter knows of its place in the queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Position {
    /// It has none.
    None,
    /// A request that had no answer may have taken one.
    Unknown,
    /// The one that the server has given.
    Known(Ticket),
}

/// What a release did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReleaseReply {
    /// The id did not hold the lock; if it had a place in the queue, that is gone.
    Nothing,
    Lock,
    /// The lock is that of a waiter now.
    Granted,
}

/// Called with each lease that is certainly lost.
pub(crate) type Lost<'a> = dyn Fn(LeaseId, LostReason) + Send + Sync + 'a;

/// Gives `<token>|<held for (ms)>` of a lease, if the server does not know it yet.
pub(crate) type Note<'a> = dyn Fn(LeaseId) -> Option<String> + Send + Sync + 'a;

impl Server {
    pub(crate) fn new(topology: Arc<dyn Topology>, config: &RedisConfig) -> Self {
        let counter = match topology.one_slot() {
            true => Counter::Namespace,
            false => Counter::Slot,
        };
        let acks = config.replica_acks;
        Self {
            topology,
            counter,
            replicas: (acks > 0).then_some((acks, config.replica_ack_timeout)),
            timeout: config.timeout,
            database: config.database,
            listens: AtomicBool::new(false),
        }
    }

    /// Is a node of a quorum, where each lock has a counter of its own.
    pub(crate) fn of_quorum(self) -> Self {
        Self {
            counter: Counter::Lock,
            ..self
        }
    }

    /// Asks the server to notify holders whose locks are broken, once and in the background. Until then,
    /// and where it is impossible, the next renewal reports it.
    pub(crate) fn listen(&self, engine: &Engine) {
        if !self.listens.load(Ordering::Relaxed) && !self.listens.swap(true, Ordering::Relaxed) {
            let topology = Arc::clone(&self.topology);
            engine.spawn_service(async move { drop(topology.channel().await) });
        }
    }

    pub(crate) fn counter(&self) -> Counter {
        self.counter
    }

    pub(crate) fn keys(&self, key: &LockKey) -> Keys {
        Keys::of(key, self.counter)
    }

    /// Whether what a server grants or extends has to be confirmed before it counts.
    pub(crate) fn wants_proof(&self) -> bool {
        !is_mutant("sentinel-minority")
    }

    /// Makes sure that a grant stands, while enough of its lease is left: that the replicas that were
    /// waited for have it, and that its server is the master.
    async fn confirm_grant(
        &self,
        done: &Done,
        wait: Option<ReplicaWait>,
        ttl: Duration,
    ) -> Result<(), Failure> {
        if let Some((acks, _)) = wait
            && done.acked < acks
        {
            let (acked, wanted) = (done.acked, acks);
            return Err(Cause::Replicas { acked, wanted }.unknown());
        }
        let within = self.timeout.min(ttl / 3);
        self.confirm_master(done, MAX_AGE, within).await
    }

    /// The same for what is not taken back where it is not confirmed. Questions from before it prove nothing.
    pub(crate) async fn confirm_change(
        &self,
        done: &Done,
        within: Duration,
    ) -> Result<(), Failure> {
        if let Some((wanted, _)) = self.replicas
            && done.acked < wanted
        {
            let acked = done.acked;
            return Err(Cause::Unacknowledged { acked, wanted }.unknown());
        }
        self.confirm_master(done, Duration::ZERO, within).await
    }

    /// Makes sure that a server is the master, by questions that are no older than `age`.
    pub(crate) async fn confirm_master(
        &self,
        done: &Done,
        age: Duration,
        within: Duration,
    ) -> Result<(), Failure> {
        if !self.wants_proof() || !self.topology.confirms() {
            return Ok(());
        }
        self.topology.confirm(done, age, within).await
    }

    /// Takes a free lock by plain commands.
    pub(crate) async fn take(
        &self,
        keys: &Keys,
        claim: &Acquisition,
        unanswered: &Unanswered,
    ) -> Result<Taken, Failure> {
        let kind = CallKind::Take {
            lock: keys.lock(),
            tokens: keys.tokens(),
            holder: claim.holder.0.as_bytes(),
            ttl: claim.ttl,
        };
        let call = Call {
            kind,
            wait: self.replicas,
            unanswered: Some(unanswered),
        };
        let done = self.topology.call(call).await?;
        let taken = reply::taken(&done.value, claim.holder.id());
        if let Taken::Granted(_) = taken {
            self.confirm_grant(&done, call.wait, claim.ttl).await?;
        }
        Ok(taken)
    }

    /// Takes the lock or a place in its queue. A grant counts only if as many replicas have it as are
    /// waited for.
    pub(crate) async fn acquire(
        &self,
        keys: &Keys,
        claim: &Acquisition,
        place: Option<&QueueEntry>,
        wait: Option<ReplicaWait>,
        unanswered: &Unanswered,
    ) -> Result<AcquireReply, Failure> {
        let (ttl, entry) = (millis(claim.ttl), claim.entry(place));
        let ticket = match place.map(|place| &place.position) {
            None | Some(Position::None) => "",
            Some(Position::Unknown) => "?",
            Some(Position::Known(ticket)) => &**ticket,
        };
        let keys = keys.all();
        let args = [ttl.as_bytes(), ticket.as_bytes(), entry.as_bytes()];
        let call = Call {
            wait,
            unanswered: Some(unanswered),
            ..Call::script(&ACQUIRE, &keys, &args)
        };
        let done = self.topology.call(call).await;
        let mut done = self.explained(&keys, done).await?;
        let answer = reply::answer(std::mem::replace(&mut done.value, Value::Nil))?;
        // Where replicas have to know of a grant that did not wait for them, it is asked for again.
        if matches!(answer, AcquireReply::Granted(_)) && wait.is_some() == self.replicas.is_some() {
            self.confirm_grant(&done, wait, claim.ttl).await?;
        }
        Ok(answer)
    }

    /// Joins a queue that exists by one plain command; `None` if there is none. Each holder reads
    /// the queue at its release.
    pub(crate) async fn join(
        &self,
        keys: &Keys,
        claim: &Acquisition,
        place: &QueueEntry,
        unanswered: &Unanswered,
    ) -> Result<Option<Ticket>, Failure> {
        let entry = claim.entry(Some(place));
        let kind = CallKind::Join {
            queue: keys.queue(),
            entry: entry.as_bytes(),
        };
        let call = Call {
            kind,
            wait: None,
            unanswered: Some(unanswered),
        };
        reply::joined(self.topology.call(call).await?.value)
    }

    /// Releases the lock, or leaves its queue.
    pub(crate) async fn release(
        &self,
        keys: &Keys,
        holder: &Holder,
        ticket: Option<&Ticket>,
    ) -> Result<ReleaseReply, Failure> {
        let ticket = ticket.map_or("", |ticket| &**ticket);
        let args = [holder.id(), ticket.as_bytes()];
        match self.run(&RELEASE, keys, &args).await? {
            Value::Int(0) => Ok(ReleaseReply::Nothing),
            Value::Int(1) => Ok(ReleaseReply::Lock),
            Value::Int(2) => Ok(ReleaseReply::Granted),
            reply => Err(reply::strange(&reply)),
        }
    }

    /// Releases the lock behind a request for it that has no answer, if its connection still works.
    pub(crate) async fn release_behind(
        &self,
        unanswered: Unanswered,
        keys: &Keys,
        holder: &Holder,
    ) {
        let (keys, args) = (keys.all(), [holder.id(), b""]);
        let released = unanswered.run_behind(&RELEASE, &keys, &args, self.timeout);
        released.await;
    }

    /// Takes a vote back.
    pub(crate) async fn withdraw(&self, keys: &Keys, holder: &Holder) -> Result<Released, Failure> {
        let reply = self.run(&WITHDRAW, keys, &[holder.id()]).await?;
        Ok(if reply::flag(&reply)? {
            Released::Clean
        } else {
            Released::AlreadyLost
        })
    }

    /// Sets tokens aside; the first one, or `None` if this id does not hold the lock.
    pub(crate) async fn reserve(
        &self,
        keys: &Keys,
        id: LeaseId,
        count: u64,
    ) -> Result<Option<u64>, Failure> {
        let (id, count) = (id.to_hex(), count.to_string());
        let args = [id.as_bytes(), count.as_bytes()];
        let reply = self.run(&RESERVE, keys, &args).await?;
        reply::optional(reply, |reply| reply::token(&reply))
    }

    pub(crate) async fn downgrade(
        &self,
        keys: &Keys,
        id: LeaseId,
        token: u64,
    ) -> Result<LeaseState, Failure> {
        let (hex, token) = (id.to_hex(), token.to_string());
        let args = [hex.as_bytes(), token.as_bytes()];
        if reply::flag(&self.run(&DOWNGRADE, keys, &args).await?)? {
            Ok(LeaseState::Held)
        } else {
            Ok(LeaseState::Lost(self.why(keys, id).await))
        }
    }

    /// Gives a lease another id; its token, or `None` if neither id holds the lock alone.
    pub(crate) async fn adopt(
        &self,
        key: &LockKey,
        [id, new]: [LeaseId; 2],
        ttl: Duration,
        unanswered: Option<&Unanswered>,
    ) -> Result<Option<u64>, Failure> {
        let (keys, ids, ms) = (self.keys(key), [id.to_hex(), new.to_hex()], millis(ttl));
        let alive = millis(HEARTBEAT_TIMEOUT);
        let args = [&*ids[0], &*ids[1], &*ms, &*alive].map(str::as_bytes);
        let keys = keys.all();
        let call = Call {
            wait: self.replicas,
            unanswered,
            ..Call::script(&ADOPT, &keys, &args)
        };
        let done = self.topology.call(call).await;
        let mut done = self.explained(&keys, done).await?;
        let reply = std::mem::replace(&mut done.value, Value::Nil);
        let token = reply::optional(reply, |reply| reply::token(&reply))?;
        let within = self.timeout.min(ttl / 3);
        match token {
            Some(_) => self.confirm_change(&done, within).await?,
            // A master that was replaced does not know what an earlier call has done at the next one.
            None => self.confirm_master(&done, Duration::ZERO, within).await?,
        }
        Ok(token)
    }

    /// Extends leases in as few calls as the slots of their keys allow. `lost` gets each loss
    /// as soon as its reason is known, at most 100 ms after the loss: confirming the others takes
    /// longer.
    pub(crate) async fn renew(
        &self,
        due: &[RenewalRequest],
        lost: &Lost<'_>,
        note: &Note<'_>,
    ) -> Vec<Result<LeaseState, Failure>> {
        // The scheduler drops all answers of a round that takes longer than its shortest timeout.
        let shortest = due.iter().map(|one| one.timeout).min();
        let limit = Instant::now() + shortest.unwrap_or_default() * 3 / 4;
        let (most, at_once) = match self.topology.one_slot() {
            true => (MAX_RENEWALS, 1),
            false => (1, usize::MAX),
        };
        // One call after the other, for the sake of the other clients of the server.
        let turns = Semaphore::new(at_once.min(Semaphore::MAX_PERMITS));
        let chunks = due
            .chunks(most)
            .map(|chunk| self.renew_together(chunk, (limit, &turns), lost, note));
        let states = join_all(chunks).await;
        states.into_iter().flatten().collect()
    }

    async fn renew_together(
        &self,
        due: &[RenewalRequest],
        (limit, turns): (Instant, &Semaphore),
        lost: &Lost<'_>,
        note: &Note<'_>,
    ) -> Vec<Result<LeaseState, Failure>> {
        let extending = async {
            let _turn = turns.acquire().await;
            let left = limit.saturating_duration_since(Instant::now());
            let wait = self.replicas.filter(|_| self.wants_proof());
            let wait = wait.map(|(acks, longest)| (acks, longest.min(left / 2)));
            (wait, self.extend_with(due, note, wait).await)
        };
        let extended = match timeout_at(limit, extending).await {
            Ok((wait, extended)) => extended.map(|(held, done)| (wait, held, done)),
            Err(_) => Err(Cause::LateRenewal.unknown()),
        };
        let (wait, held, done) = match extended {
            Ok(extended) => extended,
            Err(failure) => return due.iter().map(|_| Err(failure.clone())).collect(),
        };
        let proof = async {
            match wait {
                Some((wanted, _)) if done.acked < wanted => {
                    let acked = done.acked;
                    Err(Cause::Unacknowledged { acked, wanted }.unknown())
                }
                _ if !held.contains(&true) || !self.wants_proof() => Ok(()),
                // Questions from before the renewal prove nothing about it.
                _ => {
                    let left = limit.saturating_duration_since(Instant::now());
                    self.topology.confirm(&done, Duration::ZERO, left).await
                }
            }
        };
        // All at once: those that are held must not wait for what became of many others.
        let gone = due.iter().zip(&held).filter(|(_, held)| !**held);
        let why = |one: RenewalRequest| async move {
            let keys = self.keys(&one.key);
            let until = limit.min(Instant::now() + LOSS_REASON_TIMEOUT);
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
        Ok(self.extend_with(due, &|_| None, None).await?.0)
    }

    async fn extend_with(
        &self,
        due: &[RenewalRequest],
        note: &Note<'_>,
        wait: Option<(u32, Duration)>,
    ) -> Result<(Vec<bool>, Done), Failure> {
        let keys: Vec<&[u8]> = due.iter().map(|one| one.key.as_bytes()).collect();
        let text = |one: &RenewalRequest| {
            let note = note(one.id).unwrap_or_default();
            let rule = match one.rule {
                TtlRule::Exactly => "exact",
                _ => "least",
            };
            [one.id.to_hex(), millis(one.ttl), rule.to_owned(), note]
        };
        let texts: Vec<[String; 4]> = due.iter().map(text).collect();
        let args: Vec<&[u8]> = texts.iter().flatten().map(String::as_bytes).collect();
        let call = Call {
            wait,
            ..Call::script(&RENEW, &keys, &args)
        };
        let mut done = self.topology.call(call).await?;
        let held = reply::flags(std::mem::replace(&mut done.value, Value::Nil), due.len())?;
        Ok((held, done))
    }

    /// Why this id does not hold the lock any more.
    pub(crate) async fn why(&self, keys: &Keys, id: LeaseId) -> LostReason {
        let hex = id.to_hex();
        match self.run(&LOSS_REASON, keys, &[hex.as_bytes()]).await {
            Ok(reply) if reply != Value::Nil => LostReason::Broken,
            _ => LostReason::Stolen,
        }
    }

    pub(crate) async fn inspect(&self, key: &LockKey) -> Result<Option<reply::Seen>, Failure> {
        reply::optional(self.run(&INSPECT, &self.keys(key), &[]).await?, reply::seen)
    }

    pub(crate) async fn break_all(
        &self,
        key: &LockKey,
        reason: &str,
    ) -> Result<Option<reply::Seen>, Failure> {
        let args = [reason.as_bytes()];
        reply::optional(self.run(&BREAK, &self.keys(key), &args).await?, reply::seen)
    }

    pub(crate) async fn run(
        &self,
        script: &'static Script,
        keys: &Keys,
        args: &[&[u8]],
    ) -> Result<Value, Failure> {
        let (topology, keys) = (&self.topology, keys.all());
        let done = topology.call(Call::script(script, &keys, args)).await;
        Ok(done?.value)
    }
}

/// Length of an id in hexadecimal digits.
const ID_LEN: usize = 32;

/// More would keep the server from its other clients for milliseconds.
pub(crate) const MAX_RENEWALS: usize = 2_000;

/// How recent the last confirmation of the master must be for a grant, so that frequent
/// acquisitions do not wait for one. Usually less than a failover takes; a forced one can be
/// faster.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(1);

/// How long the reason of a loss may take: it must not hold up what is known of other leases.
const LOSS_REASON_TIMEOUT: Duration = Duration::from_millis(100);

pub(crate) fn millis(duration: Duration) -> String {
    whole_millis(duration).to_string()
}

impl Acquisition {
    /// As the scripts read it: id, alive for, lease of a grant, heartbeat, mode, channel, label.
    fn entry(&self, place: Option<&QueueEntry>) -> String {
        let (id, label) = self.holder.0.split_at(ID_LEN);
        let mode = mode_text(self.mode);
        match place {
            None => format!("{id}|0|0|0|{mode}|{label}"),
            Some(place) => {
                let (alive, window) = (whole_millis(place.alive), whole_millis(place.window));
                let QueueEntry { beat, channel, .. } = place;
                format!("{id}|{alive}|{window}|{beat}|{mode}|{channel}{label}")
            }
        }
    }
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
