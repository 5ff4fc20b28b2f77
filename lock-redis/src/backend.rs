use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{Backend, DistributedLock, LockUrl, Result};

use crate::config::{RedisConfig, SCHEMES, Servers};
use crate::lock::Redis;
use crate::quorum::Redlock;

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
}
