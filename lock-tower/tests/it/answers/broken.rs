//! A lock service that does not work.

use std::time::Duration;

use async_trait::async_trait;
use lock_core::admin::LockAdmin;
use lock_core::{AcquireRequest, Capabilities, DistributedLock, Error, ErrorKind, LockGuard};

use super::scene::SECRET;

/// Fails in the same way always, and says more than a client should read.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) ErrorKind);

#[async_trait]
impl DistributedLock for Broken {
    fn capabilities(&self) -> Capabilities {
        Capabilities::least("broken")
    }

    async fn acquire(&self, request: &AcquireRequest) -> lock_core::Result<LockGuard> {
        let error = Error::new(self.0, format!("no route to 10.0.0.{SECRET}"));
        Err(error.with_key(request.key()))
    }

    async fn acquire_all(&self, requests: &[AcquireRequest]) -> lock_core::Result<Vec<LockGuard>> {
        Ok(vec![self.acquire(&requests[0]).await?])
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        None
    }

    async fn shutdown(&self, _: Duration) -> bool {
        true
    }
}
