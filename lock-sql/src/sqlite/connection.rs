use std::sync::Arc;

use lock_core::engine::LeaseId;
use sqlx::AssertSqlSafe;
use sqlx::Row as _;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};

use super::db_error;
use super::file::Files;
use super::open::{Place, check_layout, open};
use super::rows::{self, Table};
use crate::dialect::range;
use crate::dialect::sqlite::{Durability, ROLLBACK};
use crate::error::{Cause, Remove};
use crate::table::Row;

/// A connection that is outside of a transaction, or is dropped.
///
/// Dropping it makes the thread that it talks to finish the statement under way, roll back and
/// close. Each message to that thread either leaves the transaction open or ends it.
pub(super) struct Connection {
    raw: SqliteConnection,
    files: Files,
    epoch: u64,
    place: Arc<Place>,
}

/// What was read: about the table, and the rows of the keys that were asked for.
pub(super) struct Loaded {
    pub(super) table: Table,
    pub(super) rows: Vec<StoredRow>,
}

pub(super) type StoredRow = (Vec<u8>, Row);

impl Connection {
    /// Opens the file, which is made if there is none, and the table in it.
    pub(super) async fn open(
        place: &Arc<Place>,
        durability: Durability,
        epoch: u64,
        id: LeaseId,
    ) -> Result<Self, Cause> {
        let (raw, files) = open(place, durability, id).await?;
        let place = Arc::clone(place);
        Ok(Self {
            raw,
            files,
            epoch,
            place,
        })
    }

    /// Device and inode of the database file.
    pub(super) fn database(&self) -> (u64, u64) {
        self.files.database()
    }

    /// Which it is of the databases that were there one after the other.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// Whether what was read and written here is what others see.
    pub(super) fn check(&self) -> Result<(), Cause> {
        self.files.check()
    }

    /// Reads the rows of some keys, without keeping anybody from writing.
    pub(super) async fn load(&mut self, keys: &[&[u8]]) -> Result<Loaded, Cause> {
        let sql = self.place.statements.load(keys.len());
        self.loaded(sql, keys).await
    }

    /// Begins a write transaction, and reads the rows of some keys.
    pub(super) async fn begin(&mut self, keys: &[&[u8]]) -> Result<Loaded, Cause> {
        let sql = self.place.statements.begin_and_load(keys.len());
        self.loaded(sql, keys).await
    }

    async fn loaded(&mut self, sql: Arc<str>, keys: &[&[u8]]) -> Result<Loaded, Cause> {
        let mut values = SqliteArguments::default();
        for key in keys {
            rows::add(&mut values, key.to_vec())?;
        }
        let mut table = None;
        let mut loaded = Vec::new();
        for row in self.fetch(sql, values).await? {
            if rows::is_about_table(&row) {
                table = rows::read_table(&row);
            } else {
                loaded.push(self.read(&row)?);
            }
        }
        let table = table.ok_or_else(|| self.malformed())?;
        check_layout(&self.place, table.layout)?;
        Ok(Loaded {
            table,
            rows: loaded,
        })
    }

    /// Writes and deletes rows, and ends the transaction.
    pub(super) async fn commit(
        &mut self,
        changed: &[(&[u8], &Row)],
        table: Option<&Table>,
        deleted: &[StoredRow],
    ) -> Result<(), Cause> {
        let count = changed.len() + usize::from(table.is_some());
        let sql = self.place.statements.store_and_commit(count, deleted.len());
        let mut values = SqliteArguments::default();
        for (key, row) in deleted {
            rows::add(&mut values, key.clone())?;
            rows::add(&mut values, i64::from(row.slot))?;
        }
        for (key, row) in changed {
            rows::write(&mut values, key, row)?;
        }
        if let Some(table) = table {
            rows::write_table(&mut values, table)?;
        }
        self.fetch(sql, values).await.map(drop)
    }

    pub(super) async fn rollback(&mut self) -> Result<(), Cause> {
        self.fetch(ROLLBACK.into(), SqliteArguments::default())
            .await
            .map(drop)
    }

    /// The rows with holders of all keys that begin with `prefix`, in their order.
    pub(super) async fn list(&mut self, prefix: &str) -> Result<Vec<StoredRow>, Cause> {
        let (from, to) = range(prefix);
        let mut values = SqliteArguments::default();
        rows::add(&mut values, from)?;
        rows::add(&mut values, to)?;
        let found = self
            .fetch(Arc::clone(&self.place.statements.list), values)
            .await?;
        found.iter().map(|row| self.read(row)).collect()
    }

    /// The next `count` rows after one.
    pub(super) async fn scan(
        &mut self,
        after: &(Vec<u8>, u32),
        count: u32,
    ) -> Result<Vec<StoredRow>, Cause> {
        let mut values = SqliteArguments::default();
        rows::add(&mut values, after.0.clone())?;
        rows::add(&mut values, i64::from(after.1))?;
        rows::add(&mut values, i64::from(count))?;
        let found = self
            .fetch(Arc::clone(&self.place.statements.scan), values)
            .await?;
        found.iter().map(|row| self.read(row)).collect()
    }

    fn read(&self, row: &SqliteRow) -> Result<StoredRow, Cause> {
        rows::read(row).ok_or_else(|| {
            let key = row.try_get::<Vec<u8>, _>("key").unwrap_or_default();
            Cause::Malformed {
                table: self.table().to_owned(),
                remove: Remove::row(self.table(), "CAST(key AS TEXT)", &key),
            }
        })
    }

    fn malformed(&self) -> Cause {
        Cause::Malformed {
            table: self.table().to_owned(),
            remove: Remove::default(),
        }
    }

    fn table(&self) -> &str {
        self.place.statements.table().as_str()
    }

    async fn fetch(
        &mut self,
        sql: Arc<str>,
        values: SqliteArguments,
    ) -> Result<Vec<SqliteRow>, Cause> {
        let query = sqlx::query_with(AssertSqlSafe(sql), values);
        let rows = query.fetch_all(&mut self.raw).await;
        rows.map_err(|e| db_error::of(&self.place.path, e))
    }
}
