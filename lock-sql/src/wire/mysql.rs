//! MySQL and MariaDB, as [`ServerConnection`](super::ServerConnection) needs them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use sqlx::mysql::{
    MySqlConnectOptions, MySqlConnection, MySqlDatabaseError, MySqlQueryResult, MySqlRow,
};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Either, Row as _, TypeInfo as _, ValueRef as _};

use super::driver::{Driver, DriverOptions, RawConnection};
use super::sql::Sql;
use super::value::{QueryResult, SqlValue};
use super::{DbError, ErrorClass};
use crate::config::ServerKind;

/// Opens a connection whose settings do not depend on those of the server.
///
/// Statements see what others have committed when they begin, lock rows and no gaps between them,
/// may write, and are refused rather than bent.
pub(super) async fn open(options: &MySqlConnectOptions) -> Result<MySqlConnection, DbError> {
    let mut raw = options.connect().await.map_err(login_error)?;
    let settings = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; \
                    SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', \
                    autocommit = 1, timestamp = DEFAULT";
    text(&mut raw, settings.to_owned()).await?;
    Ok(raw)
}

impl Driver for sqlx::MySql {
    async fn dial(options: DriverOptions) -> Result<MySqlConnection, DbError> {
        match options {
            DriverOptions::MySql(options) => open(&options).await,
            #[cfg(feature = "postgres")]
            DriverOptions::Postgres(_) => Err(DbError::of_client(sqlx::Error::PoolClosed)),
        }
    }
}

#[async_trait]
impl RawConnection for MySqlConnection {
    /// Lets statements wait for rows as long as their caller does.
    async fn settle(&mut self, timeout: Duration) -> Result<(), DbError> {
        let seconds = timeout.as_secs().max(1);
        let settings = format!(
            "SET SESSION innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}"
        );
        text(self, settings).await.map(drop)
    }

    async fn statement(&mut self, sql: &Sql, values: &[SqlValue]) -> Result<QueryResult, DbError> {
        let (text, order) = &sql.marked;
        let mut query = sqlx::query(AssertSqlSafe(Arc::clone(text)));
        for at in order {
            query = match values.get(*at).unwrap_or(&SqlValue::Null) {
                SqlValue::Null => query.bind(None::<&[u8]>),
                SqlValue::Int(number) => query.bind(*number),
                SqlValue::Bytes(bytes) => query.bind(bytes.as_slice()),
            };
        }
        #[expect(deprecated, reason = "its replacement takes no arguments")]
        let stream = query.fetch_many(self);
        collect(stream).await
    }

    /// Each statement is a transaction of its own unless one is open.
    async fn message(&mut self, sql: &Sql, values: &[SqlValue]) -> Result<QueryResult, DbError> {
        text(self, sql.literal(values, ServerKind::MySql)).await
    }
}

/// Runs statements without arguments.
pub(crate) async fn text(raw: &mut MySqlConnection, text: String) -> Result<QueryResult, DbError> {
    collect(sqlx::raw_sql(AssertSqlSafe(text)).fetch_many(raw)).await
}

async fn collect(
    mut stream: BoxStream<'_, Result<Either<MySqlQueryResult, MySqlRow>, sqlx::Error>>,
) -> Result<QueryResult, DbError> {
    let mut answer = QueryResult::default();
    while let Some(item) = stream.next().await {
        match item.map_err(db_error)? {
            Either::Left(done) => {
                answer.affected += done.rows_affected();
                answer.last_id = answer.last_id.max(done.last_insert_id());
            }
            Either::Right(row) => answer.rows.push(read(&row).map_err(db_error)?),
        }
    }
    Ok(answer)
}

fn read(row: &MySqlRow) -> Result<Vec<SqlValue>, sqlx::Error> {
    (0..row.len()).map(|at| read_value(row, at)).collect()
}

fn read_value(row: &MySqlRow, at: usize) -> Result<SqlValue, sqlx::Error> {
    let raw = row.try_get_raw(at)?;
    if raw.is_null() {
        return Ok(SqlValue::Null);
    }
    let kind = raw.type_info();
    let name = kind.name();
    if name.ends_with("UNSIGNED") {
        return Ok(SqlValue::from(row.try_get_unchecked::<u64, _>(at)?));
    }
    if name.contains("INT") {
        return Ok(SqlValue::Int(row.try_get_unchecked(at)?));
    }
    Ok(SqlValue::Bytes(row.try_get_unchecked(at)?))
}

fn db_error(error: sqlx::Error) -> DbError {
    let Some(number) = number(&error) else {
        return DbError::of_client(error);
    };
    match says(number) {
        Some(says) => DbError::saying(class(number), says, error),
        None => DbError::new(class(number), error),
    }
}

/// What is said of an error, where the class does not say it.
fn says(number: u16) -> Option<&'static str> {
    Some(match number {
        1129 => {
            "the server blocks this host after too many broken connections, see max_connect_errors; FLUSH HOSTS unblocks it"
        }
        1184 => "the server has closed a new connection: a statement of init_connect fails",
        1461 => {
            "the server has no room for another prepared statement, see max_prepared_stmt_count"
        }
        1820 | 1862 => "the password of this user has expired",
        3032 => "the server is in offline mode, and takes connections of administrators only",
        3118 | 4151 => "the account of this user is locked",
        _ => return None,
    })
}

