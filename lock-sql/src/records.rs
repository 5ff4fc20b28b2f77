use std::sync::Arc;
use std::time::Duration;

use polylock_core::admin::Record;
use polylock_core::engine::Engine;
use polylock_core::{FencingToken, LockKey};

use crate::config::{Server, SqlConfig};
use crate::database::codec::whole_micros;
use crate::dialect::records::{self, REFUSED, RecordTexts};
use crate::error::{Cause, Failure, Remove};
use crate::pool::Pool;
use crate::wire::Value;

/// What holders have stored beside their locks, in the table of a server. All modes have the same.
#[derive(Debug)]
pub(crate) struct Records {
    engine: Engine,
    pool: Arc<Pool>,
    texts: RecordTexts,
    /// The name of the table, for people.
    table: String,
}

impl Records {
    pub(crate) fn new(engine: &Engine, pool: &Arc<Pool>, config: &SqlConfig) -> Self {
        let table = config.table_sql();
        Self {
            engine: engine.clone(),
            pool: Arc::clone(pool),
            texts: match config.server {
                #[cfg(feature = "mysql")]
                Server::MySql => records::mysql(&table),
                #[cfg(feature = "postgres")]
                Server::Postgres => records::postgres(&table),
            },
            table: config.table.as_str().to_owned(),
        }
    }

    pub(crate) async fn read(&self, key: &LockKey) -> Result<Option<Record>, Failure> {
        let values = vec![Value::from(key.as_bytes())];
        let answer = self.pool.statement(&self.texts.read, values).await;
        // Whatever became of it, it changed nothing.
        let answer = answer.map_err(|failure| failure.cause)?;
        let Some(row) = answer.rows.first() else {
            return Ok(None);
        };
        let [token, bytes] = &row[..] else {
            return Err(self.malformed(key));
        };
        let token = token.int().and_then(|token| u64::try_from(token).ok());
        match (token, bytes.bytes()) {
            (Some(token), Some(bytes)) => Ok(Some(Record::new(FencingToken::new(token), bytes))),
            _ => Err(self.malformed(key)),
        }
    }

    /// Whether it was stored.
    pub(crate) async fn write(
        &self,
        key: &LockKey,
        record: &Record,
        keep: Duration,
    ) -> Result<bool, Failure> {
        let values = vec![
            Value::from(key.as_bytes()),
            Value::from(record.token.value()),
            Value::from(&record.bytes[..]),
            Value::from(whole_micros(keep)),
        ];
        let answer = self.pool.statement(&self.texts.write, values).await?;
        let is_written = answer.affected > 0 && answer.last_id != REFUSED;
        if is_written {
            self.purge_sometimes(key);
        }
        Ok(is_written)
    }

    /// Deletes some records that have ended. A user that may not delete leaves them.
    fn purge_sometimes(&self, key: &LockKey) {
        if !self.engine.lease_id().as_bytes()[0].is_multiple_of(PURGE_EVERY) {
            return;
        }
        let (pool, sql) = (Arc::clone(&self.pool), Arc::clone(&self.texts.purge));
        let values = vec![Value::from(key.as_bytes())];
        self.engine.spawn(async move {
            if let Err(failure) = pool.statement(&sql, values).await {
                tracing::debug!(cause = %failure.cause, "records that have ended are left");
            }
        });
    }

    fn malformed(&self, key: &LockKey) -> Failure {
        let table = self.table.clone();
        let remove = Remove::row(&self.table, "kind = 9 AND lock_key", key.as_bytes());
        Cause::Malformed { table, remove }.into()
    }
}

/// One write of so many begins a purge.
const PURGE_EVERY: u8 = 8;
