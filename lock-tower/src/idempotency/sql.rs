//! Responses in a table.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::Response;
use polylock_core::{FencingToken, LockKey};
use sqlx::error::DatabaseError;
use sqlx::pool::{PoolConnection, PoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Database, Pool, SqlSafeStr as _, SqlStr};
use tokio::sync::Semaphore;

use super::store::{MAX_ATTEMPTS, check_parameters};
use super::stored::random_id;
use super::{PendingResponse, Put, ResponseStore, StoreError, StoredResponse};

/// Keeps responses in a table of SQLite, PostgreSQL, MySQL or MariaDB.
///
/// Times come from the clock of the database. Expired responses are not found, and later writes purge them.
/// The table has responses as they were sent: its readers see what clients saw. Clones share up to four
/// connections, one of which is reserved for storing.
///
/// A connection to a demoted server is replaced when the server refuses a write on this connection. Until then,
/// lookups on it may read the demoted server, which may lack newer responses: a repetition whose response is
/// missing there is handled again.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// use polylock_tower::idempotency::{ResponseStore as _, SqlDialect, SqlResponses};
///
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let url = format!("sqlite:{}", directory.path().join("shop.db").display());
/// let responses = SqlResponses::connect(&url).await?; // such as sqlite:/var/lib/shop/shop.db
/// let key = polylock_core::LockKey::new("payments:8e03")?;
/// assert_eq!(responses.get(&key).await?, None); // no such request has been handled
///
/// // For programs that may not create tables:
/// let sql = SqlResponses::create_table_sql(SqlDialect::Postgres, SqlResponses::DEFAULT_TABLE)?;
/// assert!(sql.starts_with("CREATE TABLE"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct SqlResponses {
    statements: ResponseStatements,
    table: Arc<dyn ResponseStore>,
}

