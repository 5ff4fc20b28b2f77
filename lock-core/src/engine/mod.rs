//! What every backend builds on: time, randomness, the renewal scheduler and background work, the deadlines of
//! waits, blocks of tokens, and positions in the queues of servers.

mod background;
mod before;
mod catch_panic;
mod clock;
mod config;
mod entropy;
mod inline_task;
mod mutant;
mod mutex;
mod queue;
mod runtime_timer;
mod spawn;
mod time_budget;
mod token_block;

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument;

use crate::error::{Error, ErrorKind, Result};
use crate::guard::Undelivered;
use crate::lease::RenewalScheduler;

use self::background::Background;
use self::runtime_timer::RuntimeTimer;
pub(crate) use self::runtime_timer::current_runtime;
pub(crate) use self::spawn::check_process;
use self::spawn::own_thread;

pub use self::before::before;
pub(crate) use self::catch_panic::catch_panic;
pub use self::catch_panic::{catch_panic_async, isolated};
pub use self::clock::{BootClock, Clock, Moment, VirtualClock};
pub use self::config::{TIMEOUT_RANGE, duration_in_range};
pub use self::entropy::{Entropy, LeaseId, OsEntropy, SeededEntropy};
#[doc(hidden)]
pub use self::mutant::is_mutant;
pub use self::mutex::Mutex;
pub use self::queue::{Blocker, QueuePosition, Queued, queue_holders, queue_position};
pub use self::spawn::{OnRuntime, Spawn, Task};
pub use self::time_budget::{MIN_ATTEMPT, REPLY_GRACE, TimeBudget, WaitDeadline};
pub use self::token_block::TokenBlock;
pub use crate::lease::{renewal_interval, renewal_timeout};

/// Time, randomness, the renewal scheduler and background work, for one backend. For implementors.
///
/// All backends of a process share one scheduler: a thread that renews leases, fires deadlines and
/// sends background releases. A clone counts its background work together with the original.
#[derive(Clone)]
pub struct Engine {
    scheduler: Arc<RenewalScheduler>,
    background: Arc<Background>,
    backend: &'static str,
}

impl Engine {
    /// The engine of this process, for the backend of this name.
    ///
    /// The first call starts the thread `polylock-engine`.
    ///
    /// # Panics
    ///
    /// If the process can start no thread, or open no descriptor for it.
    #[must_use]
    pub fn of_this_process(backend: &'static str) -> Self {
        static SCHEDULER: OnceLock<Arc<RenewalScheduler>> = OnceLock::new();
        let scheduler = SCHEDULER.get_or_init(|| {
            let spawn = Arc::new(own_thread());
            RenewalScheduler::new(
                Arc::new(BootClock::default()),
                Arc::new(OsEntropy::default()),
                spawn,
            )
        });
        Self::on(Arc::clone(scheduler), backend)
    }

    /// An engine with its own scheduler. For tests that control time, randomness or scheduling.
    #[must_use]
    pub fn with(
        backend: &'static str,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        spawn: Arc<dyn Spawn>,
    ) -> Self {
        Self::on(RenewalScheduler::new(clock, entropy, spawn), backend)
    }

