//! One remote contender for each key and process.

mod key_handle;
mod key_queue;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, timeout_at};

use crate::admin::LockAdmin;
use crate::attempt_state::AttemptState;
use crate::capabilities::Capabilities;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::LockGuard;
use crate::layers::KeyMap;
use crate::lock::DistributedLock;
use crate::mode::{Mode, Wait};
use crate::request::AcquireRequest;

use self::key_handle::{Acquiring, Contender, KeyHandle, QueuedWaiter, Wakeup};
use self::key_queue::{Arrival, KeyQueue, LineEnd};

/// Lets the tasks of a process queue for a key locally, first come, first served.
///
/// Of all tasks that want an exclusive lock on one key, only one contends on the server. When it is done,
/// the lease is handed over to the next task with a fresh fencing token. Where the server issues tokens in
/// blocks, this needs no request. After 16 hand-overs or 25 ms, whichever is later, the lock is released at
/// the server, so that other processes get their turn. By then the next contender of this process is in the
/// server's queue. A thousand waiting tasks cost the server one waiter.
///
/// Keys are compared exactly, so that two keys never block each other. A key without holder or
/// waiter takes no memory. Shared locks and permits go straight to the server.
///
/// A timeout is reported as [`Contended`](ErrorKind::Contended) if the lock is known to be held, in this
/// process or because the backend [says so](AcquireRequest::mark_contended). It is
/// [`Unavailable`](ErrorKind::Unavailable) if the server has not answered the contending task, or
/// [no longer answers](AcquireRequest::mark_unresponsive), with the reason if the backend
/// [knows it](AcquireRequest::mark_unavailable), and [`QueueFull`](ErrorKind::QueueFull) if the client
/// [has no room](AcquireRequest::mark_full) to ask it. A request without a wait gets `Unavailable` or `QueueFull`
/// once the server has not answered for 2 s. For these 2 s, a task that contends after a holder of this process
/// counts the lock as held.
///
/// Even a short [`Wait::AtMost`] has time for one attempt: if the server has not answered the contending task when
/// the wait is over, the wait goes on until that attempt is 100 ms old, for 100 ms at most.
///
/// This layer is also what makes [`Owner`](crate::Owner) re-entry work.
///
/// # Examples
///
/// One task may wait, and the next one is refused:
///
/// ```
/// use std::sync::Arc;
///
/// use polylock_core::layers::LocalQueue;
/// use polylock_core::memory::Memory;
/// use polylock_core::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let locks = LocalQueue::new(Arc::new(Memory::new())).with_max_waiters(1);
/// let held = locks.lock("orders/42").await?;
/// let (second, third, _) =
///     tokio::join!(locks.lock("orders/42"), locks.lock("orders/42"), held.release());
/// assert!(second.is_ok()); // the lease is handed over
/// assert_eq!(third.expect_err("the queue is full").kind(), ErrorKind::QueueFull);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct LocalQueue {
    inner: Arc<dyn DistributedLock>,
    table: Arc<KeyQueues>,
}

/// The queues of all keys.
#[derive(Debug)]
struct KeyQueues {
    limits: Limits,
    keys: KeyMap<KeyQueue>,
}

/// How many tasks may wait, and how long a lease may stay in this process: so many hand-overs, or so much
/// time, whichever allows more.
#[derive(Clone, Copy, Debug)]
struct Limits {
    max_handovers: u32,
    handover_time: Duration,
    max_waiters: usize,
}

impl LocalQueue {
    /// Default number of hand-overs in a row before other processes get their turn.
    pub const DEFAULT_MAX_HANDOVERS: u32 = 16;

    /// Default time for hand-overs, however many, before other processes get their turn.
    pub const DEFAULT_HANDOVER_TIME: Duration = Duration::from_millis(25);

