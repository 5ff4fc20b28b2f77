use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::{AcquireRequest, DistributedLock, Wait};
use tokio::time::sleep;

use super::judge::{Tally, judge};
use super::log::Operation;
use super::nemesis;
use super::plan::{SimPlan, TTLS, WAITER_LIFE};
use super::store::Left;
use super::violation::{SimViolation, ViolationKind};
use super::world::SimWorld;
use crate::mutants::Mutation;

/// One simulated history.
#[derive(Clone, Copy, Debug)]
pub struct Simulation {
    seed: u64,
    mutation: Option<Mutation>,
}

/// What came of a history.
#[non_exhaustive]
#[derive(Debug)]
pub struct Outcome {
    /// What was wrong, in the order of time.
    pub violations: Vec<SimViolation>,
    /// What happened, in numbers.
    pub tally: Tally,
    /// Every event as a line that begins with the time in milliseconds.
    pub lines: Vec<String>,
}

impl Simulation {
    /// The history of a seed, on a store that keeps what it acknowledged.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            mutation: None,
        }
    }

    /// Breaks the store, its client or the engine.
    #[must_use]
    pub fn with_mutation(mut self, mutation: Mutation) -> Self {
        self.mutation = Some(mutation);
        self
    }

    /// Runs the history on a runtime of its own, under virtual time.
    pub fn run(self) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("BUG: a runtime without I/O needs nothing from the system");
        runtime.block_on(self.run_here())
    }

    async fn run_here(self) -> Outcome {
        let world = SimWorld::new(self.seed, SimPlan::draw(self.seed), self.mutation);
        drop(tokio::spawn(Arc::clone(&world).deliver()));
        for _ in 0..world.plan.processes {
            world.boot_working();
        }
        drop(tokio::spawn(nemesis::run(Arc::clone(&world))));
        let mut findings = Vec::new();
        finish(&world, &mut findings).await;
        let tenures = world.store.tenures();
        world.end();
        let book = std::mem::take(&mut *world.log.book());
        let (violations, tally) = judge(&world, &book, &tenures, findings);
        Outcome {
            violations,
            tally,
            lines: book.lines,
        }
    }
}

impl Mutation {
    /// Runs histories until one shows a violation of this kind: its seed and what was seen.
    #[must_use]
    pub fn hunt(self, kind: ViolationKind, seeds: Range<u64>) -> Option<(u64, SimViolation)> {
        seeds.into_iter().find_map(|seed| {
            let outcome = Simulation::new(seed).with_mutation(self).run();
            let mut violations = outcome.violations.into_iter();
            let violation = violations.find(|found| found.kind == kind)?;
            Some((seed, violation))
        })
    }
}

/// Waits for the end of the work, and looks at what is left behind.
async fn finish(world: &Arc<SimWorld>, findings: &mut Vec<SimViolation>) {
    let mut found = |kind, what: String| findings.push(SimViolation::new(kind, world.now(), what));
    sleep(world.plan.work_ends).await;
    let until = world.now() + MAX_OPERATION_TIME;
    while !world.machines().iter().all(|it| it.process.is_idle()) {
        if world.now() > until {
            let book = world.log.book();
            let waiting = book.operations.iter().filter(|o| o.is_open()).count();
            let what = format!("{waiting} operations do not end");
            drop(book);
            return found(ViolationKind::Stuck, what);
        }
        sleep(Duration::from_millis(50)).await;
    }
    for machine in world.machines() {
        if !machine.locks.shutdown(Duration::from_secs(5)).await {
            let number = machine.process.number();
            let what = format!("process {number} goes on releasing");
            found(ViolationKind::Stuck, what);
        }
    }
    for left in world.store.left() {
        if !world.may_linger(&left) {
            let what = format!("{left} although everybody is done");
            found(ViolationKind::Orphan, what);
        }
    }
    sleep(TTLS[TTLS.len() - 1] * 2 + WAITER_LIFE).await;
    for left in world.store.left() {
        found(ViolationKind::LeftBehind, format!("{left} at the end"));
    }
    for machine in world.machines() {
        let (number, tasks) = (machine.process.number(), machine.process.tasks());
        let keys = machine.queue.live_keys();
        // The scheduler runs forever.
        if keys > 0 || tasks > 1 {
            let what = format!("process {number} has {keys} keys in queue, {tasks} tasks");
            found(ViolationKind::LeftBehind, what);
        }
    }
    let machine = world.boot();
    for key in &world.plan.keys {
        let wait = Wait::AtMost(Duration::from_secs(1));
        let request = AcquireRequest::new(key.clone()).with_wait(wait);
        match machine.locks.acquire(&request).await {
            Ok(guard) => drop(guard.release().await),
            Err(error) => {
                let what = format!("{key} is not free: {error}");
                found(ViolationKind::LeftBehind, what);
            }
        }
    }
}

/// Nothing that works takes longer: the longest wait, lease and hold together.
const MAX_OPERATION_TIME: Duration = Duration::from_secs(40);

impl SimWorld {
    /// Whether a lease may outlast all work: its holder left it to expire.
    fn may_linger(&self, left: &Left) -> bool {
        let Some(tokens) = left.tokens else {
            return false;
        };
        let book = self.log.book();
        let holds = |operation: &&Operation| {
            operation
                .token
                .is_some_and(|token| (tokens.0..=tokens.1).contains(&token))
        };
        book.operations
            .iter()
            .filter(holds)
            .any(|operation| operation.lingers)
    }
}
