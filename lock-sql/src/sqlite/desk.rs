use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::LockKey;
use lock_core::engine::Engine;

use super::connection::Connection;
use super::transact::Transactor;
use super::work::{Answer, Batch, Reads, Task, Work};
use crate::error::{Cause, Failure};
use crate::table::Locks;

/// Where operations queue for one connection.
///
/// A task of the engine owns the connection and serves the queue, with one transaction for all who
/// stand in it. A caller that is dropped, or whose runtime is blocked, leaves no transaction open,
/// which would keep every other process from writing. What a caller gave up before it was begun is
/// left out; what it undoes afterwards queues behind what it undoes.
pub(super) struct Desk {
    engine: Engine,
    transactor: Transactor,
    /// How long a caller waits for an answer.
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Box<dyn Work>>,
    served: bool,
    /// The connection while nobody needs it.
    connection: Option<Connection>,
}

impl Desk {
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
        let (task, answer) = Task::new(Reads::Keys(keys), true, act);
        self.queue(Box::new(task), answer).await
    }

    /// Reads records.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        reads: Reads,
        act: impl FnOnce(&mut Locks) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (task, answer) = Task::new(reads, false, act);
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
        answer.within(self.patience).await
    }

    async fn serve(self: Arc<Self>) {
        let connection = self.lock().connection.take();
        let mut serving = Serving {
            desk: &self,
            connection,
            done: false,
        };
        while let Some(batch) = serving.next_batch() {
            self.serve_batch(&mut serving.connection, batch).await;
        }
    }

    /// Repeats a transaction for as long as others keep the database locked and anybody waits.
    async fn serve_batch(&self, connection: &mut Option<Connection>, mut batch: Batch) {
        let mut pause = FIRST_PAUSE;
        loop {
            batch.retain(|work| work.is_wanted());
            if batch.is_empty() {
                return;
            }
            match self.run(connection, &mut batch).await {
                Ok(()) => return batch.into_iter().for_each(|work| work.answer()),
                Err(Failure { cause: Cause::Busy, .. }) => {
                    self.serve_readers(connection, &mut batch).await;
                    tokio::time::sleep(self.engine.jitter(pause / 2, pause)).await;
                    pause = (pause * 2).min(LAST_PAUSE);
                }
                Err(failure) => {
                    return batch.into_iter().for_each(|work| work.fail(failure.clone()));
                }
            }
        }
    }

    /// Serves those who need not wait until others let the database be written.
    async fn serve_readers(&self, connection: &mut Option<Connection>, batch: &mut Batch) {
        let mut readers = take_readers(batch);
        readers.extend(take_readers(&mut self.lock().queue));
        for reader in readers {
            let mut alone = vec![reader];
            match self.run(connection, &mut alone).await {
                Ok(()) => alone.into_iter().for_each(|work| work.answer()),
                Err(Failure { cause: Cause::Busy, .. }) => batch.append(&mut alone),
                Err(failure) => alone.into_iter().for_each(|work| work.fail(failure.clone())),
            }
        }
    }

    /// One attempt; a thread that hangs in the kernel is left behind with its connection.
    async fn run(
        &self,
        connection: &mut Option<Connection>,
        batch: &mut Batch,
    ) -> Result<(), Failure> {
        let run = self.transactor.run(connection, batch);
        tokio::time::timeout(self.patience, run).await.unwrap_or_else(|_| Err(self.silent()))
    }

    fn silent(&self) -> Failure {
        Failure {
            cause: Cause::Silent(self.patience),
            outcome_unknown: true,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pauses between attempts on a database that others keep locked, beside the time that SQLite
/// itself waits in each.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(10);

/// Most keys of one transaction; more make others wait longer for their turn.
pub(super) const MAX_KEYS: usize = 256;

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("transactor", &self.transactor)
            .finish_non_exhaustive()
    }
}

fn take_readers<Q>(queue: &mut Q) -> Batch
where
    Q: Default + Extend<Box<dyn Work>> + IntoIterator<Item = Box<dyn Work>>,
{
    let (readers, others): (Batch, Batch) =
        std::mem::take(queue).into_iter().partition(|work| !work.writes());
    queue.extend(others);
    readers
}

/// The task that serves a desk; there is at most one.
struct Serving<'a> {
    desk: &'a Desk,
    connection: Option<Connection>,
    done: bool,
}

impl Serving<'_> {
    /// What can be done in the next transaction; puts the connection away if there is nothing.
    fn next_batch(&mut self) -> Option<Batch> {
        let mut state = self.desk.lock();
        let mut batch = Batch::new();
        let mut keys = 0;
        while let Some(work) = state.queue.front() {
            let more = match work.reads() {
                Reads::Keys(more) => more.len(),
                // Travels alone.
                Reads::Prefix(_) => MAX_KEYS,
            };
            if !batch.is_empty() && keys + more > MAX_KEYS {
                break;
            }
            keys += more;
            batch.extend(state.queue.pop_front());
        }
        if batch.is_empty() {
            state.connection = self.connection.take();
            state.served = false;
            self.done = true;
            return None;
        }
        Some(batch)
    }
}

/// A runtime that ends takes the task with it; the next one starts with another connection.
impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if !self.done {
            let mut state = self.desk.lock();
            state.served = false;
            // Whoever waits learns from this that nobody will answer.
            state.queue.clear();
        }
    }
}
