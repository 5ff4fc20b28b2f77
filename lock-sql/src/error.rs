use std::error::Error as StdError;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use polylock_core::{Error, ErrorKind};

use crate::db_error::{DbError, ErrorClass};

/// Why an operation has no result.
#[derive(Clone, Debug)]
pub(crate) struct SqlFailure {
    pub(crate) cause: SqlCause,
    /// Whether the database may have executed the request.
    pub(crate) outcome_unknown: bool,
}

/// What failed at a database. Clonable, because one transaction serves several requests.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum SqlCause {
    #[error("another connection keeps what the request needs locked")]
    Busy,

    /// What is written there says what is wrong with the configuration.
    #[error("{0}")]
    Config(String),

    /// No reply that another client holds the lock.
    #[error(
        "the server gave up waiting for the lock: the statement was cancelled, or there is no memory"
    )]
    Interrupted,

    /// What a server answers to a statement.
    #[error("{}", .0.says())]
    Sql(DbError),

    #[error("table {table:?} has a row that polylock has not written{remove}")]
    Malformed {
        table: String,
        /// How to remove the row, if the row is known.
        remove: String,
    },

    #[error("the database refused a statement, its table may belong to another program")]
    Refused { source: SqlErrorSource },

    #[error("the database file {path:?} was replaced or deleted")]
    Replaced { path: PathBuf },

    /// Sessions from before a restart may not know yet that they have ended.
    #[error(
        "the server was found started anew {}s ago, and a client of before may believe in its lock: \
         locks are granted again in {left:.0?}",
        .waited.as_secs()
    )]
    Restarted { waited: Duration, left: Duration },

    /// What nothing depends on but the error of the caller.
    #[error("{says}")]
    Said {
        kind: ErrorKind,
        says: String,
        source: Option<SqlErrorSource>,
    },

    /// It was closed, or broke, before it was asked; with an unknown outcome, during a release.
    #[error("the session with the server ended")]
    SessionOver,

    #[error("{} did not answer within {within:?}", .server.as_deref().unwrap_or("the database"))]
    Silent {
        /// Its address, if it is known here.
        server: Option<Arc<str>>,
        within: Duration,
    },

    /// The text says why the request cannot be served for the time being.
    #[error("{0}")]
    Unfit(String),
}

/// How to remove the row of a key, by the column that has the key; nothing for a key that is not plain.
fn removal(table: &str, column: &str, key: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b" -_./:".contains(&byte);
    match std::str::from_utf8(key) {
        Ok(text) if text.bytes().all(plain) => format!(
            ", and it is left as it is; if it is not needed: DELETE FROM {table} WHERE {column} = '{text}'"
        ),
        _ => String::new(),
    }
}

/// What is said of a table that is none of polylock's.
pub(crate) fn foreign(
    name: &str,
    columns: &str,
    owner: Option<&str>,
    remove: &str,
    source: SqlErrorSource,
) -> SqlCause {
    let owner = owner.map_or_else(String::new, |owner| format!(" of {owner}"));
    let says = format!(
        "the table {name}{owner} has the columns {columns}, is no table of locks and is left as it is; \
         name another one by table=NAME in the URL, or, if it is not needed, remove it: {remove}"
    );
    SqlCause::said(ErrorKind::Foreign, says, source)
}

/// Whether a table with these columns has not all that are expected, in any order.
pub(crate) fn lacks(columns: &str, expected: &[&str]) -> bool {
    let has = |name: &str| columns.split(", ").any(|it| it.eq_ignore_ascii_case(name));
    !expected.iter().all(|name| has(name))
}

pub(crate) type SqlErrorSource = Arc<dyn StdError + Send + Sync>;