/// The error of a login. MySQL asks for the password itself now and then, which is not sent as plain text.
fn login_error(error: sqlx::Error) -> DbError {
    match &error {
        sqlx::Error::Configuration(cause) if cause.to_string().contains("RSA") => {
            DbError::saying(ErrorClass::Insecure, NO_RSA, error)
        }
        _ => db_error(error),
    }
}

const NO_RSA: &str = "the server takes the password of this user by TLS or encrypted: write tls=on, or build with \
                      the feature mysql-rsa of polylock";

/// The number of an error of the server.
pub(crate) fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?;
    Some(error.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

fn class(number: u16) -> ErrorClass {
    match number {
        // ER_QUERY_INTERRUPTED, ER_QUERY_TIMEOUT, ER_STATEMENT_TIMEOUT
        1317 | 3024 | 1969 => ErrorClass::Cancelled,
        // ER_LOCK_DEADLOCK, ER_CHECKREAD, ER_USER_LOCK_DEADLOCK, ER_TRANSACTION_ROLLBACK_DURING_COMMIT,
        // and ER_NEED_REPREPARE of a table that is closed again and again
        1213 | 1020 | 3058 | 3101 | 1615 => ErrorClass::Conflict,
        // ER_SECURE_TRANSPORT_REQUIRED
        3159 => ErrorClass::Insecure,
        // ER_CONNECTION_KILLED, ER_SESSION_WAS_KILLED, ER_CLIENT_INTERACTION_TIMEOUT, and
        // ER_NEW_ABORTING_CONNECTION, after a login
        1927 | 3169 | 4031 | 1184 => ErrorClass::Killed,
        // ER_SERVER_SHUTDOWN, ER_SERVER_OFFLINE_MODE, and ER_UNKNOWN_COM_ERROR of a node of Galera that is not ready
        1053 | 3032 | 1047 => ErrorClass::Starting,
        // ER_LOCK_WAIT_TIMEOUT, ER_LOCK_NOWAIT
        1205 | 3572 => ErrorClass::LockTimeout,
        // ER_NO_SUCH_TABLE, ER_BAD_DB_ERROR
        1146 | 1049 => ErrorClass::NoTable,
        // ER_OPTION_PREVENTS_STATEMENT, ER_READ_ONLY_TRANSACTION, ER_READ_ONLY_MODE, MariaDB's 1836
        1290 | 1792 | 1836 => ErrorClass::ReadOnly,
        // ER_CON_COUNT_ERROR, ER_HOST_IS_BLOCKED, ER_USER_LIMIT_REACHED, ER_TOO_MANY_USER_CONNECTIONS,
        // ER_MAX_PREPARED_STMT_COUNT_REACHED
        1040 | 1129 | 1226 | 1203 | 1461 => ErrorClass::TooMany,
        // Errors of clients, which a proxy passes on: its connection to the server broke, or cannot be made. ProxySQL
        // has a number of its own if that takes too long.
        2000..=2999 | 9001 => ErrorClass::Gone,
        // ER_UNKNOWN_STMT_HANDLER
        1243 => ErrorClass::Unprepared,
        // ER_ACCESS_DENIED, ER_ACCESS_DENIED_NO_PASSWORD, ER_HOST_NOT_PRIVILEGED, ER_MUST_CHANGE_PASSWORD,
        // ER_MUST_CHANGE_PASSWORD_LOGIN, ER_ACCOUNT_HAS_BEEN_LOCKED of MySQL and of MariaDB
        1045 | 1698 | 1130 | 1820 | 1862 | 3118 | 4151 => ErrorClass::Denied,
        // ER_DBACCESS_DENIED, ER_TABLEACCESS_DENIED, ER_COLUMNACCESS_DENIED,
        // ER_SPECIFIC_ACCESS_DENIED, ER_KILL_DENIED
        1044 | 1142 | 1143 | 1227 | 1095 => ErrorClass::NoRight,
        // ER_DISK_FULL, ER_RECORD_FILE_FULL, ER_OUTOFMEMORY, ER_OUT_OF_RESOURCES
        1021 | 1114 | 1037 | 1041 => ErrorClass::Full,
        // ER_BAD_FIELD, ER_WRONG_VALUE_COUNT, ER_WRONG_VALUE_COUNT_ON_ROW, ER_NO_DEFAULT_FOR_FIELD,
        // ER_TRUNCATED_WRONG_VALUE, ER_TRUNCATED_WRONG_VALUE_FOR_FIELD, ER_DATA_TOO_LONG,
        // ER_DATA_OUT_OF_RANGE, WARN_DATA_TRUNCATED, ER_BAD_NULL, ER_NO_REFERENCED_ROW_2,
        // ER_CONSTRAINT_FAILED of MariaDB, ER_CHECK_CONSTRAINT_VIOLATED
        1054 | 1058 | 1136 | 1364 | 1292 | 1366 | 1406 | 1264 | 1265 | 1048 | 1452 | 4025
        | 3819 => ErrorClass::WrongTable,
        _ => ErrorClass::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_that_needs_encryption_says_how_to_get_it() {
        // As sqlx says it without the feature.
        let text = "RSA auth backend disabled; enable feature `mysql-rsa` or use TLS.";
        let login = login_error(sqlx::Error::Configuration(text.into()));
        assert_eq!(login.class, ErrorClass::Insecure);
        assert!(login.says().contains("tls=on"), "{}", login.says());
        let other = login_error(sqlx::Error::Configuration("no such file".into()));
        assert_eq!(other.class, ErrorClass::Other);
    }
}
