//! PostgreSQL, as [`ServerConnection`](super::ServerConnection) needs it.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use sqlx::postgres::{
    PgConnectOptions, PgConnection, PgDatabaseError, PgQueryResult, PgRow, PgSeverity,
    PgValueFormat,
};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Either, Row as _, TypeInfo as _, ValueRef as _};

use super::driver::{Driver, DriverOptions, RawConnection};
use super::sql::{MIXED_UP, Sql};
use super::target::ConnectTarget;
use super::value::{QueryResult, SqlValue};
use super::{DbError, ErrorClass};
use crate::config::ServerKind;

pub(super) async fn open(options: &PgConnectOptions) -> Result<PgConnection, DbError> {
    options.connect().await.map_err(db_error)
}

/// What a connection is opened with now.
pub(crate) async fn options(target: &ConnectTarget) -> Result<PgConnectOptions, DbError> {
    of_postgres(target.options().await?)
}

fn of_postgres(options: DriverOptions) -> Result<PgConnectOptions, DbError> {
    match options {
        #[cfg(feature = "mysql")]
        DriverOptions::MySql(_) => Err(DbError::of_client(sqlx::Error::PoolClosed)),
        DriverOptions::Postgres(options) => Ok(options),
    }
}

impl Driver for sqlx::Postgres {
    async fn dial(options: DriverOptions) -> Result<PgConnection, DbError> {
        open(&of_postgres(options)?).await
    }
}

#[async_trait]
impl RawConnection for PgConnection {
    /// Sets the limit whatever the role's settings are, and lets the server notice that the caller of a
    /// statement is gone.
    async fn settle(&mut self, timeout: Duration) -> Result<(), DbError> {
        let millis = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
        self.message(&SETTINGS, &[SqlValue::from(millis)])
            .await
            .map(drop)
    }

    /// A null is taken for bytes, so that others need a cast.
    async fn statement(&mut self, sql: &Sql, values: &[SqlValue]) -> Result<QueryResult, DbError> {
        let (text, used) = &sql.numbered;
        let mut query = sqlx::query(AssertSqlSafe(Arc::clone(text)));
        for at in used {
            if *at == Sql::IDENTITY {
                query = query.bind(sql.identity);
                continue;
            }
            debug_assert!(*at < values.len(), "argument {at} is missing");
            query = match values.get(*at).unwrap_or(&SqlValue::Null) {
                SqlValue::Null => query.bind(None::<&[u8]>),
                SqlValue::Int(number) => query.bind(*number),
                SqlValue::Bytes(bytes) => query.bind(bytes.as_slice()),
            };
        }
        // The one that has no replacement takes one statement and not several.
        #[expect(deprecated, reason = "its replacement takes no arguments")]
        let stream = query.fetch_many(self);
        collect(stream).await
    }

    /// Outside of a transaction the statements are one.
    async fn message(&mut self, sql: &Sql, values: &[SqlValue]) -> Result<QueryResult, DbError> {
        text(self, sql.literal(values, ServerKind::Postgres)).await
    }
}

static SETTINGS: LazyLock<Arc<Sql>> = LazyLock::new(|| {
    Sql::new(
        "SELECT set_config(name, CASE name
             WHEN 'statement_timeout' THEN ({1}::bigint)::text
             WHEN 'client_connection_check_interval' THEN '1s'
             WHEN 'default_transaction_isolation' THEN 'read committed'
             WHEN 'default_transaction_read_only' THEN 'off'
             WHEN 'bytea_output' THEN 'hex'
             ELSE '0' END, false)
         FROM pg_settings WHERE name IN ('statement_timeout', 'client_connection_check_interval',
             'default_transaction_isolation', 'default_transaction_read_only', 'bytea_output',
             'lock_timeout', 'idle_session_timeout', 'transaction_timeout')",
    )
});

/// Runs statements without arguments.
pub(crate) async fn text(raw: &mut PgConnection, text: String) -> Result<QueryResult, DbError> {
    collect(sqlx::raw_sql(AssertSqlSafe(text)).fetch_many(raw)).await
}

async fn collect(
    mut stream: BoxStream<'_, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>,
) -> Result<QueryResult, DbError> {
    let mut answer = QueryResult::default();
    while let Some(item) = stream.next().await {
        match item.map_err(statement_error)? {
            Either::Left(done) => answer.affected += done.rows_affected(),
            Either::Right(row) => answer.rows.push(read(&row).map_err(db_error)?),
        }
    }
    Ok(answer)
}

fn read(row: &PgRow) -> Result<Vec<SqlValue>, sqlx::Error> {
    (0..row.len()).map(|at| read_value(row, at)).collect()
}

