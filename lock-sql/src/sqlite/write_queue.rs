use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::LockKey;
use lock_core::engine::Engine;
use tokio::time::Instant;

use super::connection::Connection;
use super::transact::Transactor;
use super::work::{Answer, Batch, Reads, Task, Work};
use crate::error::{Cause, Failure};
use crate::table::Locks;

/// Where operations queue for one connection.
///
/// A task of the engine owns the connection and serves the queue, with one transaction for all
/// queued requests. A caller that is dropped, or whose runtime is blocked, leaves no transaction
/// open, which would keep every other process from writing. A request that was given up before it
/// began is skipped; its undo queues behind it.
///
/// Time-outs are the desk's as well: a caller may move from one runtime to another, and the timers
/// of a runtime that is gone panic.
pub(super) struct WriteQueue {
    pub(super) engine: Engine,
    pub(super) transactor: Transactor,
    /// How long a caller waits for an answer.
    pub(super) patience: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) queue: VecDeque<Box<dyn Work>>,
    pub(super) served: bool,
    /// The connection while it is idle.
    pub(super) connection: Option<Connection>,
}

impl WriteQueue {
    pub(super) fn new(engine: Engine, transactor: Transactor, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            engine,
            transactor,
            patience,
            state: Mutex::default(),
        })
    }

    /// Reads and changes the records of `keys` in one transaction.
    pub(super) async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        keys: Vec<LockKey>,
        act: impl FnOnce(&mut Locks) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (task, answer) = Task::new(Reads::Keys(keys), true, self.deadline(), act);
        self.queue(Box::new(task), answer).await
    }

    /// Reads records.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        reads: Reads,
        act: impl FnOnce(&mut Locks) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (task, answer) = Task::new(reads, false, self.deadline(), act);
        self.queue(Box::new(task), answer).await
    }

    async fn queue<T>(
        self: &Arc<Self>,
        work: Box<dyn Work>,
        answer: Answer<T>,
    ) -> Result<T, Failure> {
        let idle = {
            let mut state = self.lock();
            state.queue.push_back(work);
            !std::mem::replace(&mut state.served, true)
        };
        if idle {
            self.engine.spawn(Arc::clone(self).serve());
        }
        // The desk is gone without a word when its runtime is.
        answer.await.unwrap_or_else(|_| Err(self.silent(true)))
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    pub(super) fn silent(&self, outcome_unknown: bool) -> Failure {
        Failure {
            cause: Cause::Silent(self.patience),
            outcome_unknown,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What can be done in the next transaction.
    pub(super) fn next_batch(&mut self) -> Batch {
        let mut batch = Batch::new();
        let mut keys = 0;
        while let Some(work) = self.queue.front() {
            let more = match work.reads() {
                Reads::Keys(more) => more.len(),
                // Travels alone.
                Reads::Prefix(_) => MAX_KEYS,
            };
            if !batch.is_empty() && keys + more > MAX_KEYS {
                break;
            }
            keys += more;
            batch.extend(self.queue.pop_front());
        }
        batch
    }

    /// The requests that have queued since before `deadline`.
    pub(super) fn overdue(&mut self, now: Instant) -> Batch {
        let overdue = self
            .queue
            .iter()
            .take_while(|work| work.deadline() <= now)
            .count();
        self.queue.drain(..overdue).collect()
    }

    /// Puts back requests that could not be served, before all others and in their order.
    pub(super) fn put_back(&mut self, batch: Batch) {
        batch
            .into_iter()
            .rev()
            .for_each(|work| self.queue.push_front(work));
    }

    /// The requests that only read.
    pub(super) fn readers(&mut self) -> Batch {
        let all = std::mem::take(&mut self.queue).into_iter();
        let (readers, others) = all.partition(|work| !work.writes());
        self.queue = others;
        Vec::from(readers)
    }
}

/// Most keys of one transaction; more make others wait longer for their turn.
pub(super) const MAX_KEYS: usize = 256;

impl fmt::Debug for WriteQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteQueue")
            .field("transactor", &self.transactor)
            .finish_non_exhaustive()
    }
}
