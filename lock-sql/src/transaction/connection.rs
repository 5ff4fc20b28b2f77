use polylock_core::{LockKey, Result, Wait};
use sqlx::{Database, Execute};

use super::place::Place;

/// A connection of sqlx that may have a transaction open: `PgConnection`, `MySqlConnection` and
/// `SqliteConnection`, as `&mut *tx` gives it of a `Transaction`.
///
/// Sealed: there are no others.
pub trait Connection: DatabaseTransaction {
    /// The database at its other end.
    type Database: Database;

    /// Runs a statement of the caller, and counts the rows that it changed.
    ///
    /// On MySQL and MariaDB these are the rows that it found to be changed.
    ///
    /// # Errors
    ///
    /// Those of sqlx.
    ///
    /// # Cancel safety
    ///
    /// The statement may have been run or not; roll the transaction back.
    fn run<'q, Q>(
        &mut self,
        statement: Q,
    ) -> impl Future<Output = std::result::Result<u64, sqlx::Error>> + Send
    where
        Q: Execute<'q, Self::Database> + 'q;
}

macro_rules! connections {
    ($($feature:literal: $database:ty, $connection:ty;)*) => { $(
        #[cfg(feature = $feature)]
        impl Connection for $connection {
            type Database = $database;

            async fn run<'q, Q>(&mut self, statement: Q) -> std::result::Result<u64, sqlx::Error>
            where
                Q: Execute<'q, Self::Database> + 'q,
            {
                let done = sqlx::Executor::execute(self, statement).await?;
                Ok(done.rows_affected())
            }
        }
    )* };
}

connections! {
    "mysql": sqlx::MySql, sqlx::MySqlConnection;
    "postgres": sqlx::Postgres, sqlx::PgConnection;
    "sqlite": sqlx::Sqlite, sqlx::SqliteConnection;
}

/// What is said to a database inside of the caller's transaction.
///
/// Each method leaves the transaction as it was when it returns `Ok`, but for what it is for, and
/// also when the error is [`Contended`](polylock_core::ErrorKind::Contended).
#[expect(unnameable_types, reason = "no other crate implements it")]
pub trait DatabaseTransaction: Send {
    /// The name of the backend, for errors.
    const BACKEND: &str;

    /// Locks the row of a key and draws a token; `None` if the row is not free in time.
    fn take(
        &mut self,
        place: &Place,
        key: &LockKey,
        wait: Wait,
    ) -> impl Future<Output = Result<Option<u64>>> + Send;

    /// Raises the largest token that a resource has seen to this one, and returns the largest.
    fn raise(
        &mut self,
        place: &Place,
        resource: &LockKey,
        token: u64,
    ) -> impl Future<Output = Result<u64>> + Send;
}
