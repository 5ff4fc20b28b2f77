//! Reads the rows of a key, and writes them back if they are unchanged.

use std::time::Duration;

use polylock_core::LockKey;
use polylock_core::engine::{Engine, before};
use tokio::time::Instant;

use super::DatabaseStore;
use super::codec::{self, Stored};
use crate::error::{SqlCause, SqlFailure};
use crate::table::{LockRows, ReadContext};
use crate::wire::SqlValue;

impl DatabaseStore {
    /// Changes the current rows of a key, and notifies the waiters.
    pub(super) async fn change<T: Send>(
        &self,
        key: &LockKey,
        mut act: impl FnMut(&mut LockRows, &ReadContext) -> T + Send,
    ) -> Result<T, SqlFailure> {
        let mut again = WriteBackoff::urgent(self.timeout);
        loop {
            let Some(mut stored) = self.load(key).await? else {
                // A held lock has a row.
                return Ok(act(&mut LockRows::default(), &codec::context_at(0)));
            };
            let done = act(&mut stored.lock, &stored.ctx);
            if !stored.lock.is_changed() || self.store_and_notify(&stored).await? {
                return Ok(done);
            }
            again.wait(&self.engine).await?;
        }
    }

    /// The rows of a key; `None` if there are none.
    pub(super) async fn load(&self, key: &LockKey) -> Result<Option<Stored>, SqlFailure> {
        let values = vec![SqlValue::from(key.as_bytes())];
        let answer = self.pool.ask(&self.statements.load, values).await?;
        let found = match codec::read(&answer.rows).remove(key) {
            None => return Ok(None),
            Some(found) => found.ok_or_else(|| self.malformed(key))?,
        };
        Ok(Some(found).filter(|stored| stored.version.is_some()))
    }

    pub(super) fn malformed(&self, key: &LockKey) -> SqlFailure {
        SqlCause::malformed_row(&self.table, "kind = 1 AND lock_key", key.as_bytes()).into()
    }

    /// Writes the rows of a key back; false if they have changed since they were read.
    async fn store_and_notify(&self, stored: &Stored) -> Result<bool, SqlFailure> {
        let rows = codec::write(stored);
        let (sql, mut values) = self.statements.store_and_notify.with(&rows);
        values.extend(self.topic(&stored.key));
        Ok(self.pool.run(&sql, values).await?.affected > 0)
    }
}

/// Attempts to write a row with concurrent writers.
pub(super) struct WriteBackoff {
    deadline: Instant,
    delay: Duration,
    last: Duration,
}

impl WriteBackoff {
    /// For acquirers; slower than for holders, which have priority on the row.
    pub(super) fn within(timeout: Duration) -> Self {
        Self {
            deadline: Instant::now() + timeout,
            delay: MIN_BACKOFF,
            last: MAX_BACKOFF,
        }
    }

    /// For holders, which lose their lock if they are late.
    pub(super) fn urgent(timeout: Duration) -> Self {
        Self {
            delay: URGENT_BACKOFF,
            last: URGENT_BACKOFF,
            ..Self::within(timeout)
        }
    }

    /// Waits before the next attempt; fails if that would be after the deadline.
    pub(super) async fn wait(&mut self, engine: &Engine) -> Result<(), SqlFailure> {
        let delay = engine.jitter(Duration::ZERO, self.delay);
        if Instant::now() + delay > self.deadline {
            return Err(SqlCause::Busy.into());
        }
        before(Instant::now() + delay, std::future::pending::<()>()).await;
        self.delay = (self.delay * 2).min(self.last);
        Ok(())
    }
}

const URGENT_BACKOFF: Duration = Duration::from_millis(1);
const MIN_BACKOFF: Duration = Duration::from_millis(4);
const MAX_BACKOFF: Duration = Duration::from_millis(50);
