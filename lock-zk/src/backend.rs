use std::sync::Arc;

use async_trait::async_trait;
use polylock_core::{Backend, DistributedLock, HealthCheck, LockUrl, Result};

use crate::config::{SCHEMES, ZooKeeperConfig};
use crate::lock::{self, ZooKeeper};

/// Opens the URLs of ZooKeeper; their form and parameters are those of [`ZooKeeperConfig::from_url`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ZooKeeperBackend(());

#[async_trait]
impl Backend for ZooKeeperBackend {
    fn schemes(&self) -> &'static [&'static str] {
        SCHEMES
    }

    /// None: the root plays its part.
    fn default_namespace(&self) -> &'static str {
        ""
    }

    async fn connect(&self, url: &LockUrl) -> Result<Arc<dyn DistributedLock>> {
        let config = ZooKeeperConfig::from_url(url)?;
        Ok(Arc::new(ZooKeeper::connect(config).await?))
    }

    async fn check_health(&self, url: &LockUrl) -> Result<Vec<HealthCheck>> {
        lock::check_health(&ZooKeeperConfig::from_url(url)?).await
    }
}
