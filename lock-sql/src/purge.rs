//! Deletes unused rows, a few at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::{Engine, Moment};

use super::codec::whole_micros;
use super::statements::{PURGE_ROWS, Statements};
use crate::error::Failure;
use crate::mutex::Mutex;
use crate::pool::Pool;
use crate::wire::{Class, Value};

/// Each time this process has added so many rows, [`PURGE_ROWS`] are looked at: the table is gone
/// through while it grows by an eighth, and no index has to tell which rows are idle.
///
/// No token comes back: the largest one of the rows to be deleted is stored first, as the least for
/// all rows to come, and the rows are deleted when every statement has ended that may not have seen
/// it.
#[derive(Debug)]
pub(super) struct Purge {
    engine: Engine,
    statements: Arc<Statements>,
    pool: Arc<Pool>,
    retention: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Rows that were added since the last round.
    grown: u32,
    /// Whether a round is on, or none may be any more.
    is_busy: bool,
    /// The last key that was looked at.
    passed: Vec<u8>,
    doomed: VecDeque<PendingDelete>,
}

/// Rows to be deleted, if they still are idle then.
#[derive(Clone, Debug)]
struct PendingDelete {
    keys: Vec<Vec<u8>>,
    /// The least token of all rows that come after them.
    floor: u64,
    since: Moment,
}

impl Purge {
    pub(super) fn new(
        engine: &Engine,
        statements: &Arc<Statements>,
        pool: &Arc<Pool>,
        retention: Duration,
    ) -> Arc<Self> {
        let state = State {
            // Processes that take one new lock each share the purging among them.
            grown: u32::from(engine.lease_id().as_bytes()[0]) % EVERY,
            is_busy: false,
            passed: Vec::new(),
            doomed: VecDeque::new(),
        };
        Arc::new(Self {
            engine: engine.clone(),
            statements: Arc::clone(statements),
            pool: Arc::clone(pool),
            retention,
            state: Mutex::new(state),
        })
    }

    /// The table has got a row.
    pub(super) fn grown(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            state.grown += 1;
            if state.is_busy || state.grown < EVERY {
                return;
            }
            state.grown = 0;
            state.is_busy = true;
        }
        let purge = Arc::clone(self);
        self.engine.spawn(async move {
            let done = purge.round().await;
            let denied = done.is_err_and(|failure| purge.is_denied(&failure));
            purge.state.lock().is_busy = denied;
        });
    }

    async fn round(&self) -> Result<(), Failure> {
        let due = self.state.lock().next_doomed(self.engine.now());
        if let Some(doomed) = due {
            self.delete(doomed).await?;
        }
        if self.state.lock().doomed.len() < MAX_PENDING_DELETES {
            self.scan().await?;
        }
        Ok(())
    }

    /// Picks rows that are idle, and keeps their tokens from coming back.
    async fn scan(&self) -> Result<(), Failure> {
        let after = self.state.lock().passed.clone();
        let retention = Value::from(whole_micros(self.retention));
        let values = vec![Value::from(after), retention];
        let scanned = self.pool.statement(&self.statements.scan, values).await?;
        let idle = |row: &&Vec<Value>| row[2].int() == Some(1);
        let idle: Vec<_> = scanned.rows.iter().filter(idle).collect();
        let floor = idle.iter().filter_map(|row| row[1].int()).max();
        if let Some(floor) = floor {
            let raise = &self.statements.raise;
            let raised = self.pool.statement(raise, vec![Value::from(floor)]).await?;
            // Without the row that keeps it, nothing may be deleted.
            if raised.affected > 0 {
                let keys = idle.iter().filter_map(|row| row[0].bytes());
                self.state.lock().doomed.push_back(PendingDelete {
                    keys: keys.map(<[u8]>::to_vec).collect(),
                    floor: u64::try_from(floor).unwrap_or_default(),
                    since: self.engine.now(),
                });
            }
        }
        let last = scanned.rows.last().and_then(|row| row[0].bytes());
        self.state.lock().passed = match last {
            Some(last) if scanned.rows.len() == PURGE_ROWS => last.to_vec(),
            _ => Vec::new(),
        };
        Ok(())
    }

    async fn delete(&self, doomed: PendingDelete) -> Result<(), Failure> {
        let retention = whole_micros(self.retention);
        let row = |key: Vec<u8>| {
            vec![
                Value::from(key),
                Value::from(retention),
                Value::from(doomed.floor),
            ]
        };
        let rows: Vec<_> = doomed.keys.into_iter().map(row).collect();
        let deleted = self.pool.many(&self.statements.delete, &rows).await?;
        tracing::debug!(rows = deleted.affected, "rows that nobody uses are deleted");
        Ok(())
    }

    /// Whether rows stay for good, because this user may not delete any.
    fn is_denied(&self, failure: &Failure) -> bool {
        let denied = failure.class() == Some(Class::Denied);
        if denied {
            tracing::debug!("rows that nobody uses stay: the user has no right to DELETE");
        } else {
            tracing::debug!(cause = %failure.cause, "rows that nobody uses are not deleted");
        }
        denied
    }
}

impl State {
    /// Those whose time has come.
    fn next_doomed(&mut self, now: Moment) -> Option<PendingDelete> {
        self.doomed
            .pop_front_if(|first| now.since(first.since) >= SETTLED)
    }
}

const EVERY: u32 = 8;

/// Longer than any statement takes.
const SETTLED: Duration = Duration::from_secs(90);

/// More are picked when some are deleted.
const MAX_PENDING_DELETES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::codec::moment;

    #[test]
    fn rows_are_deleted_when_their_floor_has_settled() {
        let mut state = State {
            grown: 0,
            is_busy: false,
            passed: Vec::new(),
            doomed: VecDeque::new(),
        };
        let second = |n: u64| moment(n * 1_000_000);
        for n in [10, 20] {
            state.doomed.push_back(PendingDelete {
                keys: Vec::new(),
                floor: n,
                since: second(n),
            });
        }
        let mut due = |n| state.next_doomed(second(n)).map(|doomed| doomed.floor);
        assert_eq!(due(99), None);
        assert_eq!(due(100), Some(10));
        assert_eq!(due(100), None);
        assert_eq!(due(110), Some(20));
        assert_eq!(due(200), None);
    }
}
