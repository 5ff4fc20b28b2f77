use std::sync::Arc;

use async_trait::async_trait;
use polylock_core::{Backend, DistributedLock, HealthCheck, LockUrl, Result};

#[cfg(feature = "sqlite")]
use crate::config::SqliteConfig;
#[cfg(feature = "_server")]
use crate::config::{ServerKind, SqlConfig};
#[cfg(feature = "_server")]
use crate::lock::SqlLock;
#[cfg(feature = "sqlite")]
use crate::lock::Sqlite;

/// Defines the backend of one kind of database.
macro_rules! backend {
    ($(#[$attribute:meta])* $name:ident: $config:ident, $lock:ident, $schemes:expr, $port:expr) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name(());

        #[async_trait]
        impl Backend for $name {
            fn schemes(&self) -> &'static [&'static str] {
                $schemes
            }

            fn default_port(&self, _: &str) -> Option<u16> {
                $port
            }

            /// None: the table separates the locks of applications.
            fn default_namespace(&self) -> &'static str {
                ""
            }

            fn check_url(&self, url: &LockUrl) -> Result<()> {
                $config::from_url(url).map(drop)
            }

            async fn connect(&self, url: &LockUrl) -> Result<Arc<dyn DistributedLock>> {
                let config = $config::from_url(url)?;
                Ok(Arc::new($lock::connect(config).await?))
            }

            async fn check_health(&self, url: &LockUrl) -> Result<Vec<HealthCheck>> {
                $lock::check_health($config::from_url(url)?).await
            }
        }
    };
}

#[cfg(feature = "mysql")]
backend! {
    /// Opens `mysql://` and `mariadb://`; the parameters are those of [`SqlConfig::from_url`].
    ///
    /// # Examples
    ///
    /// ```
    /// use polylock_core::Registry;
    /// use polylock_sql::MySqlBackend;
    ///
    /// let registry = Registry::new().with(MySqlBackend::default())?;
    /// assert!(registry.schemes().any(|scheme| scheme == "mariadb"));
    /// let url = registry.backend_url("mysql://orders@db.internal/shop?max-waiters=100")?;
    /// assert_eq!(url.path(), "/shop");
    /// # Ok::<(), polylock_core::Error>(())
    /// ```
    MySqlBackend: SqlConfig, SqlLock, &["mysql", "mariadb"], Some(ServerKind::MySql.port())
}

#[cfg(feature = "postgres")]
backend! {
    /// Opens `postgres://` and `postgresql://`; the parameters are those of [`SqlConfig::from_url`].
    ///
    /// # Examples
    ///
    /// ```
    /// use polylock_core::Registry;
    /// use polylock_sql::PostgresBackend;
    ///
    /// let registry = Registry::new().with(PostgresBackend::default())?;
    /// assert!(registry.schemes().any(|scheme| scheme == "postgresql"));
    /// let url = registry.backend_url("postgres://orders@db.internal/shop?max-waiters=100")?;
    /// assert_eq!(url.path(), "/shop");
    /// # Ok::<(), polylock_core::Error>(())
    /// ```
    PostgresBackend: SqlConfig, SqlLock, &["postgres", "postgresql"], Some(ServerKind::Postgres.port())
}

#[cfg(feature = "sqlite")]
backend! {
    /// Opens `sqlite:PATH`; the parameters are those of [`SqliteConfig::from_url`].
    ///
    /// # Examples
    ///
    /// ```
    /// use polylock_core::Registry;
    /// use polylock_core::prelude::*;
    /// use polylock_sql::SqliteBackend;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("locks.db");
    /// # let url = format!("sqlite:{}", path.display());
    /// let registry = Registry::new().with(SqliteBackend::default())?;
    /// let locks = registry.connect(&url).await?; // such as sqlite:/var/lib/shop/locks.db
    /// let guard = locks.lock("orders/42").await?;
    /// assert!(guard.is_held());
    /// # Ok(()) }
    /// ```
    SqliteBackend: SqliteConfig, Sqlite, &["sqlite"], None
}
