/// How a lock is kept in a database.
///
/// All clients of a lock must use the same mode: modes do not see each other's locks.
///
/// # Examples
///
/// ```no_run
/// use polylock_core::prelude::*;
/// use polylock_sql::{SqlConfig, SqlLock, SqlMode};
///
/// # #[cfg(feature = "postgres")]
/// # async fn example() -> polylock_core::Result<()> {
/// let config = SqlConfig::postgres("db.internal")
///     .with_database("shop")
///     .with_login("orders", "s3cret")
///     .with_mode(SqlMode::Advisory);
/// let locks = SqlLock::connect(config).await?;
/// let guard = locks.lock("orders/42").await?; // pg_advisory_lock
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum SqlMode {
    /// A server lock that belongs to a session and not to a row: `pg_advisory_lock`, `GET_LOCK`. Many
    /// locks share one connection.
    #[doc(alias = "advisory lock")]
    Advisory,
    /// A row with the end of its lease. A held lock or a waiter keeps no connection and no transaction
    /// open.
    #[doc(alias = "lease")]
    Lease,
    /// A row that is locked in a transaction. The transaction stays open on a connection of its own
    /// while the lock is held. The default.
    #[default]
    Row,
}

impl SqlMode {
    /// The name in a URL.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Advisory => "advisory",
            Self::Lease => "lease",
            Self::Row => "row",
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum ServerKind {
    MySql,
    Postgres,
}

impl ServerKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::MySql => "mysql",
            Self::Postgres => "postgres",
        }
    }

    /// The name in messages.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::MySql => "MySQL",
            Self::Postgres => "PostgreSQL",
        }
    }

    pub(crate) fn port(self) -> u16 {
        match self {
            Self::MySql => 3306,
            Self::Postgres => 5432,
        }
    }

    pub(crate) fn is_postgres(self) -> bool {
        self == Self::Postgres
    }
}
