//! Typed calls of the scripts.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use polylock_core::engine::{LeaseId, is_mutant};
use polylock_core::{Label, LeaseState, LockKey, Mode, Released};
use redis::Value;

use crate::config::{RedisConfig, Servers};
use crate::error::{RedisCause, RedisFailure};
use crate::keys::{RedisKeys, TokenCounter};
use crate::reply::{self, AcquireReply, PlainReply, QueueTicket};
use crate::script::{
    ACQUIRE, ADOPT, BREAK, DOWNGRADE, INSPECT, RELEASE, RESERVE, Script, WITHDRAW,
};
use crate::topology::{
    Call, CallKind, Done, MAX_AGE, ReplicaWait, Topology, Unanswered, whole_millis,
};

/// The server, or the cluster, that stores the keys.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) topology: Arc<dyn Topology>,
    pub(crate) counter: TokenCounter,
    /// The replicas that must acknowledge a grant or a renewal.
    pub(crate) replicas: Option<ReplicaWait>,
    /// Timeout of a request, and of the confirmation that the master is one.
    pub(crate) timeout: Duration,
    /// For messages.
    pub(crate) database: u32,
}

/// What an acquisition asks for.
#[derive(Clone, Debug)]
pub(crate) struct Acquisition {
    pub(crate) keys: RedisKeys,
    pub(crate) holder: RedisHolder,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
}

/// The caller: `<id>|<label>`, as the server stores it. The label may be missing.
#[derive(Clone)]
pub(crate) struct RedisHolder(pub(crate) Arc<str>);

impl RedisHolder {
    pub(crate) fn new(id: LeaseId, label: &Label) -> Self {
        // Nearly all requests use this label.
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

impl From<LeaseId> for RedisHolder {
    fn from(id: LeaseId) -> Self {
        Self(id.to_hex().into())
    }
}

/// Hides the id, which is a capability to release the lock.
impl fmt::Debug for RedisHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisHolder")
            .field(&self.0.get(ID_LEN..))
            .finish()
    }
}

/// The content of a waiter's heartbeat.
#[derive(Clone, Debug)]
pub(crate) struct QueueEntry {
    pub(crate) beat: u32,
    /// Its place in the queue: empty if it has none, `?` if a request without a reply may have taken one.
    pub(crate) ticket: QueueTicket,
    /// The channel of the grant; empty for no notification.
    pub(crate) channel: Arc<str>,
}

/// How long the server considers a waiter alive after a heartbeat.
pub(crate) const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3);

/// The lease of a published grant: the time that a dead waiter costs the next one.
pub(crate) fn window(ttl: Duration) -> Duration {
    ttl.min(HEARTBEAT_TIMEOUT)
}

/// What a release did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReleaseReply {
    /// The id did not hold the lock; its place in the queue, if it had one, is deleted.
    Nothing,
    Lock,
    /// A waiter holds the lock now.
    Granted,
}

impl Server {
    pub(crate) fn new(topology: Arc<dyn Topology>, config: &RedisConfig) -> Self {
        let counter = match config.servers {
            Servers::Cluster(_) => TokenCounter::Slot,
            _ => TokenCounter::Namespace,
        };
        let acks = config.replica_acks;
        Self {
            topology,
            counter,
            replicas: (acks > 0).then_some((acks, config.replica_ack_timeout)),
            timeout: config.timeout,
            database: config.database,
        }
    }

    /// Marks a node of a quorum, where each lock has a counter of its own.
    pub(crate) fn of_quorum(self) -> Self {
        Self {
            counter: TokenCounter::Lock,
            ..self
        }
    }

    pub(crate) fn keys(&self, key: &LockKey) -> RedisKeys {
        RedisKeys::of(key, self.counter)
    }

    /// Whether keys of different slots may be in one call.
    pub(crate) fn one_slot(&self) -> bool {
        self.counter != TokenCounter::Slot
    }

    /// Whether grants and renewals of a server need a confirmation before they count.
    pub(crate) fn wants_proof(&self) -> bool {
        !is_mutant("sentinel-minority")
    }

    /// Confirms a grant while enough of its lease is left: the requested replicas have it, and its
    /// server is the master.
    async fn confirm_grant(&self, done: &Done, ttl: Duration) -> Result<(), RedisFailure> {
        Self::acknowledged(done, self.replicas)?;
        let within = self.timeout.min(ttl / 3);
        self.confirm_master(done, MAX_AGE, within).await
    }

    /// Confirms a change that stays even without a confirmation. Earlier queries prove nothing.
    pub(crate) async fn confirm_change(
        &self,
        done: &Done,
        within: Duration,
    ) -> Result<(), RedisFailure> {
        Self::acknowledged(done, self.replicas)?;
        self.confirm_master(done, Duration::ZERO, within).await
    }

