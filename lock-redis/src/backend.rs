use std::sync::Arc;

use async_trait::async_trait;
use polylock_core::{Backend, DistributedLock, HealthCheck, LockUrl, Result};

use crate::config::{RedisConfig, SCHEMES, Servers, default_port};
use crate::lock::{self, Redis};
use crate::quorum::{self, Redlock};

/// Opens Redis URLs. [`RedisConfig::from_url`] documents their forms and parameters.
///
/// # Examples
///
/// ```
/// use polylock_core::{ErrorKind, Registry};
/// use polylock_redis::RedisBackend;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> polylock_core::Result<()> {
/// let registry = Registry::new().with(RedisBackend::default())?;
/// assert!(registry.schemes().any(|scheme| scheme == "redlock"));
///
/// // A quorum of two would not survive the loss of one.
/// let refused = registry.connect("redlock://a.internal,b.internal").await;
/// assert_eq!(refused.expect_err("two are too few").kind(), ErrorKind::InvalidConfig);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RedisBackend(());

#[async_trait]
impl Backend for RedisBackend {
    fn schemes(&self) -> &'static [&'static str] {
        SCHEMES
    }

    fn default_port(&self, scheme: &str) -> Option<u16> {
        default_port(scheme)
    }

    fn default_namespace(&self) -> &'static str {
        "lock"
    }

    fn check_url(&self, url: &LockUrl) -> Result<()> {
        RedisConfig::from_url(url).map(drop)
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