/// The timeout for a free connection, and for a lock of SQLite.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl SqlResponses {
    /// The default table.
    pub const DEFAULT_TABLE: &'static str = "polylock_responses";

    /// Connects to a database, and creates the table `polylock_responses` if it does not exist.
    ///
    /// The URL is one of sqlx, with the parameters that sqlx knows: `sqlite:/var/lib/shop/shop.db`,
    /// `postgres://me@host/shop`, `mysql://me@host/shop`. It has none of the other parameters of a lock URL,
    /// such as `namespace`. A SQLite file is created unless the URL has `mode=rw` or `mode=ro`, and set to
    /// write-ahead logging (WAL). SQLite in memory, a temporary file and the parameter `vfs` are refused,
    /// because connections would not share the responses.
    ///
    /// Services that share a database, and whose locks differ only in the namespace of their URL, need a table
    /// each: [`connect_table`](Self::connect_table).
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the URL is wrong, has an unknown parameter, or the feature of its database is off, if
    /// the database cannot be reached within 5 s, if the table cannot be created, or if nothing can be stored there
    /// within 5 s, as on a replica: a response is stored and taken back.
    ///
    /// # Cancel safety
    ///
    /// The table may have been created.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_table(url, Self::DEFAULT_TABLE).await
    }

    /// Connects to a database, and creates the table of this name if it does not exist.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect), and if the name is not 1 to 55 ASCII letters, digits and
    /// underscores, begins with a digit, or with `sqlite_`.
    ///
    /// # Cancel safety
    ///
    /// As for [`connect`](Self::connect).
    pub async fn connect_table(url: &str, table: &str) -> Result<Self, StoreError> {
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        match scheme {
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => {
                let options = parsed(url, SqlDialect::MySql)?;
                Self::open::<sqlx::MySqlConnection>(options, table).await
            }
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                let options = parsed(url, SqlDialect::Postgres)?;
                Self::open::<sqlx::PgConnection>(options, table).await
            }
            #[cfg(feature = "sqlite")]
            "sqlite" => {
                let mut options: sqlx::sqlite::SqliteConnectOptions =
                    parsed(url, SqlDialect::Sqlite)?;
                let query = url.split_once('?').map_or("", |(_, query)| query);
                if !query.split('&').any(|pair| pair.starts_with("mode=")) {
                    options = options.create_if_missing(true);
                }
                let options = options
                    .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
                    .busy_timeout(CONNECT_TIMEOUT);
                check_shared(&options).await?;
                Self::open::<sqlx::SqliteConnection>(options, table).await
            }
            _ => Err(StoreError::new(
                "the URL is of no database that this program has a feature for",
            )),
        }
    }

    async fn open<C: SqlConnection>(
        options: <C as Connection>::Options,
        name: &str,
    ) -> Result<Self, StoreError> {
        let pool = PoolOptions::new()
            .max_connections(MAX_CONNECTIONS)
            .acquire_timeout(CONNECT_TIMEOUT);
        let pool = pool.connect_with(options).await.map_err(unopened)?;
        let statements = ResponseStatements::new(C::DIALECT, name)?;
        let absent =
            StoreError::caused_by("the table of the responses is not there, or has other columns");
        let table = ResponseTable::<C>::open(pool, statements.clone()).await;
        let table = table.map_err(absent)?;
        let tried = tokio::time::timeout(CONNECT_TIMEOUT, table.try_put()).await;
        let silent =
            |_| StoreError::new("the database of the responses does not store one in time");
        tried.map_err(silent)?.map_err(unwritten)?;
        Ok(Self {
            statements,
            table: Arc::new(table),
        })
    }

    /// Returns the statements that create a table, for programs that may not create it. They need `SELECT`,
    /// `INSERT` and `DELETE`, and on PostgreSQL `UPDATE`, to lock the rows that they purge.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the name is invalid, as for [`connect_table`](Self::connect_table).
    pub fn create_table_sql(dialect: SqlDialect, table: &str) -> Result<String, StoreError> {
        let statements = ResponseStatements::new(dialect, table)?;
        Ok(statements.create.as_str().to_owned())
    }

    /// Stores the response of a request in the open transaction of `connection`, so that it commits or
    /// rolls back with the other effects of the transaction.
    ///
    /// The connection must be to the database that has the table. Call it once in each transaction, and roll
    /// back unless the result is [`Put::Stored`]. After [`Put::Refused`], a response is stored already:
    ///
    /// - Another request was handled first. If the handler then returns a response that would be
    ///   [stored](super::IdempotencyLayer::with_stored), its client gets the stored one instead.
    /// - Or an earlier transaction of this handler has committed, although the handler got no reply to its
    ///   commit. The effect is there, so the handler returns the same response.
    ///
    /// The handler returns the response after the commit.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the statement fails; roll back. Above `READ COMMITTED`, and on MariaDB with
    /// `innodb_snapshot_isolation`, it also fails if another request was handled at the same time: the transaction
    /// can be repeated then, and gets [`Put::Refused`].
    ///
    /// # Cancel safety
    ///
    /// Roll back.
    pub async fn put_in<C: SqlConnection>(
        &self,
        connection: &mut C,
        pending: &PendingResponse,
        response: &Response<Bytes>,
    ) -> Result<Put, StoreError> {
        if C::DIALECT != self.statements.dialect {
            return Err(StoreError::new("the connection is to another database"));
        }
        let stored = pending.stored(response);
        let (token, retention) = (pending.fencing_token, pending.retention);
        let put = self
            .statements
            .put(connection, &pending.key, &stored, token, retention);
        // A response of this execution is refused as well: its effect has been committed with it.
        Ok(match put.await.map_err(unwritten)? {
            None => Put::Stored,
            Some(_) => Put::Refused,
        })
    }
}

/// The parameters are checked first: sqlx ignores unknown ones on MySQL, and logs their values on PostgreSQL.
fn parsed<O: ConnectOptions>(url: &str, dialect: SqlDialect) -> Result<O, StoreError> {
    let is_known = |name: &str| dialect.has_parameter(name);
    check_parameters(url, is_known, "a database", "connect_table")?;
    url.parse().map_err(unopened)
}

/// Refuses a database in memory or in a temporary file, which each connection would have for itself: a
/// response that one connection stores would not be found by the others. SQLite decides, because a URL can
/// name such a database in many ways. Write-ahead logging is possible only in a file that connections share.
#[cfg(feature = "sqlite")]
async fn check_shared(options: &sqlx::sqlite::SqliteConnectOptions) -> Result<(), StoreError> {
    let read = async {
        let mut connection = options.connect().await?;
        let mode = sqlx::query_scalar::<_, String>("PRAGMA journal_mode")
            .fetch_one(&mut connection)
            .await?;
        connection.close().await?;
        Ok(mode)
    };
    let mode = tokio::time::timeout(CONNECT_TIMEOUT, read).await;
    let mode = mode.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    match mode.map_err(unopened)?.as_str() {
        "wal" => Ok(()),
        _ => Err(StoreError::new(
            "connections would not share this SQLite database: name a file that can be written, where \
             write-ahead logging works",
        )),
    }
}

