//! Two backends that are one keep what each of them promises.

use std::sync::Arc;

use async_trait::async_trait;
use lock_conformance::{Faults, Harness, Look};
use lock_core::layers::Migrate;
use lock_core::memory::Memory;
use lock_core::{DistributedLock, LockKey};

/// Two stores. What goes wrong goes wrong with the first that is asked; lock-core tests the other.
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
        Arc::new(Migrate::new(old, new).expect("there is no queue below"))
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

lock_conformance::conformance!(
    harness = Both::new(),
    skip = [Admin, Downgrade, Fair, Fencing, Taker]
);
