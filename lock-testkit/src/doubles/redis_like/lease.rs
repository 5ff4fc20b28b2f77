use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::engine::{LeaseId, Moment};
use lock_core::{
    Error, ErrorKind, FencingToken, Grant, Lease, LeaseControl, Liveness, LockKey, Released,
    Renewer, Result,
};

use super::Flaw;
use super::server::{BLOCK, Server};
use crate::lock;

/// One acquisition on the server.
pub(super) struct RedisLease {
    server: Arc<Server>,
    key: LockKey,
    id: LeaseId,
    /// The tokens that are left of the block, known once the lock is granted.
    tokens: Mutex<std::ops::Range<u64>>,
}

impl RedisLease {
    pub(super) fn new(server: &Arc<Server>, key: &LockKey, id: LeaseId) -> Self {
        let (server, key) = (Arc::clone(server), key.clone());
        Self {
            server,
            key,
            id,
            tokens: Mutex::new(0..0),
        }
    }

    /// Takes the block of a grant whose request left at `sent`.
    pub(super) fn granted(&self, sent: Moment, block: u64) -> Grant {
        *lock(&self.tokens) = block + 1..block + BLOCK;
        Grant::new(sent, Some(FencingToken::new(block)))
    }
}

#[async_trait]
impl Lease for RedisLease {
    fn liveness(&self) -> Liveness {
        let renewer = Arc::clone(&self.server) as Arc<dyn Renewer>;
        Liveness::Renewed {
            id: self.id,
            renewer,
        }
    }

    fn attach(&self, _control: LeaseControl) {
        // The server tells a holder nothing that it is not asked.
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        let mut tokens = lock(&self.tokens);
        if self.server.flaw == Some(Flaw::HandOverKeepsToken) {
            return Ok(Some(FencingToken::new(tokens.start - 1)));
        }
        Ok(tokens.next().map(FencingToken::new))
    }

    async fn downgrade(&self) -> Result<()> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "there are no shared locks",
        ))
    }

    async fn release(&self) -> Result<Released> {
        match self.server.flaw {
            Some(Flaw::NothingUndone) if lock(&self.tokens).end == 0 => Ok(Released::AlreadyLost),
            Some(Flaw::ReleasesLate) => {
                let (server, key, id) = (Arc::clone(&self.server), self.key.clone(), self.id);
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    server.release(&key, id).await
                });
                Ok(Released::Clean)
            }
            _ => self.server.release(&self.key, self.id).await,
        }
    }
}

impl fmt::Debug for RedisLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLease")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
