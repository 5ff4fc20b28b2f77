use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use polylock_core::LockKey;
use polylock_core::engine::{Engine, Mutex};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::clocks::Clocks;
use super::connection::{FileConnection, SqliteTable};
use crate::dialect::sqlite::Durability;
use crate::error::{SqlCause, SqlFailure};
use crate::store::LocalLeases;
use crate::table::LoadedLocks;

/// One operation; several share a transaction.
pub(super) struct QueuedWrite {
    pub(super) rows: Operands,
    timeout: Duration,
    /// When it is too late for an answer.
    deadline: Instant,
    act: Option<Act>,
    outcome: Option<WriteOutcome>,
    /// A caller that drops its end has given up, and undoes its request.
    reply: oneshot::Sender<Result<WriteOutcome, SqlFailure>>,
}

type Act = Box<dyn FnOnce(&mut LoadedLocks) -> WriteOutcome + Send>;

type WriteOutcome = Box<dyn Any + Send>;

pub(super) type Batch = Vec<QueuedWrite>;

/// What an operation works on.
pub(super) enum Operands {
    /// This lock, to change it.
    Changed(LockKey),
    /// The holders of locks whose keys begin with this.
    Listed(String),
    /// This lock.
    Read(LockKey),
    /// Nothing but what describes the table.
    Table,
}

impl QueuedWrite {
    pub(super) fn new<T: Send + 'static>(
        rows: Operands,
        timeout: Duration,
        act: impl FnOnce(&mut LoadedLocks) -> T + Send + 'static,
    ) -> (Self, oneshot::Receiver<Result<WriteOutcome, SqlFailure>>) {
        let (reply, answer) = oneshot::channel();
        let act = move |locks: &mut LoadedLocks| Box::new(act(locks)) as WriteOutcome;
        let work = Self {
            rows,
            timeout,
            deadline: Instant::now() + timeout,
            act: Some(Box::new(act)),
            outcome: None,
            reply,
        };
        (work, answer)
    }

    pub(super) fn writes(&self) -> bool {
        matches!(self.rows, Operands::Changed(_))
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.reply.is_closed()
    }

    /// Changes rows, and keeps the outcome.
    pub(super) fn apply(&mut self, locks: &mut LoadedLocks) {
        self.outcome = self.act.take().map(|act| act(locks));
    }

    /// Reports the outcome, once it is stored.
    fn answer(self) {
        if let Some(outcome) = self.outcome {
            drop(self.reply.send(Ok(outcome)));
        }
    }

    fn fail(self, failure: &SqlFailure) {
        drop(self.reply.send(Err(failure.clone())));
    }
}

/// The queue of operations for one connection.
///
/// A task of the engine owns the connection and serves the queue, with one transaction for all queued
/// requests. A caller that is dropped, or whose runtime is blocked, leaves no transaction open, which
/// would block the writes of all other processes. A request that was abandoned before it began is
/// skipped; its undo queues behind it.
///
/// The task also keeps the time: a caller may move from one runtime to another, and the timers of a
/// runtime that has ended panic.
pub(super) struct WriteQueue {
    pub(super) place: Arc<SqliteTable>,
    pub(super) engine: Engine,
    pub(super) clocks: Clocks,
    pub(super) local: Arc<LocalLeases>,
    pub(super) durability: Durability,
    pub(super) retention: Duration,
    /// Locks that were new to the table.
    pub(super) made: AtomicU32,
    /// How long a caller waits for an answer.
    pub(super) timeout: Duration,
    pub(super) state: Mutex<WriteQueueState>,
}

#[derive(Default)]
pub(super) struct WriteQueueState {
    queue: VecDeque<QueuedWrite>,
    is_served: bool,
    /// The connection while it is idle.
    connection: Option<FileConnection>,
}

