//! Connections that tasks own.
//!
//! A caller that is dropped leaves no connection in the middle of a statement: what it asked for is
//! left out if it was not begun, and goes on to its end otherwise.

mod job;
mod worker;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::engine::Engine;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::job::{Job, Shape};
use self::worker::Worker;
use crate::error::{Cause, Failure};
use crate::wire::{Answer, Sql, Target, Value};

/// Runs statements, each by itself, on at most so many connections.
pub(crate) struct Pool {
    engine: Engine,
    target: Arc<Target>,
    size: usize,
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What no worker has time for; empty while one of them has.
    queue: VecDeque<Job>,
    /// Idle workers, the last one first.
    idle: Vec<(u64, oneshot::Sender<Job>)>,
    workers: usize,
    next_ticket: u64,
}

impl Pool {
    /// Each statement, with its time in the queue and that of a new connection, gets `patience`.
    pub(crate) fn new(
        engine: &Engine,
        target: &Arc<Target>,
        size: usize,
        patience: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            engine: engine.clone(),
            target: Arc::clone(target),
            size,
            patience,
            state: Mutex::default(),
        })
    }

    /// Runs one statement; it is repeated if another transaction is in its way.
    pub(crate) async fn statement(
        self: &Arc<Self>,
        sql: &Arc<Sql>,
        values: Vec<Value>,
    ) -> Result<Answer, Failure> {
        self.run(sql, values, Shape::Statement).await
    }

    /// Runs several statements, once.
    pub(crate) async fn message(
        self: &Arc<Self>,
        sql: &Arc<Sql>,
        values: Vec<Value>,
    ) -> Result<Answer, Failure> {
        self.run(sql, values, Shape::Message).await
    }

    async fn run(
        self: &Arc<Self>,
        sql: &Arc<Sql>,
        values: Vec<Value>,
        shape: Shape,
    ) -> Result<Answer, Failure> {
        let (reply, answer) = oneshot::channel();
        self.submit(Job {
            sql: Arc::clone(sql),
            values,
            shape,
            deadline: Instant::now() + self.patience,
            reply,
        });
        // The worker is gone without a word when its runtime is.
        answer.await.unwrap_or_else(|_| Err(self.silent(true)))
    }

    fn submit(self: &Arc<Self>, mut job: Job) {
        {
            let mut state = self.lock();
            while let Some((_, worker)) = state.idle.pop() {
                match worker.send(job) {
                    Ok(()) => return,
                    Err(back) => job = back,
                }
            }
            if state.workers == self.size {
                state.queue.push_back(job);
                return;
            }
            state.workers += 1;
        }
        let worker = Worker::new(Arc::clone(self));
        self.engine.spawn_service(worker.work(job));
    }

    fn silent(&self, outcome_unknown: bool) -> Failure {
        Failure {
            cause: Cause::Silent(self.patience),
            outcome_unknown,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}
