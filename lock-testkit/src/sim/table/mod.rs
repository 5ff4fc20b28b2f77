//! The lease table of the simulated store. Pure: time comes from outside.

mod lock;

use std::collections::BTreeMap;
use std::time::Duration;

use lock_core::engine::{LeaseId, Moment};
use lock_core::{LockKey, Mode};

use super::message::{Claim, Left, Push, Reply, Request};
use super::tenure::Tenures;
use crate::mutants::Mutation;

use self::lock::{Holder, Lock, Waiter};

pub(super) use self::lock::Rules;

/// Every lock that was ever held; nothing is forgotten but by a store that loses its data.
#[derive(Debug)]
pub(super) struct Table {
    locks: BTreeMap<LockKey, Lock>,
    rules: Rules,
    /// The truth about who had what, for the judge.
    pub(super) tenures: Tenures,
}

/// How long a released id is remembered: longer than any message is under way.
const MEMORY: Duration = Duration::from_secs(10);

impl Table {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            locks: BTreeMap::new(),
            rules,
            tenures: Tenures::default(),
        }
    }

    pub(super) fn handle(&mut self, now: Moment, request: Request) -> (Reply, Vec<Push>) {
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
    pub(super) fn lose_data(&mut self, now: Moment) {
        for lock in std::mem::take(&mut self.locks).into_values() {
            lock.holders
                .iter()
                .for_each(|holder| self.tenures.end(holder.tenure, now));
        }
    }

    pub(super) fn lose_queues(&mut self) {
        self.locks.values_mut().for_each(|lock| lock.queue.clear());
    }

    /// Ends what has run out by `now`, and says what is left: holders and waiters.
    pub(super) fn left(&mut self, now: Moment) -> Vec<Left> {
        let mut left = Vec::new();
        let keys: Vec<_> = self.locks.keys().cloned().collect();
        for key in keys {
            self.settle(now, &key);
            let lock = self.locks.entry(key.clone()).or_default();
            for holder in &lock.holders {
                let tokens = Some((holder.token, holder.block_end));
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
        if lock.released.contains_key(&id) {
            return (Reply::Busy { free_in: None }, pushes);
        }
        if lock.lost.contains(&id) {
            return (Reply::Queued { free_in: None }, pushes);
        }
        if let Some(holder) = lock.holders.iter_mut().find(|holder| holder.claim.id == id) {
            // Asked again after an answer that was lost: the lease begins anew, never shorter.
            holder.expires = holder.expires.max(now + claim.ttl);
            self.tenures.extend(holder.tenure, holder.expires);
            let (token, block_end) = (holder.token, holder.block_end);
            return (
                Reply::Granted {
                    token,
                    block_end,
                    beat,
                },
                pushes,
            );
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
            None => {
                return (
                    Reply::Busy {
                        free_in: lock.free_in(now),
                    },
                    pushes,
                );
            }
        }
        pushes.extend(self.settle(now, &key));
        pushes.retain(|push| push.id != id);
        let lock = self.locks.entry(key).or_default();
        let reply = match lock.holders.iter().find(|holder| holder.claim.id == id) {
            Some(Holder {
                token, block_end, ..
            }) => Reply::Granted {
                token: *token,
                block_end: *block_end,
                beat,
            },
            None => Reply::Queued {
                free_in: lock.free_in(now),
            },
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
            let (token, block_end) = (lock.last_token, lock.last_token);
            let expires = now + ttl;
            let tenure = self.tenures.begin(&claim, (0, 0), now, expires);
            lock.holders.push(Holder {
                claim,
                token,
                block_end,
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
            let (token, block_end) = lock.issue(now, rules);
            let expires = now + claim.ttl;
            let tenure = self.tenures.begin(&claim, (token, block_end), now, expires);
            let (process, id) = (claim.process, claim.id);
            if let Some(beat) = claim.beat {
                pushes.push(Push {
                    process,
                    id,
                    token,
                    block_end,
                    beat,
                });
            }
            lock.holders.push(Holder {
                claim,
                token,
                block_end,
                expires,
                tenure,
            });
        }
        pushes
    }
}
