use std::fmt;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::LockAdmin;
use polylock_core::engine::{
    Clock, Engine, Moment, OnRuntime, OsEntropy, Spawn, Task, VirtualClock,
};
use polylock_core::layers::{Event, EventKind, LocalQueue, Observe, Observer};
use polylock_core::memory::{Fault, Memory, Request};
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, DistributedLockExt as _, LockGuard, LockKey,
    Result,
};
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

/// Longest time that a test waits for what has to happen, virtual or real.
const DEADLINE: Duration = Duration::from_secs(300);

/// The same where virtual time stands still; a busy machine needs a few seconds.
const REAL_DEADLINE: Duration = Duration::from_secs(120);

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn key() -> LockKey {
    LockKey::new("k").expect("is a key")
}

/// A store on the clock of the current runtime, which may stand still.
pub(crate) fn memory() -> Memory {
    Memory::with_engine(Engine::on_current_runtime("memory"))
}

/// A store, and the queue of one of its clients.
pub(crate) fn queued() -> (Memory, LocalQueue) {
    let store = memory();
    let locks = LocalQueue::new(Arc::new(store.client()));
    (store, locks)
}

/// An engine on a machine that can be suspended.
pub(crate) fn suspendable() -> (Engine, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::new());
    (engine(&clock), clock)
}

/// An engine of the current runtime with a clock of the test's.
pub(crate) fn engine<C: Clock>(clock: &Arc<C>) -> Engine {
    engine_on(clock, &Arc::new(OnRuntime::current()))
}

/// The same with a runtime of the test's.
pub(crate) fn engine_on<C: Clock, S: Spawn>(clock: &Arc<C>, spawn: &Arc<S>) -> Engine {
    let (clock, spawn) = (Arc::clone(clock) as _, Arc::clone(spawn) as _);
    Engine::with("memory", clock, Arc::new(OsEntropy::default()), spawn)
}

/// The runtime of a process that is slow to begin tasks, or whose tasks end with it.
pub(crate) struct ProcessRuntime {
    runtime: Handle,
    held_back: Mutex<Option<Vec<Task>>>,
    begun: Mutex<Vec<AbortHandle>>,
}

impl ProcessRuntime {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            runtime: Handle::current(),
            held_back: Mutex::default(),
            begun: Mutex::default(),
        })
    }

    /// Begins no task from here on.
    pub(crate) fn hold_back(&self) {
        *self.held_back.lock().expect("nothing panics") = Some(Vec::new());
    }

    /// The tasks that were held back; later ones are not.
    pub(crate) fn take(&self) -> Vec<Task> {
        let held_back = self.held_back.lock().expect("nothing panics").take();
        held_back.expect("tasks are held back")
    }

    pub(crate) fn end(&self) {
        for task in self.begun.lock().expect("nothing panics").drain(..) {
            task.abort();
        }
    }
}

impl Spawn for ProcessRuntime {
    fn spawn(&self, task: Task) {
        if let Some(held_back) = &mut *self.held_back.lock().expect("nothing panics") {
            held_back.push(task);
            return;
        }
        let task = self.runtime.spawn(task).abort_handle();
        self.begun.lock().expect("nothing panics").push(task);
    }

    fn enter(&self, poll: &mut dyn FnMut()) {
        let _context = self.runtime.enter();
        poll();
    }
}

impl fmt::Debug for ProcessRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProcessRuntime")
    }
}

type Interrupt = Box<dyn FnOnce(&VirtualClock) + Send>;

/// A clock during one of whose reads something else happens, as on another thread.
pub(crate) struct InterruptedClock {
    clock: VirtualClock,
    /// What happens, and in which read from here on.
    interrupt: Mutex<Option<(usize, Interrupt)>>,
}

impl InterruptedClock {
    pub(crate) fn new() -> Arc<Self> {
        let (clock, interrupt) = (VirtualClock::new(), Mutex::default());
        Arc::new(Self { clock, interrupt })
    }

    pub(crate) fn interrupt_at(
        &self,
        read: usize,
        act: impl FnOnce(&VirtualClock) + Send + 'static,
    ) {
        let act: Interrupt = Box::new(act);
        *self.interrupt.lock().expect("nothing panics") = Some((read, act));
    }

