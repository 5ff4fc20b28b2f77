//! The locks of one store, their holders and waiters. Pure: time and ids come from outside.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

use crate::admin::{HolderInfo, LockInfo, Record};
use crate::engine::{Engine, LeaseId, Moment};
use crate::key::LockKey;
use crate::label::Label;
use crate::lease::{Grant, LeaseControl, RenewalRequest};
use crate::mode::Mode;
use crate::token::FencingToken;

/// Every lock that is held or waited for.
#[derive(Debug, Default)]
pub(super) struct MemoryTable {
    locks: BTreeMap<LockKey, MemoryLock>,
    /// One counter for all keys, so that idle keys need no memory of their own.
    last_token: u64,
    /// What holders have stored, and until when it is kept.
    records: BTreeMap<LockKey, (Record, Moment)>,
}

#[derive(Debug, Default)]
struct MemoryLock {
    holders: Vec<MemoryHolder>,
    queue: VecDeque<QueuedClaim>,
}

#[derive(Debug)]
struct QueuedClaim {
    claim: MemoryClaim,
    waiter: MemoryWaiter,
}

#[derive(Debug)]
struct MemoryHolder {
    claim: MemoryClaim,
    token: FencingToken,
    since: SystemTime,
    expires: Moment,
    /// Where the holder is notified, once its guard exists.
    control: Option<LeaseControl>,
}

/// What an acquisition asks for.
#[derive(Clone, Debug)]
pub(super) struct MemoryClaim {
    pub(super) id: LeaseId,
    pub(super) mode: Mode,
    pub(super) ttl: Duration,
    pub(super) label: Label,
}

/// The waiter to notify of a grant, which counts by the waiter's clock and not by the store's.
#[derive(Debug)]
pub(super) struct MemoryWaiter {
    pub(super) engine: Engine,
    pub(super) push: oneshot::Sender<Grant>,
}

/// The answer to an acquisition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ClaimReply {
    /// It is held by others, and the claim does not wait.
    Busy,
    /// The claim holds the lock.
    Granted(FencingToken),
    /// The claim waits in the queue.
    Queued,
}

/// A waiting claim that got its lock.
#[derive(Debug)]
pub(super) struct GrantedClaim {
    pub(super) id: LeaseId,
    pub(super) token: FencingToken,
    pub(super) waiter: MemoryWaiter,
}

impl MemoryTable {
    /// Takes the lock, stands in the queue with a `waiter`, or does nothing. Idempotent by id.
    pub(super) fn acquire(
        &mut self,
        now: Moment,
        key: &LockKey,
        claim: &MemoryClaim,
        waiter: Option<impl FnOnce() -> MemoryWaiter>,
    ) -> (ClaimReply, Vec<GrantedClaim>) {
        let granted = self.expire(now, key);
        let token = FencingToken::new(self.last_token + 1);
        let lock = self.locks.entry(key.clone()).or_default();
        let answer = lock.answer(claim, waiter.is_some(), token, now);
        match (answer, waiter) {
            (ClaimReply::Granted(given), _) if given == token => self.last_token += 1,
            (ClaimReply::Queued, Some(waiter)) => lock.join(claim, waiter()),
            _ => {}
        }
        self.forget_if_idle(key);
        (answer, granted)
    }

    /// Extends a lease that has not run out.
    pub(super) fn renew(&mut self, now: Moment, request: &RenewalRequest) -> bool {
        match self.holder(&request.key, request.id) {
            Some(holder) if holder.expires > now => {
                holder.expires = request.renewed_end(now, holder.expires);
                true
            }
            _ => false,
        }
    }

    /// Counts a lease that was granted under the same mutex from `now` on.
    pub(super) fn restart(&mut self, now: Moment, key: &LockKey, id: LeaseId) {
        if let Some(holder) = self.holder(key, id) {
            holder.expires = now + holder.claim.ttl;
        }
    }

    /// Takes a claim out, whether it holds or waits; whether it held.
    pub(super) fn release(
        &mut self,
        now: Moment,
        key: &LockKey,
        id: LeaseId,
    ) -> (bool, Vec<GrantedClaim>) {
        let Some(lock) = self.locks.get_mut(key) else {
            return (false, Vec::new());
        };
        lock.queue.retain(|queued| queued.claim.id != id);
        let before = lock.holders.len();
        lock.holders
            .retain(|holder| holder.claim.id != id || holder.expires <= now);
        let held = lock.holders.len() < before;
        (held, self.expire(now, key))
    }

