use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::engine::{BootClock, Clock, LeaseId, Moment};
use lock_core::memory::Request;
use lock_core::{LeaseState, LockKey, LostReason, Released, RenewalRequest, Renewer, Result};

use super::{Flaw, Inbox};
use crate::doubles::wire::Wire;
use crate::harness::Look;
use crate::lock;

/// The server: every method that takes a key is one script.
#[derive(Default)]
pub(super) struct Server {
    pub(super) wire: Wire,
    pub(super) flaw: Option<Flaw>,
    clock: BootClock,
    locks: Mutex<HashMap<LockKey, Lock>>,
}

/// The keys of one lock. The last token stays after a release.
#[derive(Default)]
struct Lock {
    holder: Option<Holder>,
    queue: VecDeque<Waiter>,
    last_token: u64,
    flaw: Option<Flaw>,
}

#[derive(Clone, Copy)]
struct Holder {
    id: LeaseId,
    block: u64,
    expires: Moment,
}

struct Waiter {
    claim: Claim,
    heartbeat: Moment,
    inbox: Arc<Inbox>,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) id: LeaseId,
    pub(super) ttl: Duration,
    pub(super) waits: bool,
}

/// What the acquiring script says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Busy,
    /// With the first token of a block.
    Granted(u64),
    /// The holder's lease lasts until then.
    Queued(Moment),
}

/// Tokens that one grant reserves, for hand-overs inside the holder's process.
pub(super) const BLOCK: u64 = 32;

impl Server {
    pub(super) fn with_flaw(flaw: Flaw) -> Self {
        Self {
            flaw: Some(flaw),
            ..Self::default()
        }
    }

    /// Takes the lock or a place in the queue, and is the heartbeat of both. Idempotent by id.
    pub(super) async fn acquire(
        &self,
        key: &LockKey,
        claim: &Claim,
        inbox: &Arc<Inbox>,
    ) -> Result<Answer> {
        let script = || self.script(key, |now, lock| lock.acquire(now, claim, inbox));
        self.wire.call(Request::Acquire, script).await
    }

    /// Gives the lock or the place in the queue back, and grants the lock to who is next.
    pub(super) async fn release(&self, key: &LockKey, id: LeaseId) -> Result<Released> {
        let script = || self.script(key, |_, lock| lock.release(id));
        self.wire.call(Request::Release, script).await
    }

    /// What an operator does who deletes the key of a lock.
    pub(super) fn delete(&self, key: &LockKey) {
        self.script(key, |_, lock| lock.holder = None);
    }

    pub(super) fn look(&self, key: &LockKey) -> Look {
        self.script(key, |_, lock| {
            Look::new(usize::from(lock.holder.is_some()), lock.queue.len())
        })
    }

    fn stored(&self, key: &LockKey) -> LockKey {
        let folded = || LockKey::new(key.as_str().to_ascii_lowercase()).ok();
        let folded = if self.flaw == Some(Flaw::FoldsNames) {
            folded()
        } else {
            None
        };
        folded.unwrap_or_else(|| key.clone())
    }

    /// Runs a script, and grants the lock if it is free afterwards.
    fn script<T>(&self, key: &LockKey, script: impl FnOnce(Moment, &mut Lock) -> T) -> T {
        let now = self.clock.now();
        let mut locks = lock(&self.locks);
        let locked = locks.entry(self.stored(key)).or_default();
        locked.flaw = self.flaw;
        locked.expire(now);
        // A lease that ran out goes to who waited for it, not to who comes now.
        let before = locked.serve(now);
        let result = script(now, locked);
        let after = locked.serve(now);
        drop(locks);
        for (inbox, id, block) in before.into_iter().chain(after) {
            if !self.wire.is_cut() {
                inbox.deliver(id, block);
            }
        }
        result
    }
}

