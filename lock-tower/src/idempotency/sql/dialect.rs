use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

use crate::idempotency::StoreError;

/// The SQL of a database.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SqlDialect {
    /// MySQL and MariaDB.
    #[cfg(feature = "mysql")]
    MySql,
    /// PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres,
    /// SQLite.
    #[cfg(feature = "sqlite")]
    Sqlite,
}

/// What is said to a database about a table.
#[derive(Clone, Debug)]
pub(super) struct Texts {
    pub(super) create: SqlStr,
    /// Takes a key; returns run, token, fingerprint, status, fields and body of what is not over.
    pub(super) find: SqlStr,
    /// The same in a transaction that has read before: what is committed now.
    pub(super) find_newest: SqlStr,
    /// Takes key, run, token, fingerprint, status, fields, body and retention. Fails, or changes
    /// nothing, if there is one.
    pub(super) insert: SqlStr,
    /// Takes a key, and deletes what is over.
    pub(super) clear: SqlStr,
    /// Deletes some of what is over.
    pub(super) purge: SqlStr,
}

impl Texts {
    /// For a table whose name is checked here: the only part that comes from outside.
    pub(super) fn new(dialect: SqlDialect, table: &str) -> Result<Self, StoreError> {
        check(table)?;
        let (quote, now) = dialect.words();
        let quoted = format!("{quote}{table}{quote}");
        let sql = |text: String| AssertSqlSafe(text).into_sql_str();
        let find = format!(
            "SELECT run, token, fingerprint, status, fields, body FROM {quoted} \
             WHERE response_key = $1 AND expires_at > {now}"
        );
        let insert = format!(
            "INSERT INTO {quoted} \
             (response_key, run, token, fingerprint, status, fields, body, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, {now} + $8)"
        );
        let clear = format!("DELETE FROM {quoted} WHERE response_key = $1 AND expires_at <= {now}");
        let [find, insert, clear] = [find, insert, clear].map(|text| dialect.numbered(text));
        Ok(Self {
            create: sql(dialect.create(table, &quoted)),
            find: sql(find.clone()),
            find_newest: sql(find + dialect.newest()),
            insert: sql(insert + dialect.unless_there()),
            clear: sql(clear),
            purge: sql(dialect.purge(&quoted, now)),
        })
    }
}

/// Rows that one purge deletes; there is one for each [`PUTS_PER_PURGE`](super::PUTS_PER_PURGE).
const PURGED: u32 = 1000;

