//! The simulated store: a lease table with a clock of its own that can be down. The table is pure:
//! time comes from outside.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylock_core::engine::{Clock, LeaseId, Moment, VirtualClock};
use polylock_core::{LockKey, Mode};

use super::message::{Claim, Granted, Left, Push, Reply, Request};
use super::plan::{Plan, WAITER_LIFE};
use super::process::undrift;
use crate::lock;
use crate::mutants::Mutation;

#[derive(Debug)]
pub(crate) struct Store {
    clock: VirtualClock,
    origin: Moment,
    drift: i32,
    durable_queue: bool,
    up: AtomicBool,
    table: Mutex<Table>,
}

impl Store {
    /// A store whose clock starts at the beginning of the history.
    pub(crate) fn new(plan: &Plan, mutation: Option<Mutation>) -> Self {
        let clock = VirtualClock::with_drift(plan.store_drift);
        let rules = Rules {
            token_block: plan.token_block,
            remembers_released: plan.remembers_released,
            waiter_life: WAITER_LIFE,
            mutation,
        };
        Self {
            origin: clock.now(),
            clock,
            drift: plan.store_drift,
            durable_queue: plan.durable_queue,
            up: AtomicBool::new(true),
            table: Mutex::new(Table::new(rules)),
        }
    }

    /// Does what is asked; `None` if the store is down.
    pub(crate) fn handle(&self, request: Request) -> Option<(Reply, Vec<Push>)> {
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
            lock(&self.table).lose_queues();
        }
        self.up.store(true, Ordering::SeqCst);
    }

    /// Comes back with nothing but its clock.
    pub(crate) fn start_empty(&self) {
        lock(&self.table).lose_data(self.clock.now());
        self.up.store(true, Ordering::SeqCst);
    }

    /// When the lease that a token belongs to ends unless it is renewed, in true time.
    pub(crate) fn expiry(&self, key: &LockKey, token: u64) -> Option<Duration> {
        let table = lock(&self.table);
        table
            .tenures
            .of_token(key, token)
            .map(|tenure| self.true_time(tenure.until()))
    }

    /// Everybody who ever had a lock, with the true times of the begin and the end.
    pub(crate) fn tenures(&self) -> Vec<(Tenure, Duration, Duration)> {
        let table = lock(&self.table);
        let timed = |tenure: &Tenure| {
            let (from, until) = (self.true_time(tenure.from), self.true_time(tenure.until()));
            (tenure.clone(), from, until)
        };
        table.tenures.all().iter().map(timed).collect()
    }

    /// Who holds or waits now.
    pub(crate) fn left(&self) -> Vec<Left> {
        lock(&self.table).left(self.clock.now())
    }

    fn true_time(&self, at: Moment) -> Duration {
        undrift(at.since(self.origin), self.drift)
    }
}

/// Every lock that was ever held; nothing is forgotten but by a store that loses its data.
#[derive(Debug)]
struct Table {
    locks: BTreeMap<LockKey, Lock>,
    rules: Rules,
    /// The truth about who had what, for the judge.
    tenures: Tenures,
}

/// How long a released id is remembered: longer than any message is under way.
const MEMORY: Duration = Duration::from_secs(10);

impl Table {
    fn new(rules: Rules) -> Self {
        Self {
            locks: BTreeMap::new(),
            rules,
            tenures: Tenures::default(),
        }
    }

    fn handle(&mut self, now: Moment, request: Request) -> (Reply, Vec<Push>) {
        match request {
            Request::Acquire(claim) => self.acquire(now, claim),
            Request::Release(key, id) => self.release(now, &key, id),
            Request::Renew(due) => {
                let renew = |(key, id, ttl)| self.renew(now, key, id, ttl);
                (
                    Reply::Renewed(due.into_iter().map(renew).collect()),
                    Vec::new(),
                )
            }
        }
    }

    /// Forgets leases, queues and tokens.
    fn lose_data(&mut self, now: Moment) {
        for lock in std::mem::take(&mut self.locks).into_values() {
            lock.holders
                .iter()
                .for_each(|holder| self.tenures.end(holder.tenure, now));
        }
    }

    fn lose_queues(&mut self) {
        self.locks.values_mut().for_each(|lock| lock.queue.clear());
    }