    /// Whether enough replicas have a change.
    pub(crate) fn acknowledged(done: &Done, wait: Option<ReplicaWait>) -> Result<(), RedisFailure> {
        match wait {
            Some((wanted, _)) if done.acked < wanted => {
                let acked = done.acked;
                Err(RedisCause::Unacknowledged { acked, wanted }.unknown())
            }
            _ => Ok(()),
        }
    }

    /// Confirms that a server is the master, by queries that are no older than `age`.
    pub(crate) async fn confirm_master(
        &self,
        done: &Done,
        age: Duration,
        within: Duration,
    ) -> Result<(), RedisFailure> {
        if !self.wants_proof() || !self.topology.confirms() {
            return Ok(());
        }
        self.topology.confirm(done, age, within).await
    }

    /// Confirms the master before what it says counts. Nothing was changed, so that no outcome is unknown.
    pub(crate) async fn confirm_read(&self, done: &Done) -> Result<(), RedisFailure> {
        let confirmed = self.confirm_master(done, MAX_AGE, self.timeout).await;
        confirmed.map_err(|failure| failure.cause.into())
    }

    /// Acquires a free lock by plain commands. Only a grant is confirmed.
    pub(crate) async fn take(
        &self,
        claim: &Acquisition,
        unanswered: &Unanswered,
    ) -> Result<(PlainReply, Done), RedisFailure> {
        // A draw is quicker if it does not free what it adds. One of 16 clears the counter, by its random id.
        // In a cluster, with a counter for each slot, all draws do: an empty one is smaller.
        let clears = self.counter != TokenCounter::Namespace || claim.holder.id().ends_with(b"0");
        let kind = CallKind::Take {
            lock: claim.keys.lock(),
            tokens: claim.keys.tokens(),
            clears,
            holder: claim.holder.0.as_bytes(),
            ttl: claim.ttl,
        };
        let call = Call {
            wait: self.replicas,
            unanswered: Some(unanswered),
            ..Call::of(kind)
        };
        let done = self.topology.call(call).await?;
        let taken = reply::taken(&done.value, claim.holder.id());
        if let PlainReply::Granted(_) = taken {
            self.confirm_grant(&done, claim.ttl).await?;
        }
        Ok((taken, done))
    }

    /// Acquires the lock or a place in its queue. A grant counts only if the requested number of
    /// replicas has it. Only a grant is confirmed.
    pub(crate) async fn acquire(
        &self,
        claim: &Acquisition,
        place: Option<&QueueEntry>,
        wait: Option<ReplicaWait>,
        unanswered: &Unanswered,
    ) -> Result<(AcquireReply, Done), RedisFailure> {
        let (ttl, entry) = (millis(claim.ttl), claim.entry(place));
        let ticket = place.map_or("", |place| &*place.ticket);
        let keys = claim.keys.all();
        let args = [ttl.as_bytes(), ticket.as_bytes(), entry.as_bytes()];
        let call = Call {
            wait,
            unanswered: Some(unanswered),
            ..Call::script(&ACQUIRE, &keys, &args)
        };
        let done = self.topology.call(call).await;
        let done = self.explained(&keys, done).await?;
        let answer = reply::answer(&done.value)?;
        // A grant that needs replicas but did not wait for them is requested again.
        if matches!(answer, AcquireReply::Granted(_)) && wait.is_some() == self.replicas.is_some() {
            self.confirm_grant(&done, claim.ttl).await?;
        }
        Ok((answer, done))
    }

    /// Joins an existing queue by one plain command, which servers older than Redis 6.2 refuse; `None` if
    /// there is none. Each holder reads the queue at its release.
    pub(crate) async fn join(
        &self,
        claim: &Acquisition,
        place: &QueueEntry,
        unanswered: &Unanswered,
    ) -> Result<(Option<QueueTicket>, Done), RedisFailure> {
        let mut join = redis::cmd("XADD");
        join.arg(claim.keys.queue()).arg("NOMKSTREAM").arg("*");
        join.arg("w").arg(claim.entry(Some(place)));
        let call = Call {
            unanswered: Some(unanswered),
            ..Call::plain(claim.keys.queue(), &join)
        };
        let done = self.topology.call(call).await?;
        Ok((reply::joined(&done.value)?, done))
    }

    /// Reserves tokens. Returns the first, or `None` if this id does not hold the lock. The counter of a
    /// former master may be ahead of that of its successor.
    pub(crate) async fn reserve(
        &self,
        keys: &RedisKeys,
        id: LeaseId,
        count: u64,
    ) -> Result<Option<u64>, RedisFailure> {
        let (id, count) = (id.to_hex(), count.to_string());
        let args = [id.as_bytes(), count.as_bytes()];
        let done = self.run(&RESERVE, keys, &args, self.replicas).await?;
        let first = reply::optional(&done.value, reply::token)?;
        if first.is_some() {
            self.confirm_change(&done, self.timeout).await?;
        }
        Ok(first)
    }

