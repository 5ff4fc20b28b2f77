use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{Backend, DistributedLock, LockUrl, Result};

use crate::config::SqliteConfig;
use crate::lock::Sqlite;

/// Opens `sqlite:PATH`; the parameters are those of [`SqliteConfig::from_url`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SqliteBackend(());

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
}