    /// Ends what has run out by `now`, and says what is left: holders and waiters.
    fn left(&mut self, now: Moment) -> Vec<Left> {
        let mut left = Vec::new();
        let keys: Vec<_> = self.locks.keys().cloned().collect();
        for key in keys {
            self.settle(now, &key);
            let lock = self.locks.entry(key.clone()).or_default();
            for holder in &lock.holders {
                let tokens = Some(holder.tokens);
                left.push(Left {
                    key: key.clone(),
                    tokens,
                });
            }
            left.extend(lock.queue.iter().map(|_| Left {
                key: key.clone(),
                tokens: None,
            }));
        }
        left
    }

    fn acquire(&mut self, now: Moment, claim: Claim) -> (Reply, Vec<Push>) {
        let mut pushes = self.settle(now, &claim.key);
        let rules = self.rules;
        let lock = self.locks.entry(claim.key.clone()).or_default();
        let (id, key, beat) = (claim.id, claim.key.clone(), claim.beat);
        let granted = |token, block_end| {
            let beat = beat.unwrap_or(0);
            Granted {
                token,
                block_end,
                beat,
            }
        };
        if lock.released.contains_key(&id) || lock.lost.contains(&id) {
            return (Reply::Held { free_in: None }, pushes);
        }
        if let Some(holder) = lock.holders.iter_mut().find(|holder| holder.claim.id == id) {
            // Asked again after an answer that was lost: the lease begins anew, never shorter.
            holder.expires = holder.expires.max(now + claim.ttl);
            self.tenures.extend(holder.tenure, holder.expires);
            let (token, block_end) = holder.tokens;
            return (Reply::Granted(granted(token, block_end)), pushes);
        }
        let free = lock.queue.is_empty() && lock.admits(claim.mode, rules);
        match lock.queue.iter_mut().find(|waiter| waiter.claim.id == id) {
            Some(waiter) => {
                waiter.seen = now;
                waiter.claim.beat = beat.max(waiter.claim.beat);
            }
            // Nobody overtakes the queue.
            None if beat.is_some() || free => {
                lock.queue.push_back(Waiter { claim, seen: now });
            }
            None => return (lock.held(now), pushes),
        }
        pushes.extend(self.settle(now, &key));
        pushes.retain(|push| push.id != id);
        let lock = self.locks.entry(key).or_default();
        let reply = match lock.holders.iter().find(|holder| holder.claim.id == id) {
            Some(holder) => Reply::Granted(granted(holder.tokens.0, holder.tokens.1)),
            None => lock.held(now),
        };
        (reply, pushes)
    }

