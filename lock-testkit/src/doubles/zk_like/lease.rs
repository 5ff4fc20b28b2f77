use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lock_core::engine::LeaseId;
use lock_core::memory::Request;
use lock_core::{
    Error, ErrorKind, FencingToken, Lease, LeaseControl, LockKey, Released, Result, Upkeep,
};

use super::session::Session;

/// One contender of a session.
pub(super) struct ZkLease {
    pub(super) session: Arc<Session>,
    key: LockKey,
    id: LeaseId,
}

impl ZkLease {
    pub(super) fn new(session: Arc<Session>, key: &LockKey, id: LeaseId) -> Self {
        Self {
            session,
            key: key.clone(),
            id,
        }
    }
}

#[async_trait]
impl Lease for ZkLease {
    fn upkeep(&self) -> Upkeep {
        Upkeep::Reported
    }

    fn attach(&self, control: LeaseControl) {
        self.session.attach(&self.key, self.id, control);
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        let server = &self.session.server;
        let change = || server.set_token(&self.key, self.id, None);
        Ok(server.wire.send(change).await?.map(FencingToken::new))
    }

    async fn downgrade(&self) -> Result<()> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "a node cannot change its name",
        ))
    }

    async fn release(&self) -> Result<Released> {
        // From here on nobody is told that the node is gone.
        self.session.detach(self.id);
        let server = &self.session.server;
        let delete = || server.delete(&self.key, self.id);
        match server.wire.call(Request::Release, delete).await? {
            true => Ok(Released::Clean),
            false => Ok(Released::AlreadyLost),
        }
    }
}

impl Drop for ZkLease {
    fn drop(&mut self) {
        self.session.detach(self.id);
    }
}

impl fmt::Debug for ZkLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkLease")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
