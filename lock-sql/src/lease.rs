use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use polylock_core::engine::LeaseId;
use polylock_core::{
    Error, FencingToken, Lease, LeaseControl, LeaseState, Liveness, LockKey, Released,
    RenewalRequest, Renewer, Result,
};

use crate::error::Failure;
use crate::held_leases::HeldLeases;
use crate::mutex::Mutex;
use crate::store::Store;
use crate::table::Tokens;

/// What all leases in one table share. It renews them, in as few transactions as they fit in.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) held_leases: Arc<HeldLeases>,
}

#[async_trait]
impl Renewer for Shared {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        let answers = self.store.renew(due).await.into_iter();
        answers
            .map(|answer| answer.map_err(Failure::into))
            .collect()
    }
}

/// One acquisition in a table of leases.
pub(crate) struct TableLease {
    shared: Arc<Shared>,
    key: LockKey,
    id: LeaseId,
    tokens: Mutex<Option<Tokens>>,
}

impl TableLease {
    pub(crate) fn new(shared: &Arc<Shared>, key: &LockKey, id: LeaseId) -> Self {
        Self {
            shared: Arc::clone(shared),
            key: key.clone(),
            id,
            tokens: Mutex::default(),
        }
    }

    /// Keeps what was granted, and gives the token of the first holder.
    pub(crate) fn granted(&self, tokens: Tokens) -> FencingToken {
        let token = FencingToken::new(tokens.next);
        *self.tokens.lock() = tokens.rest();
        token
    }
}

#[async_trait]
impl Lease for TableLease {
    fn liveness(&self) -> Liveness {
        Liveness::Renewed {
            id: self.id,
            renewer: Arc::<Shared>::clone(&self.shared),
        }
    }

    fn attach(&self, control: LeaseControl) {
        self.shared.held_leases.attach(self.id, &self.key, control);
        self.shared.store.attend_holders();
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        let reserved = *self.tokens.lock();
        let tokens = match reserved {
            Some(tokens) => Some(tokens),
            None => self.shared.store.reserve(&self.key, self.id).await?,
        };
        Ok(tokens.map(|tokens| self.granted(tokens)))
    }

    async fn downgrade(&self) -> Result<()> {
        let downgraded = self.shared.store.downgrade(&self.key, self.id).await;
        if let LeaseState::Lost(reason) = downgraded? {
            return Err(Error::lost(reason));
        }
        // Readers may enter beside this one.
        self.shared.store.release_notifier().wake(&self.key);
        Ok(())
    }

    async fn release(&self) -> Result<Released> {
        let released = self.shared.store.release(&self.key, self.id).await?;
        self.shared.store.release_notifier().wake(&self.key);
        Ok(released)
    }
}

impl Drop for TableLease {
    fn drop(&mut self) {
        self.shared.held_leases.detach(self.id);
    }
}

impl fmt::Debug for TableLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableLease")
            .field("key", &self.key)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
