use std::sync::Arc;
use std::time::Duration;

use polylock_core::admin::Record;
use polylock_core::engine::Engine;
use polylock_core::{FencingToken, LockKey};

use crate::config::{Server, SqlConfig};
use crate::database::codec::whole_micros;
use crate::database::statements::PURGE_ROWS;
use crate::dialect::records::{self, REFUSED, RecordTexts};
use crate::error::{Cause, Failure, Remove};
use crate::mutex::Mutex;
use crate::pool::Pool;
use crate::wire::Value;

/// What holders have stored beside their locks, in the table of a server. All modes have the same.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    engine: Engine,
    pool: Arc<Pool>,
    texts: Arc<RecordTexts>,
    /// The last key that a purge looked at, which goes on from there.
    passed: Arc<Mutex<Option<Vec<u8>>>>,
    /// The name of the table, for people.
    table: String,
}

impl Records {
    pub(crate) fn new(engine: &Engine, pool: &Arc<Pool>, config: &SqlConfig) -> Self {
        let table = config.table_sql();
        Self {
            engine: engine.clone(),
            pool: Arc::clone(pool),
            texts: Arc::new(match config.server {
                #[cfg(feature = "mysql")]
                Server::MySql => records::mysql(&table),
                #[cfg(feature = "postgres")]
                Server::Postgres => records::postgres(&table),
            }),
            passed: Arc::default(),
            table: config.table.as_str().to_owned(),
        }
    }

    pub(crate) async fn read(&self, key: &LockKey) -> Result<Option<Record>, Failure> {
        let found = self.read_version(key).await?;
        Ok(found.map(|(record, _)| record))
    }

    /// A record, and its version.
    async fn read_version(&self, key: &LockKey) -> Result<Option<(Record, u64)>, Failure> {
        let values = vec![Value::from(key.as_bytes())];
        let answer = self.pool.statement(&self.texts.read, values).await;
        // Whatever became of it, it changed nothing.
        let answer = answer.map_err(|failure| failure.cause)?;
        let Some(row) = answer.rows.first() else {
            return Ok(None);
        };
        let [token, bytes, version] = &row[..] else {
            return Err(self.malformed(key));
        };
        let number = |value: &Value| value.int().and_then(|number| u64::try_from(number).ok());
        match (number(token), bytes.bytes(), number(version)) {
            (Some(token), Some(bytes), Some(version)) => Ok(Some((
                Record::new(FencingToken::new(token), bytes),
                version,
            ))),
            _ => Err(self.malformed(key)),
        }
    }

    /// Stores a record in place of every earlier one of its token; whether no larger token is in the way.
    pub(crate) async fn write(
        &self,
        key: &LockKey,
        record: &Record,
        keep: Duration,
    ) -> Result<bool, Failure> {
        let mut above = 0;
        for _ in 0..Record::MAX_WRITES {
            if self
                .write_version(key, record, Record::version_above(above), keep)
                .await?
            {
                self.purge_sometimes(key);
                return Ok(true);
            }
            match self.read_version(key).await? {
                Some((found, _)) if found.token > record.token => return Ok(false),
                // The clock of its writer is ahead, or it is a later one.
                Some((_, version)) => above = version,
                // It has ended meanwhile.
                None => {}
            }
        }
        Err(Cause::Overtaken.into())
    }

    /// Stores a version of a record, unless a later one is there; whether it was stored.
    pub(crate) async fn write_version(
        &self,
        key: &LockKey,
        record: &Record,
        version: u64,
        keep: Duration,
    ) -> Result<bool, Failure> {
        let values = vec![
            Value::from(key.as_bytes()),
            Value::from(record.token.value()),
            Value::from(&record.bytes[..]),
            Value::from(whole_micros(keep)),
            Value::from(version),
        ];
        let answer = self.pool.statement(&self.texts.write, values).await?;
        Ok(answer.affected > 0 && answer.last_id != REFUSED)
    }

    /// Deletes some records that have ended. A user that may not delete leaves them.
    fn purge_sometimes(&self, key: &LockKey) {
        let chance = self.engine.lease_id().as_bytes()[0];
        if !chance.is_multiple_of(PURGE_EVERY) {
            return;
        }
        // Processes that write one record each begin at the first one, where numbers and dates have grown
        // from, or anywhere.
        let anywhere = match chance.is_multiple_of(2 * PURGE_EVERY) {
            true => Vec::new(),
            false => key.as_bytes().to_vec(),
        };
        let records = self.clone();
        self.engine.spawn(async move {
            if let Err(failure) = records.purge(anywhere).await {
                tracing::debug!(cause = %failure.cause, "records that have ended are left");
            }
        });
    }

    /// Deletes those that have ended among the next few records after those of the last round; the first
    /// round begins at `anywhere`.
    async fn purge(&self, anywhere: Vec<u8>) -> Result<(), Failure> {
        let after = self.passed.lock().take().unwrap_or(anywhere);
        let values = vec![Value::from(after)];
        let scanned = self.pool.statement(&self.texts.scan, values).await?.rows;
        let last = scanned.last().and_then(|row| row[0].bytes());
        *self.passed.lock() = match last {
            Some(last) if scanned.len() == PURGE_ROWS => Some(last.to_vec()),
            _ => Some(Vec::new()),
        };
        let ended = scanned.into_iter().filter(|row| row[1].int() == Some(1));
        let ended: Vec<_> = ended.map(|row| row[..1].to_vec()).collect();
        if ended.is_empty() {
            return Ok(());
        }
        self.pool.many(&self.texts.delete, &ended).await.map(drop)
    }

    fn malformed(&self, key: &LockKey) -> Failure {
        let table = self.table.clone();
        let remove = Remove::row(&self.table, "kind = 9 AND lock_key", key.as_bytes());
        Cause::Malformed { table, remove }.into()
    }
}

/// One write of so many begins a purge.
const PURGE_EVERY: u8 = 8;