    /// Suspends the machine for 20 s.
    pub(crate) fn suspend_at(&self, read: usize) {
        self.interrupt_at(read, |clock| clock.suspend(secs(20)));
    }

    /// Interrupts no read any more; whether one was interrupted.
    pub(crate) fn go_on(&self) -> bool {
        let interrupt = self.interrupt.lock().expect("nothing panics").take();
        interrupt.is_none()
    }
}

impl fmt::Debug for InterruptedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InterruptedClock")
    }
}

impl Clock for InterruptedClock {
    fn now(&self) -> Moment {
        let mut interrupt = self.interrupt.lock().expect("nothing panics");
        let due = interrupt.take_if(|(left, _)| {
            *left -= 1;
            *left == 0
        });
        drop(interrupt);
        if let Some((_, act)) = due {
            act(&self.clock);
        }
        self.clock.now()
    }
}

/// Whether the lock of the key `k` has neither a holder nor a waiter.
pub(crate) async fn is_free(store: &Memory) -> bool {
    let info = store.client().inspect(&key()).await.expect("it is reached");
    info.is_none() && store.waiters(&key()) == 0
}

/// The remaining time of a lease.
pub(crate) fn left(guard: &LockGuard) -> Duration {
    guard.valid_until().expect("it has a lease") - Instant::now()
}

/// Lets the other tasks run until none can go on without time passing.
pub(crate) async fn settle() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
    }
}

/// Waits for the lock in a task.
pub(crate) fn start(locks: &LocalQueue, request: AcquireRequest) -> JoinHandle<LockGuard> {
    let locks = locks.clone();
    tokio::spawn(async move { locks.acquire(&request).await.expect("is served") })
}

/// The same for a wait that may end without the lock.
pub(crate) fn try_start(
    locks: &LocalQueue,
    request: AcquireRequest,
) -> JoinHandle<Result<LockGuard>> {
    let locks = locks.clone();
    tokio::spawn(async move { locks.acquire(&request).await })
}

/// A lock of the key `k` with manual renewal.
pub(crate) async fn manual(locks: &dyn DistributedLock, ttl: Duration) -> LockGuard {
    let request = locks.request("k").ttl(ttl).manual_renewal();
    request.acquire().await.expect("it is free")
}

/// Has all requests of a kind go wrong from here on.
pub(crate) fn plan_all(store: &Memory, request: Request, fault: Fault) {
    for _ in 0..200 {
        store.faults().plan(request, fault);
    }
}

/// Polls at most so often, with a pause after each poll, and drops the future if it is not ready by then.
pub(crate) async fn poll_times<F: Future, P: Future>(
    future: F,
    polls: usize,
    pause: impl Fn() -> P,
) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        pause().await;
    }
    None
}

/// Polls a future that takes a round trip once, and drops it.
pub(crate) async fn drop_after_a_poll<F: Future>(future: F) {
    tokio::select! {
        biased;
        _ = future => panic!("it takes a round trip"),
        () = std::future::ready(()) => {}
    }
}

/// Polls a future that has to wait, and calls `wake` when it is to be polled again.
#[track_caller]
pub(crate) fn assert_waits<F: Future + ?Sized>(
    future: Pin<&mut F>,
    wake: impl Fn() + Send + Sync + 'static,
) {
    struct Calls<W>(W);

    impl<W: Fn() + Send + Sync> Wake for Calls<W> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    let waker = Waker::from(Arc::new(Calls(wake)));
    let polled = future.poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending(), "it does not wait");
}

/// Ends the process of the test unless it is dropped in time: virtual time stands still while a task
/// or the scheduler spins.
pub(crate) struct RealDeadline {
    _done: mpsc::Sender<()>,
}

impl RealDeadline {
    #[expect(clippy::print_stderr, reason = "the process ends without another word")]
    pub(crate) fn start() -> Self {
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || {
            if ended.recv_timeout(REAL_DEADLINE) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("no end within {REAL_DEADLINE:?} of real time: something spins");
                std::process::abort();
            }
        });
        Self { _done: done }
    }
}

