use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylock_core::ErrorKind;
use polylock_core::engine::{LeaseId, Mutex};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _};
use tokio::task::spawn_blocking;

use super::db_error;
use super::file::{self, Files};
use super::open_files;
use super::rows::{self, BoundQuery, StoredRow, TableInfo};
use crate::dialect::range;
use crate::dialect::sqlite::{self, Durability, EXISTS, LAYOUT, ROLLBACK, SqliteStatements, WAL};
use crate::error::{SqlCause, SqlErrorSource, foreign, lacks};
use crate::table::LockRow;

/// A connection that is outside of a transaction, or is dropped.
///
/// If it is dropped, its thread finishes the current statement, rolls back and closes. Each message to
/// that thread either leaves the transaction open or ends it.
pub(super) struct FileConnection {
    raw: SqliteConnection,
    pub(super) files: Arc<Files>,
    /// The epoch of the database, among those that existed one after the other.
    pub(super) epoch: u64,
    place: Arc<SqliteTable>,
}

impl FileConnection {
    /// Opens the file, which is made if there is none, and the table in it.
    pub(super) async fn open(
        place: &Arc<SqliteTable>,
        durability: Durability,
        epoch: u64,
        id: LeaseId,
    ) -> Result<Self, SqlCause> {
        let path = &place.path;
        let own = Arc::clone(place);
        let (target, before) = on_file_system(move || prepare(&own, id)).await?;
        let options = SqliteConnectOptions::new()
            .filename(&target)
            .busy_timeout(BUSY_SLICE)
            .thread_name(|n| format!("polylock-db-{n}"))
            .disable_statement_logging();
        let mut raw = options.connect().await.map_err(|e| db_error::of(path, e))?;
        start(&mut raw, place, durability).await?;
        let own = Arc::clone(place);
        let files = on_file_system(move || opened(&own.path, &target, before)).await?;
        Ok(Self {
            raw,
            files,
            epoch,
            place: Arc::clone(place),
        })
    }

    /// Reads what describes the table, and the rows of some keys: in a write transaction, which begins here,
    /// or without blocking writers.
    pub(super) async fn load(
        &mut self,
        keys: &[&[u8]],
        writes: bool,
    ) -> Result<(TableInfo, Vec<StoredRow>), SqlCause> {
        let sql = self.place.statements.load(keys.len(), writes);
        let load = query(sql);
        let load = keys.iter().fold(load, |load, key| load.bind(key.to_vec()));
        let mut table = None;
        let mut loaded = Vec::new();
        for row in self.fetch(load).await? {
            if rows::is_about_table(&row) {
                table = rows::read_table(&row);
            } else {
                loaded.push(self.read(&row)?);
            }
        }
        let table = table.ok_or_else(|| SqlCause::malformed(self.table()))?;
        check_layout(&self.place, table.layout)?;
        Ok((table, loaded))
    }

    /// Writes and deletes rows, and ends the transaction.
    pub(super) async fn commit(
        &mut self,
        changed: &[(&[u8], &LockRow)],
        table: Option<&TableInfo>,
        deleted: &[StoredRow],
    ) -> Result<(), SqlCause> {
        let count = changed.len() + usize::from(table.is_some());
        let sql = self.place.statements.store_and_commit(count, deleted.len());
        let mut store = query(sql);
        for (key, row) in deleted {
            store = store.bind(key.clone()).bind(i64::from(row.slot));
        }
        for (key, row) in changed {
            store = rows::write(store, key, row);
        }
        if let Some(table) = table {
            store = rows::write_table(store, table);
        }
        self.fetch(store).await.map(drop)
    }

    pub(super) async fn rollback(&mut self) -> Result<(), SqlCause> {
        self.fetch(sqlx::query(ROLLBACK)).await.map(drop)
    }

    /// The rows with holders of all keys that begin with `prefix`, and the keys of rows that cannot be read.
    pub(super) async fn list(
        &mut self,
        prefix: &str,
    ) -> Result<(Vec<StoredRow>, Vec<Vec<u8>>), SqlCause> {
        let (from, to) = range(prefix);
        let list = query(Arc::clone(&self.place.statements.list));
        let (mut listed, mut unreadable) = (Vec::new(), Vec::new());
        for row in self.fetch(list.bind(from).bind(to)).await? {
            match rows::read(&row) {
                Some(read) => listed.push(read),
                None => unreadable.push(row.try_get("key").unwrap_or_default()),
            }
        }
        Ok((listed, unreadable))
    }

