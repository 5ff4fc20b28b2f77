//! A client process: its tasks, its clock, and what happens to them when it is paused or killed.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use polylock_core::engine::{Spawn, Task, VirtualClock};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::lock;

/// One process. Everything that it does runs in tasks that it spawned, the scheduler included.
#[derive(Debug)]
pub(crate) struct SimProcess {
    number: usize,
    clock: Arc<VirtualClock>,
    parts_per_million: i32,
    runtime: Handle,
    life: Mutex<ProcessState>,
    workers: AtomicUsize,
}

#[derive(Debug, Default)]
struct ProcessState {
    phase: ProcessPhase,
    tasks: Vec<AbortHandle>,
    /// Tasks that were woken while the process was paused.
    parked: Vec<Waker>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum ProcessPhase {
    Dead,
    Paused,
    #[default]
    Running,
}

impl SimProcess {
    /// Starts a process on the current runtime, whose clock runs faster by `parts_per_million`.
    pub(crate) fn start(number: usize, parts_per_million: i32) -> Arc<Self> {
        Arc::new(Self {
            number,
            clock: Arc::new(VirtualClock::with_drift(parts_per_million)),
            parts_per_million,
            runtime: Handle::current(),
            life: Mutex::default(),
            workers: AtomicUsize::new(0),
        })
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    pub(crate) fn clock(&self) -> Arc<VirtualClock> {
        Arc::clone(&self.clock)
    }

    /// True time in which the clock of this process advances by `duration`, rounded up.
    pub(crate) fn true_time(&self, duration: Duration) -> Duration {
        undrift(duration, self.parts_per_million)
    }

    pub(crate) fn phase(&self) -> ProcessPhase {
        lock(&self.life).phase
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.phase() == ProcessPhase::Dead
    }

    pub(crate) fn tasks(&self) -> usize {
        let mut life = lock(&self.life);
        life.tasks.retain(|task| !task.is_finished());
        life.tasks.len()
    }

    /// Runs a task of the workload, which ends by itself.
    pub(crate) fn work(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        self.workers.fetch_add(1, Ordering::SeqCst);
        let process = Arc::clone(self);
        self.run(async move {
            task.await;
            process.workers.fetch_sub(1, Ordering::SeqCst);
        });
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.workers.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn run(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        self.adopt(Box::pin(task));
    }

    fn adopt(self: &Arc<Self>, task: Task) {
        if self.is_dead() {
            return;
        }
        let process = Arc::clone(self);
        let spawned = self.runtime.spawn(Gated { process, task });
        let mut life = lock(&self.life);
        life.tasks.retain(|task| !task.is_finished());
        life.tasks.push(spawned.abort_handle());
    }

    /// Stops polling the tasks, like SIGSTOP. Clocks go on.
    pub(crate) fn pause(&self) {
        let mut life = lock(&self.life);
        if life.phase == ProcessPhase::Running {
            life.phase = ProcessPhase::Paused;
        }
    }

    pub(crate) fn resume(&self) {
        let parked = {
            let mut life = lock(&self.life);
            if life.phase != ProcessPhase::Paused {
                return;
            }
            life.phase = ProcessPhase::Running;
            std::mem::take(&mut life.parked)
        };
        parked.into_iter().for_each(Waker::wake);
    }

    /// Ends the process like SIGKILL.
    ///
    /// Its tasks are dropped to free their memory. Their destructors have no effect: a dead process
    /// sends nothing and starts no task.
    pub(crate) fn kill(&self) {
        let tasks = {
            let mut life = lock(&self.life);
            life.phase = ProcessPhase::Dead;
            life.parked.clear();
            std::mem::take(&mut life.tasks)
        };
        tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Where the engine of a process runs its scheduler and its background releases.
#[derive(Debug)]
pub(crate) struct SimHost(pub(crate) Arc<SimProcess>);

impl Spawn for SimHost {
    fn spawn(&self, task: Task) {
        self.0.adopt(task);
    }

    fn enter(&self, poll: &mut dyn FnMut()) {
        let _context = self.0.runtime.enter();
        poll();
    }
}

/// A task that runs only while its process does.
struct Gated {
    process: Arc<SimProcess>,
    task: Task,
}

impl Future for Gated {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut life = lock(&self.process.life);
            match life.phase {
                ProcessPhase::Dead => return Poll::Ready(()),
                ProcessPhase::Paused => {
                    life.parked.push(cx.waker().clone());
                    return Poll::Pending;
                }
                ProcessPhase::Running => {}
            }
        }
        self.task.as_mut().poll(cx)
    }
}

/// True time in which a clock that runs faster by `parts_per_million` advances by `duration`.
pub(crate) fn undrift(duration: Duration, parts_per_million: i32) -> Duration {
    let speed = u128::try_from(1_000_000 + i64::from(parts_per_million)).unwrap_or(1);
    let nanos = (duration.as_nanos() * 1_000_000).div_ceil(speed);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
