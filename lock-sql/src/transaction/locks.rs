use polylock_core::layers::Prefix;
use polylock_core::{Error, ErrorKind, FencingToken, LockKey, Result, Wait};

use super::connection::Connection;
use super::place::Place;

/// Locks that last until the end of a transaction of the caller.
///
/// Says which table has the locks. Cheap to make and to clone; it has no connection of its own.
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
    place: Place,
    namespace: Option<String>,
    wait: Wait,
}

/// A lock that is held until the transaction that it was taken in ends.
///
/// It is a note, and no guard: dropping it releases nothing.
///
/// The [example of the module](super#examples) takes one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TransactionLock {
    key: LockKey,
    token: FencingToken,
}

impl TransactionLocks {
    /// Uses the table `polylock_locks` of whatever database the connection is to.
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

    /// Names the schema of the table; on MySQL and MariaDB that is a database, and on SQLite an
    /// attached one. Default: the one where the connection looks for tables.
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
    /// Tables do not meet: locks of the same key in two of them are two locks.
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
    /// The server ends the wait, so that it does not go on when the client is gone. It bounds each
    /// thing that is waited for: the row that another transaction has made and not committed, the
    /// lock, and the record of its tokens. Most often only the lock is; a wait takes up to three times
    /// as long at worst. MySQL and MariaDB count whole seconds, rounded up. SQLite has nothing to
    /// wait for: see [the module](super#sqlite).
    #[must_use]
    pub fn with_wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Takes a lock for the rest of the transaction that is open on `connection`.
    ///
    /// Commit and rollback release it, and so does the end of the connection; nothing else does,
    /// and nothing has to be renewed. Taken twice in one transaction, it is held once, and the
    /// second token is larger. The [token](super#tokens) is for others after the commit only.
    ///
    /// # Errors
    ///
    /// After `Contended` the transaction is as it was and can go on; after every other error roll
    /// it back. (PostgreSQL and SQLite would let it go on, MySQL may have rolled back all of it.)
    ///
    /// - [`Contended`](ErrorKind::Contended) if another client holds the lock and the wait is over.
    /// - [`Unavailable`](ErrorKind::Unavailable) if transactions wait for each other, if the
    ///   isolation of this one does not allow for what others have done since it began (repeat it
    ///   from its beginning), if the server has started anew and sessions of before may be believed
    ///   in, if the server cancelled the statement, and if the connection broke.
    /// - [`InvalidRequest`](ErrorKind::InvalidRequest) if no transaction is open, or the one that is
    ///   has failed before.
    /// - [`InvalidKey`](ErrorKind::InvalidKey) if `key` is not a lock key.
    /// - [`InvalidConfig`](ErrorKind::InvalidConfig) if there is no such table.
    /// - [`Denied`](ErrorKind::Denied) if the user may not select, insert and update in it.
    /// - [`Protocol`](ErrorKind::Protocol) if the table was made by something else.
    ///
    /// # Cancel safety
    ///
    /// Roll the transaction back: the lock may have been taken or not, and on PostgreSQL the
    /// transaction may have failed. A server that waits for the lock goes on for the rest of the
    /// wait. What is done with the connection next comes after that, and may get the error of the
    /// wait, whereupon a pool closes the connection. On MySQL and MariaDB a session that is used
    /// further may keep the wait as its `innodb_lock_wait_timeout`.
    pub async fn acquire_in<C, K>(&self, connection: &mut C, key: K) -> Result<TransactionLock>
    where
        C: Connection,
        K: TryInto<LockKey, Error: Into<Error>> + Send,
    {
        let key = key.try_into().map_err(Into::into)?;
        let taken = self.take(connection, &key, self.wait).await?;
        taken.ok_or_else(|| {
            let message = "another client holds the lock";
            Error::new(ErrorKind::Contended, message).with_key(&key)
        })
    }

    /// Acquires a lock for the rest of the transaction without waiting; `None` if it is held.
    ///
    /// # Errors
    ///
    /// Those of [`acquire_in`](Self::acquire_in) except [`Contended`](ErrorKind::Contended). The
    /// transaction is as it was after `None`.
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
        self.take(connection, &key, Wait::Never).await
    }

    async fn take<C: Connection>(
        &self,
        connection: &mut C,
        key: &LockKey,
        wait: Wait,
    ) -> Result<Option<TransactionLock>> {
        let stored = match &self.namespace {
            Some(namespace) => Prefix::stored_key(namespace, key)?,
            None => key.clone(),
        };
        let taken = connection.take(&self.place, &stored, wait).await;
        let token = taken.map_err(|error| error.with_backend(C::BACKEND).with_key(key))?;
        Ok(token.map(|token| TransactionLock {
            key: key.clone(),
            token: FencingToken::new(token),
        }))
    }
}

impl TransactionLock {
    /// The key, as it was asked for.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// The token, larger than that of every earlier holder whose transaction was committed.
    ///
    /// It is good for others after the commit only: see [the module](super#tokens).
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }
}
