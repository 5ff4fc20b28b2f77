//! The store behind all clients: the table, its leases, and notifications to holders and waiters.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::faults::{MemoryFaults, Request};
use super::table::{ClaimReply, GrantedClaim, MemoryClaim, MemoryTable, MemoryWaiter};
use crate::admin::LockInfo;
use crate::engine::{Engine, LeaseId, Moment, Mutex, catch_panic};
use crate::error::{Error, Result};
use crate::key::LockKey;
use crate::lease::{
    Grant, Lease, LeaseControl, LeaseState, Liveness, Released, RenewalRequest, Renewer,
};
use crate::lost_reason::LostReason;
use crate::token::FencingToken;

#[derive(Debug)]
pub(super) struct MemoryStore {
    pub(super) engine: Engine,
    pub(super) faults: MemoryFaults,
    state: Mutex<MemoryState>,
}

#[derive(Debug, Default)]
struct MemoryState {
    table: MemoryTable,
    /// Since the last sweep.
    changes: usize,
}

/// Changes between two sweeps for expired leases, at least; with more keys there are more of them, so that
/// the cost of a change is constant.
const MIN_SWEEP_INTERVAL: usize = 1_000;

/// Where a grant arrives that another client's release makes.
pub(super) type GrantPush = oneshot::Receiver<Grant>;

impl MemoryStore {
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
        claim: &MemoryClaim,
        waiter: Option<&Engine>,
    ) -> Result<(ClaimReply, GrantPush)> {
        let acquire = || {
            let (push, receiver) = oneshot::channel();
            let waiter = waiter.map(|engine| {
                move || MemoryWaiter {
                    engine: engine.clone(),
                    push,
                }
            });
            let answer = self.change(key, |now, table| table.acquire(now, key, claim, waiter));
            (answer, receiver)
        };
        self.faults.send(Request::Acquire, acquire).await
    }

    pub(super) async fn release(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        let release = || {
            let held = self.change(key, |now, table| table.release(now, key, id));
            match held {
                true => Released::Clean,
                false => Released::AlreadyLost,
            }
        };
        self.faults.send(Request::Release, release).await
    }

    pub(super) fn attach(&self, key: &LockKey, id: LeaseId, control: LeaseControl) {
        let attached = self.table(|_, table| table.attach(key, id, control));
        if let Err(control) = attached {
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
        let adopted = self.table(|now, table| table.adopt(now, key, id, new, ttl));
        let (token, former) = adopted?;
        if let Some(former) = former {
            former.lose(LostReason::Stolen);
        }
        Some(token)
    }

    pub(super) fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        self.faults.arrives()?;
        Ok(self.table(|now, table| table.list(now, prefix)))
    }

    /// Ends expired leases; each waiter calls it at the expiry that it waits for.
    pub(super) fn expire(&self, key: &LockKey) {
        self.change(key, |now, table| ((), table.expire(now, key)));
    }

    /// Takes the lock from its holders, and reports `reason` to them if there is one.
    pub(super) fn evict(&self, key: &LockKey, reason: Option<LostReason>) -> Option<LockInfo> {
        // In one step: another holder in between would be evicted and not reported.
        let (info, evicted) = self.change(key, |now, table| {
            let info = table.info(now, key);
            let (evicted, granted) = table.evict(now, key);
            ((info, evicted), granted)
        });
        if let Some(reason) = reason {
            evicted.iter().for_each(|control| control.lose(reason));
        }
        info
    }

    /// Changes the table, and then notifies the waiters that were granted a lock. They are woken outside of the
    /// mutex: a waker may call the store. One that panics must not cost the others their grant.
    fn change<T>(
        &self,
        key: &LockKey,
        change: impl FnOnce(Moment, &mut MemoryTable) -> (T, Vec<GrantedClaim>),
    ) -> T {
        let now = self.engine.now();
        let mut state = self.state.lock();
        let MemoryState { table, changes } = &mut *state;
        let (result, granted) = change(now, table);
        *changes += 1;
        if *changes >= table.len().max(MIN_SWEEP_INTERVAL) {
            *changes = 0;
            table.sweep(now);
        }
        let mut pushes = Vec::new();
        for GrantedClaim { id, token, waiter } in granted {
            // Read first, so that the store does not end the lease before its holder does.
            let sent = waiter.engine.now();
            table.restart(self.engine.now(), key, id);
            pushes.push((waiter.push, Grant::new(sent, Some(token))));
        }
        drop(state);
        for (push, grant) in pushes {
            // A waiter that is gone takes its claim back by itself.
            let _woken = catch_panic(|| push.send(grant));
        }
        result
    }

    /// Reads the table, or makes a change that grants no lock to a waiter.
    pub(super) fn table<T>(&self, change: impl FnOnce(Moment, &mut MemoryTable) -> T) -> T {
        let mut state = self.state.lock();
        change(self.engine.now(), &mut state.table)
    }
}