/// Without the URL, which may have a password.
fn unopened(error: sqlx::Error) -> StoreError {
    StoreError::new("the database of the responses cannot be opened").with_source(error)
}

fn unwritten(error: sqlx::Error) -> StoreError {
    StoreError::new("a response cannot be written").with_source(error)
}

#[async_trait]
impl ResponseStore for SqlResponses {
    async fn get(&self, key: &LockKey) -> Result<Option<StoredResponse>, StoreError> {
        self.table.get(key).await
    }

    async fn put(
        &self,
        key: &LockKey,
        response: &StoredResponse,
        token: Option<FencingToken>,
        retention: Duration,
    ) -> Result<Put, StoreError> {
        self.table.put(key, response, token, retention).await
    }
}

impl fmt::Debug for SqlResponses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlResponses")
            .field("dialect", &self.statements.dialect)
            .field("table", &self.statements.table)
            .finish_non_exhaustive()
    }
}

const MAX_CONNECTIONS: u32 = 4;

/// Each purge can delete more rows than this.
const PUTS_PER_PURGE: u32 = 32;
const PURGE_TIMEOUT: Duration = Duration::from_secs(30);
const NEVER_CLOSED: &str = "BUG: the semaphore of readers is never closed";

/// A table of responses, with connections to its database.
struct ResponseTable<C: SqlConnection> {
    pool: Pool<C::Database>,
    statements: ResponseStatements,
    puts: AtomicU32,
    /// Reserves one connection for storing.
    readers: Arc<Semaphore>,
    /// One purge at a time.
    purging: Arc<Semaphore>,
}

impl<C: SqlConnection> ResponseTable<C> {
    /// Creates the table unless it exists.
    async fn open(pool: Pool<C::Database>, statements: ResponseStatements) -> sqlx::Result<Self> {
        let table = Self {
            pool,
            statements,
            puts: AtomicU32::new(0),
            readers: Arc::new(Semaphore::new(MAX_CONNECTIONS as usize - 1)),
            purging: Arc::new(Semaphore::new(1)),
        };
        let mut connection = Checkout::from(&table.pool).await?;
        let opened = table.create_if_missing(connection.get()).await;
        connection.check_in(opened)?;
        Ok(table)
    }

    /// Reads first, because the user may use the table without the right to create it.
    async fn create_if_missing(&self, connection: &mut C) -> sqlx::Result<()> {
        let ResponseStatements { find, create, .. } = &self.statements;
        if connection.find(find.clone(), b"").await.is_ok() {
            return Ok(());
        }
        let created = connection.execute_all(create.clone()).await;
        let found = connection.find(find.clone(), b"").await;
        match (created, found) {
            (_, Ok(_)) => Ok(()),
            // Several may create it at once, and all but one get this error.
            (Err(error), Err(_)) | (Ok(()), Err(error)) => Err(error),
        }
    }

    /// Stores a response and takes it back. A replica, or a user without the right, would take none, and every
    /// request would be handled again.
    async fn try_put(&self) -> sqlx::Result<()> {
        let mut checkout = Checkout::<C::Database>::from(&self.pool).await?;
        let id = random_id();
        let key = LockKey::new(format!("trial-{id:032x}")).expect("BUG: it is a key");
        let stored = StoredResponse::new(id, [0; 32], &Response::new(None));
        let connection: &mut C = checkout.get();
        connection.execute_all(SqlStr::from_static("BEGIN")).await?;
        let put = self
            .statements
            .put(connection, &key, &stored, None, CONNECT_TIMEOUT);
        let put = put.await;
        let undone = connection
            .execute_all(SqlStr::from_static("ROLLBACK"))
            .await;
        put?;
        checkout.check_in(undone)
    }

