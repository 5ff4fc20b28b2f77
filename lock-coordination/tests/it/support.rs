use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use polylock_coordination::{Election, Term};
use polylock_core::admin::{LockAdmin, LockEvent, LockInfo, Record};
use polylock_core::engine::{
    Clock, Engine, LeaseId, Moment, OnRuntime, OsEntropy, Spawn, Task, VirtualClock,
};
use polylock_core::memory::Memory;
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, Fencing, FencingToken, Label, LeaseState,
    LockGuard, LockKey, Released, Result,
};
use polylock_history::{Checker, HistoryEvent, Summary, What};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

pub(crate) const NAME: &str = "scheduler";
pub(crate) const TTL: Duration = Duration::from_secs(10);

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn key() -> LockKey {
    LockKey::new(NAME).expect("a literal is a key")
}

/// A store on the clock of the current runtime, which stands still.
pub(crate) fn memory() -> Memory {
    Memory::with_engine(Engine::on_current_runtime("memory"))
}

pub(crate) fn label(name: &str) -> Label {
    Label::of_this_process().with_note(name)
}

/// A client of a process of its own.
pub(crate) fn client(store: &Memory) -> Memory {
    store.client_with(Engine::on_current_runtime("memory"))
}

/// A candidate that is a process of its own.
pub(crate) fn candidate(store: &Memory, name: &str) -> Election {
    election(client(store), name)
}

/// An engine on a machine that can be suspended.
pub(crate) fn suspendable() -> (Engine, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::new());
    let (now, entropy) = (Arc::clone(&clock), Arc::new(OsEntropy::default()));
    let engine = Engine::with("memory", now, entropy, Arc::new(OnRuntime::current()));
    (engine, clock)
}

pub(crate) fn election(client: Memory, name: &str) -> Election {
    let election = Election::new(Arc::new(client), NAME).expect("memory has all that it takes");
    election.ttl(TTL).label(label(name))
}

/// Whether the end of its last term was noticed, and not only whether the lease is over by the clock.
pub(crate) fn has_stopped(election: &Election) -> bool {
    election.stopped_leading().now_or_never().is_some()
}

/// Polls a future `times`, each time after the others have gone on, and drops it then unless it is ready.
pub(crate) async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    for _ in 0..times {
        let poll = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = poll {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// A future that a task waits for which cannot be woken, as one of a runtime that is gone.
pub(crate) fn polled_by_broken(
    future: impl Future<Output = ()> + Send + 'static,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    struct Broken;

    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            panic!("the runtime of the task is gone");
        }
    }

    let mut future: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(future);
    let waker = Waker::from(Arc::new(Broken));
    let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    future
}

/// Memory locks whose answers a test steers.
pub(crate) struct Steered {
    inner: Memory,
    pub(crate) fencing: Fencing,
    /// How much later each acquisition is sent.
    pub(crate) delay: Duration,
    /// What happens before the next record is read.
    pub(crate) before_record: Mutex<Option<Change>>,
    /// Whether the server does not know the tokens of holders.
    pub(crate) hides_tokens: AtomicBool,
}

impl Steered {
    pub(crate) fn new(store: &Memory) -> Self {
        Self {
            inner: client(store),
            fencing: Fencing::Strong,
            delay: Duration::ZERO,
            before_record: Mutex::default(),
            hides_tokens: AtomicBool::default(),
        }
    }
}

pub(crate) type Change = Pin<Box<dyn Future<Output = ()> + Send>>;

#[async_trait]
impl DistributedLock for Steered {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        capabilities.fencing = self.fencing;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        sleep(self.delay).await;
        self.inner.acquire(request).await
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        Some(self)
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.inner.shutdown(within).await
    }
}

#[async_trait]
impl LockAdmin for Steered {
    async fn list(&self, prefix: &str) -> Result<Vec<LockInfo>> {
        self.inner.list(prefix).await
    }

    async fn inspect(&self, key: &LockKey) -> Result<Option<LockInfo>> {
        let mut held = self.inner.inspect(key).await?;
        if self.hides_tokens.load(Ordering::SeqCst) {
            let holders = held.iter_mut().flat_map(|info| &mut info.holders);
            holders.for_each(|holder| holder.token = None);
        }
        Ok(held)
    }

    async fn break_lock(&self, key: &LockKey, reason: &str) -> Result<Option<LockInfo>> {
        self.inner.break_lock(key, reason).await
    }

    async fn watch(&self, prefix: &str) -> Result<mpsc::Receiver<LockEvent>> {
        self.inner.watch(prefix).await
    }

    async fn renew_lease(&self, key: &LockKey, id: LeaseId, ttl: Duration) -> Result<LeaseState> {
        self.inner.renew_lease(key, id, ttl).await
    }

    async fn release_lease(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        self.inner.release_lease(key, id).await
    }

    async fn adopt_lease(
        &self,
        key: &LockKey,
        id: LeaseId,
        new: LeaseId,
        ttl: Duration,
    ) -> Result<Option<FencingToken>> {
        self.inner.adopt_lease(key, id, new, ttl).await
    }

    async fn record(&self, key: &LockKey) -> Result<Option<Record>> {
        let change = lock(&self.before_record).take();
        if let Some(change) = change {
            change.await;
        }
        self.inner.record(key).await
    }

