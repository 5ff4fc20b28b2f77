use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::store::Store;
use crate::engine::LeaseId;
use crate::error::{Error, Result};
use crate::key::LockKey;
use crate::lease::{Lease, LeaseControl, Liveness, Released};
use crate::lost_reason::LostReason;
use crate::token::FencingToken;

/// One acquisition in a store.
pub(super) struct MemoryLease {
    store: Arc<Store>,
    key: LockKey,
    id: LeaseId,
}

impl MemoryLease {
    pub(super) fn new(store: Arc<Store>, key: LockKey, id: LeaseId) -> Self {
        Self { store, key, id }
    }
}

#[async_trait]
impl Lease for MemoryLease {
    fn liveness(&self) -> Liveness {
        Liveness::Renewed {
            id: self.id,
            renewer: self.store.as_renewer(),
        }
    }

    fn attach(&self, control: LeaseControl) {
        self.store.attach(&self.key, self.id, control);
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        Ok(self.store.hand_over(&self.key, self.id))
    }

    async fn downgrade(&self) -> Result<()> {
        match self.store.downgrade(&self.key, self.id) {
            true => Ok(()),
            false => Err(Error::lost(LostReason::Stolen)),
        }
    }

    async fn release(&self) -> Result<Released> {
        self.store.release(&self.key, self.id).await
    }
}

impl fmt::Debug for MemoryLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLease")
            .field("key", &self.key)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