impl WriteQueue {
    /// Runs an operation in a transaction.
    pub(super) async fn perform<T: Send + 'static>(
        self: &Arc<Self>,
        rows: Operands,
        act: impl FnOnce(&mut LoadedLocks) -> T + Send + 'static,
    ) -> Result<T, SqlFailure> {
        let mut outcomes = self.perform_all([(self.timeout, rows, act)]).await;
        outcomes.remove(0)
    }

    /// The same for several operations, which share transactions of up to [`MAX_KEYS`]. Each has a timeout
    /// that may be shorter: a connection that hangs for longer is abandoned.
    pub(super) async fn perform_all<T: Send + 'static, A>(
        self: &Arc<Self>,
        operations: impl IntoIterator<Item = (Duration, Operands, A)>,
    ) -> Vec<Result<T, SqlFailure>>
    where
        A: FnOnce(&mut LoadedLocks) -> T + Send + 'static,
    {
        let queued = operations
            .into_iter()
            .map(|(timeout, rows, act)| QueuedWrite::new(rows, timeout.min(self.timeout), act));
        let (work, answers): (Vec<_>, Vec<_>) = queued.unzip();
        let is_served = {
            let mut state = self.state.lock();
            state.queue.extend(work);
            std::mem::replace(&mut state.is_served, true)
        };
        if !is_served {
            self.engine.spawn(Arc::clone(self).serve());
        }
        let mut outcomes = Vec::with_capacity(answers.len());
        for answer in answers {
            // The task is gone without an answer when its runtime is.
            let outcome = answer
                .await
                .unwrap_or_else(|_| Err(SqlFailure::silent(self.timeout, true)));
            outcomes.push(outcome.map(|outcome| {
                *outcome
                    .downcast::<T>()
                    .expect("BUG: an operation has one type")
            }));
        }
        outcomes
    }

    /// The task; there is at most one.
    async fn serve(self: Arc<Self>) {
        let mut serving = Serving {
            connection: self.state.lock().connection.take(),
            write_queue: &self,
            is_done: false,
        };
        while let Some(batch) = serving.next_batch() {
            tokio::select! {
                () = self.serve_batch(&mut serving.connection, batch) => {}
                () = self.fail_overdue() => {}
            }
        }
    }

    /// Fails requests that queue for too long. Never ends.
    async fn fail_overdue(&self) {
        loop {
            let next = self.state.lock().queue.front().map(|work| work.deadline);
            sleep_until(next.unwrap_or_else(|| Instant::now() + self.timeout)).await;
            let overdue = self.state.lock().overdue(Instant::now());
            fail_silently(overdue);
        }
    }

    /// Repeats a transaction for as long as others keep the database locked and a caller waits.
    async fn serve_batch(&self, connection: &mut Option<FileConnection>, mut batch: Batch) {
        let mut backoff = MIN_BACKOFF;
        loop {
            drop_cancelled(&mut batch);
            if batch.is_empty() {
                return;
            }
            match self.run(connection, &mut batch).await {
                Ok(()) => return batch.into_iter().for_each(QueuedWrite::answer),
                Err(failure) if is_busy(&failure) => {
                    self.serve_readers(connection, &mut batch).await;
                    sleep(self.engine.jitter(backoff / 2, backoff)).await;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
                // The rows of the other keys may be in order.
                Err(failure) if batch.len() > 1 && is_malformed(&failure) => {
                    for work in batch {
                        Box::pin(self.serve_batch(connection, vec![work])).await;
                    }
                    return;
                }
                Err(failure) => return fail(batch, &failure),
            }
        }
    }

    /// Serves requests that need no write lock.
    async fn serve_readers(&self, connection: &mut Option<FileConnection>, batch: &mut Batch) {
        let mut readers: Batch = batch.extract_if(.., |work| !work.writes()).collect();
        readers.extend(self.state.lock().readers());
        let mut later = VecDeque::new();
        for reader in readers {
            // If one request has to wait, so do those behind it.
            if !later.is_empty() {
                later.push_back(reader);
                continue;
            }
            let mut alone = vec![reader];
            match self.run(connection, &mut alone).await {
                Ok(()) => alone.into_iter().for_each(QueuedWrite::answer),
                Err(failure) if is_busy(&failure) => later.extend(alone),
                Err(failure) => fail(alone, &failure),
            }
        }
        // Never into the batch of the writers: a list reads other rows than they have to see.
        let mut state = self.state.lock();
        later.append(&mut state.queue);
        state.queue = later;
    }

    /// Closes the connection to a database, by device and inode, if it is idle and the files were replaced.
    pub(super) fn close_replaced(&self, database: (u64, u64)) {
        let files = {
            let state = self.state.lock();
            state
                .connection
                .as_ref()
                .map(|open| Arc::clone(&open.files))
        };
        // Without the mutex: a disk may hang.
        let files = files.filter(|files| files.database() == database && files.check().is_err());
        let Some(files) = files else { return };
        let is_replaced = |open: &mut FileConnection| Arc::ptr_eq(&open.files, &files);
        let replaced = self.state.lock().connection.take_if(is_replaced);
        if let Some(replaced) = replaced {
            self.local.held.end(replaced.epoch);
        }
    }

    /// One attempt; abandons a thread that hangs in the kernel, with its connection.
    async fn run(
        &self,
        connection: &mut Option<FileConnection>,
        batch: &mut Batch,
    ) -> Result<(), SqlFailure> {
        // A lease that is renewed needs time for an attempt on another connection. The timeout of all other
        // requests is that of the queue: none that came later is given up with the first one.
        let brief = batch.iter().filter(|work| work.timeout < self.timeout);
        let first = brief.min_by_key(|work| work.deadline);
        let last = || batch.iter().max_by_key(|work| work.deadline);
        let (deadline, timeout) = match first.or_else(last) {
            Some(work) => (work.deadline, work.timeout),
            None => (Instant::now() + self.timeout, self.timeout),
        };
        let committing = AtomicBool::new(false);
        let run = self.transact(connection, batch, &committing);
        match timeout_at(deadline + GRACE, run).await {
            Ok(done) => done,
            Err(_) => Err(SqlFailure::silent(timeout, committing.into_inner())),
        }
    }
}