    /// A fresh token for a lease that passes to another holder of the same process.
    pub(super) fn hand_over(
        &mut self,
        now: Moment,
        key: &LockKey,
        id: LeaseId,
    ) -> Option<FencingToken> {
        let token = FencingToken::new(self.last_token + 1);
        let holder = self.holder(key, id).filter(|holder| holder.expires > now)?;
        holder.token = token;
        self.last_token += 1;
        Some(token)
    }

    /// Gives a held exclusive lease the id `new`, a fresh token and a ttl from now; idempotent by `new`.
    /// Returns the control of the former holder, for the caller to notify.
    pub(super) fn adopt(
        &mut self,
        now: Moment,
        key: &LockKey,
        id: LeaseId,
        new: LeaseId,
        ttl: Duration,
    ) -> Option<(FencingToken, Option<LeaseControl>)> {
        let next = FencingToken::new(self.last_token + 1);
        let is_exclusive = |holder: &&mut MemoryHolder| {
            holder.expires > now && holder.claim.mode == Mode::Exclusive
        };
        if let Some(holder) = self.holder(key, new).filter(is_exclusive) {
            holder.expires = holder.expires.max(now + ttl);
            return Some((holder.token, None));
        }
        let holder = self.holder(key, id).filter(is_exclusive)?;
        holder.claim.id = new;
        holder.claim.ttl = ttl;
        holder.token = next;
        holder.expires = holder.expires.max(now + ttl);
        let former = holder.control.take();
        self.last_token += 1;
        Some((next, former))
    }

    pub(super) fn downgrade(
        &mut self,
        now: Moment,
        key: &LockKey,
        id: LeaseId,
    ) -> (bool, Vec<GrantedClaim>) {
        let Some(holder) = self.holder(key, id).filter(|holder| holder.expires > now) else {
            return (false, Vec::new());
        };
        holder.claim.mode = Mode::Shared;
        (true, self.expire(now, key))
    }

    /// Ends the leases that have expired by `now`, and serves the queue.
    pub(super) fn expire(&mut self, now: Moment, key: &LockKey) -> Vec<GrantedClaim> {
        let Some(lock) = self.locks.get_mut(key) else {
            return Vec::new();
        };
        lock.expire(now);
        let granted = lock.serve(now, &mut self.last_token);
        self.forget_if_idle(key);
        granted
    }

    /// Forgets keys whose leases have expired, unless a waiter is queued: the waiter expires them.
    pub(super) fn sweep(&mut self, now: Moment) {
        self.locks.retain(|_, lock| {
            lock.remove_gone();
            if lock.queue.is_empty() {
                lock.expire(now);
            }
            !lock.is_idle()
        });
    }

    /// When the first of the holders runs out.
    pub(super) fn next_expiry(&self, key: &LockKey) -> Option<Moment> {
        let holders = self.locks.get(key)?.holders.iter();
        holders.map(|holder| holder.expires).min()
    }

    /// Takes the lock from its holders. Returns their controls, for the caller to notify.
    pub(super) fn evict(
        &mut self,
        now: Moment,
        key: &LockKey,
    ) -> (Vec<LeaseControl>, Vec<GrantedClaim>) {
        let Some(lock) = self.locks.get_mut(key) else {
            return Default::default();
        };
        let evicted = lock.holders.drain(..).filter_map(|holder| holder.control);
        (evicted.collect(), self.expire(now, key))
    }

    /// What was stored for the key and is still kept.
    pub(super) fn record(&self, now: Moment, key: &LockKey) -> Option<Record> {
        let (record, kept_until) = self.records.get(key)?;
        (*kept_until > now).then(|| record.clone())
    }

    /// Replaces the record of the key, unless it has a larger token; whether it did.
    pub(super) fn write_record(
        &mut self,
        now: Moment,
        key: &LockKey,
        record: &Record,
        keep: Duration,
    ) -> bool {
        self.records.retain(|_, (_, kept_until)| *kept_until > now);
        let stored = self.records.get(key);
        let is_stale = stored.is_some_and(|(stored, _)| stored.token > record.token);
        if !is_stale {
            let record = (record.clone(), now + keep);
            self.records.insert(key.clone(), record);
        }
        !is_stale
    }

    pub(super) fn len(&self) -> usize {
        self.locks.len()
    }

    /// The locks that are held and whose key begins with `prefix`.
    pub(super) fn list(&self, now: Moment, prefix: &str) -> Vec<LockInfo> {
        let keys = self.locks.keys();
        let keys = keys.filter(|key| key.as_str().starts_with(prefix));
        keys.filter_map(|key| self.info(now, key)).collect()
    }

