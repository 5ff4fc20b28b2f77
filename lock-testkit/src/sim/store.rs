//! The simulated store: a lease table with a clock of its own that can be down. The table is pure:
//! time comes from outside.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylock_core::engine::{Clock, LeaseId, Moment, VirtualClock};
use polylock_core::{LockKey, Mode, RenewalRequest};

use super::message::{SimClaim, SimGrant, SimPush, SimReply, SimRequest};
use super::plan::SimPlan;
use super::process::undrift;
use crate::lock;
use crate::mutants::Mutation;

#[derive(Debug)]
pub(crate) struct SimStore {
    clock: VirtualClock,
    origin: Moment,
    drift: i32,
    durable_queue: bool,
    up: AtomicBool,
    table: Mutex<LockTable>,
}

impl SimStore {
    /// A store whose clock starts at the beginning of the history.
    pub(crate) fn new(plan: &SimPlan, mutation: Option<Mutation>) -> Self {
        let clock = VirtualClock::with_drift(plan.store_drift);
        let rules = StoreRules {
            token_block: plan.token_block,
            remembers_released: plan.remembers_released,
            waiter_life: plan.waiter_life,
            mutation,
        };
        Self {
            origin: clock.now(),
            clock,
            drift: plan.store_drift,
            durable_queue: plan.durable_queue,
            up: AtomicBool::new(true),
            table: Mutex::new(LockTable {
                locks: BTreeMap::new(),
                rules,
                tenures: Vec::new(),
            }),
        }
    }

    /// Does what is requested; `None` if the store is down.
    pub(crate) fn handle(&self, request: SimRequest) -> Option<(SimReply, Vec<SimPush>)> {
        self.is_up()
            .then(|| lock(&self.table).handle(self.clock.now(), request))
    }

    pub(crate) fn stop(&self) {
        self.up.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::SeqCst)
    }

    /// Comes back with the leases and tokens, and with the queues if they are durable.
    pub(crate) fn start(&self) {
        if !self.durable_queue {
            let locks = &mut lock(&self.table).locks;
            locks.values_mut().for_each(|lock| lock.queue.clear());
        }
        self.up.store(true, Ordering::SeqCst);
    }

    /// Takes a key from its holders, and says what follows from that.
    pub(crate) fn evict(&self, key: &LockKey) -> Vec<SimPush> {
        lock(&self.table).evict(self.clock.now(), key)
    }

    /// When the lease that a token belongs to ends unless it is renewed, in true time.
    pub(crate) fn expiry(&self, key: &LockKey, token: u64) -> Option<Duration> {
        let table = lock(&self.table);
        // The last one, if a broken store issued a token twice.
        let mut tenures = table.tenures.iter().rev();
        let tenure = tenures.find(|tenure| tenure.key == *key && tenure.has(token))?;
        Some(self.true_time(tenure.until()))
    }

    /// Every holder that there ever was, with the true times of the begin and the end.
    pub(crate) fn tenures(&self) -> Vec<(LeaseTenure, Duration, Duration)> {
        let table = lock(&self.table);
        let timed = |tenure: &LeaseTenure| {
            let (from, until) = (self.true_time(tenure.from), self.true_time(tenure.until()));
            (tenure.clone(), from, until)
        };
        table.tenures.iter().map(timed).collect()
    }

    /// The holders and waiters at this moment.
    pub(crate) fn left(&self) -> Vec<Left> {
        lock(&self.table).left(self.clock.now())
    }

    fn true_time(&self, at: Moment) -> Duration {
        undrift(at.since(self.origin), self.drift)
    }
}

/// What a store has at the end: a holder, or a waiter without tokens.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub(crate) key: LockKey,
    pub(crate) tokens: Option<(u64, u64)>,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tokens {
            Some((token, _)) => write!(f, "a holder of {} with token {token}", self.key),
            None => write!(f, "a waiter for {}", self.key),
        }
    }
}

/// One lease on the store from its grant to its end, by the clock of the store.
#[derive(Clone, Debug)]
pub(crate) struct LeaseTenure {
    pub(crate) key: LockKey,
    pub(crate) id: LeaseId,
    /// Its own and the last that is reserved for hand-overs.
    pub(crate) tokens: (u64, u64),
    mode: Mode,
    from: Moment,
    /// What it was granted for.
    ttl: Duration,
    expires: Moment,
    /// When it was released or taken away before it expired.
    pub(crate) ended: Option<Moment>,
}

impl LeaseTenure {
    /// Whether a token is its own or was reserved for its hand-overs.
    pub(crate) fn has(&self, token: u64) -> bool {
        (self.tokens.0..=self.tokens.1).contains(&token)
    }

    fn until(&self) -> Moment {
        self.ended
            .map_or(self.expires, |ended| ended.min(self.expires))
    }
}

/// Every lock that was ever held; nothing is forgotten.
#[derive(Debug)]
struct LockTable {
    locks: BTreeMap<LockKey, StoreLock>,
    rules: StoreRules,
    /// Every lease that there ever was, for the judge too.
    tenures: Vec<LeaseTenure>,
}

