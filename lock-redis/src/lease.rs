use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use lock_core::engine::LeaseId;
use lock_core::{
    FencingToken, Lease, LeaseControl, LeaseState, Mode, Released, RenewalRequest, Renewer, Result,
    Upkeep,
};

use crate::crowds::Crowds;
use crate::error::Failure;
use crate::keys::Keys;
use crate::live::Live;
use crate::server::{Claim, Holder, Server};
use crate::tokens::Tokens;

/// What all leases on one server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) server: Arc<Server>,
    pub(crate) renewer: Arc<dyn Renewer>,
    pub(crate) live: Arc<Live>,
    pub(crate) crowds: Crowds,
}

/// One acquisition on one server.
pub(crate) struct RedisLease {
    shared: Arc<Shared>,
    keys: Keys,
    id: LeaseId,
    holder: Holder,
    /// The mode in which it was taken.
    mode: Mode,
    tokens: Tokens,
    attached: AtomicBool,
    /// Whether a request of this acquisition may still be under way.
    has_copies: AtomicBool,
}

impl RedisLease {
    pub(crate) fn new(shared: &Arc<Shared>, keys: Keys, id: LeaseId, claim: &Claim) -> Self {
        Self {
            shared: Arc::clone(shared),
            keys,
            id,
            holder: claim.holder.clone(),
            mode: claim.mode,
            tokens: Tokens::default(),
            attached: AtomicBool::new(false),
            has_copies: AtomicBool::new(false),
        }
    }

    pub(crate) fn id(&self) -> LeaseId {
        self.id
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// A request had no answer and is sent again: a copy may arrive after the release.
    pub(crate) fn repeated(&self) {
        self.has_copies.store(true, Ordering::Relaxed);
    }

    /// Keeps what was granted, and gives the token of the first holder.
    pub(crate) fn granted(&self, first: u64) -> FencingToken {
        self.tokens.granted(self.mode, first)
    }
}

#[async_trait]
impl Lease for RedisLease {
    fn upkeep(&self) -> Upkeep {
        Upkeep::Renewed {
            id: self.id,
            renewer: Arc::clone(&self.shared.renewer),
        }
    }

    fn attach(&self, control: LeaseControl) {
        self.attached.store(true, Ordering::Relaxed);
        self.shared.live.attach(self.id, control);
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        if let Some(token) = self.tokens.next() {
            return Ok(Some(token));
        }
        let first = self.shared.server.reserve(&self.keys, self.id).await?;
        Ok(first.map(|first| self.granted(first)))
    }

    async fn downgrade(&self) -> Result<()> {
        let token = self.tokens.current();
        let downgraded = self
            .shared
            .server
            .downgrade(&self.keys, self.id, token)
            .await;
        match downgraded? {
            LeaseState::Lost(reason) => Err(lock_core::Error::lost(reason)),
            _ => Ok(()),
        }
    }

    async fn release(&self) -> Result<Released> {
        let Shared { server, crowds, .. } = &*self.shared;
        let copies = self.has_copies.load(Ordering::Relaxed);
        let is_short =
            self.mode == Mode::Exclusive && !copies && !crowds.is_crowded(self.keys.name());
        if is_short && server.give(&self.keys, &self.holder).await? {
            return Ok(Released::Clean);
        }
        Ok(server
            .release_with(&self.keys, &self.holder, copies)
            .await?)
    }
}

impl Drop for RedisLease {
    fn drop(&mut self) {
        if *self.attached.get_mut() {
            self.shared.live.detach(self.id);
        }
    }
}

impl fmt::Debug for RedisLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLease")
            .field("keys", &self.keys)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Renews the leases on one server, in as few calls as they fit in.
#[derive(Debug)]
pub(crate) struct RedisRenewer {
    pub(crate) server: Arc<Server>,
    pub(crate) live: Arc<Live>,
}

#[async_trait]
impl Renewer for RedisRenewer {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        let lost = |id, reason| self.live.lost(id, reason);
        let answers = self.server.renew(due, &lost).await;
        answers
            .into_iter()
            .map(|answer| answer.map_err(Failure::into))
            .collect()
    }
}
