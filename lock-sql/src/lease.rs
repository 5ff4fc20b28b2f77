use std::sync::Arc;

use async_trait::async_trait;
use polylock_core::engine::{LeaseId, TokenBlock};
use polylock_core::{
    Error, FencingToken, Lease, LeaseControl, LeaseState, Liveness, LockKey, Released, Result,
};

use crate::store::LeaseStore;
use crate::table::TokenRange;

/// One acquisition in a table of leases.
#[derive(Debug)]
pub(crate) struct TableLease {
    store: Arc<dyn LeaseStore>,
    key: LockKey,
    id: LeaseId,
    /// The database when it was asked for.
    epoch: u64,
    tokens: TokenBlock,
}

impl TableLease {
    pub(crate) fn new(store: &Arc<dyn LeaseStore>, key: &LockKey, id: LeaseId) -> Self {
        Self {
            store: Arc::clone(store),
            key: key.clone(),
            id,
            epoch: store.local().held.epoch(),
            tokens: TokenBlock::default(),
        }
    }

    /// Keeps what was granted, and gives the token of the first holder.
    pub(crate) fn granted(&self, tokens: TokenRange) -> FencingToken {
        self.tokens.begin(tokens.next, tokens.last)
    }
}

#[async_trait]
impl Lease for TableLease {
    fn liveness(&self) -> Liveness {
        Liveness::Renewed {
            id: self.id,
            renewer: Arc::<dyn LeaseStore>::clone(&self.store),
        }
    }

    fn attach(&self, control: LeaseControl) {
        let held = &self.store.local().held;
        held.attach(self.id, &self.key, control.clone());
        if held.epoch() != self.epoch {
            // The database was replaced before this lease could be told.
            control.check();
        }
        self.store.attend_holders();
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        if let Some(token) = self.tokens.next() {
            return Ok(Some(token));
        }
        let reserved = self.store.reserve(&self.key, self.id).await?;
        Ok(reserved.map(|tokens| self.granted(tokens)))
    }

    async fn downgrade(&self) -> Result<()> {
        let downgraded = self.store.downgrade(&self.key, self.id).await;
        if let LeaseState::Lost(reason) = downgraded? {
            return Err(Error::lost(reason));
        }
        // Readers may enter beside this one.
        self.store.local().waiters.wake(&self.key);
        Ok(())
    }

    async fn release(&self) -> Result<Released> {
        let released = self.store.release(&self.key, self.id).await?;
        self.store.local().waiters.wake(&self.key);
        Ok(released)
    }
}

impl Drop for TableLease {
    fn drop(&mut self) {
        self.store.local().held.detach(self.id);
    }
}