    /// Makes an exclusive holder a shared one. The successor of a former master may have the lease although
    /// this server lost it, and as an exclusive one after a downgrade here. A repeated downgrade writes as well,
    /// so that its acks count for the first one.
    pub(crate) async fn downgrade(
        &self,
        keys: &RedisKeys,
        id: LeaseId,
        token: u64,
    ) -> Result<LeaseState, RedisFailure> {
        let (hex, token) = (id.to_hex(), token.to_string());
        let args = [hex.as_bytes(), token.as_bytes()];
        let done = self.run(&DOWNGRADE, keys, &args, self.replicas).await?;
        let state = reply::lease_state(&done.value)?;
        let (age, within) = (Duration::ZERO, self.timeout);
        match state {
            LeaseState::Lost(_) => self.confirm_master(&done, age, within).await?,
            _ => self.confirm_change(&done, within).await?,
        }
        Ok(state)
    }

    /// Gives a lease another id. Returns its token, or `None` if neither id holds the lock alone.
    pub(crate) async fn adopt(
        &self,
        key: &LockKey,
        [id, new]: [LeaseId; 2],
        ttl: Duration,
        unanswered: Option<&Unanswered>,
    ) -> Result<Option<u64>, RedisFailure> {
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
        let done = self.explained(&keys, done).await?;
        let token = reply::optional(&done.value, reply::token)?;
        let within = self.timeout.min(ttl / 3);
        match token {
            Some(_) => self.confirm_change(&done, within).await?,
            // A former master does not know what an earlier call has done at its successor.
            None => self.confirm_master(&done, Duration::ZERO, within).await?,
        }
        Ok(token)
    }

    /// Releases the lock, or leaves its queue. The reply of a former master counts: the new master may keep the
    /// lease until it expires, and nobody renews it.
    pub(crate) async fn release(
        &self,
        keys: &RedisKeys,
        holder: &RedisHolder,
        ticket: Option<&QueueTicket>,
    ) -> Result<ReleaseReply, RedisFailure> {
        let ticket = ticket.map_or("", |ticket| &**ticket);
        let args = [holder.id(), ticket.as_bytes()];
        match self.run(&RELEASE, keys, &args, None).await?.value {
            Value::Int(0) => Ok(ReleaseReply::Nothing),
            Value::Int(1) => Ok(ReleaseReply::Lock),
            Value::Int(2) => Ok(ReleaseReply::Granted),
            reply => Err(reply::strange(&reply)),
        }
    }

    /// Withdraws a vote.
    pub(crate) async fn withdraw(
        &self,
        keys: &RedisKeys,
        holder: &RedisHolder,
    ) -> Result<Released, RedisFailure> {
        let args = [holder.id()];
        match self.run(&WITHDRAW, keys, &args, None).await?.value {
            Value::Int(0) => Ok(Released::AlreadyLost),
            Value::Int(1) => Ok(Released::Clean),
            reply => Err(reply::strange(&reply)),
        }
    }

    pub(crate) async fn inspect(
        &self,
        key: &LockKey,
    ) -> Result<Option<reply::SeenLock>, RedisFailure> {
        let done = self.run(&INSPECT, &self.keys(key), &[], None).await?;
        let seen = reply::optional(&done.value, reply::seen)?;
        self.confirm_read(&done).await?;
        Ok(seen)
    }

    /// Takes a lock from its holders. Returns what it was, or `None` if it was free.
    pub(crate) async fn break_all(
        &self,
        key: &LockKey,
        reason: &str,
    ) -> Result<Option<reply::SeenLock>, RedisFailure> {
        let acks = self.replicas.map_or("", |_| "acks");
        let (keys, args) = (self.keys(key), [reason, acks].map(str::as_bytes));
        let done = self.run(&BREAK, &keys, &args, self.replicas).await?;
        let broken = reply::optional(&done.value, reply::seen)?;
        // The successor of a former master may still have the lock, and renew it; also if it is free here,
        // because of an earlier call that no replica knows. The script writes also then, so that the acks count
        // for that call.
        self.confirm_change(&done, self.timeout).await?;
        Ok(broken)
    }

    /// Runs a script on the keys of a lock; waits for replicas if `wait` says so.
    pub(crate) async fn run(
        &self,
        script: &'static Script,
        keys: &RedisKeys,
        args: &[&[u8]],
        wait: Option<ReplicaWait>,
    ) -> Result<Done, RedisFailure> {
        let keys = keys.all();
        let call = Call {
            wait,
            ..Call::script(script, &keys, args)
        };
        self.topology.call(call).await
    }
}

/// Length of an id in hexadecimal digits.
const ID_LEN: usize = 32;

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
                let (alive, window) = (millis(HEARTBEAT_TIMEOUT), millis(window(self.ttl)));
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
