//! The table of the locks: how to create it, and whether it exists.

#[cfg(feature = "_server")]
mod server;

use polylock_core::engine::Engine;
use polylock_core::{Error, LockUrl, Result};

#[cfg(feature = "_server")]
use crate::config::SqlConfig;
#[cfg(feature = "sqlite")]
use crate::config::SqliteConfig;
#[cfg(feature = "sqlite")]
use crate::dialect::sqlite::SqliteStatements;
#[cfg(feature = "sqlite")]
use crate::sqlite::SqliteStore;

#[cfg(feature = "_server")]
pub(crate) use self::server::ensure;

/// The table of a configuration, to be created before the first lock is acquired.
///
/// A program without the right to create tables needs `SELECT`, `INSERT` and `UPDATE` on an existing
/// table, and purges unused rows if it also has `DELETE`. Session and transaction locks need rights on
/// the sequence beside the table, whose name ends in `_token`: `SELECT` and `UPDATE` on PostgreSQL,
/// `SELECT` and `INSERT` on MySQL and MariaDB.
///
/// # Examples
///
/// ```
/// use polylock_sql::Schema;
///
/// # fn main() -> polylock_core::Result<()> {
/// # #[cfg(feature = "sqlite")] {
/// let url = polylock_core::LockUrl::parse("sqlite:/var/lib/shop/locks.db?table=shop_locks")?;
/// let schema = Schema::of(&url)?;
/// assert!(schema.sql().contains("CREATE TABLE IF NOT EXISTS \"shop_locks\""));
/// # }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Schema(SchemaTarget);

#[derive(Clone, Debug)]
enum SchemaTarget {
    #[cfg(feature = "_server")]
    Server(Box<SqlConfig>),
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteConfig),
}

impl Schema {
    /// Reads the URL of a lock service.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if it is wrong, or of a service without a
    /// table.
    pub fn of(url: &LockUrl) -> Result<Self> {
        match url.scheme() {
            #[cfg(feature = "sqlite")]
            "sqlite" => SqliteConfig::from_url(url).map(Self::from),
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => SqlConfig::from_url(url).map(Self::from),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => SqlConfig::from_url(url).map(Self::from),
            scheme => {
                let message = format!("{scheme}: is no database with a table of locks");
                Err(Error::config(message))
            }
        }
    }

    /// The name of the table.
    #[must_use]
    pub fn table(&self) -> &str {
        match &self.0 {
            #[cfg(feature = "_server")]
            SchemaTarget::Server(config) => config.table.as_str(),
            #[cfg(feature = "sqlite")]
            SchemaTarget::Sqlite(config) => config.table.as_str(),
        }
    }

    /// The statements that create the table; they do not change an existing one.
    #[must_use]
    pub fn sql(&self) -> String {
        match &self.0 {
            #[cfg(feature = "_server")]
            SchemaTarget::Server(config) => server::texts(config).create,
            #[cfg(feature = "sqlite")]
            SchemaTarget::Sqlite(config) => {
                let statements = SqliteStatements::new(config.table.clone());
                format!("{};\n", statements.create)
            }
        }
    }

    /// Creates the table, or the sequence of the tokens beside it, if it is missing.
    ///
    /// Several clients may do so at once. A table with another layout stays unchanged.
    ///
    /// # Errors
    ///
    /// - [`Unavailable`](polylock_core::ErrorKind::Unavailable) if the database cannot be reached, or accepts
    ///   no writes.
    /// - [`Denied`](polylock_core::ErrorKind::Denied) if the user lacks the rights.
    /// - [`InvalidConfig`](polylock_core::ErrorKind::InvalidConfig) if the database or the schema does not
    ///   exist.
    /// - [`Foreign`](polylock_core::ErrorKind::Foreign) if the table belongs to another program.
    /// - [`Protocol`](polylock_core::ErrorKind::Protocol) if the table has another layout.
    ///
    /// # Cancel safety
    ///
    /// The table may have been created.
    pub async fn apply(&self) -> Result<Applied> {
        match &self.0 {
            #[cfg(feature = "_server")]
            SchemaTarget::Server(config) => {
                let name = config.server.name();
                let engine = engine(config.engine.as_ref(), name);
                let applied = server::apply(&engine, config.as_ref().clone()).await;
                applied.map_err(|error| error.with_backend(name))
            }
            #[cfg(feature = "sqlite")]
            SchemaTarget::Sqlite(config) => {
                let engine = engine(config.engine.as_ref(), "sqlite");
                let (_, applied) = SqliteStore::open(config, &engine).await?;
                Ok(applied)
            }
        }
    }
}

#[cfg(feature = "_server")]
impl From<SqlConfig> for Schema {
    fn from(config: SqlConfig) -> Self {
        Self(SchemaTarget::Server(Box::new(config)))
    }
}

#[cfg(feature = "sqlite")]
impl From<SqliteConfig> for Schema {
    fn from(config: SqliteConfig) -> Self {
        Self(SchemaTarget::Sqlite(config))
    }
}

/// The result of [`Schema::apply`].
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// use polylock_sql::{Applied, Schema, SqliteConfig};
///
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("locks.db");
/// let schema = Schema::from(SqliteConfig::new(path));
/// assert_eq!(schema.apply().await?, Applied::Created);
/// assert_eq!(schema.apply().await?, Applied::Found);
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Applied {
    /// The table was created, or the sequence beside it.
    Created,
    /// The table existed with the layout of this version, and so did the sequence.
    Found,
}

/// The engine of the configuration, or of this process.
pub(crate) fn engine(engine: Option<&Engine>, name: &'static str) -> Engine {
    match engine {
        Some(engine) => engine.for_backend(name),
        None => Engine::of_this_process(name),
    }
}
