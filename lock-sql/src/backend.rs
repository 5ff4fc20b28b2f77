use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{Backend, DistributedLock, HealthCheck, LockUrl, Result};

#[cfg(feature = "_server")]
use crate::config::SqlConfig;
#[cfg(feature = "sqlite")]
use crate::config::SqliteConfig;
#[cfg(feature = "_server")]
use crate::lock::SqlLock;
#[cfg(feature = "sqlite")]
use crate::lock::Sqlite;

/// Opens `mysql://` and `mariadb://`; the parameters are those of [`SqlConfig::from_url`].
#[cfg(feature = "mysql")]
#[derive(Clone, Copy, Debug, Default)]
pub struct MySqlBackend(());

#[cfg(feature = "mysql")]
#[async_trait]
impl Backend for MySqlBackend {
    fn schemes(&self) -> &'static [&'static str] {
        &["mysql", "mariadb"]
    }

    /// None: the table plays its part.
    fn default_namespace(&self) -> &'static str {
        ""
    }

    async fn connect(&self, url: &LockUrl) -> Result<Arc<dyn DistributedLock>> {
        connect(url).await
    }

    async fn check_health(&self, url: &LockUrl) -> Result<Vec<HealthCheck>> {
        SqlLock::check_health(SqlConfig::from_url(url)?).await
    }
}

/// Opens `postgres://` and `postgresql://`; the parameters are those of [`SqlConfig::from_url`].
#[cfg(feature = "postgres")]
#[derive(Clone, Copy, Debug, Default)]
pub struct PostgresBackend(());

#[cfg(feature = "postgres")]
#[async_trait]
impl Backend for PostgresBackend {
    fn schemes(&self) -> &'static [&'static str] {
        &["postgres", "postgresql"]
    }

    /// None: the table plays its part.
    fn default_namespace(&self) -> &'static str {
        ""
    }

    async fn connect(&self, url: &LockUrl) -> Result<Arc<dyn DistributedLock>> {
        connect(url).await
    }

    async fn check_health(&self, url: &LockUrl) -> Result<Vec<HealthCheck>> {
        SqlLock::check_health(SqlConfig::from_url(url)?).await
    }
}

#[cfg(feature = "_server")]
async fn connect(url: &LockUrl) -> Result<Arc<dyn DistributedLock>> {
    let config = SqlConfig::from_url(url)?;
    Ok(Arc::new(SqlLock::connect(config).await?))
}

/// Opens `sqlite:PATH`; the parameters are those of [`SqliteConfig::from_url`].
#[cfg(feature = "sqlite")]
#[derive(Clone, Copy, Debug, Default)]
pub struct SqliteBackend(());

#[cfg(feature = "sqlite")]
#[async_trait]
impl Backend for SqliteBackend {
    fn schemes(&self) -> &'static [&'static str] {
        &["sqlite"]
    }

    fn default_namespace(&self) -> &'static str {
        ""
    }

    async fn connect(&self, url: &LockUrl) -> Result<Arc<dyn DistributedLock>> {
        let config = SqliteConfig::from_url(url)?;
        Ok(Arc::new(Sqlite::connect(config).await?))
    }

    async fn check_health(&self, url: &LockUrl) -> Result<Vec<HealthCheck>> {
        Sqlite::check_health(&SqliteConfig::from_url(url)?).await
    }
}
