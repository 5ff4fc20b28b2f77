//! Statements that take a lock, and whose caller may be gone before their end.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::engine::{Engine, LeaseId, Moment, before};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::error::{Cause, Failure};
use crate::pool::Pool;
use crate::wire::{Answer, Class, Sql, Value};

/// The statements whose callers are gone, here or at the server.
///
/// A release that follows on another connection would not see what they are about to do: it waits
/// until they have done it, or does not know what it has left behind.
#[derive(Debug)]
pub(super) struct InFlight {
    /// How long the server works on a statement whose connection is gone.
    aftermath: Duration,
    statements: Mutex<HashMap<LeaseId, State>>,
}

#[derive(Debug)]
enum State {
    /// It goes on in the background; this is closed at its end.
    Running(Arc<Semaphore>),
    /// Its end, which comes before this, has no receiver.
    InDoubt(Moment),
}

type Statement = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

impl InFlight {
    /// For statements that the server gives `patience`.
    pub(super) fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            aftermath: patience.max(ROUNDING) + ROUNDING,
            statements: Mutex::default(),
        })
    }

    /// Runs a statement that takes a lock for `id`; dropped, it goes on to its end.
    pub(super) async fn run(
        self: &Arc<Self>,
        engine: &Engine,
        pool: &Arc<Pool>,
        id: LeaseId,
        (sql, values): (&Arc<Sql>, Vec<Value>),
    ) -> Result<Answer, Failure> {
        let (pool, sql) = (Arc::clone(pool), Arc::clone(sql));
        let mut running = Running {
            unfinished: self,
            engine,
            id,
            statement: Some(Box::pin(async move { pool.statement(&sql, values).await })),
        };
        let statement = running.statement.as_mut();
        let answer = statement.expect("BUG: only its end takes it out").await;
        running.statement = None;
        if may_go_on(&answer) {
            self.doubt(id, engine.now());
        }
        answer
    }

    /// Waits until nothing takes a lock for `id` any more; false if something still may.
    pub(super) async fn settle(&self, engine: &Engine, id: LeaseId, patience: Duration) -> bool {
        if let Some(running) = self.running(id) {
            // It has nothing to give before it is closed.
            drop(before(Instant::now() + patience, running.acquire()).await);
        }
        let mut statements = self.lock();
        match statements.get(&id) {
            None => true,
            Some(State::InDoubt(until)) if *until <= engine.now() => {
                statements.remove(&id);
                true
            }
            Some(_) => false,
        }
    }

    /// What took a lock for `id` has done it: the lock was found.
    pub(super) fn forget(&self, id: LeaseId) {
        self.lock().remove(&id);
    }

    fn running(&self, id: LeaseId) -> Option<Arc<Semaphore>> {
        match self.lock().get(&id)? {
            State::Running(end) => Some(Arc::clone(end)),
            State::InDoubt(_) => None,
        }
    }

    fn doubt(&self, id: LeaseId, now: Moment) {
        let mut statements = self.lock();
        // There are few of them, and none is asked for again.
        statements.retain(|_, state| !matches!(state, State::InDoubt(until) if *until <= now));
        statements.insert(id, State::InDoubt(now + self.aftermath));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseId, State>> {
        self.statements
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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

struct Running<'a> {
    unfinished: &'a Arc<InFlight>,
    engine: &'a Engine,
    id: LeaseId,
    statement: Option<Statement>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Some(statement) = self.statement.take() else {
            return;
        };
        let running = Arc::new(Semaphore::new(0));
        let end = End {
            unfinished: Arc::clone(self.unfinished),
            engine: self.engine.clone(),
            id: self.id,
            running: Arc::clone(&running),
            in_doubt: true,
        };
        let mut statements = self.unfinished.lock();
        statements.insert(self.id, State::Running(running));
        drop(statements);
        self.engine.spawn(async move {
            // All of it, or it would be dropped here.
            let mut end = end;
            // The caller that dropped it releases what it acquired.
            end.in_doubt = may_go_on(&statement.await);
        });
    }
}

/// Says that a statement has ended, or its runtime with it.
struct End {
    unfinished: Arc<InFlight>,
    engine: Engine,
    id: LeaseId,
    running: Arc<Semaphore>,
    in_doubt: bool,
}

impl Drop for End {
    fn drop(&mut self) {
        match self.in_doubt {
            true => self.unfinished.doubt(self.id, self.engine.now()),
            false => self.unfinished.forget(self.id),
        }
        self.running.close();
    }
}