/// What `happens` returns; fails the test with `what` if that does not come.
#[track_caller]
pub(crate) fn in_time<F: IntoFuture>(
    what: &str,
    happens: F,
) -> impl Future<Output = F::Output> + use<'_, F> {
    let (caller, happens) = (Location::caller(), happens.into_future());
    async move {
        let _real = RealDeadline::start();
        let outcome = tokio::time::timeout(DEADLINE, happens).await;
        outcome.unwrap_or_else(|_| panic!("{what} did not happen within {DEADLINE:?} ({caller})"))
    }
}

/// Waits in real time, and without a runtime.
#[track_caller]
pub(crate) fn until(mut happens: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + secs(60);
    while !happens() {
        assert!(std::time::Instant::now() < deadline, "it does not happen");
        std::thread::sleep(millis(1));
    }
}

/// A client of a store whose test decides what becomes of each request.
pub(crate) struct Wrapper<F> {
    inner: Arc<Memory>,
    acquire: F,
}

impl<F> fmt::Debug for Wrapper<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wrapper")
    }
}

impl<F, A> Wrapper<F>
where
    F: Fn(Arc<Memory>, AcquireRequest) -> A + Send + Sync + 'static,
    A: Future<Output = Result<LockGuard>> + Send,
{
    pub(crate) fn new(store: &Memory, acquire: F) -> Self {
        let inner = Arc::new(store.client());
        Self { inner, acquire }
    }
}

#[async_trait]
impl<F, A> DistributedLock for Wrapper<F>
where
    F: Fn(Arc<Memory>, AcquireRequest) -> A + Send + Sync + 'static,
    A: Future<Output = Result<LockGuard>> + Send,
{
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        (self.acquire)(Arc::clone(&self.inner), request.clone()).await
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        self.inner.admin()
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.inner.shutdown(within).await
    }
}

/// An observer that does what the test says.
pub(crate) fn on_event(act: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Arc<dyn Observer> {
    struct Calls<A>(A);

    impl<A> fmt::Debug for Calls<A> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Calls")
        }
    }

    impl<A: Fn(&Event<'_>) + Send + Sync + 'static> Observer for Calls<A> {
        fn event(&self, event: &Event<'_>) {
            (self.0)(event);
        }
    }

    Arc::new(Calls(act))
}

/// Writes down what happens to locks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Entry>>>);

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) at: Instant,
    pub(crate) key: String,
    pub(crate) what: &'static str,
    /// What a renewal left of its lease.
    pub(crate) slack: Duration,
}

impl Log {
    pub(crate) fn of(&self, locks: Arc<dyn DistributedLock>) -> Observe {
        Observe::new(locks).with_observer(Arc::new(self.clone()))
    }

    /// What happened since the last call.
    pub(crate) fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.0.lock().expect("nothing panics"))
    }

    /// The same of one kind.
    pub(crate) fn take_only(&self, what: &str) -> Vec<Entry> {
        let all = self.take().into_iter();
        all.filter(|entry| entry.what == what).collect()
    }
}

impl Observer for Log {
    fn event(&self, event: &Event<'_>) {
        let what = match event.kind {
            EventKind::Requested => "requested",
            EventKind::Acquired { .. } => "acquired",
            EventKind::Cancelled { .. } => "cancelled",
            EventKind::Failed { .. } => "failed",
            EventKind::Lost { .. } => "lost",
            EventKind::Released { outcome, .. } => outcome,
            EventKind::Renewed { .. } => "renewed",
            EventKind::RenewalFailed { .. } => "failing",
            EventKind::Held => "held",
            EventKind::GivenUp { .. } => "given_up",
            EventKind::Unavailable { .. } => "unavailable",
            _ => "other",
        };
        let slack = match event.kind {
            EventKind::Renewed { slack, .. } => slack,
            _ => Duration::ZERO,
        };
        self.0.lock().expect("nothing panics").push(Entry {
            at: Instant::now(),
            key: event.key.to_string(),
            what,
            slack,
        });
    }
}
