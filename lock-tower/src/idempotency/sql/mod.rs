//! Responses in a table.

mod connection;
mod dialect;
mod pools;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::Response;
use lock_core::{FencingToken, LockKey};
use tokio::sync::Semaphore;

use self::connection::Record;
use self::dialect::Texts;
use self::pools::{CONNECTIONS, Lent, Pools, on_connection};
use super::{Fingerprint, Put, ResponseSlot, ResponseStore, RunId, StoreError, StoredResponse};

pub use self::connection::SqlConnection;
pub use self::dialect::SqlDialect;

/// Keeps responses in a table of SQLite, PostgreSQL, MySQL or MariaDB.
///
/// Times are those of the clock of the database. Expired responses are not found, and purged in
/// passing. The table has them as they were sent: its readers see what clients saw. Clones share up
/// to four connections, one of which is reserved for storing.
#[derive(Clone)]
pub struct SqlResponses {
    pools: Pools,
    table: Arc<str>,
    texts: Texts,
    puts: Arc<AtomicU32>,
    /// Keeps readers and purges from taking all of the connections.
    others: Arc<Semaphore>,
    /// One at a time.
    purging: Arc<Semaphore>,
}

/// A response is put so often between two purges, each of which can delete more.
const PUTS_PER_PURGE: u32 = 32;
const PURGE_LIMIT: Duration = Duration::from_secs(30);

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
        let pools = Pools::connect(url).await?;
        let responses = Self {
            texts: Texts::new(pools.dialect(), table)?,
            pools,
            table: table.into(),
            puts: Arc::default(),
            others: Arc::new(Semaphore::new(CONNECTIONS - 1)),
            purging: Arc::new(Semaphore::new(1)),
        };
        responses.ensure().await.map_err(|error| {
            StoreError::new("the table of the responses is not there").with_source(error)
        })?;
        Ok(responses)
    }

    /// The statements that make a table, for those whose program may not. It needs `SELECT`,
    /// `INSERT` and `DELETE`, and on PostgreSQL `UPDATE`, to lock the rows that it purges.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the name is none, as for [`connect_table`](Self::connect_table).
    pub fn create_table_sql(dialect: SqlDialect, table: &str) -> Result<String, StoreError> {
        let texts = Texts::new(dialect, table)?;
        Ok(texts.create.as_str().to_owned())
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
        slot: &ResponseSlot,
        response: &Response<Bytes>,
    ) -> Result<Put, StoreError> {
        if C::DIALECT != self.pools.dialect() {
            return Err(StoreError::new("the connection is to another database"));
        }
        let stored = slot.stored(response);
        let (token, retention) = (slot.fencing_token(), slot.retention());
        let put = put(
            &self.texts,
            connection,
            slot.key(),
            &stored,
            token,
            retention,
        );
        put.await.map_err(unwritten)
    }

    /// Purges in the background.
    fn purge_aside(&self) {
        let Ok(turn) = Arc::clone(&self.purging).try_acquire_owned() else {
            return;
        };
        let responses = self.clone();
        tokio::spawn(async move {
            let purged = tokio::time::timeout(PURGE_LIMIT, responses.purge()).await;
            let late = |_| Err(StoreError::new("the database does not answer in time"));
            if let Err(error) = purged.unwrap_or_else(late) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "old responses are not purged");
            }
            drop(turn);
        });
    }

    async fn purge(&self) -> Result<(), StoreError> {
        let purge = self.texts.purge.clone();
        let _place = self.others.acquire().await.map_err(unopened)?;
        let purged = on_connection!(&self.pools, connection => {
            connection::Dialog::delete(connection, purge, None).await
        });
        purged.map(drop).map_err(unwritten)
    }

    /// Checks first, because the user may use the table without the right to make it.
    async fn ensure(&self) -> sqlx::Result<()> {
        let Texts { find, create, .. } = &self.texts;
        on_connection!(&self.pools, connection => {
            if look(connection, find.clone()).await.is_ok() {
                Ok(())
            } else {
                match connection::Dialog::run(connection, create.clone()).await {
                    Ok(()) => look(connection, find.clone()).await,
                    // Several may make it at once, and all but one get this error.
                    Err(error) => look(connection, find.clone()).await.map_err(|_| error),
                }
            }
        })
    }
}

