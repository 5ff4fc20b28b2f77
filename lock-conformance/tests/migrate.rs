//! Two backends that are one keep what each of them promises.

use std::sync::Arc;

use async_trait::async_trait;
use polylock_conformance::{Faults, Harness, Look};
use polylock_core::layers::Migrate;
use polylock_core::memory::Memory;
use polylock_core::{DistributedLock, LockKey};

/// Two stores. What goes wrong goes wrong with the first that is asked; polylock-core tests the other.
#[derive(Debug)]
struct Both {
    old: Memory,
    new: Memory,
}

impl Both {
    fn new() -> Self {
        Self {
            old: Memory::new(),
            new: Memory::new(),
        }
    }
}

#[async_trait]
impl Harness for Both {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        let (old, new) = (Arc::new(self.old.client()), Arc::new(self.new.client()));
        Arc::new(Migrate::new(old, new))
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Harness::faults(&self.old)
    }

    async fn look(&self, key: &LockKey) -> Option<Look> {
        let (old, new) = (self.old.look(key).await?, self.new.look(key).await?);
        Some(Look::new(
            old.holders.max(new.holders),
            old.waiters + new.waiters,
        ))
    }
}

polylock_conformance::conformance!(
    harness = Both::new(),
    skip = [Admin, Bare, Downgrade, Fair, Fencing, Taker]
);
