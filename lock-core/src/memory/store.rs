//! The store behind all clients: the table, and notifications to holders and waiters.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::faults::{MemoryFaults, Request};
use super::table::{Answer, Claim, Granted, Table};
use crate::admin::{LockInfo, Record};
use crate::engine::{Engine, LeaseId, Moment};
use crate::error::Result;
use crate::key::LockKey;
use crate::lease::{Grant, LeaseControl, LeaseState, Released, RenewalRequest, Renewer};
use crate::lost_reason::LostReason;
use crate::token::FencingToken;

#[derive(Debug)]
pub(super) struct Store {
    pub(super) engine: Engine,
    pub(super) faults: MemoryFaults,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    table: Table,
    waiting: Waiting,
    holding: HashMap<LeaseId, LeaseControl>,
    /// Since the last sweep.
    changes: usize,
}

/// Changes between two sweeps for expired leases, at least; with more keys there are more of them, so that
/// the cost of a change is constant.
const MIN_SWEEP_INTERVAL: usize = 1_000;

/// Where a grant arrives that another client's release makes.
pub(super) type Push = oneshot::Receiver<Grant>;

impl Store {
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            faults: MemoryFaults::default(),
            state: Mutex::default(),
        }
    }

    pub(super) async fn acquire(
        &self,
        key: &LockKey,
        claim: &Claim,
        waiter: Option<&Engine>,
    ) -> Result<(Answer, Push)> {
        self.faults
            .send(Request::Acquire, || {
                let (push, receiver) = oneshot::channel();
                let answer = self.change(key, |now, table, waiting| {
                    let (answer, granted) = table.acquire(now, key, claim, waiter.is_some());
                    if let (Answer::Queued, Some(engine)) = (answer, waiter) {
                        let engine = engine.clone();
                        waiting.insert(claim.id, Waiter { engine, push });
                    }
                    (answer, granted)
                });
                (answer, receiver)
            })
            .await
    }

    pub(super) async fn release(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        self.faults
            .send(Request::Release, || self.release_here(key, id))
            .await
    }

    fn release_here(&self, key: &LockKey, id: LeaseId) -> Released {
        let held = self.change(key, |now, table, waiting| {
            waiting.remove(&id);
            table.release(now, key, id)
        });
        self.lock().holding.remove(&id);
        if held {
            Released::Clean
        } else {
            Released::AlreadyLost
        }
    }

    pub(super) fn hand_over(&self, key: &LockKey, id: LeaseId) -> Option<FencingToken> {
        self.lock().table.hand_over(self.engine.now(), key, id)
    }

    pub(super) fn downgrade(&self, key: &LockKey, id: LeaseId) -> bool {
        self.change(key, |now, table, _| table.downgrade(now, key, id))
    }

    pub(super) fn attach(&self, key: &LockKey, id: LeaseId, control: LeaseControl) {
        let mut state = self.lock();
        if state.table.is_holder(key, id) {
            state.holding.insert(id, control);
        } else {
            drop(state);
            // Evicted since it was granted, when there was no holder to notify.
            control.lose(LostReason::Stolen);
        }
    }

    pub(super) fn adopt(
        &self,
        key: &LockKey,
        id: LeaseId,
        new: LeaseId,
        ttl: Duration,
    ) -> Option<FencingToken> {
        let now = self.engine.now();
        let mut state = self.lock();
        let adopted = state.table.adopt(now, key, id, new, ttl);
        let former = adopted.and_then(|_| state.holding.remove(&id));
        drop(state);
        if let Some(former) = former {
            former.lose(LostReason::Stolen);
        }
        adopted
    }

    pub(super) fn record(&self, key: &LockKey) -> Option<Record> {
        self.lock().table.record(self.engine.now(), key)
    }

    pub(super) fn write_record(&self, key: &LockKey, record: &Record, keep: Duration) -> bool {
        let now = self.engine.now();
        self.lock().table.write_record(now, key, record, keep)
    }

    pub(super) fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        self.faults.arrives()?;
        let keys = self.keys().into_iter();
        let keys = keys.filter(|key| key.as_str().starts_with(prefix));
        Ok(keys.filter_map(|key| self.info(&key)).collect())
    }

    /// Ends expired leases; each waiter calls it at the expiry that it waits for.
    pub(super) fn expire(&self, key: &LockKey) {
        self.change(key, |now, table, _| ((), table.expire(now, key)));
    }

    pub(super) fn next_expiry(&self, key: &LockKey) -> Option<Moment> {
        self.lock().table.next_expiry(key)
    }

    /// Takes the lock from its holders, and reports `reason` to them if there is one.
    pub(super) fn evict(&self, key: &LockKey, reason: Option<LostReason>) -> Option<LockInfo> {
        let info = self.info(key);
        let evicted = self.change(key, |now, table, _| table.evict(now, key));
        for id in evicted {
            let control = self.lock().holding.remove(&id);
            if let (Some(control), Some(reason)) = (control, reason) {
                control.lose(reason);
            }
        }
        info
    }

    pub(super) fn info(&self, key: &LockKey) -> Option<LockInfo> {
        self.lock().table.info(self.engine.now(), key)
    }

    pub(super) fn keys(&self) -> Vec<LockKey> {
        self.lock().table.keys()
    }

    pub(super) fn waiters(&self, key: &LockKey) -> usize {
        self.lock().table.waiters(key)
    }

    fn renew(&self, request: &RenewalRequest) -> LeaseState {
        match self.lock().table.renew(self.engine.now(), request) {
            true => LeaseState::Held,
            false => LeaseState::Lost(LostReason::Stolen),
        }
    }

    /// Changes the table, and notifies the waiters that were granted a lock.
    fn change<T>(
        &self,
        key: &LockKey,
        change: impl FnOnce(Moment, &mut Table, &mut Waiting) -> (T, Vec<Granted>),
    ) -> T {
        let now = self.engine.now();
        let mut state = self.lock();
        let State {
            table,
            waiting,
            holding,
            changes,
        } = &mut *state;
        let (result, granted) = change(now, table, waiting);
        *changes += 1;
        if *changes >= table.len().max(MIN_SWEEP_INTERVAL) {
            *changes = 0;
            table.sweep(now);
        }
        for id in table.take_expired() {
            holding.remove(&id);
        }
        for Granted { id, token } in granted {
            if let Some(Waiter { engine, push }) = waiting.remove(&id) {
                // Read first, so that the store does not end the lease before its holder does.
                let sent = engine.now();
                table.restart(self.engine.now(), key, id);
                // A waiter that is gone takes its claim back by itself.
                let _gone = push.send(Grant::new(sent, Some(token)));
            }
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Waiting = HashMap<LeaseId, Waiter>;

/// The waiter to notify of a grant, which counts by the waiter's clock and not by the store's.
#[derive(Debug)]
struct Waiter {
    engine: Engine,
    push: oneshot::Sender<Grant>,
}

#[async_trait]
impl Renewer for Store {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        let mut answers = Vec::with_capacity(due.len());
        for request in due {
            let renew = || self.renew(request);
            answers.push(self.faults.send(Request::Renew, renew).await);
        }
        answers
    }

    fn adopts(&self) -> bool {
        true
    }
}

impl Store {
    pub(super) fn as_renewer(self: &Arc<Self>) -> Arc<dyn Renewer> {
        Arc::clone(self) as Arc<dyn Renewer>
    }
}

#[cfg(all(test, not(polylock_loom)))]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::prelude::*;

    #[tokio::test(start_paused = true)]
    async fn abandoned_locks_are_forgotten() {
        let locks = Memory::with_engine(Engine::on_current_runtime("memory"));
        let ttl = Duration::from_secs(1);
        for n in 0..3_000 {
            let request = locks.request(format!("abandoned/{n}")).ttl(ttl);
            request.acquire().await.unwrap().abandon();
        }
        assert_eq!(locks.live_keys(), 3_000, "they are held");
        tokio::time::sleep(ttl).await;
        for _ in 0..3_000 {
            drop(locks.lock("busy").await.unwrap());
        }
        let state = locks.store.lock();
        assert_eq!((state.table.keys().len(), state.holding.len()), (0, 0));
    }
}
