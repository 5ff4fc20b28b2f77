/// How a lock is kept in a database.
///
/// All clients of a lock must use the same one: modes do not see each other's locks.
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
    /// A lock of the server's that belongs to a session and to no row: `pg_advisory_lock`,
    /// `GET_LOCK`. Many locks share one connection.
    #[doc(alias = "advisory lock")]
    Advisory,
    /// A row with the time at which its lease ends. No connection and no transaction is kept while
    /// a lock is held or waited for.
    #[doc(alias = "lease")]
    Lease,
    /// A row that is locked in a transaction, which stays open on a connection of its own for as
    /// long as the lock is held. The default.
    #[default]
    Row,
}

impl SqlMode {
    /// As in a URL.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Advisory => "advisory",
            Self::Lease => "lease",
            Self::Row => "row",
        }
    }
}

/// Which servers a configuration is for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Server {
    #[cfg(feature = "mysql")]
    MySql,
    #[cfg(feature = "postgres")]
    Postgres,
}

impl Server {
    /// Name of the backend.
    pub(crate) fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql => "mysql",
            #[cfg(feature = "postgres")]
            Self::Postgres => "postgres",
        }
    }

    /// As people write it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql => "MySQL",
            #[cfg(feature = "postgres")]
            Self::Postgres => "PostgreSQL",
        }
    }

    pub(crate) fn port(self) -> u16 {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql => 3306,
            #[cfg(feature = "postgres")]
            Self::Postgres => 5432,
        }
    }

    pub(crate) fn is_postgres(self) -> bool {
        self.name() == "postgres"
    }
}

/// What is in the path to a server.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) enum Pooler {
    /// Nothing, or what gives each client a connection of its own.
    #[default]
    None,
    /// What gives each transaction another connection.
    Transaction,
}