    async fn write_record(&self, key: &LockKey, record: &Record, keep: Duration) -> Result<bool> {
        self.inner.write_record(key, record, keep).await
    }
}

impl fmt::Debug for Steered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steered").finish_non_exhaustive()
    }
}

/// A process whose tasks and whose clock can stand still.
#[derive(Clone)]
pub(crate) struct Machine(Arc<State>);

struct State {
    clock: VirtualClock,
    /// How late it is, while the clock stands.
    stopped: Mutex<Option<Moment>>,
    /// Tasks that were woken while the process was frozen; `None` if it runs.
    parked: Mutex<Option<Vec<Waker>>>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self(Arc::new(State {
            clock: VirtualClock::new(),
            stopped: Mutex::default(),
            parked: Mutex::default(),
        }))
    }

    pub(crate) fn client(&self, store: &Memory) -> Memory {
        let clock: Arc<dyn Clock> = Arc::new(self.clone());
        let entropy = Arc::new(OsEntropy::default());
        let spawn = Arc::new(self.clone());
        store.client_with(Engine::with("memory", clock, entropy, spawn))
    }

    /// Stops its tasks, as SIGSTOP does; its clock goes on.
    pub(crate) fn freeze(&self) {
        *lock(&self.0.parked) = Some(Vec::new());
    }

    /// Stops its clock as well.
    pub(crate) fn freeze_with_clock(&self) {
        self.freeze();
        *lock(&self.0.stopped) = Some(self.0.clock.now());
    }

    /// Lets its tasks run. A clock that was stopped goes on standing.
    pub(crate) fn thaw(&self) {
        let parked = lock(&self.0.parked).take();
        parked.into_iter().flatten().for_each(Waker::wake);
    }

    /// Runs a task of the process.
    pub(crate) fn run<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let (machine, mut task) = (self.clone(), Box::pin(task));
        tokio::spawn(std::future::poll_fn(move |cx| {
            if let Some(parked) = &mut *lock(&machine.0.parked) {
                parked.push(cx.waker().clone());
                return Poll::Pending;
            }
            task.as_mut().poll(cx)
        }))
    }
}

impl Clock for Machine {
    fn now(&self) -> Moment {
        let stopped = *lock(&self.0.stopped);
        stopped.unwrap_or_else(|| self.0.clock.now())
    }
}

impl Spawn for Machine {
    fn spawn(&self, task: Task) {
        drop(self.run(task));
    }

    fn enter(&self, poll: &mut dyn FnMut()) {
        poll();
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").finish_non_exhaustive()
    }
}

/// What the leaders of one election do, for the judge.
#[derive(Clone)]
pub(crate) struct Diary {
    began: Instant,
    last_term: Arc<AtomicU64>,
    pages: Arc<Mutex<Pages>>,
}

#[derive(Default)]
struct Pages {
    events: Vec<HistoryEvent>,
    /// The largest token that the register has seen.
    largest: u64,
}

impl Diary {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            last_term: Arc::default(),
            pages: Arc::default(),
        }
    }

    /// The work of a leader: it writes again and again, until it is dropped.
    pub(crate) async fn lead(self, term: Term) {
        let number = self.last_term.fetch_add(1, Ordering::SeqCst) + 1;
        let token = term.fencing_token().value();
        self.note(number, What::exclusive());
        let until = self.until(&term);
        self.note(
            number,
            What::Granted {
                token: Some(token),
                until,
            },
        );
        let at_work = AtWork {
            diary: self,
            term,
            number,
        };
        loop {
            let until = at_work.diary.until(&at_work.term);
            at_work.diary.note(number, What::Held { until });
            at_work.diary.write(token);
            sleep(millis(170)).await;
        }
    }

    /// The server takes the lock away.
    pub(crate) fn interfered(&self) {
        let how = "taken away".to_owned();
        self.note(0, What::Interfered { how });
    }

    pub(crate) fn check(&self) -> Summary {
        let events = lock(&self.pages).events.clone();
        // A process that is frozen notices a loss when it goes on.
        let checker = Checker::new()
            .with_signal_delay(secs(60))
            .with_max_idle(secs(60));
        checker.check(&events).assert_clean()
    }

    fn write(&self, token: u64) {
        let largest = lock(&self.pages).largest;
        let accepted = token >= largest;
        lock(&self.pages).largest = largest.max(token);
        self.note(0, What::Wrote { token, accepted });
    }

    fn until(&self, term: &Term) -> Option<u64> {
        Some(self.nanos(term.lost().valid_until()?))
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.began).as_nanos()).expect("a test is short")
    }

    fn note(&self, term: u64, what: What) {
        let events = &mut lock(&self.pages).events;
        let mut event = HistoryEvent::new(self.nanos(Instant::now()), NAME, term, what);
        event.seq = u64::try_from(events.len()).expect("a test is short");
        events.push(event);
    }
}

/// Dropped, the work has ended.
struct AtWork {
    diary: Diary,
    term: Term,
    number: u64,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let what = match self.term.lost().reason() {
            Some(reason) => What::Lost {
                reason: reason.as_str().to_owned(),
            },
            None => What::Releasing { held: true },
        };
        self.diary.note(self.number, what);
    }
}

pub(crate) fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().expect("no thread panics with it")
}
