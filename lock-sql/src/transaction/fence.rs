use polylock_core::fencing::StaleToken;
use polylock_core::{Error, FencingToken, LockKey, Result};
use sqlx::Execute;

use super::connection::Connection;
use super::place::Place;

/// Lets writes into a database only in the order of their fencing tokens.
///
/// Keeps the largest token of each resource in the table of the locks (on SQLite, in one beside it
/// whose name ends in `_fences`). The lock may be any: that of another database, or of Redis.
/// Tokens of different locks are not comparable, so a resource belongs to one lock.
///
/// A table with a column for the token does without this:
///
/// ```sql
/// UPDATE orders SET state = $3, fence = $1 WHERE id = $2 AND fence <= $1
/// ```
///
/// and [`expect_written`](polylock_core::fencing::expect_written) makes a [`StaleToken`] of 0 rows.
///
/// # Guarantees
///
/// A transaction that passed with a token and is committed keeps smaller tokens out for ever: the row of
/// a resource is never purged. Two
/// that pass for one resource run one after the other: the second waits until the first has ended.
///
/// The [example of the module](super#examples) refuses a late write.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    place: Place,
}

/// Why a write was not done.
///
/// The [example of the module](super#examples) tells a late write from other errors.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The token could not be compared.
    #[error("the token of the write cannot be compared")]
    Check(#[source] Error),
    /// The statement of the caller failed; the transaction is as this leaves it.
    #[error("the statement failed")]
    Sql(#[source] sqlx::Error),
    /// A later holder of the lock has written. The statement was not run.
    #[error("a later holder of the lock has written")]
    Stale(#[source] StaleToken),
}

impl Fence {
    /// Uses the table `polylock_locks` of whatever database the connection is to.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the schema of the table, as
    /// [`TransactionLocks::with_schema`](super::TransactionLocks::with_schema) does.
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
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) as for
    /// [`TransactionLocks::with_table`](super::TransactionLocks::with_table).
    pub fn with_table(mut self, name: &str) -> Result<Self> {
        self.place.set_table(name)?;
        Ok(self)
    }

    /// Lets the transaction on `connection` go on if no larger token has passed for `resource`.
    ///
    /// The token passes with the transaction: a rollback takes that back. Several writes with one
    /// token are fine. Waits for others that check the same resource until their transactions end,
    /// for as long as the settings of the session allow (`lock_timeout`,
    /// `innodb_lock_wait_timeout`, the busy time-out of SQLite).
    ///
    /// # Errors
    ///
    /// After `Stale`, and after `Check` with [`Contended`](polylock_core::ErrorKind::Contended), the
    /// transaction is as it was; after every other error roll it back.
    ///
    /// - [`Stale`](WriteError::Stale) if a larger token has passed.
    /// - [`Check`](WriteError::Check) with the errors of
    ///   [`acquire_in`](super::TransactionLocks::acquire_in); a resource is named like a key.
    ///
    /// # Cancel safety
    ///
    /// Roll the transaction back, as for [`acquire_in`](super::TransactionLocks::acquire_in).
    pub async fn check<C, R>(
        &self,
        connection: &mut C,
        resource: R,
        token: FencingToken,
    ) -> Result<(), WriteError>
    where
        C: Connection,
        R: TryInto<LockKey, Error: Into<Error>> + Send,
    {
        let resource = resource.try_into().map_err(Into::into);
        let resource = resource.map_err(WriteError::Check)?;
        let raised = connection
            .raise(&self.place, &resource, token.value())
            .await;
        let newest = raised.map_err(|error| {
            WriteError::Check(error.with_backend(C::BACKEND).with_key(&resource))
        })?;
        if newest > token.value() {
            let stale = StaleToken::new(resource.as_str(), token);
            return Err(stale.with_newest(FencingToken::new(newest)).into());
        }
        Ok(())
    }

    /// Runs a statement if no larger token has passed for `resource`, and returns how many rows it
    /// changed.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Self::check), and [`Sql`](WriteError::Sql) if the statement fails.
    ///
    /// # Cancel safety
    ///
    /// Roll the transaction back: the statement may have been run or not.
    pub async fn write_if_newer<'q, C, R, Q>(
        &self,
        connection: &mut C,
        resource: R,
        token: FencingToken,
        statement: Q,
    ) -> Result<u64, WriteError>
    where
        C: Connection,
        R: TryInto<LockKey, Error: Into<Error>> + Send,
        Q: Execute<'q, C::Database> + 'q,
    {
        self.check(connection, resource, token).await?;
        connection.run(statement).await.map_err(WriteError::Sql)
    }
}

impl From<StaleToken> for WriteError {
    fn from(stale: StaleToken) -> Self {
        Self::Stale(stale)
    }
}