fn read_value(row: &PgRow, at: usize) -> Result<SqlValue, sqlx::Error> {
    let raw = row.try_get_raw(at)?;
    if raw.is_null() {
        return Ok(SqlValue::Null);
    }
    let kind = raw.type_info();
    Ok(match kind.name() {
        "INT8" => SqlValue::Int(row.try_get(at)?),
        "BYTEA" => SqlValue::Bytes(match (raw.format(), raw.as_bytes()) {
            // Where the setting is not ours: behind a pooler, in a transaction of the caller.
            (PgValueFormat::Text, Ok(text)) if !text.starts_with(b"\\x") => unescape(text),
            _ => row.try_get(at)?,
        }),
        // What a function returns that returns nothing.
        "VOID" => SqlValue::Null,
        _ => SqlValue::Bytes(row.try_get::<String, _>(at)?.into_bytes()),
    })
}

/// Reads bytes in the format `escape` of `bytea_output`: after a backslash comes another one, or
/// the three octal digits of a byte. Text that begins with `\x` is in the other format.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    loop {
        let (byte, after) = match rest {
            [] => return bytes,
            [b'\\', b'\\', after @ ..] => (b'\\', after),
            [b'\\', a, b, c, after @ ..] => (octal([*a, *b, *c]), after),
            [byte, after @ ..] => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
}

/// The byte of three octal digits.
fn octal(digits: [u8; 3]) -> u8 {
    let value = |byte: u8, digit: u8| byte.wrapping_mul(8).wrapping_add(digit & 7);
    digits.into_iter().fold(0, value)
}

/// The error of a statement. A fatal one ends the session, whatever its code: a pooler may say so of a server that
/// it has lost, which may have executed the statement.
fn statement_error(error: sqlx::Error) -> DbError {
    let known = error.as_database_error();
    let known = known.and_then(|e| e.try_downcast_ref::<PgDatabaseError>());
    let is_fatal = known.is_some_and(|e| {
        let severity = e.severity();
        severity == PgSeverity::Fatal || severity == PgSeverity::Panic
    });
    let mut db_error = db_error(error);
    if is_fatal && !db_error.class.ends_connection() {
        db_error.class = ErrorClass::Gone;
    }
    db_error
}

/// Reads the SQLSTATE; see appendix A of PostgreSQL's documentation.
pub(crate) fn db_error(error: sqlx::Error) -> DbError {
    let known = match &error {
        sqlx::Error::Database(e) => e.try_downcast_ref::<PgDatabaseError>(),
        _ => None,
    };
    // That no entry of `pg_hba.conf` admits a connection has no code of its own. The server always says
    // whether it was encrypted, and not whether an entry asks for that; SSL was its name up to 13.
    let is_insecure = known.is_some_and(|e| {
        e.code() == "28000"
            && ["no encryption", "SSL off"]
                .iter()
                .any(|s| e.message().contains(s))
    });
    if is_insecure {
        return DbError::saying(ErrorClass::Insecure, NO_ENTRY, error);
    }
    // A database with `ALLOW_CONNECTIONS false` has the code of many errors of statements, which end no
    // connection.
    let is_closed = known.is_some_and(|e| e.code() == "55000" && e.severity() == PgSeverity::Fatal);
    if is_closed {
        return DbError::saying(ErrorClass::Starting, CLOSED, error);
    }
    // A standby refuses `READ WRITE`, which is no statement that it lacks: a setting is checked. The
    // message is in the language of the server.
    let is_standby =
        known.is_some_and(|e| e.code() == "0A000" && e.routine() == Some("call_bool_check_hook"));
    if is_standby {
        return DbError::new(ErrorClass::ReadOnly, error);
    }
    if known.is_some_and(|e| e.code() == "42704" && e.message().contains(MIXED_UP)) {
        return DbError::new(ErrorClass::Unprepared, error);
    }
    match known.map(|e| class(e.code())) {
        Some(class) => DbError::new(class, error),
        None => DbError::of_client(error),
    }
}

const NO_ENTRY: &str = "pg_hba.conf has no entry for this address, user and database without TLS; write tls=on if \
                        it has one with TLS";
const CLOSED: &str =
    "the database takes no connections at the moment, it has ALLOW_CONNECTIONS false";

fn class(code: &str) -> ErrorClass {
    match code {
        "57014" => ErrorClass::Cancelled,
        "40001" | "40P01" => ErrorClass::Conflict,
        "57P01" | "57P02" | "57P04" | "57P05" | "25P03" | "25P04" => ErrorClass::Killed,
        "57P03" => ErrorClass::Starting,
        "55P03" => ErrorClass::LockTimeout,
        "42P01" | "3F000" | "3D000" => ErrorClass::NoTable,
        "25006" => ErrorClass::ReadOnly,
        "53300" => ErrorClass::TooMany,
        "26000" | "42P05" => ErrorClass::Unprepared,
        "42501" => ErrorClass::NoRight,
        // Columns and functions that do not exist, other types, no unique index, other relations, constraints
        "42703" | "42883" | "42804" | "42P10" | "42809" | "42846" => ErrorClass::WrongTable,
        _ if code.starts_with("22") || code.starts_with("23") => ErrorClass::WrongTable,
        _ if code.starts_with("28") => ErrorClass::Denied,
        _ if code.starts_with("53") => ErrorClass::Full,
        _ if code.starts_with("08") => ErrorClass::Gone,
        _ => ErrorClass::Other,
    }
}