    /// The next `count` rows after one. A row that cannot be read counts as one in use.
    pub(super) async fn scan(
        &mut self,
        after: &(Vec<u8>, u32),
        count: u32,
    ) -> Result<Vec<StoredRow>, SqlCause> {
        let scan = query(Arc::clone(&self.place.statements.scan));
        let scan = scan.bind(after.0.clone()).bind(i64::from(after.1));
        let found = self.fetch(scan.bind(i64::from(count))).await?;
        let found = found.iter();
        Ok(found
            .map(|row| rows::read(row).unwrap_or_else(|| rows::in_use(row)))
            .collect())
    }

    fn read(&self, row: &SqliteRow) -> Result<StoredRow, SqlCause> {
        rows::read(row).ok_or_else(|| {
            let key = row.try_get::<Vec<u8>, _>("key").unwrap_or_default();
            SqlCause::malformed_row(self.table(), "CAST(key AS TEXT)", &key)
        })
    }

    fn table(&self) -> &str {
        self.place.statements.table.as_str()
    }

    async fn fetch(&mut self, statement: BoundQuery<'_>) -> Result<Vec<SqliteRow>, SqlCause> {
        let rows = statement.fetch_all(&mut self.raw).await;
        match rows.map_err(|e| db_error::of(&self.place.path, e)) {
            Err(SqlCause::Refused { source }) => Err(self.refused(source).await),
            rows => rows,
        }
    }

    /// What it means that SQLite refuses a statement for the table: without one, the next connection makes it.
    async fn refused(&mut self, source: SqlErrorSource) -> SqlCause {
        let exists = sqlx::query(EXISTS).bind(self.table().to_owned());
        match exists.fetch_optional(&mut self.raw).await {
            Ok(None) => {
                let (table, path) = (self.table(), &self.place.path);
                let says = format!("table {table} of the database file {path:?} was dropped");
                SqlCause::said(ErrorKind::Unavailable, says, source)
            }
            _ => SqlCause::Refused { source },
        }
    }
}

fn query(sql: Arc<str>) -> BoundQuery<'static> {
    sqlx::query(AssertSqlSafe(sql))
}

/// Runs work that may wait for the file system on another thread: the engine's thread renews leases. If this future
/// is dropped, the work continues.
async fn on_file_system<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SqlCause> + Send + 'static,
) -> Result<T, SqlCause> {
    spawn_blocking(work).await.unwrap_or_else(|error| {
        let says = "opening the database file was interrupted";
        Err(SqlCause::said(
            ErrorKind::Unavailable,
            says,
            Arc::new(error),
        ))
    })
}

/// Makes the file if there is none, and checks what SQLite does not. Returns where links lead to, and which file
/// is there.
fn prepare(place: &SqliteTable, id: LeaseId) -> Result<(PathBuf, (u64, u64)), SqlCause> {
    let path = &place.path;
    if place.creates_directory {
        file::create_directory(path)?;
    }
    file::create(path, id)?;
    file::check_local(path)?;
    let before = file::inode(path).map_err(|e| db_error::opening(path, Arc::new(e)))?;
    let target = path
        .canonicalize()
        .map_err(|e| db_error::opening(path, Arc::new(e)))?;
    file::check_name(path, &target)?;
    open_files::check(path, &target, before)?;
    Ok((target, before))
}

/// The files of a connection whose database was `before` when it was opened. From its first transaction on, the
/// log and the shared memory exist as long as the connection.
fn opened(path: &Path, target: &Path, before: (u64, u64)) -> Result<Arc<Files>, SqlCause> {
    let replaced = || SqlCause::Replaced {
        path: path.to_owned(),
    };
    let files = Files::of(path, target).map_err(|_| replaced())?;
    if files.database() != before {
        return Err(replaced());
    }
    open_files::enter(files)
}

/// Which table of which file.
pub(super) struct SqliteTable {
    pub(super) path: PathBuf,
    pub(super) creates_directory: bool,
    pub(super) statements: SqliteStatements,
    /// Whether the table was missing when the file was opened.
    pub(super) made_table: AtomicBool,
    /// Device and inode of the file when it was opened last.
    pub(super) seen: Mutex<Option<(u64, u64)>>,
}

impl SqliteTable {
    /// Whether the file differs from the last one; stores it as the last one.
    pub(super) fn is_another(&self, file: (u64, u64)) -> bool {
        let mut seen = self.seen.lock();
        seen.replace(file).is_some_and(|last| last != file)
    }
}

