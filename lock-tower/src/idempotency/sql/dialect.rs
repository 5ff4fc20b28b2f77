//! What differs between databases.

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

use crate::idempotency::StoreError;

/// The SQL of a database.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SqlDialect {
    /// MySQL and MariaDB.
    MySql,
    /// PostgreSQL.
    Postgres,
    /// SQLite.
    Sqlite,
}

/// The statements for one table.
#[derive(Clone, Debug)]
pub(super) struct ResponseStatements {
    pub(super) dialect: SqlDialect,
    pub(super) table: String,
    pub(super) create: SqlStr,
    /// Takes a key; returns its response, unless expired.
    pub(super) find: SqlStr,
    /// The same, and sees what was committed after the transaction began.
    pub(super) find_committed: SqlStr,
    /// Takes key, token, response and retention. Fails, or changes nothing, if the key exists.
    pub(super) insert: SqlStr,
    /// Takes a key, and deletes its row if it has expired.
    pub(super) delete_expired: SqlStr,
    /// Deletes up to [`ROWS_PER_PURGE`] expired rows.
    pub(super) purge: SqlStr,
}

struct Syntax {
    quote: char,
    key: &'static str,
    response: &'static str,
    /// What follows the columns of a new table, with its index.
    index: &'static str,
    /// Microseconds since 1970 by the clock of the database, constant within a statement, so that
    /// indexes can be used.
    now: &'static str,
    /// Makes a transaction that has read before see what is committed.
    read_committed: &'static str,
    /// Without it, an existing key ends the transaction of the caller on PostgreSQL. MySQL has no
    /// such clause that hides no other errors.
    skip_existing: &'static str,
    /// `{expired}` stands for the condition, with order and limit.
    purge: &'static str,
}

/// More than are put between two purges.
const ROWS_PER_PURGE: u32 = 1000;

const INDEX: &str = "\n);\nCREATE INDEX IF NOT EXISTS {index} ON {table} (expires_at)";
const SKIP_EXISTING: &str = " ON CONFLICT (response_key) DO NOTHING";

impl SqlDialect {
    fn syntax(self) -> Syntax {
        match self {
            Self::MySql => Syntax {
                quote: '`',
                key: "VARBINARY(1024)",
                response: "LONGBLOB",
                index: ",\n    INDEX {index} (expires_at)\n) ENGINE = InnoDB",
                now: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
                read_committed: " LOCK IN SHARE MODE",
                skip_existing: "",
                purge: "DELETE FROM {table} WHERE {expired}",
            },
            Self::Postgres => Syntax {
                quote: '"',
                key: "BYTEA",
                response: "BYTEA",
                index: INDEX,
                now: "(extract(epoch from statement_timestamp()) * 1000000)::bigint",
                read_committed: "",
                skip_existing: SKIP_EXISTING,
                // Concurrent purges would deadlock.
                purge: "DELETE FROM {table} WHERE response_key IN (SELECT response_key FROM {table} \
                        WHERE {expired} FOR UPDATE SKIP LOCKED)",
            },
            Self::Sqlite => Syntax {
                quote: '"',
                key: "BLOB",
                response: "BLOB",
                index: INDEX,
                now: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
                read_committed: "",
                skip_existing: SKIP_EXISTING,
                purge: "DELETE FROM {table} WHERE response_key IN (SELECT response_key FROM {table} \
                        WHERE {expired})",
            },
        }
    }
}

impl ResponseStatements {
    /// For a table whose name is checked here: the only part that comes from outside.
    pub(super) fn new(dialect: SqlDialect, name: &str) -> Result<Self, StoreError> {
        check(name)?;
        let Syntax {
            quote,
            key,
            response,
            index,
            now,
            read_committed,
            skip_existing,
            purge,
        } = dialect.syntax();
        let index_name = format!("{quote}{name}_expires{quote}");
        let table = format!("{quote}{name}{quote}");
        let expired = format!("expires_at <= {now} ORDER BY expires_at LIMIT {ROWS_PER_PURGE}");
        let sql = |text: &str| {
            let text = text.replace("{table}", &table);
            let text = text.replace("{index}", &index_name);
            let mut text = text.replace("{expired}", &expired);
            if dialect == SqlDialect::MySql {
                // It has no numbers; all parameters are used in their order.
                text = (1..=4).fold(text, |text, n| text.replace(&format!("${n}"), "?"));
            }
            AssertSqlSafe(text).into_sql_str()
        };
        let find =
            format!("SELECT response FROM {table} WHERE response_key = $1 AND expires_at > {now}");
        Ok(Self {
            dialect,
            table: name.to_owned(),
            create: sql(&format!(
                "CREATE TABLE IF NOT EXISTS {table} (
    response_key {key} NOT NULL PRIMARY KEY,
    token BIGINT,
    response {response} NOT NULL,
    expires_at BIGINT NOT NULL{index}"
            )),
            find_committed: sql(&format!("{find}{read_committed}")),
            find: sql(&find),
            insert: sql(&format!(
                "INSERT INTO {table} (response_key, token, response, expires_at) \
                 VALUES ($1, $2, $3, {now} + $4){skip_existing}"
            )),
            delete_expired: sql(&format!(
                "DELETE FROM {table} WHERE response_key = $1 AND expires_at <= {now}"
            )),
            purge: sql(purge),
        })
    }
}

