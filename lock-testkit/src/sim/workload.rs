//! What the tasks of a process do with locks.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::{AcquireRequest, DistributedLock, LockGuard, Mode, Renewal, Wait};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::log::{AcquireOutcome, GuardEnding};
use super::process::SimProcess;
use super::rng::Rng;
use super::world::{Machine, SimWorld};
use crate::mutants::Mutation;

impl SimWorld {
    /// Starts a process and its work, in the place of one that died.
    pub(crate) fn boot_working(self: &Arc<Self>) {
        if self.machines().len() >= self.plan.processes {
            return;
        }
        let machine = self.boot();
        self.note(format_args!("process {} starts", machine.process.number()));
        for worker in 0..self.plan.workers {
            start(self, &machine, worker);
        }
    }
}

/// Starts a task that takes locks until the time for work is over.
fn start(world: &Arc<SimWorld>, machine: &Machine, number: usize) {
    let part = format!("worker-{}", machine.process.number());
    let worker = Worker {
        world: Arc::clone(world),
        process: Arc::clone(&machine.process),
        locks: Arc::clone(&machine.locks),
        rng: Rng::stream(world.seed, &part, number),
    };
    machine.process.work(worker.run());
}

struct Worker {
    world: Arc<SimWorld>,
    process: Arc<SimProcess>,
    locks: Arc<dyn DistributedLock>,
    rng: Rng,
}

/// What an operation does once it has the lock.
struct SimWork {
    number: usize,
    /// Keeps the guard for a while after the loss.
    careless: bool,
    ends: Duration,
}

impl Worker {
    async fn run(mut self) {
        while self.world.now() < self.world.plan.work_ends {
            self.operate().await;
            sleep(self.rng.millis(0, 250)).await;
        }
    }

    async fn operate(&mut self) {
        let request = self.draw();
        let number = self.world.asked(self.process.number(), &request);
        let request = request.with_class(number.to_string());
        let locks = Arc::clone(&self.locks);
        let acquire = locks.acquire(&request);
        let acquired = if self.rng.chance(150) {
            match timeout(self.rng.millis(0, 400), acquire).await {
                Ok(acquired) => acquired,
                Err(_) => return self.world.answered(number, AcquireOutcome::Dropped),
            }
        } else {
            acquire.await
        };
        match acquired {
            Ok(guard) => self.hold(number, &request, guard).await,
            Err(error) => self
                .world
                .answered(number, AcquireOutcome::Failed(error.kind())),
        }
    }

    fn draw(&mut self) -> AcquireRequest {
        let rng = &mut self.rng;
        let mode = match rng.below(2) {
            _ if !rng.chance(self.world.plan.not_exclusive) => Mode::Exclusive,
            0 => Mode::Permit {
                limit: NonZeroU32::new(2).expect("BUG: two is not zero"),
            },
            _ => Mode::Shared,
        };
        let wait = match rng.below(10) {
            0..2 => Wait::Never,
            2..9 => Wait::AtMost(rng.millis(20, 4000)),
            _ => Wait::Forever,
        };
        let mut request = AcquireRequest::new(rng.pick(&self.world.plan.keys).clone())
            .with_mode(mode)
            .with_wait(wait)
            .with_ttl(*rng.pick(&self.world.plan.ttls));
        if rng.chance(150) {
            request = request.with_renewal(Renewal::Manual);
        }
        if rng.chance(50) {
            request = request.with_max_hold(rng.millis(300, 1500));
        } else if rng.chance(50) {
            request = request.with_min_hold(rng.millis(100, 1500));
        }
        request
    }

    async fn hold(&mut self, number: usize, request: &AcquireRequest, guard: LockGuard) {
        let world = Arc::clone(&self.world);
        world.acquired(number, &self.process, &guard);
        let watched = self.watch(number, &guard);
        let work = SimWork {
            number,
            careless: self.rng.chance(400),
            ends: world.now() + self.work_time(request),
        };
        self.work(&work, &guard).await;
        drop(watched);
        self.give_up(number, guard).await;
    }

    async fn give_up(&mut self, number: usize, guard: LockGuard) {
        let world = Arc::clone(&self.world);
        match self.rng.below(20) {
            0 => {
                world.ended(number, &guard, GuardEnding::Abandoned);
                guard.abandon();
            }
            1..5 => {
                world.ended(number, &guard, GuardEnding::Dropped);
                drop(guard);
            }
            5..7 => {
                // The release goes on although its future is dropped.
                world.ended(number, &guard, GuardEnding::Released);
                drop(timeout(self.rng.millis(0, 5), guard.release()).await);
            }
            _ => {
                world.ended(number, &guard, GuardEnding::Released);
                let released = guard.release().await;
                world.released(number, released.map_err(|error| error.kind()));
            }
        }
    }

    /// Records when the loss is signaled, until the result is dropped.
    fn watch(&self, number: usize, guard: &LockGuard) -> oneshot::Sender<()> {
        let (watched, over) = oneshot::channel();
        let (world, lost) = (Arc::clone(&self.world), guard.lost());
        self.process.run(async move {
            tokio::select! {
                biased;
                reason = lost.into_future() => world.lost(number, reason),
                _ = over => {}
            }
        });
        watched
    }

    fn work_time(&mut self, request: &AcquireRequest) -> Duration {
        match self.rng.below(10) {
            0..6 => self.rng.millis(0, 300),
            6..8 => self.rng.millis(300, 1500),
            // Longer than the lease, to be renewed several times.
            _ => request.ttl() + self.rng.millis(0, 2000),
        }
    }

    /// Works under the lock until the work is done or the lock is lost.
    async fn work(&mut self, work: &SimWork, guard: &LockGuard) {
        let world = Arc::clone(&self.world);
        let mut seen_lost = false;
        while world.now() < work.ends {
            sleep(self.rng.millis(5, 150)).await;
            let held = guard.is_held() || seen_lost && world.is(Mutation::UnLose);
            seen_lost |= !held;
            world.looked(work.number, &self.process, guard, held);
            if !held && !work.careless {
                return;
            }
            if self.rng.chance(60) {
                // A failure is not the end: the guard says whether the lock is held.
                drop(guard.renew().await);
            }
        }
    }
}
