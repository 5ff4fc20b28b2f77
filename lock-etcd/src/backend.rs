use std::sync::Arc;

use async_trait::async_trait;
use polylock_core::{Backend, DistributedLock, HealthCheck, LockUrl, Result};

use crate::config::{EtcdConfig, PORT, SCHEMES};
use crate::lock::{self, Etcd};

/// Opens the URLs of etcd; their form and parameters are those of [`EtcdConfig::from_url`].
///
/// # Examples
///
/// ```
/// use polylock_core::{ErrorKind, Registry};
/// use polylock_etcd::EtcdBackend;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let registry = Registry::new().with(EtcdBackend::default())?;
/// assert!(registry.schemes().any(|scheme| scheme == "etcd"));
///
/// // Wrong URLs are refused before anything is sent.
/// let refused = registry.connect("etcd://etcd1?timeout=5").await;
/// let error = refused.expect_err("a duration has a unit");
/// assert_eq!(error.kind(), ErrorKind::InvalidConfig);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct EtcdBackend(());

#[async_trait]
impl Backend for EtcdBackend {
    fn schemes(&self) -> &'static [&'static str] {
        SCHEMES
    }

    fn default_port(&self, _: &str) -> Option<u16> {
        Some(PORT)
    }

    /// None: the prefix serves as the namespace.
    fn default_namespace(&self) -> &'static str {
        ""
    }

    fn check_url(&self, url: &LockUrl) -> Result<()> {
        EtcdConfig::from_url(url).map(drop)
    }

    async fn connect(&self, url: &LockUrl) -> Result<Arc<dyn DistributedLock>> {
        let config = EtcdConfig::from_url(url)?;
        Ok(Arc::new(Etcd::connect(config).await?))
    }

    async fn check_health(&self, url: &LockUrl) -> Result<Vec<HealthCheck>> {
        lock::check_health(EtcdConfig::from_url(url)?).await
    }
}
