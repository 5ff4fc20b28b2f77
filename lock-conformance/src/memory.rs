use std::sync::Arc;

use async_trait::async_trait;
use polylock_core::admin::LockAdmin;
use polylock_core::memory::{Fault, Memory, Reachable, Request};
use polylock_core::{DistributedLock, LockKey};

use crate::{Faults, Harness, Look};

/// The memory backend of the core is its own harness.
#[async_trait]
impl Harness for Memory {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        Arc::new(Self::client(self))
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }

    async fn look(&self, key: &LockKey) -> Option<Look> {
        let held = self.inspect(key).await.ok()?;
        Some(Look::new(
            held.map_or(0, |info| info.holders.len()),
            self.waiters(key),
        ))
    }
}

#[async_trait]
impl Faults for Memory {
    fn plan(&self, request: Request, fault: Fault) {
        self.faults().plan(request, fault);
    }

    fn set_reachable(&self, reachable: Reachable) {
        self.faults().set_reachable(reachable);
    }

    async fn end(&self, key: &LockKey) {
        self.expire(key);
    }

    fn duplicates(&self) -> bool {
        true
    }
}