impl Lock {
    fn acquire(&mut self, now: Moment, claim: &Claim, inbox: &Arc<Inbox>) -> Answer {
        if let Some(holder) = self.holder.as_mut().filter(|holder| holder.id == claim.id) {
            // The client counts from this request, so the lease has to as well.
            holder.expires = now + claim.ttl;
            return Answer::Granted(holder.block);
        }
        match &self.holder {
            None => self.grant(now, claim),
            Some(_) if self.flaw == Some(Flaw::ExcludesNobody) => self.grant(now, claim),
            Some(_) if !claim.waits && self.flaw != Some(Flaw::TriesWait) => Answer::Busy,
            Some(holder) => {
                let free_at = holder.expires;
                self.enqueue(now, claim, inbox);
                Answer::Queued(free_at)
            }
        }
    }

    fn enqueue(&mut self, now: Moment, claim: &Claim, inbox: &Arc<Inbox>) {
        match self
            .queue
            .iter_mut()
            .find(|waiter| waiter.claim.id == claim.id)
        {
            Some(waiter) => waiter.heartbeat = now,
            None => {
                let inbox = Arc::clone(inbox);
                self.queue.push_back(Waiter {
                    claim: *claim,
                    heartbeat: now,
                    inbox,
                });
            }
        }
    }

    fn grant(&mut self, now: Moment, claim: &Claim) -> Answer {
        let block = self.last_token + 1;
        if self.flaw != Some(Flaw::TokensRepeat) {
            self.last_token += BLOCK;
        }
        self.queue.retain(|waiter| waiter.claim.id != claim.id);
        self.holder = Some(Holder {
            id: claim.id,
            block,
            expires: now + claim.ttl,
        });
        Answer::Granted(block)
    }

    fn release(&mut self, id: LeaseId) -> Released {
        if self.flaw != Some(Flaw::PlacesStay) {
            self.queue.retain(|waiter| waiter.claim.id != id);
        }
        let anyone = self.flaw == Some(Flaw::AnyoneReleases);
        match self.holder.take_if(|holder| anyone || holder.id == id) {
            Some(_) => Released::Clean,
            None => Released::AlreadyLost,
        }
    }

    fn renew(&mut self, now: Moment, id: LeaseId, ttl: Duration) -> LeaseState {
        if self.holder.is_none() && self.flaw == Some(Flaw::RenewalsTake) {
            let block = self.last_token;
            self.holder = Some(Holder {
                id,
                block,
                expires: now,
            });
        }
        match self.holder.as_mut().filter(|holder| holder.id == id) {
            Some(holder) => {
                holder.expires = now + ttl;
                LeaseState::Held
            }
            None => LeaseState::Lost(LostReason::Stolen),
        }
    }

    /// Ends a lease that ran out, and forgets waiters whose heartbeats stopped.
    fn expire(&mut self, now: Moment) {
        let never = self.flaw == Some(Flaw::NeverExpires);
        self.holder
            .take_if(|holder| holder.expires <= now && !never);
        self.queue
            .retain(|waiter| waiter.heartbeat + waiter.claim.ttl > now);
    }

    /// Grants a free lock to the first waiter; whom to tell.
    fn serve(&mut self, now: Moment) -> Option<(Arc<Inbox>, LeaseId, u64)> {
        if self.holder.is_some() {
            return None;
        }
        let last = self.flaw == Some(Flaw::LastComeFirstServed);
        let next = if last {
            self.queue.pop_back()
        } else {
            self.queue.pop_front()
        };
        let Waiter { claim, inbox, .. } = next?;
        match self.grant(now, &claim) {
            Answer::Granted(block) => Some((inbox, claim.id, block)),
            Answer::Busy | Answer::Queued(_) => None,
        }
    }
}

#[async_trait]
impl Renewer for Server {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        let script = || {
            let renew = |one: &RenewalRequest| {
                self.script(&one.key, |now, lock| lock.renew(now, one.id, one.ttl))
            };
            due.iter().map(renew).collect::<Vec<_>>()
        };
        match self.wire.call(Request::Renew, script).await {
            Ok(states) => states.into_iter().map(Ok).collect(),
            // The core asks for an answer to each request, and an error cannot be cloned.
            Err(error) => {
                let copy = |_| Err(lock_core::Error::new(error.kind(), error.message()));
                due.iter().map(copy).collect()
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}