/// How this store differs from others.
#[derive(Clone, Copy, Debug)]
struct StoreRules {
    token_block: u64,
    remembers_released: bool,
    waiter_life: Duration,
    mutation: Option<Mutation>,
}

/// The state of one key.
#[derive(Debug, Default)]
struct StoreLock {
    /// Places among the tenures.
    holders: Vec<usize>,
    queue: VecDeque<SimWaiter>,
    last_token: u64,
    /// Ids that were released and when to forget them.
    released: BTreeMap<LeaseId, Moment>,
    /// Waiters that a broken store has forgotten to wake.
    lost: BTreeSet<LeaseId>,
}

#[derive(Debug)]
struct SimWaiter {
    claim: SimClaim,
    seen: Moment,
}

impl LockTable {
    fn handle(&mut self, now: Moment, request: SimRequest) -> (SimReply, Vec<SimPush>) {
        match request {
            SimRequest::Acquire(claim) => self.acquire(now, claim),
            SimRequest::Release(key, id) => self.release(now, &key, id),
            SimRequest::Renew(due) => {
                let held = due.iter().map(|due| self.renew(now, due)).collect();
                (SimReply::Renewed(held), Vec::new())
            }
        }
    }

    /// Ends what has expired by `now`, and says what is left: holders and waiters.
    fn left(&mut self, now: Moment) -> Vec<Left> {
        let mut left = Vec::new();
        let keys: Vec<_> = self.locks.keys().cloned().collect();
        for key in keys {
            self.settle(now, &key);
            let lock = &self.locks[&key];
            let holders = lock.holders.iter();
            let holders = holders.map(|holder| Some(self.tenures[*holder].tokens));
            let waiters = lock.queue.iter().map(|_| None);
            left.extend(holders.chain(waiters).map(|tokens| Left {
                key: key.clone(),
                tokens,
            }));
        }
        left
    }

    fn evict(&mut self, now: Moment, key: &LockKey) -> Vec<SimPush> {
        let lock = self.locks.entry(key.clone()).or_default();
        for holder in lock.holders.drain(..) {
            self.tenures[holder].ended = Some(now);
        }
        self.settle(now, key)
    }

    fn acquire(&mut self, now: Moment, claim: SimClaim) -> (SimReply, Vec<SimPush>) {
        let mut pushes = self.settle(now, &claim.key);
        let (id, key, beat) = (claim.id, claim.key.clone(), claim.beat);
        if let Some(holder) = self.holder(&key, id) {
            // Requested again after a reply that was lost: the lease begins anew, never shorter.
            let tenure = &mut self.tenures[holder];
            tenure.expires = tenure.expires.max(now + claim.ttl);
            let tokens = tenure.tokens;
            return (SimReply::Granted(SimGrant { tokens, beat }), pushes);
        }
        let (rules, tenures) = (self.rules, &self.tenures);
        let lock = self.locks.entry(key.clone()).or_default();
        if lock.released.contains_key(&id) || lock.lost.contains(&id) {
            return (SimReply::Held { free_in: None }, pushes);
        }
        let free = lock.queue.is_empty() && lock.admits(claim.mode, tenures, rules);
        match lock.queue.iter_mut().find(|waiter| waiter.claim.id == id) {
            Some(waiter) => {
                waiter.seen = now;
                waiter.claim.beat = beat.max(waiter.claim.beat);
            }
            // A new request must not overtake the queue.
            None if claim.queues || free => {
                lock.queue.push_back(SimWaiter { claim, seen: now });
            }
            None => return (lock.held(now, tenures), pushes),
        }
        pushes.extend(self.settle(now, &key));
        pushes.retain(|push| push.id != id);
        let reply = match self.holder(&key, id) {
            Some(holder) => SimReply::Granted(SimGrant {
                tokens: self.tenures[holder].tokens,
                beat,
            }),
            None => self.locks[&key].held(now, &self.tenures),
        };
        (reply, pushes)
    }

    fn release(&mut self, now: Moment, key: &LockKey, id: LeaseId) -> (SimReply, Vec<SimPush>) {
        let mut pushes = self.settle(now, key);
        let lock = self.locks.entry(key.clone()).or_default();
        let anyone = self.rules.mutation == Some(Mutation::ReleaseByAnyone);
        let before = lock.holders.len();
        lock.holders.retain(|holder| {
            let tenure = &mut self.tenures[*holder];
            let stays = tenure.id != id && !anyone;
            if !stays {
                tenure.ended = Some(now);
            }
            stays
        });
        let held = lock.holders.len() < before;
        if self.rules.mutation != Some(Mutation::QueueEntryLeft) {
            lock.queue.retain(|waiter| waiter.claim.id != id);
        }
        if self.rules.remembers_released {
            lock.released.retain(|_, until| *until > now);
            lock.released.insert(id, now + MEMORY);
        }
        pushes.extend(self.settle(now, key));
        (SimReply::Released(held), pushes)
    }

