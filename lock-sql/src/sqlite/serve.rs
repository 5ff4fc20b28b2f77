//! The task that serves a desk; there is at most one.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::connection::Connection;
use super::work::Batch;
use super::write_queue::WriteQueue;
use crate::error::{Cause, Failure};

impl WriteQueue {
    pub(super) async fn serve(self: Arc<Self>) {
        let connection = self.lock().connection.take();
        let mut serving = Serving {
            write_queue: &self,
            connection,
            done: false,
        };
        while let Some(batch) = serving.next_batch() {
            tokio::select! {
                () = self.serve_batch(&mut serving.connection, batch) => {}
                () = self.send_away() => {}
            }
        }
    }

    /// Fails requests that queue for too long. Never ends.
    async fn send_away(&self) {
        loop {
            let next = self.lock().queue.front().map(|work| work.deadline());
            tokio::time::sleep_until(next.unwrap_or_else(|| self.deadline())).await;
            let overdue = self.lock().overdue(tokio::time::Instant::now());
            overdue
                .into_iter()
                .for_each(|work| work.fail(self.silent(false)));
        }
    }

    /// Repeats a transaction for as long as others keep the database locked and anybody waits.
    async fn serve_batch(&self, connection: &mut Option<Connection>, mut batch: Batch) {
        let mut pause = FIRST_PAUSE;
        loop {
            self.thin_out(&mut batch);
            if batch.is_empty() {
                return;
            }
            match self.run(connection, &mut batch).await {
                Ok(()) => return batch.into_iter().for_each(|work| work.answer()),
                Err(Failure {
                    cause: Cause::Busy,
                    outcome_unknown: false,
                }) => {
                    self.serve_readers(connection, &mut batch).await;
                    tokio::time::sleep(self.engine.jitter(pause / 2, pause)).await;
                    pause = (pause * 2).min(LAST_PAUSE);
                }
                Err(failure) => return fail(batch, &failure),
            }
        }
    }

    /// Skips requests whose callers are gone, and those that have timed out.
    fn thin_out(&self, batch: &mut Batch) {
        let now = tokio::time::Instant::now();
        let all = std::mem::take(batch)
            .into_iter()
            .filter(|work| work.is_wanted());
        let (waiting, overdue) = all.partition(|work| work.deadline() > now);
        *batch = waiting;
        fail(overdue, &self.silent(false));
    }

    /// Serves requests that need no write lock.
    async fn serve_readers(&self, connection: &mut Option<Connection>, batch: &mut Batch) {
        let (mut readers, writers): (Batch, Batch) = std::mem::take(batch)
            .into_iter()
            .partition(|work| !work.writes());
        *batch = writers;
        readers.extend(self.lock().readers());
        let mut later = Batch::new();
        for reader in readers {
            // If one has to wait, so have those behind it.
            if !later.is_empty() {
                later.push(reader);
                continue;
            }
            let mut alone = vec![reader];
            match self.run(connection, &mut alone).await {
                Ok(()) => alone.into_iter().for_each(|work| work.answer()),
                Err(Failure {
                    cause: Cause::Busy,
                    outcome_unknown: false,
                }) => later.append(&mut alone),
                Err(failure) => fail(alone, &failure),
            }
        }
        // Never into the batch of the writers: what a list reads is not what they have to see.
        self.lock().put_back(later);
    }

    /// One attempt; a thread that hangs in the kernel is left behind with its connection.
    async fn run(
        &self,
        connection: &mut Option<Connection>,
        batch: &mut Batch,
    ) -> Result<(), Failure> {
        let deadline = batch.iter().map(|work| work.deadline()).max();
        let deadline = deadline.unwrap_or_else(|| self.deadline());
        let committing = AtomicBool::new(false);
        let run = self.transactor.run(connection, batch, &committing);
        match tokio::time::timeout_at(deadline + GRACE, run).await {
            Ok(done) => done,
            Err(_) => Err(self.silent(committing.into_inner())),
        }
    }
}

/// What an attempt gets beyond its deadline, so that a database which is merely busy says so, and
/// the connection is kept.
const GRACE: Duration = Duration::from_millis(100);

/// Pauses between attempts on a database that others keep locked, beside the time that SQLite
/// itself waits in each.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(10);

fn fail(batch: Batch, failure: &Failure) {
    batch
        .into_iter()
        .for_each(|work| work.fail(failure.clone()));
}

struct Serving<'a> {
    write_queue: &'a WriteQueue,
    connection: Option<Connection>,
    done: bool,
}

impl Serving<'_> {
    /// What comes next; puts the connection away if there is nothing.
    fn next_batch(&mut self) -> Option<Batch> {
        let mut state = self.write_queue.lock();
        let batch = state.next_batch();
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
            let left = {
                let mut state = self.write_queue.lock();
                state.served = false;
                std::mem::take(&mut state.queue)
            };
            // Tells the waiting caller that there will be no answer.
            drop(left);
        }
    }
}
