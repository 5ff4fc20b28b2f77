use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use lock_core::engine::LeaseId;
use lock_core::{
    Error, FencingToken, Lease, LeaseControl, LeaseState, LostReason, Mode, Released, Renewer,
    Result, Upkeep,
};

use super::agreement::Agreement;
use super::ensemble::{Asking, Ensemble};
use super::settle::settle;
use super::shares::Shares;
use super::vote::{Verdict, Votes};
use crate::error::Failure;
use crate::keys::Keys;
use crate::server::Holder;
use crate::tokens::{Tokens, count_of};

/// One acquisition on several masters.
pub(super) struct QuorumLease {
    ensemble: Arc<Ensemble>,
    renewer: Arc<dyn Renewer>,
    pub(super) keys: Arc<Keys>,
    pub(super) id: LeaseId,
    holder: Holder,
    mode: Mode,
    pub(super) shares: Arc<Shares>,
    tokens: Tokens,
    is_granted: AtomicBool,
    is_attached: AtomicBool,
}

impl QuorumLease {
    pub(super) fn new(
        ensemble: &Arc<Ensemble>,
        renewer: &Arc<dyn Renewer>,
        keys: &Arc<Keys>,
        (id, holder, mode): (LeaseId, Holder, Mode),
        shares: Shares,
    ) -> Self {
        Self {
            ensemble: Arc::clone(ensemble),
            renewer: Arc::clone(renewer),
            keys: Arc::clone(keys),
            id,
            holder,
            mode,
            shares: Arc::new(shares),
            tokens: Tokens::default(),
            is_granted: AtomicBool::new(false),
            is_attached: AtomicBool::new(false),
        }
    }

    /// Keeps what a majority has on record, and gives the token of the first holder.
    pub(super) fn granted(&self, first: u64) -> FencingToken {
        self.is_granted.store(true, Ordering::Relaxed);
        self.tokens.keep(first, count_of(self.mode))
    }

    fn ask_to_release(&self, among: &[bool]) -> Asking<Result<Released, Failure>> {
        ask_to_release(&self.ensemble, &self.keys, &self.holder, among)
    }
}

#[async_trait]
impl Lease for QuorumLease {
    fn upkeep(&self) -> Upkeep {
        Upkeep::Renewed {
            id: self.id,
            renewer: Arc::clone(&self.renewer),
        }
    }

    fn attach(&self, control: LeaseControl) {
        self.is_attached.store(true, Ordering::Relaxed);
        self.ensemble.notices.attach(self.id, control);
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        if let Some(token) = self.tokens.next() {
            return Ok(Some(token));
        }
        let agreement = Agreement::on(self.ensemble.len(), self.tokens.last() + 1);
        let (ensemble, keys) = (&self.ensemble, &self.keys);
        let first = settle(ensemble, keys, &self.holder, self.mode, agreement).await?;
        Ok(first.map(|first| self.granted(first)))
    }

    async fn downgrade(&self) -> Result<()> {
        let (id, token) = (self.id, self.tokens.current());
        let mut asking = self.ensemble.ask(
            |_| true,
            |node| {
                let keys = Arc::clone(&self.keys);
                async move { node.server.downgrade(&keys, id, token).await }
            },
        );
        let mut votes = Votes::new(self.ensemble.len());
        let (mut failures, mut lost) = (Vec::new(), LostReason::Stolen);
        while let Some((_, answer)) = asking.next().await {
            match answer {
                Ok(LeaseState::Lost(reason)) => {
                    votes.no += 1;
                    if reason == LostReason::Broken {
                        lost = reason;
                    }
                }
                Ok(_) => votes.yes += 1,
                Err(failure) => {
                    votes.silent += 1;
                    failures.push(failure);
                }
            }
            match votes.verdict() {
                Verdict::No => return Err(Error::lost(lost)),
                Verdict::Yes => return Ok(()),
                Verdict::Open | Verdict::Unknown => {}
            }
        }
        Err(self.ensemble.silence(&failures, &[]))
    }

    async fn release(&self) -> Result<Released> {
        let mut asking = self.ask_to_release(&self.shares.open());
        // What failed to become a lock is out of everybody's way before it is tried again.
        let mut waits_for = if self.is_granted.load(Ordering::Relaxed) {
            vec![false; self.ensemble.len()]
        } else {
            self.shares.held()
        };
        let mut failures = Vec::new();
        let released = loop {
            let released = match self.shares.votes().verdict() {
                Verdict::No => Some(Released::AlreadyLost),
                Verdict::Yes => Some(Released::Clean),
                Verdict::Open | Verdict::Unknown => None,
            };
            if released.is_some() && !waits_for.contains(&true) {
                break released;
            }
            match asking.next().await {
                Some((node, answer)) => {
                    waits_for[node] = false;
                    match answer {
                        Ok(answer) => self.shares.released(node, answer == Released::Clean),
                        Err(failure) => failures.push(failure),
                    }
                }
                None => break released,
            }
        };
        let released = released.ok_or_else(|| self.ensemble.silence(&failures, &[]))?;
        if self.shares.open().contains(&true) {
            let (ensemble, keys) = (Arc::clone(&self.ensemble), Arc::clone(&self.keys));
            let (shares, holder) = (Arc::clone(&self.shares), self.holder.clone());
            let rest = release_rest(ensemble, keys, holder, shares, asking);
            self.ensemble.engine.spawn(rest);
        }
        Ok(released)
    }
}

impl Drop for QuorumLease {
    fn drop(&mut self) {
        if *self.is_attached.get_mut() {
            self.ensemble.notices.detach(self.id);
        }
    }
}

impl fmt::Debug for QuorumLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumLease")
            .field("keys", &self.keys)
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}

fn ask_to_release(
    ensemble: &Ensemble,
    keys: &Arc<Keys>,
    holder: &Holder,
    among: &[bool],
) -> Asking<Result<Released, Failure>> {
    ensemble.ask(
        |node| among[node],
        |node| {
            let (keys, holder) = (Arc::clone(keys), holder.clone());
            async move { node.server.withdraw(&keys, &holder).await }
        },
    )
}

/// Releases a lock on the nodes that were slow or did not answer, although a majority has.
///
/// They hold up nobody by themselves, but would count as failed until their lease is over.
async fn release_rest(
    ensemble: Arc<Ensemble>,
    keys: Arc<Keys>,
    holder: Holder,
    shares: Arc<Shares>,
    mut asking: Asking<Result<Released, Failure>>,
) {
    for pause in PAUSES {
        while let Some((node, answer)) = asking.next().await {
            if let Ok(answer) = answer {
                shares.released(node, answer == Released::Clean);
            }
        }
        let open = shares.open();
        if !open.contains(&true) {
            return;
        }
        tokio::time::sleep(ensemble.engine.jitter(pause / 2, pause)).await;
        asking = ask_to_release(&ensemble, &keys, &holder, &open);
    }
    while asking.next().await.is_some() {}
}

/// Before the second and the third attempt with a node that did not answer.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];