#[async_trait]
impl Renewer for MemoryStore {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        let mut answers = Vec::with_capacity(due.len());
        for request in due {
            let renew = || match self.table(|now, table| table.renew(now, request)) {
                true => LeaseState::Held,
                false => LeaseState::Lost(LostReason::Stolen),
            };
            answers.push(self.faults.send(Request::Renew, renew).await);
        }
        answers
    }

    fn adopts(&self) -> bool {
        true
    }
}

/// One acquisition in a store.
pub(super) struct MemoryLease {
    store: Arc<MemoryStore>,
    key: LockKey,
    id: LeaseId,
}

impl MemoryLease {
    pub(super) fn new(store: Arc<MemoryStore>, key: LockKey, id: LeaseId) -> Self {
        Self { store, key, id }
    }
}

#[async_trait]
impl Lease for MemoryLease {
    fn liveness(&self) -> Liveness {
        Liveness::Renewed {
            id: self.id,
            renewer: Arc::clone(&self.store) as _,
        }
    }

    fn attach(&self, control: LeaseControl) {
        self.store.attach(&self.key, self.id, control);
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        let store = &self.store;
        Ok(store.table(|now, table| table.hand_over(now, &self.key, self.id)))
    }

    async fn downgrade(&self) -> Result<()> {
        let (key, id) = (&self.key, self.id);
        let held = self
            .store
            .change(key, |now, table| table.downgrade(now, key, id));
        match held {
            true => Ok(()),
            false => Err(Error::lost(LostReason::Stolen)),
        }
    }

    async fn release(&self) -> Result<Released> {
        self.store.release(&self.key, self.id).await
    }
}

impl fmt::Debug for MemoryLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLease")
            .field("key", &self.key)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(polylock_loom)))]
mod tests {
    use super::*;
    use crate::memory::{Memory, Reachable};
    use crate::prelude::*;
    use crate::request::AcquireRequest;

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
        assert_eq!(locks.live_keys(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_that_left_in_an_outage_are_granted_nothing_and_forgotten() {
        let locks = Memory::with_engine(Engine::on_current_runtime("memory"));
        let ttl = AcquireRequest::DEFAULT_TTL;
        let held = |key| locks.request(key).ttl(ttl * 10).acquire();
        let used = held("used").await.unwrap();
        let abandoned = held("abandoned").await.unwrap();
        let wait = || async { tokio::join!(locks.lock("used"), locks.lock("abandoned")) };
        let mut waiters = Box::pin(async { tokio::join!(wait(), wait()) });
        let waiting = tokio::time::timeout(ttl / 2, &mut waiters).await;
        waiting.expect_err("the locks are held");
        locks.faults().set_reachable(Reachable::Cut);
        drop(waiters);
        tokio::time::sleep(ttl * 2).await;
        locks.faults().set_reachable(Reachable::Connected);
        assert_eq!(locks.waiters(used.key()), 2, "their releases have ended");

        drop(used);
        assert!(locks.try_lock("used").await.unwrap().is_some());
        abandoned.abandon();
        tokio::time::sleep(ttl * 10).await;
        for _ in 0..2 * MIN_SWEEP_INTERVAL {
            drop(locks.lock("busy").await.unwrap());
        }
        assert_eq!(locks.live_keys(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_renewed_for_any_time() {
        let locks = Memory::with_engine(Engine::on_current_runtime("memory"));
        let guard = locks.lock("k").await.unwrap();
        let (admin, id) = (locks.admin().unwrap(), guard.lease_id().unwrap());
        let renewed = admin.renew_lease(guard.key(), id, Duration::MAX).await;
        assert_eq!(renewed.unwrap(), LeaseState::Held);
    }
}