impl SqlDialect {
    /// The quotation mark of names, and the microseconds since 1970 by the clock of the database,
    /// which stands still for a statement, so that indexes can be used.
    fn words(self) -> (char, &'static str) {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql => (
                '`',
                "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
            ),
            #[cfg(feature = "postgres")]
            Self::Postgres => (
                '"',
                "(extract(epoch from statement_timestamp()) * 1000000)::bigint",
            ),
            #[cfg(feature = "sqlite")]
            Self::Sqlite => ('"', "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"),
        }
    }

    pub(super) fn create(self, table: &str, quoted: &str) -> String {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql => format!(
                "CREATE TABLE IF NOT EXISTS {quoted} (
    response_key VARBINARY(1024) NOT NULL PRIMARY KEY,
    run BINARY(16) NOT NULL,
    token BIGINT,
    fingerprint BINARY(32) NOT NULL,
    status SMALLINT NOT NULL,
    fields MEDIUMBLOB NOT NULL,
    body LONGBLOB,
    expires_at BIGINT NOT NULL,
    INDEX {table}_expires (expires_at)
) ENGINE = InnoDB"
            ),
            #[cfg(feature = "postgres")]
            Self::Postgres => create(table, quoted, "BYTEA", "SMALLINT"),
            #[cfg(feature = "sqlite")]
            Self::Sqlite => create(table, quoted, "BLOB", "INTEGER"),
        }
    }

    /// The parameters as this database writes them; all are used in their order.
    fn numbered(self, text: String) -> String {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql => (1..=8).fold(text, |text, n| text.replace(&format!("${n}"), "?")),
            #[cfg(feature = "postgres")]
            Self::Postgres => text,
            #[cfg(feature = "sqlite")]
            Self::Sqlite => text,
        }
    }

    /// Makes a transaction that has read before see what is committed.
    fn newest(self) -> &'static str {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql => " LOCK IN SHARE MODE",
            #[cfg(feature = "postgres")]
            Self::Postgres => "",
            #[cfg(feature = "sqlite")]
            Self::Sqlite => "",
        }
    }

    /// An error would end the transaction of the caller on PostgreSQL. MySQL has no such words that
    /// hide no other errors.
    fn unless_there(self) -> &'static str {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql => "",
            #[cfg(feature = "postgres")]
            Self::Postgres => " ON CONFLICT (response_key) DO NOTHING",
            #[cfg(feature = "sqlite")]
            Self::Sqlite => " ON CONFLICT (response_key) DO NOTHING",
        }
    }

    fn purge(self, quoted: &str, now: &str) -> String {
        let over = format!("expires_at <= {now} ORDER BY expires_at LIMIT {PURGED}");
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql => format!("DELETE FROM {quoted} WHERE {over}"),
            // Several may purge at once, and would wait for each other in a circle.
            #[cfg(feature = "postgres")]
            Self::Postgres => purge(quoted, &over, " FOR UPDATE SKIP LOCKED"),
            #[cfg(feature = "sqlite")]
            Self::Sqlite => purge(quoted, &over, ""),
        }
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn create(table: &str, quoted: &str, bytes: &str, small: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {quoted} (
    response_key {bytes} NOT NULL PRIMARY KEY,
    run {bytes} NOT NULL,
    token BIGINT,
    fingerprint {bytes} NOT NULL,
    status {small} NOT NULL,
    fields {bytes} NOT NULL,
    body {bytes},
    expires_at BIGINT NOT NULL
);
CREATE INDEX IF NOT EXISTS \"{table}_expires\" ON {quoted} (expires_at)"
    )
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn purge(quoted: &str, over: &str, locked: &str) -> String {
    format!(
        "DELETE FROM {quoted} WHERE response_key IN \
         (SELECT response_key FROM {quoted} WHERE {over}{locked})"
    )
}

fn check(table: &str) -> Result<(), StoreError> {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let begins_well = !table.starts_with(|c: char| c.is_ascii_digit())
        && !table.to_ascii_lowercase().starts_with("sqlite_");
    if (1..=LONGEST_NAME).contains(&table.len()) && table.bytes().all(is_letter) && begins_well {
        return Ok(());
    }
    Err(StoreError::new(format!(
        "a table has a name of 1 to {LONGEST_NAME} ASCII letters, digits and underscores that begins \
         neither with a digit nor with sqlite_"
    )))
}

/// PostgreSQL cuts names at 63, and that of the index is longer by eight.
const LONGEST_NAME: usize = 55;

#[cfg(all(test, any(feature = "mysql", feature = "sqlite")))]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "sqlite")]
    fn names_of_tables_are_checked() {
        for good in ["polylock_responses", "A1", "_x"] {
            assert!(Texts::new(SqlDialect::Sqlite, good).is_ok(), "{good}");
        }
        let long = "x".repeat(LONGEST_NAME + 1);
        for bad in [
            "",
            "1a",
            "a b",
            "a\"b",
            "a;b",
            "sqlite_x",
            "caf\u{e9}",
            &long,
        ] {
            assert!(Texts::new(SqlDialect::Sqlite, bad).is_err(), "{bad}");
        }
    }

    #[test]
    #[cfg(feature = "mysql")]
    fn mysql_has_no_numbers() {
        let texts = Texts::new(SqlDialect::MySql, "t").expect("a name");
        for text in [texts.find, texts.insert, texts.clear] {
            assert!(!text.as_str().contains('$'), "{text:?}");
        }
    }
}
