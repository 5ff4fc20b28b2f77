use polylock_core::{LockKey, Result, Wait};
use sqlx::{Database, Execute};

use super::place::QualifiedTable;

/// A sqlx connection that may have an open transaction: `PgConnection`, `MySqlConnection` or
/// `SqliteConnection`, as `&mut *tx` of a `Transaction` is one.
///
/// Sealed: no other type can implement it.
pub trait Connection: DatabaseTransaction {
    /// The database of the connection.
    type Database: Database;

    /// Runs a statement of the caller, and returns how many rows it changed.
    ///
    /// On MySQL and MariaDB, matching rows that already have the new values count as well.
    ///
    /// # Errors
    ///
    /// Those of sqlx.
    ///
    /// # Cancel safety
    ///
    /// The statement may have run; roll the transaction back.
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

/// Statements inside of the caller's transaction.
///
/// After `Ok`, and after the error [`Contended`](polylock_core::ErrorKind::Contended), each method
/// leaves the transaction otherwise unchanged.
#[expect(unnameable_types, reason = "no other crate implements it")]
pub trait DatabaseTransaction: Send {
    const BACKEND: &str;

    /// Locks the row of a key and draws a token. [`Contended`](polylock_core::ErrorKind::Contended) if the
    /// row is not free before the deadline, or if something else keeps all keys locked.
    fn take(
        &mut self,
        place: &QualifiedTable,
        key: &LockKey,
        wait: Wait,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Raises the largest token of a resource to this one, and returns the largest.
    fn raise(
        &mut self,
        place: &QualifiedTable,
        resource: &LockKey,
        token: u64,
    ) -> impl Future<Output = Result<u64>> + Send;
}