    fn purge_in_background(&self) {
        let Ok(turn) = Arc::clone(&self.purging).try_acquire_owned() else {
            return;
        };
        let (pool, readers) = (self.pool.clone(), Arc::clone(&self.readers));
        let sql = self.statements.purge.clone();
        tokio::spawn(async move {
            let purge = async {
                let _reader = readers.acquire().await.expect(NEVER_CLOSED);
                let mut connection = Checkout::<C::Database>::from(&pool).await?;
                let purged = connection.get().change(sql, &[]).await;
                connection.check_in(purged)
            };
            match tokio::time::timeout(PURGE_TIMEOUT, purge).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "old responses are not purged"),
                Err(_) => tracing::warn!("old responses are not purged in time"),
            }
            drop(turn);
        });
    }
}

#[async_trait]
impl<C: SqlConnection> ResponseStore for ResponseTable<C> {
    async fn get(&self, key: &LockKey) -> Result<Option<StoredResponse>, StoreError> {
        let unread = |error| StoreError::new("a response cannot be read").with_source(error);
        let _reader = self.readers.acquire().await.expect(NEVER_CLOSED);
        let mut connection = Checkout::from(&self.pool).await.map_err(unread)?;
        let find = self.statements.find.clone();
        let found = connection.get().find(find, key.as_bytes()).await;
        let found = connection.check_in(found).map_err(unread)?;
        found.map(StoredResponse::from_bytes).transpose()
    }

    async fn put(
        &self,
        key: &LockKey,
        response: &StoredResponse,
        token: Option<FencingToken>,
        retention: Duration,
    ) -> Result<Put, StoreError> {
        let puts = self.puts.fetch_add(1, Ordering::Relaxed);
        let mut connection = Checkout::from(&self.pool).await.map_err(unwritten)?;
        let statements = &self.statements;
        let put = statements
            .put(connection.get(), key, response, token, retention)
            .await;
        let there = connection.check_in(put).map_err(unwritten)?;
        if puts.is_multiple_of(PUTS_PER_PURGE) {
            self.purge_in_background();
        }
        Ok(there.map_or(Put::Stored, |there| Put::beside(&there, response)))
    }
}

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

impl SqlDialect {
    /// Whether sqlx 0.9 knows the parameter of a URL.
    fn has_parameter(self, name: &str) -> bool {
        let known = match self {
            Self::MySql => {
                "charset collation socket ssl-ca ssl-cert ssl-key ssl-mode sslca sslcert sslkey \
                 sslmode statement-cache-capacity time-zone timezone"
            }
            Self::Postgres => {
                "application_name dbname host hostaddr options password port ssl-ca ssl-cert \
                 ssl-key ssl-mode ssl-root-cert sslcert sslkey sslmode sslrootcert \
                 statement-cache-capacity user"
            }
            // A `vfs` can keep the file in the memory of a connection.
            Self::Sqlite => "cache immutable mode",
        };
        let is_setting = self == Self::Postgres
            && name
                .strip_prefix("options[")
                .is_some_and(|setting| setting.ends_with(']'));
        is_setting || known.split(' ').any(|known| known == name)
    }
}

/// The statements for one table.
#[derive(Clone, Debug)]
struct ResponseStatements {
    dialect: SqlDialect,
    table: String,
    create: SqlStr,
    /// Takes a key; returns its response, unless expired.
    find: SqlStr,
    /// The same, and sees what was committed after the transaction began.
    find_committed: SqlStr,
    /// Takes key, token, response and retention. Fails, or changes nothing, if the key exists.
    insert: SqlStr,
    /// Takes a key, and deletes its row if it has expired.
    delete_expired: SqlStr,
    /// Deletes up to [`ROWS_PER_PURGE`] expired rows.
    purge: SqlStr,
}

/// More than are put between two purges.
const ROWS_PER_PURGE: u32 = 1000;