/// Sets the connection up and makes the table, if that is missing.
async fn start(
    raw: &mut SqliteConnection,
    place: &SqliteTable,
    durability: Durability,
) -> Result<(), SqlCause> {
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
        return Err(SqlCause::Config(format!(
            "the database file {path:?} cannot have a write-ahead log, its journal is {journal:?}"
        )));
    }
    let exists = sqlx::query_scalar::<_, i64>(EXISTS).bind(statements.table.as_str());
    let exists = exists.fetch_optional(&mut *raw).await;
    let mut layout = None;
    if exists.map_err(failed)?.is_some() {
        layout = read_layout(raw, place).await?;
    }
    if layout.is_none() {
        let create = sqlx::raw_sql(AssertSqlSafe(Arc::clone(&statements.create)));
        create.execute(&mut *raw).await.map_err(failed)?;
        place.made_table.store(true, Ordering::Relaxed);
        layout = read_layout(raw, place).await?;
    }
    check_layout(place, layout.unwrap_or(0))
}

async fn read_layout(
    raw: &mut SqliteConnection,
    place: &SqliteTable,
) -> Result<Option<i64>, SqlCause> {
    let query = sqlx::query_scalar(AssertSqlSafe(Arc::clone(&place.statements.layout)));
    let layout = query.fetch_optional(&mut *raw).await;
    match layout.map_err(|e| db_error::of(&place.path, e)) {
        // A statement for a table that is there.
        Err(SqlCause::Refused { source }) => Err(other_table(raw, place, source).await),
        layout => layout,
    }
}

/// What is in place of the table of locks; `source` is what SQLite says to a statement for it, and the
/// error for a table that has the columns of one.
async fn other_table(
    raw: &mut SqliteConnection,
    place: &SqliteTable,
    source: SqlErrorSource,
) -> SqlCause {
    let table = place.statements.table.as_str();
    let columns = sqlx::query_scalar::<_, Option<String>>(COLUMNS).bind(table);
    let columns = columns.fetch_one(&mut *raw).await.ok().flatten();
    let expected: Vec<_> = sqlite::COLUMNS.split(", ").collect();
    let Some(columns) = columns.filter(|columns| lacks(columns, &expected)) else {
        return SqlCause::Refused { source };
    };
    let remove = format!("sqlite3 {:?} 'DROP TABLE {table}'", place.path);
    foreign(table, &columns, None, &remove, source)
}

const COLUMNS: &str = "SELECT group_concat(name, ', ') FROM pragma_table_info(?1)";

/// Refuses a table that means something else by its columns.
fn check_layout(place: &SqliteTable, found: i64) -> Result<(), SqlCause> {
    if found == LAYOUT {
        return Ok(());
    }
    let table = place.statements.table.as_str();
    Err(SqlCause::layout(table, found, LAYOUT))
}

/// How long one statement waits inside SQLite for others to finish; see [`WriteQueue`](super::write_queue::WriteQueue)
/// for how long an operation does.
const BUSY_SLICE: Duration = Duration::from_millis(20);

#[cfg(test)]
pub(super) mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::dialect::SqlName;

    /// Lets the next statement hang until the sender is dropped.
    pub(in crate::sqlite) async fn hang(open: &mut FileConnection) -> mpsc::Sender<()> {
        let (end, ended) = mpsc::channel();
        let mut handle = open.raw.lock_handle().await.unwrap();
        handle.set_progress_handler(1, move || {
            ended.recv().ok();
            true
        });
        end
    }

    #[tokio::test]
    async fn a_connection_flushes_as_it_is_told_to() {
        // Each has a file of its own: a connection that is dropped closes its file a little later.
        for (durability, level, is_full) in [(Durability::Every, 2, 1), (Durability::Lazy, 1, 0)] {
            let directory = tempfile::tempdir().unwrap();
            let place = Arc::new(SqliteTable {
                path: directory.path().join("db"),
                creates_directory: false,
                statements: SqliteStatements::new(SqlName::default()),
                made_table: AtomicBool::new(false),
                seen: Mutex::default(),
            });
            let id = LeaseId::from_bytes([1; 16]);
            let mut open = FileConnection::open(&place, durability, 0, id)
                .await
                .unwrap();
            let mut number = async |sql: &'static str| -> i64 {
                let row = sqlx::query(sql).fetch_one(&mut open.raw).await;
                row.unwrap().get(0)
            };
            assert_eq!(number("PRAGMA synchronous").await, level);
            assert_eq!(number("PRAGMA fullfsync").await, is_full);
            assert_eq!(number("PRAGMA trusted_schema").await, 0);
        }
    }
}
