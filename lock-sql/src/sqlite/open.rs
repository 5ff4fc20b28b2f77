use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::engine::LeaseId;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _};

use super::db_error;
use super::file::{self, Files};
use crate::dialect::sqlite::{self, Durability, LAYOUT, Statements, WAL};
use crate::error::{Cause, Source, foreign, lacks};

/// Which table of which file.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) creates_directory: bool,
    pub(super) statements: Statements,
    /// Device and inode of the file when it was opened last.
    pub(super) seen: Mutex<Option<(u64, u64)>>,
}

impl Place {
    /// Whether another file than the last one is there; this one is the last one then.
    pub(super) fn is_another(&self, file: (u64, u64)) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.replace(file).is_some_and(|last| last != file)
    }
}

/// Opens the file, which is made if there is none, and the table in it.
pub(super) async fn open(
    place: &Place,
    durability: Durability,
    id: LeaseId,
) -> Result<(SqliteConnection, Files), Cause> {
    let path = &place.path;
    if place.creates_directory {
        file::create_directory(path)?;
    }
    file::create(path, id)?;
    file::check_local(path)?;
    let before = file::inode(path).map_err(|e| db_error::opening(path, e))?;
    let target = path
        .canonicalize()
        .map_err(|e| db_error::opening(path, e))?;
    let mut raw = connect(&target).await.map_err(|e| db_error::of(path, e))?;
    start(&mut raw, place, durability).await?;
    let replaced = || Cause::Replaced { path: path.clone() };
    // From the first transaction on, the log and the shared memory stay as long as we do.
    let files = Files::of(path, &target).map_err(|_| replaced())?;
    if files.database() != before {
        return Err(replaced());
    }
    Ok((raw, files))
}

async fn connect(path: &Path) -> Result<SqliteConnection, sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_SLICE)
        .thread_name(|n| format!("polylock-db-{n}"))
        .disable_statement_logging();
    options.connect().await
}

/// Sets the connection up and makes the table, if that is missing.
async fn start(
    raw: &mut SqliteConnection,
    place: &Place,
    durability: Durability,
) -> Result<(), Cause> {
    let (path, statements) = (&place.path, &place.statements);
    let failed = |e| db_error::of(path, e);
    sqlx::query(durability.settings())
        .execute(&mut *raw)
        .await
        .map_err(failed)?;
    let journal: String = sqlx::query_scalar(WAL)
        .fetch_one(&mut *raw)
        .await
        .map_err(failed)?;
    if journal != "wal" {
        return Err(Cause::NoWal {
            path: path.clone(),
            journal,
        });
    }
    let exists = sqlx::query_scalar::<_, i64>(AssertSqlSafe(Arc::clone(&statements.exists)));
    let exists = exists
        .bind(statements.table().as_str())
        .fetch_optional(&mut *raw)
        .await;
    let mut layout = None;
    if exists.map_err(failed)?.is_some() {
        layout = read_layout(raw, place).await?;
    }
    if layout.is_none() {
        let create = sqlx::raw_sql(AssertSqlSafe(Arc::clone(&statements.create)));
        create.execute(&mut *raw).await.map_err(failed)?;
        layout = read_layout(raw, place).await?;
    }
    check_layout(place, layout.unwrap_or(0))
}

async fn read_layout(raw: &mut SqliteConnection, place: &Place) -> Result<Option<i64>, Cause> {
    let query = sqlx::query_scalar(AssertSqlSafe(Arc::clone(&place.statements.layout)));
    let layout = query.fetch_optional(&mut *raw).await;
    match layout.map_err(|e| db_error::of(&place.path, e)) {
        // A statement for a table that is there.
        Err(Cause::Refused { source }) => Err(other_table(raw, place, source).await),
        layout => layout,
    }
}

/// What is in place of the table of locks; `source` is what SQLite says to a statement for it, and the
/// error for a table that has the columns of one.
async fn other_table(raw: &mut SqliteConnection, place: &Place, source: Source) -> Cause {
    let table = place.statements.table().as_str();
    let columns = sqlx::query_scalar::<_, Option<String>>(COLUMNS).bind(table);
    let columns = columns.fetch_one(&mut *raw).await.ok().flatten();
    let expected: Vec<_> = sqlite::COLUMNS.split(", ").collect();
    let Some(columns) = columns.filter(|columns| lacks(columns, &expected)) else {
        return Cause::Refused { source };
    };
    let remove = format!("sqlite3 {:?} 'DROP TABLE {table}'", place.path);
    foreign(table, &columns, None, &remove, source)
}

const COLUMNS: &str = "SELECT group_concat(name, ', ') FROM pragma_table_info(?1)";

/// Refuses a table that means something else by its columns.
pub(super) fn check_layout(place: &Place, found: i64) -> Result<(), Cause> {
    if found == LAYOUT {
        return Ok(());
    }
    let table = place.statements.table().as_str().to_owned();
    Err(Cause::Layout {
        table,
        found,
        known: LAYOUT,
    })
}

/// How long one statement waits inside SQLite for others to finish; see [`WriteQueue`](super::write_queue::WriteQueue)
/// for how long an operation does.
const BUSY_SLICE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use sqlx::Row as _;

    use super::*;
    use crate::dialect::TableName;

    #[tokio::test]
    async fn a_connection_flushes_as_it_is_told_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let (statements, seen) = (Statements::new(TableName::default()), Mutex::default());
        let place = Place {
            path,
            creates_directory: false,
            statements,
            seen,
        };
        for (durability, level) in [(Durability::Every, 2), (Durability::Lazy, 1)] {
            let id = LeaseId::from_bytes([1; 16]);
            let (mut raw, _) = open(&place, durability, id).await.unwrap();
            let mut number = async |sql: &'static str| -> i64 {
                sqlx::query(sql).fetch_one(&mut raw).await.unwrap().get(0)
            };
            assert_eq!(number("PRAGMA synchronous").await, level);
            assert_eq!(number("PRAGMA trusted_schema").await, 0);
        }
    }
}