    /// Default number of tasks that may wait for one key.
    pub const DEFAULT_MAX_WAITERS: usize = 10_000;

    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn DistributedLock>) -> Self {
        let limits = Limits {
            max_handovers: Self::DEFAULT_MAX_HANDOVERS,
            handover_time: Self::DEFAULT_HANDOVER_TIME,
            max_waiters: Self::DEFAULT_MAX_WAITERS,
        };
        let keys = KeyMap::default();
        let table = Arc::new(KeyQueues { limits, keys });
        Self { inner, table }
    }

    /// Sets how many times in a row a lease is handed over inside the process, whatever the time.
    /// Default: 16, and more within [`DEFAULT_HANDOVER_TIME`](Self::DEFAULT_HANDOVER_TIME).
    ///
    /// A larger number gives this process more throughput and the others longer waits; with 0 every
    /// acquisition goes to the server. The hand-over time becomes zero, unless it is set after this.
    #[must_use]
    pub fn with_max_handovers(self, max: u32) -> Self {
        self.with_limits(|limits| {
            (limits.max_handovers, limits.handover_time) = (max, Duration::ZERO);
        })
    }

    /// Sets for how long a lease is handed over inside the process, counted from the grant of the server.
    /// Hand-overs end after this time or after the max number, whichever is later. Default: 25 ms.
    ///
    /// A round trip to the server takes from a tenth of a millisecond to several, and short work
    /// would pay it every few times. Other processes wait this much longer for their turn, plus the
    /// time of the current holder and of the next one.
    #[must_use]
    pub fn with_handover_time(self, time: Duration) -> Self {
        self.with_limits(|limits| limits.handover_time = time)
    }

    /// Sets how many tasks may wait for one key; the next one gets
    /// [`QueueFull`](ErrorKind::QueueFull) at once. Default: 10,000. A task whose lock is lost on its way to
    /// it is the first in line again, even if the queue is full.
    #[must_use]
    pub fn with_max_waiters(self, max: usize) -> Self {
        self.with_limits(|limits| limits.max_waiters = max)
    }

    fn with_limits(self, change: impl FnOnce(&mut Limits)) -> Self {
        let (mut limits, keys) = (self.table.limits, KeyMap::default());
        change(&mut limits);
        let table = Arc::new(KeyQueues { limits, keys });
        Self { table, ..self }
    }

    /// How many keys are held or waited for in this process.
    #[must_use]
    pub fn live_keys(&self) -> usize {
        self.table.keys.count()
    }

    fn handle(&self, request: &AcquireRequest) -> KeyHandle {
        KeyHandle::new(Arc::clone(&self.table), request.key().clone())
    }

    /// Takes the request to the server as the one contender of this process.
    async fn contend(
        &self,
        mut contender: Contender,
        request: &AcquireRequest,
        deadline: Option<Instant>,
    ) -> Result<LockGuard> {
        loop {
            let guard = if request.wait().waits() {
                // The attempt stays with the contender: if this task gives up, the next one takes over
                // the place in the server's queue.
                let attempt = contender.attempt(|state| self.attempt(request, state));
                match self.bound(request, deadline, attempt).await {
                    Some(answer) => answer?,
                    None => {
                        let error = self.handle(request).timed_out(request);
                        return Err(match error.kind() {
                            ErrorKind::Unavailable => error.with_unknown_outcome(),
                            _ => error,
                        });
                    }
                }
            } else {
                let attempt = request.clone().in_attempt(Wait::Never, contender.state());
                self.inner.acquire(&attempt).await?
            };
            if let Some(guard) = contender.granted(guard, request) {
                return Ok(guard);
            }
        }
    }

    /// An acquisition that outlives the request it was started by.
    fn attempt(&self, request: &AcquireRequest, state: &Arc<AttemptState>) -> Acquiring {
        let inner = Arc::clone(&self.inner);
        let request = request.clone().in_attempt(Wait::Forever, state);
        Box::pin(async move { inner.acquire(&request).await })
    }

    /// Waits in line, and finds out what there is at the head of it.
    async fn wait(
        &self,
        mut queue: QueuedWaiter,
        request: &AcquireRequest,
        deadline: Option<Instant>,
    ) -> Result<Arrival> {
        let woken = self.bound(request, deadline, &mut queue).await;
        match woken {
            Some(Some(Wakeup::Contend(contender))) => Ok(Arrival::Contend(contender)),
            Some(Some(Wakeup::Lock(guard))) if guard.is_held() => {
                Ok(Arrival::Enter(guard.deliver()))
            }
            // The lease expired on its way here, or the task that would hand it over is gone: the
            // task is the first in line again.
            Some(_) => self.handle(request).arrive(request, LineEnd::Front),
            None => Err(queue.timed_out(request)),
        }
    }

    /// Bounds `work` by the wait of its request; `None` if that is over first. Even a short wait has time for
    /// one attempt, its own or the one that it is behind.
    async fn bound<T: Send>(
        &self,
        request: &AcquireRequest,
        deadline: Option<Instant>,
        work: impl Future<Output = T> + Send,
    ) -> Option<T> {
        let Some(deadline) = deadline else {
            return Some(work.await);
        };
        let mut work = pin!(work);
        if let Ok(done) = timeout_at(deadline, work.as_mut()).await {
            return Some(done);
        }
        let extended = self.handle(request).extended(deadline)?;
        timeout_at(extended, work).await.ok()
    }

    async fn queue(
        &self,
        request: &AcquireRequest,
        deadline: Option<Instant>,
    ) -> Result<LockGuard> {
        let mut arrival = self.handle(request).arrive(request, LineEnd::Back)?;
        loop {
            arrival = match arrival {
                Arrival::Contend(contender) => {
                    return self.contend(contender, request, deadline).await;
                }
                Arrival::Enter(guard) => return Ok(guard),
                Arrival::Wait(queue) => self.wait(queue, request, deadline).await?,
            };
        }
    }
}

/// The error of a request for a lock of which nothing is known, with what the backend says about the attempt
/// under way. Called outside of the mutex of the table.
fn unanswered(request: &AcquireRequest, attempt: &AttemptState) -> Error {
    if let Some(why) = attempt.why_full() {
        return Error::new(ErrorKind::QueueFull, why);
    }
    let message = match attempt.why_unavailable() {
        Some(why) => why,
        None => format!("the server has not answered{}", request.wait().waited()),
    };
    Error::new(ErrorKind::Unavailable, message)
}

/// What the queue makes of the capabilities of the lock below.
fn with_queue(mut capabilities: Capabilities) -> Capabilities {
    capabilities.reentry = true;
    capabilities
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for LocalQueue {
    fn capabilities(&self) -> Capabilities {
        with_queue(self.inner.capabilities())
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        let capabilities = self.inner.capabilities();
        // A lease that is adopted is held already, and its waiters are in line at the server.
        let is_held = request.ticket().is_some();
        if request.mode() != Mode::Exclusive || is_held || capabilities.reentry {
            // A second queue below would not see the leases that are handed over up here.
            return self.inner.acquire(request).await;
        }
        let backend = capabilities.backend;
        with_queue(capabilities).check(request)?;
        let deadline = request.wait().deadline();
        let acquired = self.queue(request, deadline).await;
        acquired.map_err(|e| e.with_backend(backend).with_key(request.key()))
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        self.inner.admin()
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.inner.shutdown(within).await
    }
}
