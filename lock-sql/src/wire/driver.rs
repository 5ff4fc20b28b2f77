//! The interface to the sqlx client of each database.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::Login;
use sqlx::Database;
#[cfg(feature = "mysql")]
use sqlx::mysql::MySqlConnectOptions;
#[cfg(feature = "postgres")]
use sqlx::postgres::PgConnectOptions;

use super::DbError;
use super::sql::Sql;
use super::value::{QueryResult, SqlValue};

/// What one of the clients of sqlx does for a [`ServerConnection`](super::ServerConnection).
#[async_trait]
pub(crate) trait RawConnection: Send + Sync {
    /// Limits single statements on the server to the timeout of the caller.
    async fn settle(&mut self, timeout: Duration) -> Result<(), DbError>;

    /// One statement, prepared when it is first used.
    async fn statement(&mut self, sql: &Sql, values: &[SqlValue]) -> Result<QueryResult, DbError>;

    /// Several statements at once, as text.
    async fn message(&mut self, sql: &Sql, values: &[SqlValue]) -> Result<QueryResult, DbError>;
}

/// A raw connection that counts in no pool, or in a place of a pool of the application.
pub(crate) trait ConnectionSlot: Send + Sync {
    fn raw(&mut self) -> &mut dyn RawConnection;
}

impl<C: RawConnection> ConnectionSlot for C {
    fn raw(&mut self) -> &mut dyn RawConnection {
        self
    }
}

/// One of the clients of sqlx.
pub(crate) trait Driver: Database<Connection: RawConnection> {
    fn dial(
        options: DriverOptions,
    ) -> impl Future<Output = Result<Self::Connection, DbError>> + Send;
}

/// The reserved connections of one lock service, whichever server they lead to.
#[async_trait]
pub(crate) trait ReservedPool: Send + Sync {
    /// A free place with a connection in it: the recently reserved one, or a new one.
    ///
    /// If dropped, it leaves the place free.
    async fn open(
        self: Arc<Self>,
        options: DriverOptions,
    ) -> Result<Box<dyn ConnectionSlot>, DbError>;
}

/// Options of the client, whose `Debug` output shows the password.
#[derive(Clone)]
pub(crate) enum DriverOptions {
    #[cfg(feature = "mysql")]
    MySql(MySqlConnectOptions),
    #[cfg(feature = "postgres")]
    Postgres(PgConnectOptions),
}

impl DriverOptions {
    /// Without a password PostgreSQL gets an empty one, so that `PGPASSWORD` is not used.
    pub(super) fn with_login(self, login: &Login) -> Self {
        let username = login.username().unwrap_or_default();
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql(options) => {
                let options = options.username(username);
                match login.password() {
                    Some(password) => options.password(password).into(),
                    None => options.into(),
                }
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(options) => {
                let password = login.password().unwrap_or_default();
                options.username(username).password(password).into()
            }
        }
    }

    /// The user of the application's options, for a login that has only a password.
    pub(super) fn username(&self) -> &str {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql(options) => options.get_username(),
            #[cfg(feature = "postgres")]
            Self::Postgres(options) => options.get_username(),
        }
    }
}

impl fmt::Debug for DriverOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DriverOptions")
    }
}

#[cfg(feature = "mysql")]
impl From<MySqlConnectOptions> for DriverOptions {
    fn from(options: MySqlConnectOptions) -> Self {
        Self::MySql(options)
    }
}

#[cfg(feature = "postgres")]
impl From<PgConnectOptions> for DriverOptions {
    fn from(options: PgConnectOptions) -> Self {
        Self::Postgres(options)
    }
}
