use std::sync::{Arc, OnceLock};

use polylock_core::engine::Engine;
use polylock_core::{Error, ErrorKind, LockKey, Result, Wait};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Row as _};

use super::connection::DatabaseTransaction;
use super::place::QualifiedTable;
use crate::dialect::sqlite::{self, LAYOUT, PROBE, create_and_load, insert};
use crate::error::SqlCause;
use crate::sqlite::clocks::Clocks;
use crate::sqlite::db_error::{BUSY, BUSY_SNAPSHOT, ERROR, FULL, IOERR, LOCKED, READONLY, code};
use crate::sqlite::rows::{self, BoundQuery};
use crate::table::LoadedLocks;

impl DatabaseTransaction for SqliteConnection {
    const BACKEND: &str = "sqlite";

    /// Does not wait for a holder, which cannot release while this transaction has the write lock.
    async fn take(&mut self, place: &QualifiedTable, key: &LockKey, _wait: Wait) -> Result<u64> {
        check_open(self).await?;
        let clocks = clocks()?;
        let table = place.quoted('"', "");
        let load = query(create_and_load(&table)).bind(key.as_bytes().to_vec());
        let found = fetch(self, load).await?;
        // The clock is read under the write lock: see `ReadContext`.
        let mut locks = read(place, key, &found, clocks)?;
        let ctx = locks.ctx;
        let Ok(token) = locks.rows_of(key).pass(&ctx) else {
            return Err(Error::contended(Wait::Never));
        };
        let store = query(insert(&table, 1));
        let store = locks
            .changed()
            .fold(store, |store, (key, row)| rows::write(store, key, row));
        fetch(self, store).await?;
        Ok(token)
    }

    async fn raise(
        &mut self,
        place: &QualifiedTable,
        resource: &LockKey,
        token: u64,
    ) -> Result<u64> {
        check_open(self).await?;
        let raise = query(sqlite::raise(&place.quoted('"', "_fences")))
            .bind(resource.as_bytes().to_vec())
            .bind(i64::try_from(token).unwrap_or(i64::MAX));
        let found = fetch(self, raise).await?;
        let newest = found.last().and_then(|row| row.try_get::<i64, _>(0).ok());
        let newest = newest.and_then(|newest| u64::try_from(newest).ok());
        newest.ok_or_else(|| SqlCause::malformed(place.name()).into())
    }
}

/// The clocks of the process, with its observations from earlier transactions.
fn clocks() -> Result<&'static Clocks> {
    static CLOCKS: OnceLock<Clocks> = OnceLock::new();
    if let Some(clocks) = CLOCKS.get() {
        return Ok(clocks);
    }
    let engine = Engine::of_this_process(SqliteConnection::BACKEND);
    let clocks = Clocks::new(engine)?;
    Ok(CLOCKS.get_or_init(|| clocks))
}

/// What is stored about a lock, at this moment.
fn read(
    place: &QualifiedTable,
    key: &LockKey,
    found: &[SqliteRow],
    clocks: &Clocks,
) -> Result<LoadedLocks> {
    let about = found.iter().find(|row| rows::is_about_table(row));
    let about = about.and_then(rows::read_table);
    let malformed = || SqlCause::malformed(place.name());
    let about = about.ok_or_else(malformed)?;
    if about.layout != LAYOUT {
        return Err(SqlCause::layout(place.name(), about.layout, LAYOUT).into());
    }
    let mut locks = LoadedLocks::new(clocks.now(about.floor));
    for row in found.iter().filter(|row| !rows::is_about_table(row)) {
        let (_, mut row) = rows::read(row).ok_or_else(malformed)?;
        clocks.judge(&mut row, &locks.ctx);
        locks.rows_of(key).load(row);
    }
    Ok(locks)
}

/// Refuses a connection on which each statement would be a transaction of its own.
async fn check_open(raw: &mut SqliteConnection) -> Result<()> {
    let Err(error) = sqlx::raw_sql(PROBE).execute(raw).await else {
        let message = "no transaction is open on the connection, a lock would be free at once";
        return Err(Error::new(ErrorKind::InvalidRequest, message));
    };
    match code(&error) {
        // What it says to a transaction within a transaction.
        Some(ERROR) => Ok(()),
        _ => Err(failed(error)),
    }
}

fn query(sql: String) -> BoundQuery<'static> {
    sqlx::query(AssertSqlSafe(sql))
}

async fn fetch(raw: &mut SqliteConnection, statement: BoundQuery<'_>) -> Result<Vec<SqliteRow>> {
    statement.fetch_all(raw).await.map_err(failed)
}

fn failed(error: sqlx::Error) -> Error {
    let code = code(&error);
    let (kind, message) = match (code, code.map(|code| code & 0xFF)) {
        (Some(BUSY_SNAPSHOT), _) => (
            ErrorKind::Unavailable,
            "others have written since the transaction began to read; repeat it from its \
             beginning, and begin it by BEGIN IMMEDIATE",
        ),
        (_, Some(BUSY | LOCKED)) => (
            ErrorKind::Contended,
            "another connection keeps the database locked",
        ),
        (_, Some(READONLY)) => (ErrorKind::Unavailable, "the database is read-only"),
        (None, _) | (_, Some(IOERR | FULL)) => (
            ErrorKind::Unavailable,
            "the database cannot be read or written",
        ),
        _ => {
            let source = Arc::new(error);
            return SqlCause::Refused { source }.into();
        }
    };
    Error::new(kind, message).with_source(error)
}
