use polylock_core::layers::Prefix;
use polylock_core::{Error, ErrorKind, FencingToken, LockKey, Result, Wait};

use super::connection::Connection;
use super::place::QualifiedTable;

/// Locks that last until the end of a transaction of the caller.
///
/// Names the table of the locks. Cheap to create and to clone; it has no connection of its own.
///
/// # Examples
///
/// ```
/// use polylock_sql::transaction::TransactionLocks;
///
/// # fn main() -> polylock_core::Result<()> {
/// let locks = TransactionLocks::new()
///     .with_namespace("shop")?
///     .with_table("shop_locks")?;
/// # let _ = locks;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct TransactionLocks {
    place: QualifiedTable,
    namespace: Option<String>,
    wait: Wait,
}

/// A lock that is held until the end of its transaction.
///
/// It is not a guard: dropping it releases nothing.
///
/// The [example of the module](super#examples) acquires one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TransactionLock {
    key: LockKey,
    token: FencingToken,
}

impl TransactionLocks {
    /// Uses the table `polylock_locks` in the database of the connection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `namespace:` in front of every key, as the parameter `namespace` of a URL does.
    /// Default: nothing.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if the namespace is empty, longer than
    /// [`LockKey::MAX_NAMESPACE_LEN`] bytes, or contains a colon or a control character.
    pub fn with_namespace(mut self, namespace: &str) -> Result<Self> {
        let any = LockKey::new("any")?;
        Prefix::stored_key(namespace, &any)?;
        self.namespace = Some(namespace.to_owned());
        Ok(self)
    }

    /// Names the schema of the table: a database on MySQL and MariaDB, an attached database on SQLite.
    /// Default: the one where the connection looks for tables.
    ///
    /// # Errors
    ///
    /// As for [`with_table`](Self::with_table).
    pub fn with_schema(mut self, name: &str) -> Result<Self> {
        self.place.set_schema(name)?;
        Ok(self)
    }

    /// Names the table. Default: `polylock_locks`.
    ///
    /// Locks of the same key in two tables are two locks.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) if the name is not 1 to 63 ASCII letters, digits
    /// and underscores, begins with a digit, or with `sqlite_`.
    pub fn with_table(mut self, name: &str) -> Result<Self> {
        self.place.set_table(name)?;
        Ok(self)
    }