impl WriteQueueState {
    /// What can be done in the next transaction.
    fn next_batch(&mut self) -> Batch {
        let mut batch = Batch::new();
        let mut keys = 0;
        while let Some(work) = self.queue.front() {
            keys += match &work.rows {
                Operands::Changed(_) | Operands::Read(_) | Operands::Table => 1,
                // Travels alone.
                Operands::Listed(_) => MAX_KEYS,
            };
            if !batch.is_empty() && keys > MAX_KEYS {
                break;
            }
            batch.extend(self.queue.pop_front());
        }
        batch
    }

    /// The requests that have queued since before `now`.
    fn overdue(&mut self, now: Instant) -> Batch {
        let overdue = self.queue.iter().take_while(|work| work.deadline <= now);
        let overdue = overdue.count();
        self.queue.drain(..overdue).collect()
    }

    fn readers(&mut self) -> Batch {
        let all = std::mem::take(&mut self.queue).into_iter();
        let (readers, writers) = all.partition(|work| !work.writes());
        self.queue = writers;
        Vec::from(readers)
    }
}

/// Another process keeps the database locked, and nothing was done.
pub(super) fn is_busy(failure: &SqlFailure) -> bool {
    matches!(failure.cause, SqlCause::Busy) && !failure.outcome_unknown
}

/// A row, or all of the table, cannot be read, and nothing was done.
fn is_malformed(failure: &SqlFailure) -> bool {
    matches!(failure.cause, SqlCause::Malformed { .. }) && !failure.outcome_unknown
}

/// Skips requests whose callers are gone, and those that have timed out.
fn drop_cancelled(batch: &mut Batch) {
    let now = Instant::now();
    batch.retain(QueuedWrite::is_wanted);
    fail_silently(batch.extract_if(.., |work| work.deadline <= now).collect());
}

/// Fails requests that were not sent in time.
fn fail_silently(overdue: Batch) {
    for work in overdue {
        let failure = SqlFailure::silent(work.timeout, false);
        work.fail(&failure);
    }
}

fn fail(batch: Batch, failure: &SqlFailure) {
    batch.into_iter().for_each(|work| work.fail(failure));
}

struct Serving<'a> {
    write_queue: &'a WriteQueue,
    connection: Option<FileConnection>,
    is_done: bool,
}

impl Serving<'_> {
    /// What comes next; puts the connection away if there is nothing.
    fn next_batch(&mut self) -> Option<Batch> {
        let mut state = self.write_queue.state.lock();
        let batch = state.next_batch();
        if batch.is_empty() {
            state.connection = self.connection.take();
            state.is_served = false;
            self.is_done = true;
            return None;
        }
        Some(batch)
    }
}

/// A runtime that ends takes the task with it; the next one starts with another connection.
impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let left = {
                let mut state = self.write_queue.state.lock();
                state.is_served = false;
                std::mem::take(&mut state.queue)
            };
            // Tells the waiting callers that there will be no answer.
            drop(left);
        }
    }
}

/// Max keys of one transaction; with more, other processes wait longer.
pub(super) const MAX_KEYS: usize = 256;

/// Extra time of an attempt after its deadline, so that a database that is only busy reports that, and
/// the connection is kept.
const GRACE: Duration = Duration::from_millis(100);

/// Backoff between attempts on a database that others keep locked; SQLite itself waits in each.
const MIN_BACKOFF: Duration = Duration::from_millis(1);
const MAX_BACKOFF: Duration = Duration::from_millis(10);

#[cfg(test)]
pub(super) mod tests {
    use std::sync::mpsc;

    use super::super::connection;
    use super::*;

    /// How many operations wait for a transaction.
    pub(in crate::sqlite) fn waiting(write_queue: &WriteQueue) -> usize {
        write_queue.state.lock().queue.len()
    }

    /// Lets the next statement on the connection hang until the sender is dropped.
    pub(in crate::sqlite) async fn hang(write_queue: &WriteQueue) -> mpsc::Sender<()> {
        let mut open = loop {
            // It is put away after the last reply.
            if let Some(open) = write_queue.state.lock().connection.take() {
                break open;
            }
            sleep(Duration::from_millis(1)).await;
        };
        let end = connection::tests::hang(&mut open).await;
        write_queue.state.lock().connection = Some(open);
        end
    }
}