impl SqlCause {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Said { kind, .. } => *kind,
            Self::Config(_) => ErrorKind::InvalidConfig,
            Self::Sql(db_error) => db_error.class.kind(),
            Self::Malformed { .. } => ErrorKind::Foreign,
            Self::Refused { .. } => ErrorKind::Protocol,
            _ => ErrorKind::Unavailable,
        }
    }

    fn into_source(self) -> Option<SqlErrorSource> {
        match self {
            Self::Refused { source } => Some(source),
            Self::Said { source, .. } => source,
            Self::Sql(db_error) => Some(db_error.source),
            _ => None,
        }
    }

    /// The table means something else by its columns.
    pub(crate) fn layout(table: &str, found: i64, known: i64) -> Self {
        let fix = match found < known {
            true => format!(
                "stop the clients that use it, and with no lock held make it anew, which forgets the \
                 tokens of fences: DROP TABLE {table}, then `lockctl schema apply`"
            ),
            false => "a later version of polylock uses it, update this one".to_owned(),
        };
        Self::Said {
            kind: ErrorKind::Protocol,
            says: format!(
                "table {table} has layout {found}, and this version knows layout {known}: {fix}"
            ),
            source: None,
        }
    }

    /// The table has a row that polylock has not written, whichever it is.
    pub(crate) fn malformed(table: &str) -> Self {
        Self::Malformed {
            table: table.to_owned(),
            remove: String::new(),
        }
    }

    /// The same of a row with this key, in the column that has the key.
    pub(crate) fn malformed_row(table: &str, column: &str, key: &[u8]) -> Self {
        Self::Malformed {
            table: table.to_owned(),
            remove: removal(table, column, key),
        }
    }

    pub(crate) fn said(kind: ErrorKind, says: impl Into<String>, source: SqlErrorSource) -> Self {
        Self::Said {
            kind,
            says: says.into(),
            source: Some(source),
        }
    }
}

impl SqlFailure {
    /// The database did not answer within this time.
    pub(crate) fn silent(timeout: Duration, outcome_unknown: bool) -> Self {
        Self {
            cause: SqlCause::Silent {
                server: None,
                within: timeout,
            },
            outcome_unknown,
        }
    }

    /// Whether the server seems to be down for a while.
    pub(crate) fn is_outage(&self) -> bool {
        match &self.cause {
            SqlCause::Silent { .. } | SqlCause::SessionOver => true,
            SqlCause::Sql(db_error) if matches!(*db_error.source, sqlx::Error::PoolClosed) => false,
            SqlCause::Sql(db_error) => {
                db_error.class.is_the_end() || db_error.class == ErrorClass::TooMany
            }
            _ => false,
        }
    }

    /// The failure of a statement that was sent.
    pub(crate) fn of_statement(db_error: DbError) -> Self {
        Self {
            outcome_unknown: db_error.class.ends_connection(),
            cause: SqlCause::Sql(db_error),
        }
    }

    /// The failure of an attempt to connect, before any statement was sent.
    pub(crate) fn of_opening(db_error: DbError) -> Self {
        SqlCause::Sql(db_error).into()
    }

    /// Whether the session had ended before the request.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self.cause, SqlCause::SessionOver)
    }

    /// Whether the server was started too recently.
    pub(crate) fn is_restart(&self) -> bool {
        matches!(self.cause, SqlCause::Restarted { .. })
    }

    /// Whether the connection ended, with everything that depends on it, or leads to another session by now.
    pub(crate) fn ends_session(&self) -> bool {
        match &self.cause {
            SqlCause::SessionOver => true,
            SqlCause::Sql(db_error) if db_error.class == ErrorClass::Unprepared => true,
            SqlCause::Sql(db_error) => self.outcome_unknown && db_error.class.ends_connection(),
            _ => false,
        }
    }

    /// Whether the server ended the wait for a lock, which another client holds, or for rows that another
    /// transaction has locked.
    pub(crate) fn ends_wait(&self) -> bool {
        let class = self.class();
        matches!(self.cause, SqlCause::Interrupted)
            || matches!(class, Some(ErrorClass::Cancelled | ErrorClass::LockTimeout))
    }

    /// Whether a waiter that has seen the lock held keeps waiting: the server is away, or has ended one of
    /// its statements.
    pub(crate) fn is_outlasted(&self) -> bool {
        self.is_outage() || self.ends_wait()
    }

    /// Whether a connection was refused by a reply of the server, or by a pool without a free place.
    pub(crate) fn is_for_want_of_room(&self) -> bool {
        use sqlx::Error::{Database, PoolTimedOut};
        match &self.cause {
            SqlCause::Sql(db_error) => matches!(*db_error.source, Database(_) | PoolTimedOut),
            _ => false,
        }
    }

    /// Whether another connection may do better: this one ended after the request was sent, or leads to a server
    /// without writes.
    pub(crate) fn is_of_connection(&self) -> bool {
        let class = self.class();
        class == Some(ErrorClass::ReadOnly)
            || self.outcome_unknown && class.is_some_and(ErrorClass::is_the_end)
    }

    /// The class of the server's error, if it is one.
    pub(crate) fn class(&self) -> Option<ErrorClass> {
        match &self.cause {
            SqlCause::Sql(db_error) => Some(db_error.class),
            _ => None,
        }
    }
}