impl ResponseStatements {
    /// Creates the statements of a table. Its name is checked here, as the only external input.
    fn new(dialect: SqlDialect, name: &str) -> Result<Self, StoreError> {
        check(name)?;
        let is_mysql = dialect == SqlDialect::MySql;
        let (quote, key, response) = match dialect {
            SqlDialect::MySql => ('`', "VARBINARY(1024)", "LONGBLOB"),
            SqlDialect::Postgres => ('"', "BYTEA", "BYTEA"),
            SqlDialect::Sqlite => ('"', "BLOB", "BLOB"),
        };
        // Microseconds since 1970 by the clock of the database, constant within a statement, so that
        // indexes can be used.
        let now = match dialect {
            SqlDialect::MySql => "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
            SqlDialect::Postgres => "(extract(epoch from statement_timestamp()) * 1000000)::bigint",
            SqlDialect::Sqlite => "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
        };
        let (table, index) = (
            format!("{quote}{name}{quote}"),
            format!("{quote}{name}_expires{quote}"),
        );
        let indexed = match is_mysql {
            true => format!(",\n    INDEX {index} (expires_at)\n) ENGINE = InnoDB"),
            false => format!("\n);\nCREATE INDEX IF NOT EXISTS {index} ON {table} (expires_at)"),
        };
        // On PostgreSQL, an existing key would abort the caller's transaction. MySQL has no such clause
        // that hides no other errors; there, a transaction that has read before does not see later commits.
        let (skip_existing, read_committed) = match is_mysql {
            true => ("", " LOCK IN SHARE MODE"),
            false => (" ON CONFLICT (response_key) DO NOTHING", ""),
        };
        let expired = format!("expires_at <= {now} ORDER BY expires_at LIMIT {ROWS_PER_PURGE}");
        let purged = match dialect {
            SqlDialect::MySql => expired,
            // Concurrent purges would deadlock.
            SqlDialect::Postgres => format!(
                "response_key IN (SELECT response_key FROM {table} WHERE {expired} \
                 FOR UPDATE SKIP LOCKED)"
            ),
            SqlDialect::Sqlite => {
                format!("response_key IN (SELECT response_key FROM {table} WHERE {expired})")
            }
        };
        let sql = |text: String| {
            // MySQL does not number parameters; all are used in their order.
            let text = match is_mysql {
                true => (1..=4).fold(text, |text, n| text.replace(&format!("${n}"), "?")),
                false => text,
            };
            AssertSqlSafe(text).into_sql_str()
        };
        let find =
            format!("SELECT response FROM {table} WHERE response_key = $1 AND expires_at > {now}");
        Ok(Self {
            dialect,
            table: name.to_owned(),
            create: sql(format!(
                "CREATE TABLE IF NOT EXISTS {table} (
    response_key {key} NOT NULL PRIMARY KEY,
    token BIGINT,
    response {response} NOT NULL,
    expires_at BIGINT NOT NULL{indexed}"
            )),
            find_committed: sql(format!("{find}{read_committed}")),
            find: sql(find),
            insert: sql(format!(
                "INSERT INTO {table} (response_key, token, response, expires_at) \
                 VALUES ($1, $2, $3, {now} + $4){skip_existing}"
            )),
            delete_expired: sql(format!(
                "DELETE FROM {table} WHERE response_key = $1 AND expires_at <= {now}"
            )),
            purge: sql(format!("DELETE FROM {table} WHERE {purged}")),
        })
    }

    /// Stores a response, or returns the one that is stored already. The insertion decides: if it fails and
    /// the key does not exist, the row has expired meanwhile.
    async fn put<C: SqlConnection>(
        &self,
        connection: &mut C,
        key: &LockKey,
        response: &StoredResponse,
        token: Option<FencingToken>,
        retention: Duration,
    ) -> sqlx::Result<Option<StoredResponse>> {
        let token = token.map(|token| i64::try_from(token.value()).unwrap_or(i64::MAX));
        let retention = i64::try_from(retention.as_micros()).unwrap_or(MAX_RETENTION_MICROS);
        let retention = retention.min(MAX_RETENTION_MICROS);
        let (key, stored) = (key.as_bytes(), response.to_bytes());
        let row = [
            SqlParam::Bytes(key),
            SqlParam::Number(token),
            SqlParam::Bytes(&stored),
            SqlParam::Number(Some(retention)),
        ];
        for _ in 0..MAX_ATTEMPTS {
            let insert = self.insert.clone();
            match connection.change(insert, &row).await {
                Ok(0) => {}
                Ok(_) => return Ok(None),
                Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {}
                Err(error) => return Err(error),
            }
            let delete = self.delete_expired.clone();
            if connection.change(delete, &row[..1]).await? > 0 {
                continue;
            }
            let find = self.find_committed.clone();
            if let Some(found) = connection.find(find, key).await? {
                let there = StoredResponse::from_bytes(found);
                let there = there.map_err(|error| sqlx::Error::Decode(error.into()))?;
                return Ok(Some(there));
            }
        }
        let message = "expired responses come and go under the key of a response";
        Err(sqlx::Error::Protocol(message.to_owned()))
    }
}