    /// An engine on the current runtime that follows its time, which may be paused. For tests.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    pub fn on_current_runtime(backend: &'static str) -> Self {
        let clock = Arc::new(VirtualClock::new());
        Self::with(
            backend,
            clock,
            Arc::new(OsEntropy::default()),
            Arc::new(OnRuntime::current()),
        )
    }

    /// The same scheduler for another backend.
    #[must_use]
    pub fn for_backend(&self, backend: &'static str) -> Self {
        Self::on(Arc::clone(&self.scheduler), backend)
    }

    fn on(scheduler: Arc<RenewalScheduler>, backend: &'static str) -> Self {
        Self {
            scheduler,
            background: Arc::default(),
            backend,
        }
    }

    /// Name of the backend, as in errors and metrics.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// The time that leases are measured by.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.scheduler.clock.now()
    }

    /// Draws the id of an acquisition.
    #[must_use]
    pub fn lease_id(&self) -> LeaseId {
        LeaseId::random(&*self.scheduler.entropy)
    }

    /// Draws a duration between `low` and `high`.
    #[must_use]
    pub fn jitter(&self, low: Duration, high: Duration) -> Duration {
        entropy::between(&*self.scheduler.entropy, low, high)
    }

    /// Runs a task to its end in the background; [`drain`](Engine::drain) waits for it.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.background
            .spawn(&*self.scheduler.spawn, Box::pin(task));
    }

    /// Runs a task that [`drain`](Engine::drain) does not wait for, such as the pings of a session
    /// or a subscription, for as long as a connection lives.
    pub fn spawn_service(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.scheduler.spawn.spawn(Box::pin(task));
    }

    /// Runs a task as [`spawn_service`](Engine::spawn_service) does, which callers may poll by
    /// [`poll_woken`](Engine::poll_woken), also for the first time.
    ///
    /// The task must not call `tokio::task::yield_now` before it has awaited something: the runtime of the caller
    /// would have to poll it again.
    pub fn spawn_inline(&self, task: impl Future<Output = ()> + Send + 'static) {
        inline_task::spawn(&self.scheduler.spawn, Box::pin(task));
    }

    /// Calls `wake`, and polls on this thread the tasks made by [`spawn_inline`](Engine::spawn_inline), of any engine,
    /// that it wakes: a request that `wake` sends to such a task is written on return. A task that is being polled
    /// elsewhere is left to that.
    ///
    /// Wakers that those tasks wake are called on this thread. May be called in a destructor.
    ///
    /// # Examples
    ///
    /// ```
    /// use polylock_core::engine::Engine;
    /// use tokio::sync::mpsc;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let engine = Engine::of_this_process("example");
    /// let (requests, mut received) = mpsc::unbounded_channel();
    /// let (answers, mut answered) = mpsc::unbounded_channel();
    /// let task = async move {
    ///     while let Some(request) = received.recv().await {
    ///         let _gone = answers.send(2 * request);
    ///     }
    /// };
    /// engine.poll_woken(|| engine.spawn_inline(task));
    /// engine.poll_woken(|| requests.send(21)).expect("the task runs");
    /// assert_eq!(answered.try_recv(), Ok(42)); // without any await
    /// # }
    /// ```
    pub fn poll_woken<T>(&self, wake: impl FnOnce() -> T) -> T {
        inline_task::poll_woken(wake)
    }

    /// Runs an acquisition that may wait.
    ///
    /// Its timers and its connections stay with the engine, wherever the caller goes. The first poll is made here.
    ///
    /// # Errors
    ///
    /// Those of the acquisition, and [`Unavailable`](ErrorKind::Unavailable) if it panics.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the acquisition, on the engine, at the point that it has reached. A lock that was
    /// granted by then is released without its min hold, if `T` is a [`LockGuard`](crate::LockGuard) or an option of
    /// one.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (mut caller, answer) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let work = work.in_current_span();
        let work = async move {
            let _end = end;
            let answer = tokio::select! {
                biased;
                answer = work => answer.map(Undelivered::new),
                () = caller.closed() => return,
            };
            // A caller that is gone by now has the answer dropped here.
            drop(caller.send(answer));
        };
        self.poll_woken(|| self.spawn_inline(work));
        let answer = self.answered(answer, ended).await;
        let answer = answer.unwrap_or_else(|_| {
            let message = "the task of this request has panicked";
            Err(Error::new(ErrorKind::Unavailable, message).with_unknown_outcome())
        });
        answer.map(Undelivered::deliver)
    }

    /// Awaits the answer to work of another task, which closes `ended` at its end.
    ///
    /// # Cancel safety
    ///
    /// [`drain`](Engine::drain) waits for the end of the work, which may have to undo what it has done.
    pub async fn answered<T: Send>(
        &self,
        answer: impl Future<Output = T> + Send,
        ended: oneshot::Receiver<()>,
    ) -> T {
        let mut abandoned = Abandoned {
            engine: self,
            ended: Some(ended),
        };
        let answer = answer.await;
        abandoned.ended = None;
        answer
    }

    /// Runs `work` to its end, also if the caller is gone; `None` if it panics. The first poll is made here.
    pub(crate) async fn run_to_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, answer) = oneshot::channel();
        self.detach(Box::pin(async move {
            // A caller that is gone does not need the answer.
            drop(done.send(work.await));
        }));
        answer.await.ok()
    }

    /// Runs a release with its first poll made here: what needs no I/O is done on return.
    pub(crate) fn detach(&self, task: Task) {
        self.background.detach(&*self.scheduler.spawn, task);
    }

    /// Polls `work` once as [`detach`](Engine::detach) does; pending as well if it panics.
    pub(crate) fn poll_once<T>(&self, work: Pin<&mut (dyn Future<Output = T> + Send)>) -> Poll<T> {
        background::poll_once(&*self.scheduler.spawn, work).unwrap_or(Poll::Pending)
    }

    /// Bounds `work`; `None` if it is not [`finished`](Engine::finished).
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = T> + Send,
    ) -> Option<T> {
        self.finished(limit, work).await.ok()
    }

    /// Bounds `work`; fails if it is not done in time or panics, and also if it goes on in another
    /// runtime than it began in, since its timers and sockets may have gone with that one. Work
    /// without I/O needs no timer, and does not read the clock.
    pub(crate) async fn finished<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = T> + Send,
    ) -> Result<T, Unfinished> {
        let mut timer: Option<RuntimeTimer> = None;
        let work = catch_panic_async(work);
        tokio::pin!(work);
        poll_fn(|cx| {
            if timer.as_ref().is_some_and(RuntimeTimer::has_moved) {
                return Poll::Ready(Err(Unfinished::Moved));
            }
            if let Poll::Ready(done) = inline_task::poll_woken(|| work.as_mut().poll(cx)) {
                return Poll::Ready(done.ok_or(Unfinished::Late));
            }
            let timer =
                timer.get_or_insert_with(|| RuntimeTimer::until(Instant::now() + limit, self));
            timer.poll(cx).map(|()| Err(Unfinished::Late))
        })
        .await
    }

    /// Waits for the background work of this backend; false if it is not done `within` the time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the waiting and nothing else.
    pub async fn drain(&self, within: Duration) -> bool {
        self.background.drain(within).await
    }

    pub(crate) fn scheduler(&self) -> &Arc<RenewalScheduler> {
        &self.scheduler
    }
}

/// Why work has no output.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unfinished {
    /// It was not done in time, or panicked.
    Late,
    /// It goes on in another runtime than it began in: its caller has dropped or moved it.
    Moved,
}

/// Runs a future on the calling thread, with the timers and sockets of the engine of this process.
///
/// # Panics
///
/// In async code.
#[track_caller]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    own_thread().block_on(future)
}

/// Makes a shutdown wait until the work of a caller that is gone has ended, and its undoing has begun.
struct Abandoned<'a> {
    engine: &'a Engine,
    ended: Option<oneshot::Receiver<()>>,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if let Some(ended) = self.ended.take() {
            self.engine.spawn(async move { drop(ended.await) });
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}
