//! Adoption: an acquisition takes over the key of a holder in another process.

use std::sync::Arc;
use std::time::Duration;

use polylock_core::engine::LeaseId;
use polylock_core::{FencingToken, Mode};
use tokio::sync::oneshot;

use super::{EtcdLease, KnownKey};
use crate::error::EtcdFailure;
use crate::queue::EtcdContender;
use crate::server_lease::ServerLease;
use crate::store::EtcdStore;

impl EtcdLease {
    /// Adopts the key of the holder with this id, on the engine, so that a release can wait for the outcome
    /// even if the caller is dropped.
    pub(crate) async fn adopt(
        self: &Arc<Self>,
        id: LeaseId,
    ) -> Result<Option<FencingToken>, EtcdFailure> {
        let (done, answer) = oneshot::channel();
        self.state().adoptions_under_way += 1;
        let under_way = AdoptionUnderWay(Arc::clone(self));
        self.store.engine.spawn(async move {
            let adopted = under_way.0.try_adopt(id).await;
            drop(under_way);
            drop(done.send(adopted));
        });
        let panicked = EtcdFailure::Protocol("the task of an adoption has panicked");
        answer.await.unwrap_or(Err(panicked))
    }

    async fn try_adopt(&self, id: LeaseId) -> Result<Option<FencingToken>, EtcdFailure> {
        // An earlier request without an answer may still come.
        let was_unknown = matches!(self.key(), KnownKey::Unknown);
        let begin = |attached: &Arc<ServerLease>| self.may_be_adopted(attached);
        let adopted = self
            .store
            .adopt_as(&self.directory, id, self.id, self.ttl, begin);
        let adopted = adopted.await?;
        let mut state = self.state();
        let Some((contender, attached)) = adopted else {
            // No request that was sent has adopted the key, or will, unless there are others.
            let is_only = !was_unknown && state.adoptions_under_way == 1;
            if is_only && matches!(state.key, KnownKey::Unknown) {
                state.key = KnownKey::Never;
            }
            return Ok(None);
        };
        let token = contender.token();
        // A later write has attached the key to another lease of etcd. To drop that one here would revoke it.
        if state.key.is_later_than(contender.mod_revision) {
            state.leases.retain(|lease| lease.id != attached.id);
            drop(state);
            return Ok(token);
        }
        state.key = KnownKey::At((&contender).into());
        // Requests that were sent earlier are refused when they arrive. One of another task may have moved the
        // key to its own lease of etcd, although its reply is lost.
        let former = match state.adoptions_under_way {
            1 => std::mem::replace(&mut state.leases, vec![attached]),
            _ => Vec::new(),
        };
        if let Some(entry) = contender.entry {
            state.entry = entry;
        }
        drop(state);
        drop(former);
        Ok(token)
    }

    /// A request that adopts the key is about to be sent.
    fn may_be_adopted(&self, lease: &Arc<ServerLease>) {
        let _ = self.may_be_attached(lease);
        let mut state = self.state();
        // One that came before may have had its answer.
        if !matches!(state.key, KnownKey::At(_)) {
            state.key = KnownKey::Unknown;
        }
    }

    /// The key of an adoption without an answer.
    pub(super) async fn look_for_adopted(&self) -> Result<Option<String>, EtcdFailure> {
        let until = self.store.step();
        let found = self.store.find(&self.directory, self.id, until).await?;
        Ok(found.map(|found| self.path(&found.name)))
    }
}

/// A task adopts the key for this acquisition; a release that does not know the key waits for it. Ends with the
/// task, also if that panics.
struct AdoptionUnderWay(Arc<EtcdLease>);

impl Drop for AdoptionUnderWay {
    fn drop(&mut self) {
        self.0.state().adoptions_under_way -= 1;
        self.0.settled.notify_waiters();
    }
}

impl EtcdStore {
    /// Gives an exclusive holder another id. `begin` is called before the write is sent, with the lease of
    /// etcd that the key may be attached to from there on.
    pub(crate) async fn adopt_as(
        &self,
        directory: &str,
        id: LeaseId,
        new: LeaseId,
        ttl: Duration,
        begin: impl Fn(&Arc<ServerLease>),
    ) -> Result<Option<(EtcdContender, Arc<ServerLease>)>, EtcdFailure> {
        loop {
            let listing = self.list(directory, self.step()).await?;
            let Some(mut held) = listing.contenders.into_iter().next() else {
                return Ok(None);
            };
            // A repeated adoption finds the id that it has given.
            let is_repeated = held.id() == Some(new);
            let is_it = is_repeated || held.id() == Some(id);
            let Some(entry) = held.entry.as_mut().filter(|_| is_it) else {
                return Ok(None);
            };
            if entry.mode != Mode::Exclusive {
                return Ok(None);
            }
            entry.id = new;
            if !is_repeated {
                let next = entry.adoptions.checked_add(1);
                entry.adoptions = next.ok_or(EtcdFailure::AdoptedTooOften)?;
            }
            let value = entry.encode();
            let lease = self.private_lease(ttl, self.step()).await?;
            begin(&lease);
            let path = format!("{directory}{}", held.name);
            let replaced = self.replace_once(&path, held.mod_revision, &value, &lease);
            if let Ok(revision) = replaced.await? {
                (held.lease, held.mod_revision) = (lease.id, revision);
                return Ok(Some((held, lease)));
            }
        }
    }
}
