//! Statements that take a lock, and whose caller may be gone before their end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::{Engine, LeaseId, Moment, before};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::error::{Cause, Failure};
use crate::mutex::Mutex;
use crate::pool::Pool;
use crate::wire::{Answer, Class, Sql, Value};

/// The statements that take locks, until they have ended, here or at the server.
///
/// A release that follows on another connection would not see what they are about to do: it waits
/// until they have done it, or does not know what it has left behind.
#[derive(Debug)]
pub(super) struct InFlight {
    engine: Engine,
    /// How long the server works on a statement whose connection is gone.
    aftermath: Duration,
    statements: Mutex<HashMap<LeaseId, State>>,
}

#[derive(Debug)]
enum State {
    /// It runs; this is closed at its end.
    Running(Arc<Semaphore>),
    /// Its end, which comes before this, has no receiver.
    InDoubt(Moment),
}

impl InFlight {
    /// For statements that the server gives `timeout`.
    pub(super) fn new(engine: &Engine, timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            engine: engine.clone(),
            aftermath: timeout.max(ROUNDING) + ROUNDING,
            statements: Mutex::default(),
        })
    }

    /// Runs a statement that takes a lock for `id`; dropped, it goes on to its end if it has begun.
    pub(super) async fn run(
        self: &Arc<Self>,
        pool: &Arc<Pool>,
        id: LeaseId,
        (sql, values): (&Arc<Sql>, Vec<Value>),
    ) -> Result<Answer, Failure> {
        let running = Arc::new(Semaphore::new(0));
        let end = End {
            in_flight: Arc::clone(self),
            id,
            running: Arc::clone(&running),
            in_doubt: true,
        };
        self.statements.lock().insert(id, State::Running(running));
        let ended = move |answer: Option<&Result<Answer, Failure>>| {
            // All of it, or it would be dropped here.
            let mut end = end;
            end.in_doubt = answer.is_some_and(may_go_on);
        };
        pool.statement_with(sql, values, ended).await
    }

    /// Waits until nothing takes a lock for `id` any more; false if something still may.
    pub(super) async fn settle(&self, id: LeaseId, timeout: Duration) -> bool {
        if let Some(running) = self.running(id) {
            // It has nothing to give before it is closed.
            drop(before(Instant::now() + timeout, running.acquire()).await);
        }
        let mut statements = self.statements.lock();
        match statements.get(&id) {
            None => true,
            Some(State::InDoubt(until)) if *until <= self.engine.now() => {
                statements.remove(&id);
                true
            }
            Some(_) => false,
        }
    }

    /// What took a lock for `id` has done it: the lock was found.
    pub(super) fn forget(&self, id: LeaseId) {
        self.statements.lock().remove(&id);
    }

    /// A statement has ended; what another one of the same id does is left as it is.
    fn end(&self, id: LeaseId, ended: &Arc<Semaphore>) {
        let is_it = |state: &State| matches!(state, State::Running(it) if Arc::ptr_eq(it, ended));
        let mut statements = self.statements.lock();
        if statements.get(&id).is_some_and(is_it) {
            statements.remove(&id);
        }
    }

    fn running(&self, id: LeaseId) -> Option<Arc<Semaphore>> {
        match self.statements.lock().get(&id)? {
            State::Running(end) => Some(Arc::clone(end)),
            State::InDoubt(_) => None,
        }
    }

    fn doubt(&self, id: LeaseId) {
        let now = self.engine.now();
        let mut statements = self.statements.lock();
        // There are few of them, and none is asked for again.
        statements.retain(|_, state| !matches!(state, State::InDoubt(until) if *until <= now));
        statements.insert(id, State::InDoubt(now + self.aftermath));
    }
}

/// Whether the server may still be at a statement; it may wait for the row that another one locks.
///
/// A server that ended the connection itself has ended the statement too.
fn may_go_on(answer: &Result<Answer, Failure>) -> bool {
    let Err(failure) = answer else {
        return false;
    };
    let is_unheard = match &failure.cause {
        Cause::Silent(_) => true,
        _ => failure.class() == Some(Class::Gone),
    };
    failure.outcome_unknown && is_unheard
}

/// Servers count some limits in whole seconds, and notice a second later that a client is gone.
const ROUNDING: Duration = Duration::from_secs(1);

/// Says that a statement has ended, or its runtime with it.
struct End {
    in_flight: Arc<InFlight>,
    id: LeaseId,
    running: Arc<Semaphore>,
    in_doubt: bool,
}

impl Drop for End {
    fn drop(&mut self) {
        match self.in_doubt {
            true => self.in_flight.doubt(self.id),
            false => self.in_flight.end(self.id, &self.running),
        }
        self.running.close();
    }
}