async fn look<C: SqlConnection>(connection: &mut C, find: sqlx::SqlStr) -> sqlx::Result<()> {
    connection.find(find, b"").await.map(drop)
}

async fn put<C: SqlConnection>(
    texts: &Texts,
    connection: &mut C,
    key: &LockKey,
    response: &StoredResponse,
    token: Option<FencingToken>,
    retention: Duration,
) -> sqlx::Result<Put> {
    let token = token.map(|token| i64::try_from(token.value()).unwrap_or(i64::MAX));
    let retention = i64::try_from(retention.as_micros()).map_or(LONGEST, |time| time.min(LONGEST));
    let fingerprint = response.fingerprint();
    let fields = response.fields();
    let run = response.run();
    let record = Record {
        run: &run.as_bytes()[..],
        token,
        fingerprint: &fingerprint.as_bytes()[..],
        status: i64::from(response.status().as_u16()),
        fields: &fields,
        body: response.body().map(|body| &body[..]),
    };
    let key = key.as_bytes();
    // The insertion decides. Where there is nothing when it has failed, what it met is over.
    for _ in 0..ROUNDS {
        let insert = texts.insert.clone();
        if connection.insert(insert, key, &record, retention).await? {
            return Ok(Put::Stored);
        }
        if connection.delete(texts.clear.clone(), Some(key)).await? {
            continue;
        }
        let find = texts.find_newest.clone();
        if let Some(found) = connection.find(find, key).await? {
            let is_ours = found.run == record.run;
            return Ok(if is_ours { Put::Stored } else { Put::Refused });
        }
    }
    let message = "what is over comes and goes under the key of a response";
    Err(sqlx::Error::Protocol(message.to_owned()))
}

/// Each round means that another client puts or purges in between.
const ROUNDS: usize = 8;

/// Microseconds that can be added to a time: longer than anybody keeps a response.
const LONGEST: i64 = i64::MAX / 4;

#[async_trait]
impl ResponseStore for SqlResponses {
    async fn get(&self, key: &LockKey) -> Result<Option<StoredResponse>, StoreError> {
        let find = self.texts.find.clone();
        let _place = self.others.acquire().await.map_err(unopened)?;
        let found = on_connection!(&self.pools, connection => {
            connection::Dialog::find(connection, find, key.as_bytes()).await
        });
        let unread = |error| StoreError::new("a response cannot be read").with_source(error);
        found.map_err(unread)?.map(read).transpose()
    }

    async fn put(
        &self,
        key: &LockKey,
        response: &StoredResponse,
        token: Option<FencingToken>,
        retention: Duration,
    ) -> Result<Put, StoreError> {
        let puts = self.puts.fetch_add(1, Ordering::Relaxed);
        let purges = puts.is_multiple_of(PUTS_PER_PURGE);
        let done = on_connection!(&self.pools, connection => {
            put(&self.texts, connection, key, response, token, retention).await
        });
        if done.is_ok() && purges {
            self.purge_aside();
        }
        done.map_err(unwritten)
    }
}

fn read(record: Record<Vec<u8>>) -> Result<StoredResponse, StoreError> {
    let broken = || StoreError::new("a stored response cannot be read");
    let fingerprint = record.fingerprint.try_into().map_err(|_| broken())?;
    let status = u16::try_from(record.status).map_err(|error| broken().with_source(error))?;
    let run = record.run.try_into().map_err(|_| broken())?;
    let body = record.body.map(Bytes::from);
    let fingerprint = Fingerprint::from_bytes(fingerprint);
    let run = RunId::from_bytes(run);
    StoredResponse::from_stored(fingerprint, run, status, &record.fields, body)
}

fn unopened(error: tokio::sync::AcquireError) -> StoreError {
    StoreError::new("the store of the responses is closed").with_source(error)
}

fn unwritten(error: sqlx::Error) -> StoreError {
    StoreError::new("a response cannot be written").with_source(error)
}

impl fmt::Debug for SqlResponses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlResponses")
            .field("dialect", &self.pools.dialect())
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
