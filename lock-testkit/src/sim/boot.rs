//! Starts processes, with their client, layers, engine and work.

use std::sync::Arc;

use polylock_core::DistributedLock;
use polylock_core::engine::{Engine, SeededEntropy};
use polylock_core::layers::{LocalQueue, Observe, Prefix};

use super::client::SimLock;
use super::fault::SimFault;
use super::plan::drift;
use super::process::{SimHost, SimProcess};
use super::recorder::RenewalObserver;
use super::rng::Rng;
use super::workload;
use super::world::{Machine, SimWorld};
use crate::lock;

impl SimWorld {
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

    /// Starts a process and its work, in the place of one that died.
    pub(crate) fn boot_working(self: &Arc<Self>) {
        if self.machines().len() >= self.plan.processes {
            return;
        }
        let machine = self.boot();
        self.note(format_args!("process {} starts", machine.process.number()));
        for worker in 0..self.plan.workers {
            workload::start(self, &machine, worker);
        }
    }
}