    /// Sets how long [`acquire_in`](Self::acquire_in) waits. Default: at most 30 s.
    ///
    /// The server ends the wait, so it ends even if the client is gone. The limit applies to each of
    /// three waits: for another transaction that has inserted the row and not committed, for the lock,
    /// and for the record of its tokens. Usually only the lock is waited for; at worst the total is
    /// three times the limit. MySQL and MariaDB count whole seconds, rounded up. SQLite has no holder to
    /// wait for: see [the module](super#sqlite).
    #[must_use]
    pub fn with_wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Acquires a lock for the rest of the open transaction on `connection`.
    ///
    /// Only a commit, a rollback or the end of the connection releases it, and it needs no renewal.
    /// Acquire it in the outermost transaction: a rollback to an earlier savepoint, such as that of a
    /// nested `begin` of sqlx, releases it on PostgreSQL, and on MySQL and MariaDB if its row was new.
    ///
    /// Acquired twice in one transaction, it is held once, and the second token is larger. Show the
    /// [token](super#tokens) to others only after the commit.
    ///
    /// # Errors
    ///
    /// After `Contended` the transaction is unchanged and can continue. After every other error, roll it
    /// back. (PostgreSQL and SQLite would let it continue; MySQL may have rolled back all of it.)
    ///
    /// - [`Contended`](ErrorKind::Contended) if another client holds the lock and the wait is over. On
    ///   SQLite also if another connection keeps the database locked for longer than the busy timeout
    ///   of `connection`, whichever keys it uses. On MySQL and MariaDB also if another session keeps the
    ///   table locked (`ALTER TABLE`, `LOCK TABLES`) for longer than the `lock_wait_timeout` of
    ///   `connection`, a day or more by default: the server does not distinguish the two.
    /// - [`Unavailable`](ErrorKind::Unavailable) if transactions wait for each other, if the isolation
    ///   level conflicts with changes since the transaction began (repeat it from its beginning), if the
    ///   server has restarted and holders of earlier sessions may still rely on their locks, if the
    ///   server cancelled the statement, if another session keeps the table locked on PostgreSQL
    ///   (`CREATE INDEX`, `ALTER TABLE`, `VACUUM FULL`, `LOCK TABLE`), if another client holds the lock
    ///   and the server rolled the transaction back after the wait (`innodb_rollback_on_timeout`), or if
    ///   the connection broke.
    /// - [`InvalidRequest`](ErrorKind::InvalidRequest) if no transaction is open, or if it has already
    ///   failed.
    /// - [`InvalidKey`](ErrorKind::InvalidKey) if `key` is not a lock key.
    /// - [`InvalidConfig`](ErrorKind::InvalidConfig) if the table does not exist; [`Schema`](crate::Schema)
    ///   creates it.
    /// - [`Denied`](ErrorKind::Denied) if the user may not select, insert and update in it.
    /// - [`Protocol`](ErrorKind::Protocol) if the table was created by another program.
    ///
    /// # Cancel safety
    ///
    /// Roll the transaction back: the lock may have been acquired, and on PostgreSQL the transaction may
    /// have failed. A waiting server continues to wait until the limit. The next statement on the
    /// connection runs after that, and may get the error of the wait; a pool then closes the connection.
    /// On MySQL and MariaDB a reused session may keep the wait as its `innodb_lock_wait_timeout`.
    pub async fn acquire_in<C, K>(&self, connection: &mut C, key: K) -> Result<TransactionLock>
    where
        C: Connection,
        K: TryInto<LockKey, Error: Into<Error>> + Send,
    {
        let key = key.try_into().map_err(Into::into)?;
        self.take(connection, &key, self.wait).await
    }

    /// Acquires a lock for the rest of the transaction without waiting; `None` if it is held.
    ///
    /// Acquire it in the outermost transaction, as for [`acquire_in`](Self::acquire_in).
    ///
    /// On MySQL (not on MariaDB) with an isolation level above `READ COMMITTED`, and the default is one,
    /// an attempt on a key without a row also locks the gap up to the next key in the table, until the
    /// transaction ends. Inserts of other new keys into the gap wait for that. Two transactions that both
    /// try new keys there wait for each other: for 1 s, then this returns `None`, or the server ends one
    /// of them with [`Unavailable`](ErrorKind::Unavailable). `READ COMMITTED` locks no gaps.
    ///
    /// # Errors
    ///
    /// Those of [`acquire_in`](Self::acquire_in), with `None` in place of
    /// [`Contended`](ErrorKind::Contended). After `None` the transaction is unchanged.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire_in`](Self::acquire_in), but there is no wait.
    pub async fn try_acquire_in<C, K>(
        &self,
        connection: &mut C,
        key: K,
    ) -> Result<Option<TransactionLock>>
    where
        C: Connection,
        K: TryInto<LockKey, Error: Into<Error>> + Send,
    {
        let key = key.try_into().map_err(Into::into)?;
        match self.take(connection, &key, Wait::Never).await {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if error.kind() == ErrorKind::Contended => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn take<C: Connection>(
        &self,
        connection: &mut C,
        key: &LockKey,
        wait: Wait,
    ) -> Result<TransactionLock> {
        let stored = match &self.namespace {
            Some(namespace) => Prefix::stored_key(namespace, key)?,
            None => key.clone(),
        };
        let taken = connection.take(&self.place, &stored, wait).await;
        let token = taken.map_err(|error| error.with_backend(C::BACKEND).with_key(key))?;
        Ok(TransactionLock {
            key: key.clone(),
            token: FencingToken::new(token),
        })
    }
}

impl TransactionLock {
    /// The key as requested.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// The token, larger than that of every earlier holder whose transaction was committed.
    ///
    /// Show it to others only after the commit: see [the module](super#tokens).
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }
}
