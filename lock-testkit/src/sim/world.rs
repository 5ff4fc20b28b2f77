use std::sync::{Arc, Mutex};
use std::time::Duration;

use polylock_core::engine::{Engine, SeededEntropy};
use polylock_core::layers::{LocalQueue, Observe, Prefix};
use polylock_core::{DistributedLock, LockKey};
use tokio::time::Instant;

use super::client::SimLock;
use super::fault::SimFault;
use super::log::SimLog;
use super::net::Net;
use super::plan::{SimPlan, drift};
use super::process::{SimHost, SimProcess};
use super::recorder::RenewalObserver;
use super::rng::Rng;
use super::store::SimStore;
use crate::lock;
use crate::mutants::Mutation;

/// Everything in one history.
#[derive(Debug)]
pub(crate) struct SimWorld {
    pub(crate) seed: u64,
    pub(crate) plan: SimPlan,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) net: Net,
    pub(crate) store: SimStore,
    pub(crate) log: SimLog,
    started: Instant,
    /// By number; the dead keep theirs.
    processes: Mutex<Vec<Machine>>,
}

/// A process with what its tasks share.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) process: Arc<SimProcess>,
    /// Without any layer.
    pub(crate) client: Arc<dyn DistributedLock>,
    pub(crate) queue: LocalQueue,
    pub(crate) locks: Arc<dyn DistributedLock>,
}

impl SimWorld {
    /// Makes the world of a seed on the current runtime, whose time is paused.
    pub(crate) fn new(seed: u64, plan: SimPlan, mutation: Option<Mutation>) -> Arc<Self> {
        let store = SimStore::new(&plan, mutation);
        let log = SimLog::default();
        if plan.store_drift != 0 {
            log.fault(SimFault::DriftingClock);
        }
        Arc::new(Self {
            seed,
            mutation,
            net: Net::new(seed, plan.weather),
            store,
            log,
            started: Instant::now(),
            processes: Mutex::default(),
            plan,
        })
    }

    /// Starts a process with the whole stack that `connect` builds.
    pub(crate) fn boot(self: &Arc<Self>) -> Machine {
        let mut processes = lock(&self.processes);
        let number = processes.len();
        let mut rng = Rng::stream(self.seed, "process", number);
        let drift = drift(&mut rng);
        let drift = if self.plan.drifts { drift } else { 0 };
        if drift != 0 {
            self.log.fault(SimFault::DriftingClock);
        }
        let process = SimProcess::start(number, drift);
        let entropy = Arc::new(SeededEntropy::new(rng.next()));
        let host = Arc::new(SimHost(Arc::clone(&process)));
        let engine = Engine::with("sim", process.clock(), entropy, host);
        let client = SimLock::new(Arc::clone(self), Arc::clone(&process), engine);
        let client = Arc::new(client) as Arc<dyn DistributedLock>;
        let prefix = Prefix::new(Arc::clone(&client), "sim").expect("BUG: a plain namespace");
        let queue = LocalQueue::new(Arc::new(prefix)).with_max_handovers(self.plan.max_handovers);
        let observer = RenewalObserver::new(Arc::downgrade(self), Arc::downgrade(&process));
        let observe = Observe::new(Arc::new(queue.clone()));
        let locks = Arc::new(observe.with_observer(Arc::new(observer)));
        let machine = Machine {
            process,
            client,
            queue,
            locks,
        };
        processes.push(machine.clone());
        machine
    }

    /// True time since the beginning.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub(crate) fn note(&self, what: std::fmt::Arguments<'_>) {
        self.log.book().note(self.now(), what);
    }

    /// A process, if it lives.
    pub(crate) fn process(&self, number: usize) -> Option<Arc<SimProcess>> {
        let processes = lock(&self.processes);
        let machine = processes
            .get(number)
            .filter(|machine| !machine.process.is_dead());
        machine.map(|machine| Arc::clone(&machine.process))
    }

    /// Those that live.
    pub(crate) fn machines(&self) -> Vec<Machine> {
        let processes = lock(&self.processes);
        processes
            .iter()
            .filter(|machine| !machine.process.is_dead())
            .cloned()
            .collect()
    }

    pub(crate) fn kill(&self, process: &SimProcess) {
        let (number, now) = (process.number(), self.now());
        self.log.kill(number, now);
        process.kill();
    }

    /// The expiry on the store of a lease that the users know by a key without a namespace.
    pub(crate) fn expiry(&self, key: &LockKey, token: Option<u64>) -> Option<Duration> {
        let stored = LockKey::new(format!("sim:{key}")).ok()?;
        self.store.expiry(&stored, token?)
    }

    /// Ends everything, so that nothing keeps anything else in memory.
    pub(crate) fn end(&self) {
        self.net.clear();
        let machines = std::mem::take(&mut *lock(&self.processes));
        machines.iter().for_each(|machine| machine.process.kill());
    }
}
