//! The simulated store as a backend in real time, for the conformance suite and for benchmarks.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::memory::{Fault, Reachable, Request};
use polylock_core::{DistributedLock, LockKey, Waiting};

use super::plan::{SimPlan, Weather};
use super::world::SimWorld;
use crate::harness::{Faults, Harness, Look};
use crate::mutants::Mutation;

/// A simulated store whose clients are backends like any other, on the runtime that they are made on.
///
/// Nothing goes wrong but what is planned, and what a mutation breaks.
#[derive(Debug)]
pub struct SimBackend {
    world: Arc<SimWorld>,
}

impl SimBackend {
    /// Makes a store whose network is a task of the current runtime.
    #[must_use]
    pub fn new(mutation: Option<Mutation>) -> Self {
        let plan = SimPlan {
            waiting: Waiting::Push,
            token_block: 32,
            remembers_released: true,
            durable_queue: true,
            patience: Duration::from_secs(10),
            beat: Duration::from_millis(200),
            // A busy machine may be late with every heartbeat.
            waiter_life: Duration::from_secs(20),
            drifts: false,
            store_drift: 0,
            weather: Weather::default(),
            ..SimPlan::draw(0)
        };
        let world = SimWorld::new(0, plan, mutation);
        drop(tokio::spawn(Arc::clone(&world).deliver()));
        Self { world }
    }

    /// A client of the store, as another process would be.
    #[must_use]
    pub fn connect(&self) -> Arc<dyn DistributedLock> {
        self.world.boot().client
    }
}

#[async_trait]
impl Harness for SimBackend {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        self.connect()
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }

    async fn look(&self, key: &LockKey) -> Option<Look> {
        let left = self.world.store.left().into_iter();
        let of_key = left.filter(|left| left.key == *key);
        let (holders, waiters): (Vec<_>, Vec<_>) = of_key.partition(|left| left.tokens.is_some());
        Some(Look::new(holders.len(), waiters.len()))
    }
}

#[async_trait]
impl Faults for SimBackend {
    fn plan(&self, request: Request, fault: Fault) {
        self.world.net.plan(request, fault);
    }

    fn pending(&self) -> Option<usize> {
        Some(self.world.net.pending())
    }

    fn set_reachable(&self, reachable: Reachable) {
        match reachable {
            Reachable::Connected => self.world.store.start(),
            _ => self.world.store.stop(),
        }
    }

    async fn end(&self, key: &LockKey) {
        self.world.evict(key);
    }

    fn duplicates(&self) -> bool {
        true
    }
}