    fn release(&mut self, now: Moment, key: &LockKey, id: LeaseId) -> (Reply, Vec<Push>) {
        let mut pushes = self.settle(now, key);
        let lock = self.locks.entry(key.clone()).or_default();
        let anyone = self.rules.mutation == Some(Mutation::ReleaseByAnyone);
        let tenures = &mut self.tenures;
        let before = lock.holders.len();
        lock.holders.retain(|holder| {
            let stays = holder.claim.id != id && !anyone;
            if !stays {
                tenures.end(holder.tenure, now);
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
        (Reply::Released(held), pushes)
    }

    fn renew(&mut self, now: Moment, key: LockKey, id: LeaseId, ttl: Duration) -> bool {
        let lock = self.locks.entry(key.clone()).or_default();
        let live = |holder: &&mut Holder| holder.claim.id == id && holder.expires > now;
        if let Some(holder) = lock.holders.iter_mut().find(live) {
            holder.expires = now + ttl;
            self.tenures.extend(holder.tenure, holder.expires);
            return true;
        }
        if self.rules.mutation == Some(Mutation::RenewalRevives) {
            // What an unconditional SET does: the lock is taken, whoever has it.
            lock.holders
                .drain(..)
                .for_each(|holder| self.tenures.end(holder.tenure, now));
            let mode = Mode::Exclusive;
            let claim = Claim {
                key,
                id,
                mode,
                ttl,
                process: usize::MAX,
                beat: None,
            };
            let expires = now + ttl;
            let tenure = self.tenures.begin(&claim, (0, 0), now, expires);
            lock.holders.push(Holder {
                claim,
                tokens: (lock.last_token, lock.last_token),
                expires,
                tenure,
            });
            return true;
        }
        false
    }

    /// Ends what has run out and serves the queue.
    fn settle(&mut self, now: Moment, key: &LockKey) -> Vec<Push> {
        let rules = self.rules;
        let lock = self.locks.entry(key.clone()).or_default();
        if rules.mutation != Some(Mutation::NoExpiry) {
            // A holder that runs out is over at its expiry, whenever that is looked at.
            lock.holders.retain(|holder| holder.expires > now);
        }
        if rules.mutation != Some(Mutation::QueueEntryLeft) {
            lock.queue
                .retain(|waiter| waiter.seen + rules.waiter_life > now);
        }
        let mut pushes = Vec::new();
        while let Some(Waiter { claim, .. }) = lock.queue.front() {
            if !lock.admits(claim.mode, rules) {
                break;
            }
            let Some(Waiter { claim, seen }) = lock.queue.pop_front() else {
                break;
            };
            if rules.mutation == Some(Mutation::LostWaiter) && seen < now {
                lock.lost.insert(claim.id);
                continue;
            }
            let tokens = lock.issue(now, rules);
            let expires = now + claim.ttl;
            let tenure = self.tenures.begin(&claim, tokens, now, expires);
            if let Some(beat) = claim.beat {
                let (token, block_end) = tokens;
                let grant = Granted {
                    token,
                    block_end,
                    beat,
                };
                let (process, id) = (claim.process, claim.id);
                pushes.push(Push { process, id, grant });
            }
            lock.holders.push(Holder {
                claim,
                tokens,
                expires,
                tenure,
            });
        }
        pushes
    }
}

/// How this store differs from others.
#[derive(Clone, Copy, Debug)]
struct Rules {
    token_block: u64,
    remembers_released: bool,
    waiter_life: Duration,
    mutation: Option<Mutation>,
}

/// The state of one key.
#[derive(Debug, Default)]
struct Lock {
    holders: Vec<Holder>,
    queue: VecDeque<Waiter>,
    last_token: u64,
    /// Ids that were released and when to forget them.
    released: BTreeMap<LeaseId, Moment>,
    /// Waiters that a broken store has forgotten to wake.
    lost: BTreeSet<LeaseId>,
}

#[derive(Debug)]
struct Holder {
    claim: Claim,
    /// Its own and the last that is reserved for hand-overs.
    tokens: (u64, u64),
    expires: Moment,
    tenure: usize,
}

#[derive(Debug)]
struct Waiter {
    claim: Claim,
    seen: Moment,
}

impl Lock {
    /// Reserves a block of tokens above every earlier one, and never below the clock.
    fn issue(&mut self, now: Moment, rules: Rules) -> (u64, u64) {
        let clock = now.as_nanos() / 1000;
        let token = match rules.mutation {
            Some(Mutation::TokenReused) if self.last_token > 0 => self.last_token,
            _ => (self.last_token + 1).max(clock),
        };
        self.last_token = token + rules.token_block - 1;
        (token, self.last_token)
    }

    fn admits(&self, mode: Mode, rules: Rules) -> bool {
        let Some(first) = self.holders.first() else {
            return true;
        };
        match (first.claim.mode, mode) {
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

    /// The answer to others, with the end of the first lease.
    fn held(&self, now: Moment) -> Reply {
        let ends = self.holders.iter().map(|holder| holder.expires.since(now));
        Reply::Held {
            free_in: ends.min(),
        }
    }
}

/// One lease on the store from its grant to its end, by the clock of the store.
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    pub(crate) key: LockKey,
    pub(crate) id: LeaseId,
    pub(crate) tokens: (u64, u64),
    pub(crate) from: Moment,
    pub(crate) expires: Moment,
    /// When it was released or taken away before it ran out.
    pub(crate) ended: Option<Moment>,
}

impl Tenure {
    fn until(&self) -> Moment {
        self.ended
            .map_or(self.expires, |ended| ended.min(self.expires))
    }
}

#[derive(Debug, Default)]
struct Tenures(Vec<Tenure>);

impl Tenures {
    fn begin(&mut self, claim: &Claim, tokens: (u64, u64), from: Moment, expires: Moment) -> usize {
        let (key, id) = (claim.key.clone(), claim.id);
        self.0.push(Tenure {
            key,
            id,
            tokens,
            from,
            expires,
            ended: None,
        });
        self.0.len() - 1
    }

    fn extend(&mut self, tenure: usize, expires: Moment) {
        self.0[tenure].expires = expires;
    }

    fn end(&mut self, tenure: usize, at: Moment) {
        self.0[tenure].ended = Some(at);
    }

    /// The lease that a token belongs to, handed-over tokens included; the last one, if a broken
    /// store issued a token twice.
    fn of_token(&self, key: &LockKey, token: u64) -> Option<&Tenure> {
        let of = |tenure: &&Tenure| {
            tenure.key == *key && (tenure.tokens.0..=tenure.tokens.1).contains(&token)
        };
        self.0.iter().rev().find(of)
    }

    fn all(&self) -> &[Tenure] {
        &self.0
    }
}