fn check(table: &str) -> Result<(), StoreError> {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let begins_well = !table.starts_with(|c: char| c.is_ascii_digit())
        && !table.to_ascii_lowercase().starts_with("sqlite_");
    if (1..=MAX_NAME_LEN).contains(&table.len()) && table.bytes().all(is_letter) && begins_well {
        return Ok(());
    }
    Err(StoreError::new(format!(
        "a table has a name of 1 to {MAX_NAME_LEN} ASCII letters, digits and underscores that begins \
         neither with a digit nor with sqlite_"
    )))
}

/// PostgreSQL cuts names at 63, and that of the index is longer by eight.
const MAX_NAME_LEN: usize = 55;

/// A connection of sqlx: `SqliteConnection`, `PgConnection` and `MySqlConnection`, as `&mut *tx`
/// gives it of a `Transaction`.
///
/// Sealed: there are no others.
pub trait SqlConnection: SqlQueries {}

/// A parameter of a statement.
#[derive(Clone, Copy, Debug)]
#[expect(unnameable_types, reason = "nobody else makes one")]
pub enum SqlValue<'a> {
    Bytes(&'a [u8]),
    Int(Option<i64>),
}

/// Runs statements, whose types differ between databases.
#[expect(unnameable_types, reason = "nobody else implements it")]
pub trait SqlQueries: sqlx::Connection + 'static {
    const DIALECT: SqlDialect;

    fn find(
        &mut self,
        sql: SqlStr,
        key: &[u8],
    ) -> impl Future<Output = sqlx::Result<Option<Vec<u8>>>> + Send;

    /// Returns how many rows changed.
    fn execute(
        &mut self,
        sql: SqlStr,
        values: &[SqlValue<'_>],
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    /// Runs several statements without parameters.
    fn execute_all(&mut self, sql: SqlStr) -> impl Future<Output = sqlx::Result<()>> + Send;
}

macro_rules! connections {
    ($($feature:literal: $dialect:ident, $connection:ty;)*) => { $(
        #[cfg(feature = $feature)]
        impl SqlConnection for $connection {}

        #[cfg(feature = $feature)]
        impl SqlQueries for $connection {
            const DIALECT: SqlDialect = SqlDialect::$dialect;

            async fn find(&mut self, sql: SqlStr, key: &[u8]) -> sqlx::Result<Option<Vec<u8>>> {
                sqlx::query_scalar(sql).bind(key).fetch_optional(self).await
            }

            async fn execute(&mut self, sql: SqlStr, values: &[SqlValue<'_>]) -> sqlx::Result<u64> {
                let mut query = sqlx::query(sql);
                for value in values {
                    query = match *value {
                        SqlValue::Bytes(bytes) => query.bind(bytes),
                        SqlValue::Int(number) => query.bind(number),
                    };
                }
                Ok(query.execute(self).await?.rows_affected())
            }

            async fn execute_all(&mut self, sql: SqlStr) -> sqlx::Result<()> {
                sqlx::Executor::execute(self, sqlx::raw_sql(sql)).await.map(drop)
            }
        }
    )* };
}

connections! {
    "mysql": MySql, sqlx::MySqlConnection;
    "postgres": Postgres, sqlx::PgConnection;
    "sqlite": Sqlite, sqlx::SqliteConnection;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tables_are_checked() {
        let is_name = |name: &str| ResponseStatements::new(SqlDialect::Sqlite, name).is_ok();
        for good in ["polylock_responses", "A1", "_x"] {
            assert!(is_name(good), "{good}");
        }
        let long = "x".repeat(MAX_NAME_LEN + 1);
        let bad = "|1a|a b|a\"b|a;b|sqlite_x|caf\u{e9}".split('|');
        for bad in bad.chain([&*long]) {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn mysql_has_no_numbers() {
        let statements = ResponseStatements::new(SqlDialect::MySql, "t").expect("a name");
        let ResponseStatements {
            find,
            insert,
            delete_expired,
            ..
        } = statements;
        for text in [find, insert, delete_expired] {
            assert!(!text.as_str().contains('$'), "{text:?}");
        }
    }
}