/// Longer than a response is kept, and small enough to be added to a time.
const MAX_RETENTION_MICROS: i64 = i64::MAX / 4;

/// A connection that is closed unless it is checked in. Otherwise a connection with a statement in flight
/// would keep its place in the pool until the database answers.
struct Checkout<D: Database> {
    connection: PoolConnection<D>,
    is_idle: bool,
}

impl<D: Database> Checkout<D> {
    async fn from(pool: &Pool<D>) -> sqlx::Result<Self> {
        Ok(Self {
            connection: pool.acquire().await?,
            is_idle: false,
        })
    }

    fn get(&mut self) -> &mut D::Connection {
        &mut self.connection
    }

    fn check_in<T>(mut self, done: sqlx::Result<T>) -> sqlx::Result<T> {
        self.is_idle = match &done {
            Ok(_) => true,
            Err(sqlx::Error::Database(error)) => !is_read_only(&**error),
            Err(_) => false,
        };
        done
    }
}

impl<D: Database> Drop for Checkout<D> {
    fn drop(&mut self) {
        if !self.is_idle {
            self.connection.close_on_drop();
        }
    }
}

/// Whether the server refused a write as a whole. One that was demoted keeps its connections, although its
/// address may lead to another server by now.
fn is_read_only(error: &(dyn DatabaseError + 'static)) -> bool {
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        // ER_OPTION_PREVENTS_STATEMENT, ER_READ_ONLY_TRANSACTION, and ER_READ_ONLY_MODE of MariaDB.
        return matches!(error.number(), 1290 | 1792 | 1836);
    }
    error.code().is_some_and(|code| code == "25006")
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

/// PostgreSQL truncates names at 63 bytes, and the index name is eight bytes longer.
const MAX_NAME_LEN: usize = 55;

/// An sqlx connection: `SqliteConnection`, `PgConnection` or `MySqlConnection`, such as `&mut *tx` of a
/// `Transaction`.
///
/// Sealed: there are no others.
pub trait SqlConnection: SqlQueries {}

/// Runs statements, whose types differ between databases.
#[expect(unnameable_types, reason = "nobody else implements it")]
pub trait SqlQueries: Connection + 'static {
    const DIALECT: SqlDialect;

    fn find(
        &mut self,
        sql: SqlStr,
        key: &[u8],
    ) -> impl Future<Output = sqlx::Result<Option<Vec<u8>>>> + Send;

    /// Returns how many rows changed.
    fn change(
        &mut self,
        sql: SqlStr,
        params: &[SqlParam<'_>],
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    /// Runs several statements without parameters.
    fn execute_all(&mut self, sql: SqlStr) -> impl Future<Output = sqlx::Result<()>> + Send;
}

/// The value of a parameter.
#[derive(Clone, Copy, Debug)]
#[expect(unnameable_types, reason = "nobody else implements `SqlQueries`")]
pub enum SqlParam<'a> {
    Bytes(&'a [u8]),
    Number(Option<i64>),
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

            async fn change(
                &mut self,
                sql: SqlStr,
                params: &[SqlParam<'_>],
            ) -> sqlx::Result<u64> {
                let query = params.iter().fold(sqlx::query(sql), |query, param| match *param {
                    SqlParam::Bytes(bytes) => query.bind(bytes),
                    SqlParam::Number(number) => query.bind(number),
                });
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

    #[cfg(feature = "postgres")]
    #[test]
    fn parameters_that_sqlx_knows_are_passed_on() {
        let url = "postgres://h/x?&ssl-mode=disable&options%5Bsearch_path%5D=shop&\
                   options[statement_timeout]=5s&application_name=a%40b";
        let options: sqlx::postgres::PgConnectOptions = parsed(url, SqlDialect::Postgres).unwrap();
        let set = "-c search_path=shop -c statement_timeout=5s";
        assert_eq!(options.get_options(), Some(set));
        assert_eq!(options.get_application_name(), Some("a@b"));
    }
}
