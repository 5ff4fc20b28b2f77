//! Checks a URL without a connection.

#[cfg(any(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "zk"
))]
use lock_core::Backend;
use lock_core::{LockUrl, Registry, Result};

/// Reads a URL as its backend will.
///
/// The parameters of a backend that polylock does not have itself are read when it is connected to.
pub(super) fn url(registry: &Registry, url: &str) -> Result<()> {
    let url = registry.backend_url(url)?;
    check_backend(&url)
}

fn check_backend(url: &LockUrl) -> Result<()> {
    let scheme = url.scheme();
    #[cfg(feature = "redis")]
    if crate::redis::RedisBackend::default()
        .schemes()
        .contains(&scheme)
    {
        return crate::redis::RedisConfig::from_url(url).map(drop);
    }
    #[cfg(feature = "zk")]
    if crate::zk::ZooKeeperBackend::default()
        .schemes()
        .contains(&scheme)
    {
        return crate::zk::ZooKeeperConfig::from_url(url).map(drop);
    }
    #[cfg(feature = "sqlite")]
    if crate::sql::SqliteBackend::default()
        .schemes()
        .contains(&scheme)
    {
        return crate::sql::SqliteConfig::from_url(url).map(drop);
    }
    #[cfg(feature = "postgres")]
    if crate::sql::PostgresBackend::default()
        .schemes()
        .contains(&scheme)
    {
        return crate::sql::SqlConfig::from_url(url).map(drop);
    }
    #[cfg(feature = "mysql")]
    if crate::sql::MySqlBackend::default()
        .schemes()
        .contains(&scheme)
    {
        return crate::sql::SqlConfig::from_url(url).map(drop);
    }
    match scheme {
        "memory" => url.params().finish(),
        _ => Ok(()),
    }
}