    fn renew(&mut self, now: Moment, due: &RenewalRequest) -> bool {
        let (key, id) = (due.key.clone(), due.id);
        let live = |holder: &usize| self.tenures[*holder].expires > now;
        if let Some(holder) = self.holder(&key, id).filter(live) {
            let tenure = &mut self.tenures[holder];
            tenure.expires = match self.rules.mutation {
                Some(Mutation::ExtendsNothing) if due.ttl > tenure.ttl => tenure.expires,
                Some(Mutation::RenewalsCut) => now + due.ttl,
                Some(Mutation::RenewalsSkipped) if tenure.expires.since(now) > tenure.ttl / 2 => {
                    tenure.expires
                }
                _ => due.renewed_end(now, tenure.expires),
            };
            return true;
        }
        let revives = self.rules.mutation == Some(Mutation::RenewalRevives);
        if revives {
            // Like an unconditional SET: the request replaces the current holder.
            let lock = self.locks.entry(key.clone()).or_default();
            for holder in lock.holders.drain(..) {
                self.tenures[holder].ended = Some(now);
            }
            lock.holders.push(self.tenures.len());
            self.tenures.push(LeaseTenure {
                key,
                id,
                tokens: (0, 0),
                mode: Mode::Exclusive,
                from: now,
                ttl: due.ttl,
                expires: now + due.ttl,
                ended: None,
            });
        }
        revives
    }

    /// Ends what has expired and serves the queue.
    fn settle(&mut self, now: Moment, key: &LockKey) -> Vec<SimPush> {
        let (rules, tenures) = (self.rules, &mut self.tenures);
        let lock = self.locks.entry(key.clone()).or_default();
        if rules.mutation != Some(Mutation::NoExpiry) {
            // A lease is over at its expiry, whenever that is looked at.
            lock.holders.retain(|holder| tenures[*holder].expires > now);
        }
        if rules.mutation != Some(Mutation::QueueEntryLeft) {
            lock.queue
                .retain(|waiter| waiter.seen + rules.waiter_life > now);
        }
        let mut pushes = Vec::new();
        let turn = |queue: &VecDeque<SimWaiter>| match rules.mutation {
            Some(Mutation::LastComeFirstServed) => queue.len().saturating_sub(1),
            _ => 0,
        };
        while let Some(waiter) = lock.queue.get(turn(&lock.queue))
            && lock.admits(waiter.claim.mode, tenures, rules)
            && let Some(SimWaiter { claim, seen }) = lock.queue.remove(turn(&lock.queue))
        {
            if rules.mutation == Some(Mutation::LostWaiter) && seen < now {
                lock.lost.insert(claim.id);
                continue;
            }
            let tokens = lock.issue(now, rules);
            if claim.queues {
                let grant = SimGrant {
                    tokens,
                    beat: claim.beat,
                };
                pushes.push(SimPush {
                    process: claim.process,
                    id: claim.id,
                    waiter: claim.waiter,
                    grant,
                });
            }
            lock.holders.push(tenures.len());
            tenures.push(LeaseTenure {
                key: claim.key,
                id: claim.id,
                tokens,
                mode: claim.mode,
                from: now,
                ttl: claim.ttl,
                expires: now + claim.ttl,
                ended: None,
            });
        }
        pushes
    }

    /// The place of the lease with this id among the tenures, if it holds the lock.
    fn holder(&self, key: &LockKey, id: LeaseId) -> Option<usize> {
        let holders = &self.locks.get(key)?.holders;
        let is_own = |holder: &usize| self.tenures[*holder].id == id;
        holders.iter().copied().find(is_own)
    }
}

impl StoreLock {
    /// Reserves a block of tokens above every earlier one, and never below the clock.
    fn issue(&mut self, now: Moment, rules: StoreRules) -> (u64, u64) {
        let clock = now.as_nanos() / 1000;
        let token = match rules.mutation {
            Some(Mutation::TokenReused) if self.last_token > 0 => {
                self.last_token + 1 - rules.token_block
            }
            _ => (self.last_token + 1).max(clock),
        };
        self.last_token = token + rules.token_block - 1;
        (token, self.last_token)
    }

    fn admits(&self, mode: Mode, tenures: &[LeaseTenure], rules: StoreRules) -> bool {
        let Some(first) = self.holders.first() else {
            return true;
        };
        if rules.mutation == Some(Mutation::ExcludesNobody) {
            return true;
        }
        match (tenures[*first].mode, mode) {
            (Mode::Shared, Mode::Shared) => true,
            (Mode::Shared, _) => rules.mutation == Some(Mutation::SharedAdmitsWriter),
            (Mode::Permit { limit }, Mode::Permit { .. }) => {
                let more = u32::from(rules.mutation == Some(Mutation::PermitBeyondLimit));
                let limit = usize::try_from(limit.get() + more).unwrap_or(usize::MAX);
                self.holders.len() < limit
            }
            _ => false,
        }
    }

    /// The reply to others, with the end of the first lease.
    fn held(&self, now: Moment, tenures: &[LeaseTenure]) -> SimReply {
        let ends = self.holders.iter();
        let ends = ends.map(|holder| tenures[*holder].expires.since(now));
        SimReply::Held {
            free_in: ends.min(),
        }
    }
}

/// How long a released id is remembered: longer than any message is under way.
const MEMORY: Duration = Duration::from_secs(10);
