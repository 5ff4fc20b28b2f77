//! Responses in a table.

mod dialect;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::Response;
use polylock_core::{FencingToken, LockKey};
use sqlx::pool::{PoolConnection, PoolOptions};
use sqlx::{ConnectOptions, Connection, Database, Pool};
use tokio::sync::Semaphore;

use self::dialect::{ResponseStatements, SqlValue};
use super::store::MAX_ATTEMPTS;
use super::{PendingResponse, Put, ResponseStore, StoreError, StoredResponse};

pub use self::dialect::{SqlConnection, SqlDialect};

/// Keeps responses in a table of SQLite, PostgreSQL, MySQL or MariaDB.
///
/// Times are those of the clock of the database. Expired responses are not found, and purged in
/// passing. The table has them as they were sent: its readers see what clients saw. Clones share up
/// to four connections, one of which is reserved for storing.
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

/// How long a free connection, and a lock of SQLite, is waited for.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl SqlResponses {
    /// The table, unless another is named.
    pub const DEFAULT_TABLE: &'static str = "polylock_responses";

    /// Connects to a database, and makes the table `polylock_responses` unless it is there.
    ///
    /// The URL is one of sqlx: `sqlite:/var/lib/shop/shop.db`, `postgres://me@host/shop`,
    /// `mysql://me@host/shop`, with the parameters that it knows.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the URL is wrong or of a database whose feature is off, if the database
    /// cannot be reached within 5 s, or if the table cannot be made.
    ///
    /// # Cancel safety
    ///
    /// The table may have been made.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_table(url, Self::DEFAULT_TABLE).await
    }

    /// Connects to a database, and makes the table of this name unless it is there.
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
            "mysql" | "mariadb" => Self::open::<sqlx::MySqlConnection>(parsed(url)?, table).await,
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                Self::open::<sqlx::PgConnection>(parsed(url)?, table).await
            }
            #[cfg(feature = "sqlite")]
            "sqlite" if url.contains(":memory:") || url.contains("mode=memory") => {
                let message = "each connection would have a SQLite of its own in memory";
                Err(StoreError::new(message))
            }
            #[cfg(feature = "sqlite")]
            "sqlite" => {
                let options: sqlx::sqlite::SqliteConnectOptions = parsed(url)?;
                let options = options
                    .create_if_missing(true)
                    .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
                    .busy_timeout(CONNECT_TIMEOUT);
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
        Ok(Self {
            statements,
            table: Arc::new(table.map_err(absent)?),
        })
    }

    /// The statements that make a table, for those whose program may not. It needs `SELECT`,
    /// `INSERT` and `DELETE`, and on PostgreSQL `UPDATE`, to lock the rows that it purges.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the name is none, as for [`connect_table`](Self::connect_table).
    pub fn create_table_sql(dialect: SqlDialect, table: &str) -> Result<String, StoreError> {
        let statements = ResponseStatements::new(dialect, table)?;
        Ok(statements.create.as_str().to_owned())
    }

    /// Stores the response of a request in the transaction that is open on `connection`: it is there
    /// if and only if what else the transaction does is.
    ///
    /// The connection is to the database that has the table. Roll back unless it is
    /// [`Put::Stored`]: another request was handled first, and if the handler's response is then
    /// one to be [stored](super::IdempotencyLayer::with_stored), its client gets the stored one
    /// instead. The handler returns the response after the commit.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the statement fails; roll back.
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
        put.await.map_err(unwritten)
    }
}

fn parsed<O: ConnectOptions>(url: &str) -> Result<O, StoreError> {
    url.parse().map_err(unopened)
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
        let mut connection = table.checkout().await?;
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

    async fn checkout(&self) -> sqlx::Result<Checkout<C::Database>> {
        Checkout::from(&self.pool).await
    }

    fn purge_in_background(&self) {
        let Ok(turn) = Arc::clone(&self.purging).try_acquire_owned() else {
            return;
        };
        let (pool, readers) = (self.pool.clone(), Arc::clone(&self.readers));
        let sql = self.statements.purge.clone();
        let purge = async move {
            let _reader = readers.acquire().await.map_err(closed)?;
            let mut connection = Checkout::<C::Database>::from(&pool)
                .await
                .map_err(unwritten)?;
            let purged = connection.get().execute(sql, &[]).await;
            connection.check_in(purged).map_err(unwritten)
        };
        tokio::spawn(async move {
            let purged = tokio::time::timeout(PURGE_TIMEOUT, purge).await;
            let late = |_| Err(StoreError::new("the database does not answer in time"));
            if let Err(error) = purged.unwrap_or_else(late) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "old responses are not purged");
            }
            drop(turn);
        });
    }
}

#[async_trait]
impl<C: SqlConnection> ResponseStore for ResponseTable<C> {
    async fn get(&self, key: &LockKey) -> Result<Option<StoredResponse>, StoreError> {
        let unread = |error| StoreError::new("a response cannot be read").with_source(error);
        let _reader = self.readers.acquire().await.map_err(closed)?;
        let mut connection = self.checkout().await.map_err(unread)?;
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
        let mut connection = self.checkout().await.map_err(unwritten)?;
        let done = self
            .statements
            .put(connection.get(), key, response, token, retention);
        let done = done.await;
        let done = connection.check_in(done).map_err(unwritten)?;
        if puts.is_multiple_of(PUTS_PER_PURGE) {
            self.purge_in_background();
        }
        Ok(done)
    }
}

impl ResponseStatements {
    /// Stores a response. The insertion decides: if it fails and the key does not exist, the row has
    /// expired meanwhile.
    async fn put<C: SqlConnection>(
        &self,
        connection: &mut C,
        key: &LockKey,
        response: &StoredResponse,
        token: Option<FencingToken>,
        retention: Duration,
    ) -> sqlx::Result<Put> {
        let token = token.map(|token| i64::try_from(token.value()).unwrap_or(i64::MAX));
        let retention = i64::try_from(retention.as_micros()).unwrap_or(MAX_RETENTION_MICROS);
        let (key, stored) = (key.as_bytes(), response.to_bytes());
        let row = [
            SqlValue::Bytes(key),
            SqlValue::Int(token),
            SqlValue::Bytes(&stored),
            SqlValue::Int(Some(retention.min(MAX_RETENTION_MICROS))),
        ];
        for _ in 0..MAX_ATTEMPTS {
            match connection.execute(self.insert.clone(), &row).await {
                Ok(0) => {}
                Ok(_) => return Ok(Put::Stored),
                Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {}
                Err(error) => return Err(error),
            }
            let delete = self.delete_expired.clone();
            if connection.execute(delete, &row[..1]).await? > 0 {
                continue;
            }
            let find = self.find_committed.clone();
            if let Some(found) = connection.find(find, key).await? {
                let there = StoredResponse::from_bytes(found);
                let there = there.map_err(|error| sqlx::Error::Decode(error.into()))?;
                return Ok(Put::beside(&there, response));
            }
        }
        let message = "expired responses come and go under the key of a response";
        Err(sqlx::Error::Protocol(message.to_owned()))
    }
}

/// Longer than a response is kept, and small enough to be added to a time.
const MAX_RETENTION_MICROS: i64 = i64::MAX / 4;

fn closed(error: tokio::sync::AcquireError) -> StoreError {
    StoreError::new("the store of the responses is closed").with_source(error)
}

/// A connection that is closed unless it is checked in: one with a statement on its way would keep
/// its place in the pool for as long as the database does not answer.
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
        self.is_idle = matches!(done, Ok(_) | Err(sqlx::Error::Database(_)));
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
