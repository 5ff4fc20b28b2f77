//! Statements that take a lock, and whose caller may be gone before their end.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::engine::{Engine, LeaseId, before};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::error::Failure;
use crate::pool::Pool;
use crate::wire::{Answer, Sql, Value};

/// The statements that nobody waits for any more.
///
/// A release that follows on another connection would not see what they are about to do: it waits
/// until they have done it.
#[derive(Debug, Default)]
pub(super) struct Unfinished(Mutex<HashMap<LeaseId, Arc<Semaphore>>>);

type Statement = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

impl Unfinished {
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
        answer
    }

    /// Waits until nothing takes a lock for `id` any more.
    pub(super) async fn settle(&self, id: LeaseId, patience: Duration) {
        let unfinished = self.lock().get(&id).map(Arc::clone);
        if let Some(unfinished) = unfinished {
            // It is closed at the end, and has nothing to give before.
            drop(before(Instant::now() + patience, unfinished.acquire()).await);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseId, Arc<Semaphore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Running<'a> {
    unfinished: &'a Arc<Unfinished>,
    engine: &'a Engine,
    id: LeaseId,
    statement: Option<Statement>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Some(statement) = self.statement.take() else {
            return;
        };
        let end = End {
            unfinished: Arc::clone(self.unfinished),
            id: self.id,
        };
        let end_of = Arc::new(Semaphore::new(0));
        self.unfinished.lock().insert(self.id, end_of);
        self.engine.spawn(async move {
            let _end = end;
            // What it took is given back by whoever dropped it.
            drop(statement.await);
        });
    }
}

/// Says that a statement has ended, or its runtime with it.
struct End {
    unfinished: Arc<Unfinished>,
    id: LeaseId,
}

impl Drop for End {
    fn drop(&mut self) {
        let ended = self.unfinished.lock().remove(&self.id);
        if let Some(ended) = ended {
            ended.close();
        }
    }
}
