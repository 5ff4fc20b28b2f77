//! The simulated store: a lease table with a clock of its own that can be down.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::LockKey;
use lock_core::engine::{Clock, Moment, VirtualClock};

use super::message::{Left, Push, Reply, Request};
use super::plan::{Plan, WAITER_LIFE};
use super::process::undrift;
use super::table::{Rules, Table};
use super::tenure::Tenure;
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
