use std::sync::Arc;

use async_trait::async_trait;
use polylock_core::{Backend, DistributedLock, HealthCheck, LockUrl, Result};

use crate::config::{RedisConfig, SCHEMES, Servers};
use crate::lock::{self, Redis};
use crate::quorum::{self, Redlock};

/// Opens the URLs of Redis; their forms and parameters are those of [`RedisConfig::from_url`].
#[derive(Clone, Copy, Debug, Default)]
pub struct RedisBackend(());

#[async_trait]
impl Backend for RedisBackend {
    fn schemes(&self) -> &'static [&'static str] {
        SCHEMES
    }

    fn default_namespace(&self) -> &'static str {
        "lock"
    }

    async fn connect(&self, url: &LockUrl) -> Result<Arc<dyn DistributedLock>> {
        let config = RedisConfig::from_url(url)?;
        match config.servers {
            Servers::Quorum(_) => Ok(Arc::new(Redlock::connect(config).await?)),
            _ => Ok(Arc::new(Redis::connect(config).await?)),
        }
    }

    async fn check_health(&self, url: &LockUrl) -> Result<Vec<HealthCheck>> {
        let config = RedisConfig::from_url(url)?;
        match config.servers {
            Servers::Quorum(_) => quorum::check_health(config).await,
            _ => lock::check_health(config).await,
        }
    }
}
