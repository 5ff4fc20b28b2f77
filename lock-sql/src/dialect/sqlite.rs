//! The statements for SQLite.

use std::fmt::Display;
use std::sync::Arc;

use super::SqlName;

/// The statements for one table.
///
/// Several statements in one text are one message to the thread of the connection: `BEGIN` is sent with
/// the first read, and `COMMIT` with the last write.
pub(crate) struct SqliteStatements {
    pub(crate) table: SqlName,
    pub(crate) create: Arc<str>,
    pub(crate) layout: Arc<str>,
    pub(crate) list: Arc<str>,
    pub(crate) scan: Arc<str>,
    /// Writes one row and ends the transaction, which is the usual end.
    store_one: Arc<str>,
}

/// What survives a crash of the machine; a crash of a process loses nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Durability {
    /// All that was committed.
    Every,
    /// All but the last moments. For data that ends with the boot anyway, and must not wait for a slow
    /// disk.
    Lazy,
}

impl Durability {
    /// The settings of a connection. Users read the table too, so its text is never executed.
    pub(crate) fn settings(self) -> &'static str {
        match self {
            // fsync(2) of macOS leaves data in the cache of the disk; elsewhere `fullfsync` means nothing.
            Self::Every => {
                "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA trusted_schema = OFF; \
                 PRAGMA temp_store = MEMORY"
            }
            Self::Lazy => {
                "PRAGMA synchronous = NORMAL; PRAGMA trusted_schema = OFF; \
                 PRAGMA temp_store = MEMORY"
            }
        }
    }
}

/// Whether there is a table of this name.
pub(crate) const EXISTS: &str = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?";

/// Answers with the journal that the database has then.
pub(crate) const WAL: &str = "PRAGMA journal_mode = WAL";

pub(crate) const ROLLBACK: &str = "ROLLBACK";

/// What the row of the empty key says about the meaning of the other ones.
pub(crate) const LAYOUT: i64 = 1;

/// Of the table, in their order in rows.
pub(crate) const COLUMNS: &str = "key, slot, last_token, id, token, permits, boot_id, expires_boot, label, \
                       acquired_at, changed_at, broken_id, broken_reason";

impl SqliteStatements {
    pub(crate) fn new(table: SqlName) -> Self {
        Self {
            create: format!("BEGIN IMMEDIATE; {}; COMMIT", create(&table.to_string())).into(),
            layout: format!("SELECT token FROM {table} WHERE key = x'' AND slot = 0").into(),
            list: format!(
                "SELECT {COLUMNS} FROM {table} \
                 WHERE key >= ?1 AND key < ?2 AND id IS NOT NULL ORDER BY key, slot"
            )
            .into(),
            scan: format!(
                "SELECT {COLUMNS} FROM {table} \
                 WHERE (key, slot) > (?1, ?2) ORDER BY key, slot LIMIT ?3"
            )
            .into(),
            store_one: store(&table, 1, 0).into(),
            table,
        }
    }

    /// Reads the rows of `keys` keys, and the row that describes the table; under the write lock to
    /// write.
    pub(crate) fn load(&self, keys: usize, writes: bool) -> Arc<str> {
        let begin = if writes { "BEGIN IMMEDIATE; " } else { "" };
        format!("{begin}{}", load(&self.table, keys)).into()
    }

    /// Writes and deletes so many rows, and ends the transaction.
    pub(crate) fn store_and_commit(&self, rows: usize, deletions: usize) -> Arc<str> {
        match (rows, deletions) {
            (1, 0) => Arc::clone(&self.store_one),
            (rows, deletions) => store(&self.table, rows, deletions).into(),
        }
    }
}

/// Inside of a transaction of a user: makes the table if there is none, takes the write lock, and reads the
/// rows of a key and the row that describes the table. Takes the name as it stands in SQL text.
pub(crate) fn create_and_load(table: &str) -> String {
    format!("{}; {}", create(table), load(&table, 1))
}

/// The same for a fence: raises the token of a resource, and answers with the largest. Takes the name as it stands
/// in SQL text.
pub(crate) fn raise(fences: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {fences} (
           resource   BLOB    NOT NULL PRIMARY KEY,
           last_token INTEGER NOT NULL
         ) STRICT, WITHOUT ROWID;
         INSERT INTO {fences} (resource, last_token) VALUES (?, ?)
           ON CONFLICT (resource) DO UPDATE SET
             last_token = MAX(last_token, excluded.last_token)
           RETURNING last_token"
    )
}

/// Answers with an error inside of a transaction, and changes nothing outside of one.
pub(crate) const PROBE: &str = "BEGIN; ROLLBACK";

/// `STRICT` keeps other types out; `WITHOUT ROWID` makes the table its own index. Keys are bytes,
/// which have no collation.
fn create(table: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {table} (
           key           BLOB    NOT NULL,
           slot          INTEGER NOT NULL,
           last_token    INTEGER NOT NULL,
           id            BLOB,
           token         INTEGER NOT NULL,
           permits       INTEGER NOT NULL,
           boot_id       BLOB,
           expires_boot  INTEGER NOT NULL,
           label         TEXT    NOT NULL,
           acquired_at   INTEGER NOT NULL,
           changed_at    INTEGER NOT NULL,
           broken_id     BLOB,
           broken_reason TEXT,
           PRIMARY KEY (key, slot)
         ) STRICT, WITHOUT ROWID;
         INSERT OR IGNORE INTO {table} ({COLUMNS})
           VALUES (x'', 0, 0, NULL, {LAYOUT}, 0, NULL, 0, '', 0, 0, NULL, NULL)"
    )
}

fn load(table: &impl Display, keys: usize) -> String {
    let keys = ", ?".repeat(keys);
    format!("SELECT {COLUMNS} FROM {table} WHERE key IN (x''{keys})")
}

fn store(table: &SqlName, rows: usize, deletions: usize) -> String {
    let delete = format!("DELETE FROM {table} WHERE key = ? AND slot = ?; ").repeat(deletions);
    let (full, rest) = (rows / MAX_INSERTED, rows % MAX_INSERTED);
    let mut text = delete + &format!("{}; ", insert(table, MAX_INSERTED)).repeat(full);
    if rest > 0 {
        text += &format!("{}; ", insert(table, rest));
    }
    text + "COMMIT"
}

/// How many rows one statement writes at most. Each has thirteen values, and a statement takes 32,766.
const MAX_INSERTED: usize = 1_000;

/// Writes so many rows.
pub(crate) fn insert(table: &impl Display, rows: usize) -> String {
    let columns: Vec<_> = COLUMNS.split(", ").collect();
    let values = list(&format!("({})", list("?", columns.len())), rows);
    let update = columns
        .iter()
        .filter(|column| !["key", "slot"].contains(column));
    let update: Vec<_> = update
        .map(|column| format!("{column} = excluded.{column}"))
        .collect();
    let update = update.join(", ");
    format!(
        "INSERT INTO {table} ({COLUMNS}) VALUES {values} \
         ON CONFLICT (key, slot) DO UPDATE SET {update}"
    )
}

fn list(item: &str, count: usize) -> String {
    vec![item; count].join(", ")
}
