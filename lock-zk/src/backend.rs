use std::sync::Arc;

use async_trait::async_trait;
use polylock_core::{Backend, DistributedLock, HealthCheck, LockUrl, Result};

use crate::config::{PORT, SCHEMES, ZooKeeperConfig};
use crate::lock::{self, ZooKeeper};

/// Opens the URLs of ZooKeeper; their form and parameters are those of [`ZooKeeperConfig::from_url`].
///
/// # Examples
///
/// ```
/// use polylock_core::{ErrorKind, Registry};
/// use polylock_zk::ZooKeeperBackend;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let registry = Registry::new().with(ZooKeeperBackend::default())?;
/// assert!(registry.schemes().any(|scheme| scheme == "zk"));
///
/// // Wrong URLs are refused before anything is sent.
/// let refused = registry.connect("zk://zk1,zk2,zk3/zookeeper").await;
/// let error = refused.expect_err("the path belongs to ZooKeeper itself");
/// assert_eq!(error.kind(), ErrorKind::InvalidConfig);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ZooKeeperBackend(());

#[async_trait]
impl Backend for ZooKeeperBackend {
    fn schemes(&self) -> &'static [&'static str] {
        SCHEMES
    }

    fn default_port(&self, _: &str) -> Option<u16> {
        Some(PORT)
    }

    /// None: the root serves as the namespace.
    fn default_namespace(&self) -> &'static str {
        ""
    }

    fn check_url(&self, url: &LockUrl) -> Result<()> {
        ZooKeeperConfig::from_url(url).map(drop)
    }

    async fn connect(&self, url: &LockUrl) -> Result<Arc<dyn DistributedLock>> {
        let config = ZooKeeperConfig::from_url(url)?;
        Ok(Arc::new(ZooKeeper::connect(config).await?))
    }

    async fn check_health(&self, url: &LockUrl) -> Result<Vec<HealthCheck>> {
        lock::check_health(&ZooKeeperConfig::from_url(url)?).await
    }
}
