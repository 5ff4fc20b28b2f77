//! Statements that acquire a lock, and may outlive their callers.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use polylock_core::engine::{Engine, LeaseId, Moment, Mutex, before};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::error::{SqlCause, SqlFailure};
use crate::pool::Pool;
use crate::wire::{ErrorClass, QueryResult, Sql, SqlValue};

/// The statements that acquire locks, until they have ended, here or at the server.
///
/// A release on another connection would not see their effect. It waits until they have ended, or its
/// outcome is unknown.
pub(super) struct InFlight {
    engine: Engine,
    /// How long the server keeps executing a statement whose connection is gone.
    aftermath: Duration,
    /// The statements of a lease: a repeated request has several.
    statements: Mutex<HashMap<LeaseId, Vec<Arc<Statement>>>>,
}

struct Statement {
    /// Closed when it ends here.
    running: Semaphore,
    /// Set when it ends here: the time by which it ends at the server, which is later without a reply.
    over: OnceLock<Moment>,
}

impl InFlight {
    /// For statements with the server-side limit `timeout`.
    pub(super) fn new(engine: &Engine, timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            engine: engine.clone(),
            aftermath: timeout.max(ROUNDING) + ROUNDING,
            statements: Mutex::default(),
        })
    }

    /// Runs a statement that acquires a lock for `id`; if dropped after its start, it runs to its end.
    pub(super) async fn run(
        self: &Arc<Self>,
        pool: &Arc<Pool>,
        id: LeaseId,
        (sql, values): (&Arc<Sql>, Vec<SqlValue>),
    ) -> Result<QueryResult, SqlFailure> {
        let end = self.begin(id);
        let ended = move |answer: Option<&Result<QueryResult, SqlFailure>>| {
            // Captures all of it and not only the field, or it would be dropped here.
            let mut end = end;
            end.in_doubt = answer.is_some_and(may_go_on);
        };
        pool.run_with(sql, values, ended).await
    }

    fn begin(self: &Arc<Self>, id: LeaseId) -> StatementEnd {
        let statement = Arc::new(Statement {
            running: Semaphore::new(0),
            over: OnceLock::new(),
        });
        let mut statements = self.statements.lock();
        let of_id = statements.entry(id).or_default();
        of_id.push(Arc::clone(&statement));
        StatementEnd {
            in_flight: Arc::clone(self),
            statement,
            in_doubt: true,
        }
    }

    /// Waits until no statement can acquire a lock for `id`; false if one still may.
    pub(super) async fn settle(&self, id: LeaseId, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let of_id = self.statements.lock().get(&id).cloned();
        for statement in of_id.unwrap_or_default() {
            // It has nothing to give before it is closed.
            drop(before(until, statement.running.acquire()).await);
        }
        let mut statements = self.statements.lock();
        forget_over(&mut statements, self.engine.now());
        !statements.contains_key(&id)
    }

    /// The statement that acquired a lock for `id` has ended: the lock was found.
    pub(super) fn forget(&self, id: LeaseId) {
        self.statements.lock().remove(&id);
    }
}

fn forget_over(statements: &mut HashMap<LeaseId, Vec<Arc<Statement>>>, now: Moment) {
    statements.retain(|_, of_id| {
        of_id.retain(|it| it.over.get().is_none_or(|over| *over > now));
        !of_id.is_empty()
    });
}

/// Whether the server may still execute a statement, which may wait for a locked row.
///
/// A server that ended the connection itself has ended the statement too.
fn may_go_on(answer: &Result<QueryResult, SqlFailure>) -> bool {
    let Err(failure) = answer else {
        return false;
    };
    let is_unheard = match &failure.cause {
        SqlCause::Silent { .. } => true,
        _ => failure.class() == Some(ErrorClass::Gone),
    };
    failure.outcome_unknown && is_unheard
}

/// Servers count some limits in whole seconds, and notice a lost client up to a second later.
const ROUNDING: Duration = Duration::from_secs(1);

/// Says that a statement has ended, or its runtime with it.
struct StatementEnd {
    in_flight: Arc<InFlight>,
    statement: Arc<Statement>,
    in_doubt: bool,
}

impl Drop for StatementEnd {
    fn drop(&mut self) {
        let now = self.in_flight.engine.now();
        // What is certain is over at once.
        let over = match self.in_doubt {
            true => now + self.in_flight.aftermath,
            false => now,
        };
        self.statement.over.get_or_init(|| over);
        // There are few of them, and none is asked for again.
        forget_over(&mut self.in_flight.statements.lock(), now);
        self.statement.running.close();
    }
}

#[cfg(test)]
mod tests {
    use polylock_core::engine::{OnRuntime, OsEntropy, VirtualClock};

    use super::*;

    /// As of an adoption whose answer was lost, and its repetition, which never began.
    #[tokio::test]
    async fn the_end_of_a_repetition_settles_nothing_of_the_first() {
        let clock = Arc::new(VirtualClock::new());
        let (time, spawn) = (Arc::<VirtualClock>::clone(&clock), OnRuntime::current());
        let engine = Engine::with(
            "test",
            time,
            Arc::new(OsEntropy::default()),
            Arc::new(spawn),
        );
        let in_flight = InFlight::new(&engine, Duration::from_secs(5));
        let id = LeaseId::from_bytes([1; 16]);
        let settles = || in_flight.settle(id, Duration::from_millis(1));
        let end = |mut end: StatementEnd, in_doubt| end.in_doubt = in_doubt;

        let first = in_flight.begin(id);
        end(in_flight.begin(id), false);
        assert!(!settles().await, "the first one runs");
        end(first, true);
        assert!(!settles().await, "the first one is in doubt");
        end(in_flight.begin(id), false);
        assert!(!settles().await, "the first one is still in doubt");
        clock.suspend(Duration::from_secs(7));
        assert!(settles().await);

        end(in_flight.begin(id), false);
        assert!(settles().await, "what is certain is over at once");
    }
}
