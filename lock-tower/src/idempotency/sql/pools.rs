use std::time::Duration;

use sqlx::Database;
use sqlx::pool::{PoolConnection, PoolOptions};

use super::dialect::SqlDialect;
use crate::idempotency::StoreError;

/// The connections to one database.
#[derive(Clone)]
pub(super) enum Pools {
    #[cfg(feature = "mysql")]
    MySql(sqlx::MySqlPool),
    #[cfg(feature = "postgres")]
    Postgres(sqlx::PgPool),
    #[cfg(feature = "sqlite")]
    Sqlite(sqlx::SqlitePool),
}

/// Does something on a connection of whichever pool.
macro_rules! on_connection {
    ($pools:expr, $connection:ident => $work:expr) => {
        match $pools {
            #[cfg(feature = "mysql")]
            Pools::MySql(pool) => match pool.acquire().await {
                Ok(connection) => {
                    let mut lent = Lent::new(connection);
                    let $connection = lent.connection();
                    let done = $work;
                    lent.back_after(done)
                }
                Err(error) => Err(error),
            },
            #[cfg(feature = "postgres")]
            Pools::Postgres(pool) => match pool.acquire().await {
                Ok(connection) => {
                    let mut lent = Lent::new(connection);
                    let $connection = lent.connection();
                    let done = $work;
                    lent.back_after(done)
                }
                Err(error) => Err(error),
            },
            #[cfg(feature = "sqlite")]
            Pools::Sqlite(pool) => match pool.acquire().await {
                Ok(connection) => {
                    let mut lent = Lent::new(connection);
                    let $connection = lent.connection();
                    let done = $work;
                    lent.back_after(done)
                }
                Err(error) => Err(error),
            },
        }
    };
}
pub(super) use on_connection;

/// A connection that is closed unless its work ends: one with a statement on its way would keep its
/// place in the pool for as long as the database does not answer.
pub(super) struct Lent<D: Database> {
    connection: PoolConnection<D>,
    is_idle: bool,
}

impl<D: Database> Lent<D> {
    pub(super) fn new(connection: PoolConnection<D>) -> Self {
        Self {
            connection,
            is_idle: false,
        }
    }

    pub(super) fn connection(&mut self) -> &mut D::Connection {
        &mut self.connection
    }

    pub(super) fn back_after<T>(mut self, done: sqlx::Result<T>) -> sqlx::Result<T> {
        self.is_idle = matches!(done, Ok(_) | Err(sqlx::Error::Database(_)));
        done
    }
}

impl<D: Database> Drop for Lent<D> {
    fn drop(&mut self) {
        if !self.is_idle {
            self.connection.close_on_drop();
        }
    }
}

impl Pools {
    pub(super) async fn connect(url: &str) -> Result<Self, StoreError> {
        // Without the URL, which may have a password.
        let broken = |error: sqlx::Error| {
            StoreError::new("the database of the responses cannot be opened").with_source(error)
        };
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        match scheme {
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => {
                let options = url.parse().map_err(broken)?;
                let pool = options_of_pool().connect_with(options).await;
                pool.map(Self::MySql).map_err(broken)
            }
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                let options = url.parse().map_err(broken)?;
                let pool = options_of_pool().connect_with(options).await;
                pool.map(Self::Postgres).map_err(broken)
            }
            #[cfg(feature = "sqlite")]
            "sqlite" if url.contains(":memory:") || url.contains("mode=memory") => {
                let message = "each connection would have a SQLite of its own in memory";
                Err(StoreError::new(message))
            }
            #[cfg(feature = "sqlite")]
            "sqlite" => {
                let options: sqlx::sqlite::SqliteConnectOptions = url.parse().map_err(broken)?;
                let options = options
                    .create_if_missing(true)
                    .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
                    .busy_timeout(PATIENCE);
                let pool = options_of_pool().connect_with(options).await;
                pool.map(Self::Sqlite).map_err(broken)
            }
            _ => Err(StoreError::new(
                "the URL is of no database that this program has a feature for",
            )),
        }
    }

    pub(super) fn dialect(&self) -> SqlDialect {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql(_) => SqlDialect::MySql,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => SqlDialect::Postgres,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => SqlDialect::Sqlite,
        }
    }
}

fn options_of_pool<D: Database>() -> PoolOptions<D> {
    PoolOptions::new()
        .max_connections(CONNECTIONS as u32)
        .acquire_timeout(PATIENCE)
}

pub(super) const CONNECTIONS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(5);