impl ErrorClass {
    fn kind(self) -> ErrorKind {
        match self {
            Self::Denied | Self::Insecure | Self::NoRight | Self::Untrusted => ErrorKind::Denied,
            Self::NoTable | Self::NoTls => ErrorKind::InvalidConfig,
            Self::Other | Self::WrongTable => ErrorKind::Protocol,
            _ => ErrorKind::Unavailable,
        }
    }

    pub(crate) fn says(self) -> &'static str {
        match self {
            Self::Cancelled => {
                "the server cancelled a statement, for an administrator or a statement time-out"
            }
            Self::Conflict => "transactions of others are in the way again and again",
            Self::Denied => "the server refuses this user",
            Self::Full => "the server is out of disk space or memory",
            Self::Gone => "the connection to the server broke, or cannot be made",
            Self::Insecure => "the server takes no such connection without TLS, write tls=on",
            Self::Killed => "the server was told to end the connection",
            Self::LockTimeout => "another transaction has locked the row for too long",
            Self::NoLogin => "there are no credentials for the server",
            Self::NoRight => "this user lacks a right",
            Self::NoTable => "the table, its schema or the database does not exist",
            Self::NoTls => "the server speaks no TLS, and tls=on asks for it",
            Self::Other => "the server refused a statement",
            Self::ReadOnly => "the server takes no writes, it may be a replica",
            Self::Starting => "the server starts, stops or recovers",
            Self::TooMany => "the server has no room for another connection",
            Self::Untrusted => {
                "this side or the server does not trust the certificate of the other"
            }
            Self::Unprepared => "a pooler in the path mixes up prepared statements",
            Self::WrongTable => {
                "the server refused a statement, the table may belong to another program"
            }
        }
    }
}

/// Failures before anything was written.
impl From<SqlCause> for SqlFailure {
    fn from(cause: SqlCause) -> Self {
        Self {
            cause,
            outcome_unknown: false,
        }
    }
}

impl From<SqlCause> for Error {
    fn from(cause: SqlCause) -> Self {
        SqlFailure::from(cause).into()
    }
}

impl From<SqlFailure> for Error {
    fn from(failure: SqlFailure) -> Self {
        let mut error = Self::new(failure.cause.kind(), failure.cause.to_string());
        if let Some(source) = failure.cause.into_source() {
            error = error.with_source(source);
        }
        if failure.outcome_unknown {
            error = error.with_unknown_outcome();
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_start_of_the_server_is_told_in_seconds() {
        for (waited, text) in [(0, "0s ago"), (400, "0s ago"), (2_000, "2s ago")] {
            let waited = Duration::from_millis(waited);
            let left = Duration::from_secs(30).saturating_sub(waited);
            let says = SqlCause::Restarted { waited, left }.to_string();
            assert!(says.contains(text), "{says}");
            assert!(says.ends_with(&format!("in {left:.0?}")), "{says}");
        }
    }

    #[test]
    fn a_table_with_more_columns_in_another_order_is_one_of_locks() {
        let expected = ["kind", "lock_key"];
        for columns in ["kind, lock_key", "lock_key, note, KIND"] {
            assert!(!lacks(columns, &expected), "{columns}");
        }
        for columns in ["a", "kind", "kind, lock_keys", ""] {
            assert!(lacks(columns, &expected), "{columns}");
        }
    }
}