    /// The lock as it is at `now`; `None` if it is free.
    pub(super) fn info(&self, now: Moment, key: &LockKey) -> Option<LockInfo> {
        let lock = self.locks.get(key)?;
        let held = lock.holders.iter().filter(|holder| holder.expires > now);
        let mode = held.clone().next()?.claim.mode;
        let holders = held.map(|holder| holder.info(now)).collect();
        let waiters = lock.queue.iter().map(|queued| queued.claim.label.clone());
        Some(LockInfo::new(key.clone(), mode, holders).with_waiters(waiters.collect()))
    }

    /// Stores the control of a holder; returns it if the claim does not hold the lock.
    pub(super) fn attach(
        &mut self,
        key: &LockKey,
        id: LeaseId,
        control: LeaseControl,
    ) -> Result<(), LeaseControl> {
        match self.holder(key, id) {
            Some(holder) => holder.control = Some(control),
            None => return Err(control),
        }
        Ok(())
    }

    /// How many claims wait for the key.
    pub(super) fn waiters(&self, key: &LockKey) -> usize {
        self.locks.get(key).map_or(0, |lock| lock.queue.len())
    }

    fn holder(&mut self, key: &LockKey, id: LeaseId) -> Option<&mut MemoryHolder> {
        let mut holders = self.locks.get_mut(key)?.holders.iter_mut();
        holders.find(|holder| holder.claim.id == id)
    }

    fn forget_if_idle(&mut self, key: &LockKey) {
        if self.locks.get(key).is_some_and(MemoryLock::is_idle) {
            self.locks.remove(key);
        }
    }
}

impl MemoryLock {
    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    fn expire(&mut self, now: Moment) {
        self.holders.retain(|holder| holder.expires > now);
    }

    fn answer(
        &mut self,
        claim: &MemoryClaim,
        waits: bool,
        token: FencingToken,
        now: Moment,
    ) -> ClaimReply {
        let mut holders = self.holders.iter();
        if let Some(holder) = holders.find(|holder| holder.claim.id == claim.id) {
            return ClaimReply::Granted(holder.token);
        }
        // New requests never overtake the queue: a stream of readers must not starve a writer.
        if self.queue.is_empty() && admits(&self.holders, claim.mode) {
            self.holders
                .push(MemoryHolder::new(claim.clone(), token, now));
            ClaimReply::Granted(token)
        } else if waits {
            ClaimReply::Queued
        } else {
            ClaimReply::Busy
        }
    }

    fn serve(&mut self, now: Moment, last_token: &mut u64) -> Vec<GrantedClaim> {
        let mut granted = Vec::new();
        loop {
            self.remove_gone();
            let Self { holders, queue } = self;
            let next = queue.pop_front_if(|next| admits(holders, next.claim.mode));
            let Some(QueuedClaim { claim, waiter }) = next else {
                return granted;
            };
            *last_token += 1;
            let (id, token) = (claim.id, FencingToken::new(*last_token));
            granted.push(GrantedClaim { id, token, waiter });
            holders.push(MemoryHolder::new(claim, token, now));
        }
    }

    /// Removes queued claims at the front whose waiters are gone. Their releases may have failed in an outage.
    fn remove_gone(&mut self) {
        let is_gone = |next: &mut QueuedClaim| next.waiter.push.is_closed();
        while self.queue.pop_front_if(is_gone).is_some() {}
    }

    fn join(&mut self, claim: &MemoryClaim, waiter: MemoryWaiter) {
        let mut queue = self.queue.iter_mut();
        match queue.find(|queued| queued.claim.id == claim.id) {
            Some(queued) => queued.waiter = waiter,
            None => self.queue.push_back(QueuedClaim {
                claim: claim.clone(),
                waiter,
            }),
        }
    }
}

/// Whether a lock with these holders has room for another one.
fn admits(holders: &[MemoryHolder], mode: Mode) -> bool {
    match (holders.first().map(|first| first.claim.mode), mode) {
        (None, _) | (Some(Mode::Shared), Mode::Shared) => true,
        (Some(Mode::Permit { .. }), Mode::Permit { limit }) => {
            holders.len() < usize::try_from(limit.get()).unwrap_or(usize::MAX)
        }
        _ => false,
    }
}

impl MemoryHolder {
    fn new(claim: MemoryClaim, token: FencingToken, now: Moment) -> Self {
        let expires = now + claim.ttl;
        Self {
            claim,
            token,
            since: SystemTime::now(),
            expires,
            control: None,
        }
    }

    fn info(&self, now: Moment) -> HolderInfo {
        let mut info = HolderInfo::new(self.claim.label.clone());
        info.token = Some(self.token);
        info.since = Some(self.since);
        info.time_left = Some(self.expires.since(now));
        info
    }
}
