use std::sync::Arc;
use std::time::Duration;

use polylock_core::admin::Record;
use polylock_core::{FencingToken, LockKey};

use crate::config::{ServerKind, SqlConfig};
use crate::database::codec::whole_micros;
use crate::dialect::records::{self, REFUSED, RecordTexts};
use crate::error::{SqlCause, SqlFailure};
use crate::pool::Pool;
use crate::purge::Purge;
use crate::wire::SqlValue;

/// The records that holders have stored in the table of a server; the same for all modes.
pub(crate) struct Records {
    pool: Arc<Pool>,
    purge: Arc<Purge>,
    texts: RecordTexts,
    /// The name of the table, for people.
    table: String,
}

impl Records {
    pub(crate) fn new(purge: &Arc<Purge>, pool: &Arc<Pool>, config: &SqlConfig) -> Self {
        let table = config.table_sql();
        Self {
            pool: Arc::clone(pool),
            purge: Arc::clone(purge),
            texts: match config.server {
                ServerKind::MySql => records::mysql(&table),
                ServerKind::Postgres => records::postgres(&table),
            },
            table: config.table.as_str().to_owned(),
        }
    }

    pub(crate) async fn read(&self, key: &LockKey) -> Result<Option<Record>, SqlFailure> {
        let found = self.read_version(key).await?;
        Ok(found.map(|(record, _)| record))
    }

    async fn read_version(&self, key: &LockKey) -> Result<Option<(Record, u64)>, SqlFailure> {
        let values = vec![SqlValue::from(key.as_bytes())];
        let answer = self.pool.ask(&self.texts.read, values).await?;
        let Some(row) = answer.rows.first() else {
            return Ok(None);
        };
        let [token, bytes, version] = &row[..] else {
            return Err(self.malformed(key));
        };
        let number = |value: &SqlValue| value.int().and_then(|number| u64::try_from(number).ok());
        match (number(token), bytes.bytes(), number(version)) {
            (Some(token), Some(bytes), Some(version)) => Ok(Some((
                Record::new(FencingToken::new(token), bytes),
                version,
            ))),
            _ => Err(self.malformed(key)),
        }
    }

    /// Stores a record in place of all earlier records of its token; false if a larger token is stored.
    pub(crate) async fn write(
        &self,
        key: &LockKey,
        record: &Record,
        keep: Duration,
    ) -> Result<bool, SqlFailure> {
        let mut above = 0;
        for _ in 0..Record::MAX_WRITES {
            if self
                .write_version(key, record, Record::version_above(above), keep)
                .await?
            {
                self.purge.grown();
                return Ok(true);
            }
            match self.read_version(key).await? {
                Some((found, _)) if found.token > record.token => return Ok(false),
                // The clock of that writer is ahead, or that write is later.
                Some((_, version)) => above = version,
                // It has ended meanwhile.
                None => {}
            }
        }
        let says = "other records with the same token are stored all the time";
        Err(SqlCause::Unfit(says.to_owned()).into())
    }

    /// Stores a version of a record, unless a later one is there; whether it was stored.
    pub(crate) async fn write_version(
        &self,
        key: &LockKey,
        record: &Record,
        version: u64,
        keep: Duration,
    ) -> Result<bool, SqlFailure> {
        let values = vec![
            SqlValue::from(key.as_bytes()),
            SqlValue::from(record.token.value()),
            SqlValue::from(&record.bytes[..]),
            SqlValue::from(whole_micros(keep)),
            SqlValue::from(version),
        ];
        let answer = self.pool.run(&self.texts.write, values).await?;
        Ok(answer.affected > 0 && answer.last_id != REFUSED)
    }

    fn malformed(&self, key: &LockKey) -> SqlFailure {
        SqlCause::malformed_row(&self.table, "kind = 9 AND lock_key", key.as_bytes()).into()
    }
}
