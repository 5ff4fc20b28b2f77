use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::engine::LeaseId;
use polylock_core::{
    Error, ErrorKind, FencingToken, Lease, LeaseControl, LeaseState, Liveness, LockKey, LostReason,
    Released, RenewalRequest, Renewer, Result,
};
use tokio::time::sleep;

use super::client::unavailable;
use super::net::{Reply, Request};
use super::process::Process;
use super::world::World;
use crate::lock;
use crate::mutants::Mutation;

/// One acquisition on the simulated store.
pub(crate) struct SimLease {
    remote: Remote,
    renewer: Arc<SimRenewer>,
    /// The token of the holder and the last one that is reserved for hand-overs.
    tokens: Mutex<(u64, u64)>,
}

/// What it takes to talk to the store about one acquisition.
#[derive(Clone)]
pub(super) struct Remote {
    pub(crate) world: Arc<World>,
    pub(crate) process: Arc<Process>,
    pub(crate) key: LockKey,
    pub(crate) id: LeaseId,
    pub(crate) ttl: Duration,
}

impl SimLease {
    pub(super) fn new(remote: Remote, renewer: Arc<SimRenewer>) -> Self {
        Self {
            remote,
            renewer,
            tokens: Mutex::default(),
        }
    }

    pub(super) fn take(&self, tokens: (u64, u64)) {
        *lock(&self.tokens) = tokens;
    }

    pub(super) fn token(&self) -> FencingToken {
        FencingToken::new(lock(&self.tokens).0)
    }

    fn is(&self, mutation: Mutation) -> bool {
        self.remote.world.is(mutation)
    }
}

impl Remote {
    async fn release(&self) -> Result<Released> {
        let noted = self.world.releasing(self.id);
        let request = Request::Release(self.key.clone(), self.id);
        let answer = self.world.call(&self.process, request).await;
        if answer.is_ok() {
            self.world.answered_release(self.id, noted);
        }
        match answer {
            Ok(Reply::Released(true)) => Ok(Released::Clean),
            Ok(Reply::Released(false)) => Ok(Released::AlreadyLost),
            Ok(_) => {
                let message = "not the answer to a release";
                Err(Error::new(ErrorKind::Protocol, message))
            }
            Err(cause) => Err(unavailable(cause)),
        }
    }

    /// Says that the lock is released, and goes on renewing it for a while.
    fn renew_after_release(&self) -> Released {
        let remote = self.clone();
        self.process.run(async move {
            for _ in 0..6 {
                sleep(remote.ttl / 3).await;
                let due = RenewalRequest::new(remote.key.clone(), remote.id, remote.ttl);
                let request = Request::Renew(vec![due]);
                drop(remote.world.call(&remote.process, request).await);
            }
            drop(remote.release().await);
        });
        Released::Clean
    }
}

#[async_trait]
impl Lease for SimLease {
    fn liveness(&self) -> Liveness {
        let renewer = Arc::clone(&self.renewer) as Arc<dyn Renewer>;
        Liveness::Renewed {
            id: self.remote.id,
            renewer,
        }
    }

    fn attach(&self, _control: LeaseControl) {}

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        let mut tokens = lock(&self.tokens);
        let (token, block_end) = *tokens;
        if self.is(Mutation::HandOverKeepsToken) {
            return Ok(Some(FencingToken::new(token)));
        }
        if token >= block_end {
            return Ok(None);
        }
        tokens.0 = token + 1;
        Ok(Some(FencingToken::new(token + 1)))
    }

    async fn downgrade(&self) -> Result<()> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "the simulated store does not downgrade",
        ))
    }

    async fn release(&self) -> Result<Released> {
        if self.is(Mutation::RenewalAfterRelease) {
            return Ok(self.remote.renew_after_release());
        }
        self.remote.release().await
    }
}

impl fmt::Debug for SimLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimLease")
            .field("key", &self.remote.key)
            .field("id", &self.remote.id)
            .finish_non_exhaustive()
    }
}

/// Renews the leases of one process together.
pub(crate) struct SimRenewer {
    world: Arc<World>,
    process: Arc<Process>,
}

impl SimRenewer {
    pub(super) fn new(world: Arc<World>, process: Arc<Process>) -> Self {
        Self { world, process }
    }
}

#[async_trait]
impl Renewer for SimRenewer {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        self.world.renewing(due.iter().map(|due| due.id));
        let optimistic = self.world.is(Mutation::SilenceIsConsent);
        let request = Request::Renew(due.to_vec());
        let answer = self.world.call(&self.process, request).await;
        let state = |held| match held {
            true => LeaseState::Held,
            false => LeaseState::Lost(LostReason::Stolen),
        };
        match answer {
            Ok(Reply::Renewed(held)) => held.into_iter().map(|held| Ok(state(held))).collect(),
            Ok(_) => Vec::new(),
            Err(_) if optimistic => due.iter().map(|_| Ok(LeaseState::Held)).collect(),
            Err(cause) => due.iter().map(|_| Err(unavailable(cause))).collect(),
        }
    }
}

impl fmt::Debug for SimRenewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimRenewer")
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}
