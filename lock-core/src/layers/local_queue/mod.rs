//! One remote contender for each key and process.

mod line;
mod seat;
mod table;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::admin::LockAdmin;
use crate::capabilities::Capabilities;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::LockGuard;
use crate::layers::in_order;
use crate::lock::DistributedLock;
use crate::request::{AcquireRequest, Mode, Wait};

use self::line::Arrival;
use self::seat::{Attempt, Contender, InLine, Seat, Turn, current_runtime};
use self::table::Table;

/// Lets the tasks of a process queue for a key locally, first come, first served.
///
/// Of all tasks that want an exclusive lock on one key, one contends on the server. When it is done,
/// the lease passes to the next of them with a fresh fencing token, without a word to the server
/// where that issues tokens in blocks. After `max_handovers` in a row the lock goes back to the
/// server, so that other processes get their turn; the next contender of this process is in the
/// server's queue by then. A thousand waiting tasks cost the server one waiter.
///
/// Keys are compared exactly, so that two keys never block each other, and a key that nobody holds
/// or waits for takes no memory. Shared locks and permits go straight to the server.
///
/// A wait that ends while a task contends on the server is reported as
/// [`Contended`](ErrorKind::Contended), also where the server has been silent all the time; without
/// this layer the backend tells the two apart.
///
/// This layer is also what makes [`Owner`](crate::Owner) re-entry work.
#[derive(Clone, Debug)]
pub struct LocalQueue {
    inner: Arc<dyn DistributedLock>,
    table: Arc<Table>,
}

impl LocalQueue {
    /// How often a lease passes inside the process before others get their turn, unless set.
    pub const DEFAULT_MAX_HANDOVERS: u32 = 16;

    /// How many tasks may wait for one key, unless set.
    pub const DEFAULT_MAX_WAITERS: usize = 10_000;

    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn DistributedLock>) -> Self {
        let table = Table::new(Self::DEFAULT_MAX_HANDOVERS, Self::DEFAULT_MAX_WAITERS);
        Self {
            inner,
            table: Arc::new(table),
        }
    }

    /// Sets how many times in a row a lease is handed over inside the process. Default: 16.
    ///
    /// More gives more throughput to this process and longer waits to the others; with 0 every
    /// acquisition goes to the server.
    #[must_use]
    pub fn with_max_handovers(self, max: u32) -> Self {
        let table = Table::new(max, self.table.max_waiters);
        Self {
            table: Arc::new(table),
            ..self
        }
    }

    /// Sets how many tasks may wait for one key; the next one gets
    /// [`QueueFull`](ErrorKind::QueueFull) at once. Default: 10,000.
    #[must_use]
    pub fn with_max_waiters(self, max: usize) -> Self {
        let table = Table::new(self.table.max_handovers, max);
        Self {
            table: Arc::new(table),
            ..self
        }
    }

    /// How many keys are held or waited for in this process.
    #[must_use]
    pub fn live_keys(&self) -> usize {
        self.table.len()
    }

    fn seat(&self, request: &AcquireRequest) -> Seat {
        Seat::new(Arc::clone(&self.table), request.key().clone())
    }

    async fn attempt_once(&self, request: &AcquireRequest) -> Result<LockGuard> {
        let request = request.clone().with_wait(Wait::Never).without_owner();
        self.inner.acquire(&request).await
    }

    /// Takes the request to the server as the one contender of this process.
    async fn contend(
        &self,
        mut contender: Contender,
        request: &AcquireRequest,
        deadline: Option<Instant>,
    ) -> Result<LockGuard> {
        let guard = match request.wait() {
            Wait::AtMost(limit) if limit.is_zero() => self.attempt_once(request).await?,
            Wait::Never => self.attempt_once(request).await?,
            _ => {
                // The attempt stays with the contender: if this task gives up, the next one takes
                // over the place in the server's queue.
                let attempt = contender.attempt(|| self.attempt(request));
                let answer = within(deadline, attempt, request).await?;
                contender.answered();
                answer?
            }
        };
        contender.seated(guard, request)
    }

    /// An acquisition that outlives the request it was started by.
    fn attempt(&self, request: &AcquireRequest) -> Attempt {
        let inner = Arc::clone(&self.inner);
        let request = request.clone().with_wait(Wait::Forever).without_owner();
        let ttl = request.ttl();
        Attempt {
            answer: Box::pin(async move { inner.acquire(&request).await }),
            ttl,
            runtime: current_runtime(),
        }
    }

    /// Waits in line, and finds out what there is at the head of it.
    async fn wait(
        &self,
        line: InLine,
        request: &AcquireRequest,
        deadline: Option<Instant>,
    ) -> Result<Arrival> {
        match within(deadline, line, request).await? {
            Some(Turn::Contend(contender)) => Ok(Arrival::Contend(contender)),
            Some(Turn::Lock(guard)) if guard.is_held() => Ok(Arrival::Enter(guard)),
            // The lease ran out on its way here, or whoever was about to pass it on is gone: the
            // task stands in line again.
            Some(Turn::Lock(_)) | None => self.seat(request).arrive(request),
        }
    }

    async fn queue(
        &self,
        request: &AcquireRequest,
        deadline: Option<Instant>,
    ) -> Result<LockGuard> {
        let mut arrival = self.seat(request).arrive(request)?;
        loop {
            arrival = match arrival {
                Arrival::Contend(contender) => {
                    return self.contend(contender, request, deadline).await;
                }
                Arrival::Enter(guard) => return Ok(guard),
                Arrival::Wait(line) => self.wait(line, request, deadline).await?,
            };
        }
    }
}

/// Bounds `work` by the wait budget of the request.
async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = T> + Send,
    request: &AcquireRequest,
) -> Result<T> {
    let Some(deadline) = deadline else {
        return Ok(work.await);
    };
    tokio::time::timeout_at(deadline, work)
        .await
        .map_err(|_| contended(request))
}

fn contended(request: &AcquireRequest) -> Error {
    let message = match request.wait() {
        Wait::AtMost(limit) => format!("the lock is held, waited {limit:?}"),
        _ => "the lock is held".to_owned(),
    };
    Error::new(ErrorKind::Contended, message).with_key(request.key())
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for LocalQueue {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        capabilities.reentry = true;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        if request.mode() != Mode::Exclusive || self.inner.capabilities().reentry {
            // Another queue below would not hear of leases that pass from hand to hand up here.
            return self.inner.acquire(request).await;
        }
        self.capabilities().check(request)?;
        let deadline = match request.wait() {
            Wait::AtMost(limit) => Instant::now().checked_add(limit),
            _ => None,
        };
        let backend = self.inner.capabilities().backend;
        let acquired = self.queue(request, deadline).await;
        acquired.map_err(|e| e.with_backend(backend).with_key(request.key()))
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> Result<Vec<LockGuard>> {
        in_order(self, requests).await
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        self.inner.admin()
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.inner.shutdown(within).await
    }
}
