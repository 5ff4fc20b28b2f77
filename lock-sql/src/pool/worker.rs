//! A task that owns a connection.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::Pool;
use super::job::{Job, Shape};
use crate::error::Failure;
use crate::wire::{Answer, Class, Connection, Sql};

/// Owns a connection; counts as one of the pool for as long as it is there, also before it has begun.
pub(super) struct Worker {
    pool: Arc<Pool>,
    connection: Option<Connection>,
    /// Since when the connection has had nothing to do.
    rested: Instant,
    counted: bool,
}

impl Worker {
    pub(super) fn new(pool: Arc<Pool>) -> Self {
        Self {
            pool,
            connection: None,
            rested: Instant::now(),
            counted: true,
        }
    }

    /// Does one job after the other, and ends when there was none for a while.
    pub(super) async fn work(mut self, first: Job) {
        let mut next = Some(first);
        while let Some(job) = next {
            let answer = self.serve(&job).await;
            next = self.next(job, answer).await;
        }
    }

    /// None if the caller is gone.
    async fn serve(&mut self, job: &Job) -> Option<Result<Answer, Failure>> {
        if !job.is_wanted() {
            return None;
        }
        if job.deadline <= Instant::now() {
            // It has waited in the queue for too long: its caller is gone.
            return Some(Err(self.pool.silent(false)));
        }
        let answer = match timeout_at(job.deadline, self.connect()).await {
            // A caller that gave up while a connection was opened has undone it already.
            Ok(Ok(connection)) if !job.is_wanted() => {
                self.connection = Some(connection);
                return None;
            }
            Ok(Ok(connection)) => self.run(connection, job).await,
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(self.pool.silent(false)),
        };
        self.rested = Instant::now();
        Some(answer)
    }

    /// Runs a job; the connection is kept if it is in order afterwards.
    async fn run(&mut self, mut connection: Connection, job: &Job) -> Result<Answer, Failure> {
        let mut pause = FIRST_PAUSE;
        loop {
            let Ok(done) = timeout_at(job.deadline, job.run(&mut connection)).await else {
                // The connection, which has no reader any more, is closed with this.
                return Err(self.pool.silent(true));
            };
            let db_error = match done {
                Ok(answer) => {
                    self.connection = Some(connection);
                    return Ok(answer);
                }
                Err(db_error) => db_error,
            };
            let repeats = db_error.class == Class::Conflict
                && job.shape == Shape::Statement
                && job.is_wanted();
            if repeats && Instant::now() + pause < job.deadline {
                tokio::time::sleep(self.pool.engine.jitter(pause / 2, pause)).await;
                pause = (pause * 2).min(LAST_PAUSE);
                continue;
            }
            if !db_error.class.is_the_end() {
                self.connection = Some(connection);
            }
            return Err(Failure::of_statement(db_error));
        }
    }

    /// The connection, which answers, or a new one.
    async fn connect(&mut self) -> Result<Connection, Failure> {
        if let Some(mut connection) = self.connection.take() {
            if self.rested.elapsed() < UNASKED {
                return Ok(connection);
            }
            // A server that was restarted meanwhile costs a question, and not the outcome of a
            // statement.
            let asked = timeout(ASKING, connection.statement(&PING, &[])).await;
            if asked.is_ok_and(|answer| answer.is_ok()) {
                return Ok(connection);
            }
        }
        let opened = Connection::open(&self.pool.target).await;
        let mut opened = opened.map_err(Failure::of_opening)?;
        let settled = opened.settle(self.pool.patience).await;
        settled.map_err(Failure::of_opening)?;
        Ok(opened)
    }

    /// Answers a job, and waits for the next one.
    async fn next(&mut self, job: Job, answer: Option<Result<Answer, Failure>>) -> Option<Job> {
        let given = self.stand_by();
        // A caller with sequential requests finds this worker idle.
        if let Some(answer) = answer {
            job.answer(answer);
        }
        let (ticket, mut given) = match given {
            Ok(job) => return Some(job),
            Err(waiting) => waiting,
        };
        if let Ok(job) = timeout(IDLE, &mut given).await {
            return job.ok();
        }
        {
            let mut state = self.pool.lock();
            let at = state.idle.iter().position(|(other, _)| *other == ticket);
            if let Some(at) = at {
                state.idle.remove(at);
                state.workers -= 1;
                self.counted = false;
                return None;
            }
        }
        // It came at the last moment.
        given.await.ok()
    }
}

impl Worker {
    /// The next job, or where it will come.
    fn stand_by(&self) -> Result<Job, (u64, oneshot::Receiver<Job>)> {
        let mut state = self.pool.lock();
        if let Some(job) = state.queue.pop_front() {
            return Ok(job);
        }
        let (give, given) = oneshot::channel();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.idle.push((ticket, give));
        Err((ticket, given))
    }
}

/// A runtime that ends takes the task with it; the next job starts with another one.
impl Drop for Worker {
    fn drop(&mut self) {
        if self.counted {
            let left = {
                let mut state = self.pool.lock();
                state.workers -= 1;
                match state.workers {
                    0 => std::mem::take(&mut state.queue),
                    _ => Default::default(),
                }
            };
            // Tells the waiting caller that there will be no answer.
            drop(left);
        }
    }
}

static PING: LazyLock<Sql> = LazyLock::new(|| Sql::new("SELECT 1"));

/// A connection that was used within this time is taken to be alive.
const UNASKED: Duration = Duration::from_secs(1);

/// How long a connection that has rested may take to say that it is alive.
const ASKING: Duration = Duration::from_secs(1);

/// A connection that is idle for this long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// Pauses before a statement is repeated that was in conflict with another one.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(50);
