use polylock_core::fencing::StaleToken;
use polylock_core::{Error, FencingToken, LockKey, Result};
use sqlx::Execute;

use super::connection::Connection;
use super::place::QualifiedTable;

/// Admits writes into a database only in the order of their fencing tokens.
///
/// Stores the largest token of each resource in the table of the locks (on SQLite, in a table beside it
/// whose name ends in `_fences`). Any lock will do, also one in another database or in Redis. Tokens of
/// different locks are not comparable, so each resource belongs to one lock.
///
/// A table with a token column does not need a fence:
///
/// ```sql
/// UPDATE orders SET state = $3, fence = $1 WHERE id = $2 AND fence <= $1
/// ```
///
/// and [`expect_written`](polylock_core::fencing::expect_written) turns 0 rows into a [`StaleToken`].
///
/// # Guarantees
///
/// After a transaction that passed with a token is committed, smaller tokens never pass again: the row
/// of a resource is never purged. Two transactions that pass for one resource run one after the other:
/// the second waits until the first has ended.
///
/// The [example of the module](super#examples) refuses a late write.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    place: QualifiedTable,
}

/// Why a write was refused or failed.
///
/// The [example of the module](super#examples) tells a late write from other errors.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The token could not be compared.
    #[error("the token of the write cannot be compared")]
    Check(#[source] Error),
    /// The statement of the caller failed, and left the transaction as it is.
    #[error("the statement failed")]
    Sql(#[source] sqlx::Error),
    /// A later holder of the lock has written. The statement was not run.
    #[error("a later holder of the lock has written")]
    Stale(#[source] StaleToken),
}

impl Fence {
    /// Uses the table `polylock_locks` in the database of the connection.
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

    /// Passes the transaction on `connection` if no larger token has passed for `resource`.
    ///
    /// A rollback of the transaction revokes the pass. Several writes may use one token. Waits for other
    /// transactions that check the same resource, within the limits of the session (`lock_timeout`,
    /// `innodb_lock_wait_timeout`, the busy timeout of SQLite).
    ///
    /// # Errors
    ///
    /// After `Stale`, and after `Check` with [`Contended`](polylock_core::ErrorKind::Contended), the
    /// transaction is unchanged. After every other error, roll it back.
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
    /// Roll the transaction back: the statement may have run.
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
