//! A backend whose flaws can be switched on, to prove that the conformance suite finds each of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::LockAdmin;
use polylock_core::engine::{Engine, LeaseId, Moment};
use polylock_core::memory::Memory;
use polylock_core::{
    AcquireRequest, Capabilities, DistributedLock, Error, ErrorKind, FencingToken, Grant, Lease,
    LeaseControl, LeaseState, Liveness, LockGuard, LockKey, LostReason, Released, Renewal,
    RenewalRequest, Renewer, Result, Wait,
};
use tokio::time::Instant;

use crate::harness::{Faults, Harness, Look};
use crate::lock;

/// A way in which [`FlawedMemory`] breaks a promise.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flaw {
    /// A release by anyone frees the lock.
    AnyoneReleases,
    /// A lease counts from the reply in place of the request.
    CountsFromReply,
    /// An error of the server is reported as contention.
    ErrorsAreContention,
    /// Every request is granted.
    ExcludesNobody,
    /// Names are folded to lower case.
    FoldsNames,
    /// A lease that is handed over keeps its token.
    HandOverKeepsToken,
    /// The last waiter is served first.
    LastComeFirstServed,
    /// A lease never expires.
    NeverExpires,
    /// A request that was dropped is not undone.
    NothingUndone,
    /// The place of a waiter stays in the queue when its future was dropped.
    PlacesStay,
    /// A release is answered before anything is released.
    ReleasesLate,
    /// A renewal takes a lock that is free.
    RenewalsTake,
    /// The token of a key stays the same.
    TokensRepeat,
    /// A request that must not wait waits.
    TriesWait,
}

/// A client of a memory store, with at most one flaw. Each guard is that of the memory backend in a
/// lease of its own, so that the flaw can be between the two.
#[derive(Debug)]
pub struct FlawedMemory {
    memory: Memory,
    flaw: Option<Flaw>,
    engine: Engine,
    /// Where the last waiter is served first: the waiters of all clients, the last one at the end.
    waiters: Arc<Mutex<Vec<(LockKey, u64)>>>,
}

impl FlawedMemory {
    /// Makes a store and its first client.
    #[must_use]
    pub fn new(flaw: Option<Flaw>) -> Self {
        Self {
            memory: Memory::new(),
            flaw,
            engine: Engine::of_this_process("flawed"),
            waiters: Arc::default(),
        }
    }

    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// The request to the store.
    fn stored(&self, request: &AcquireRequest) -> AcquireRequest {
        let stored = request.clone().with_renewal(Renewal::Manual);
        let name = request.key().as_str();
        let renamed = match self.flaw {
            Some(Flaw::ExcludesNobody) => format!("{name}/{}", next()),
            Some(Flaw::FoldsNames) => name.to_ascii_lowercase(),
            _ => name.to_owned(),
        };
        let stored = match LockKey::new(renamed) {
            Ok(key) => stored.with_key(key),
            Err(_) => stored,
        };
        match (self.flaw, request.wait()) {
            (Some(Flaw::NeverExpires), _) => stored.with_ttl(AcquireRequest::MAX_TTL),
            (Some(Flaw::TriesWait), Wait::Never) => stored.with_wait(Wait::AtMost(LONG)),
            _ => stored,
        }
    }

    async fn guard(&self, stored: AcquireRequest) -> Result<LockGuard> {
        match self.flaw {
            Some(Flaw::LastComeFirstServed) if stored.wait() != Wait::Never => {
                self.last_first(&stored).await
            }
            Some(Flaw::NothingUndone) => {
                let mut granted = Forgotten(Some(self.memory.acquire(&stored).await?));
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                Ok(granted.0.take().expect("BUG: it is taken once"))
            }
            Some(Flaw::PlacesStay) => {
                let memory = self.memory.client();
                let waiting = tokio::spawn(async move { memory.acquire(&stored).await });
                waiting.await.expect("the memory backend does not panic")
            }
            _ => self.memory.acquire(&stored).await,
        }
    }

    /// When the lease on the store began, which a waiter knows by the end of its guard alone.
    fn sent(&self, stored: &AcquireRequest, guard: &LockGuard) -> Moment {
        let margin = (stored.ttl() / 10).max(Duration::from_millis(50));
        let left = guard.valid_until().map(|end| end - Instant::now());
        let used = (stored.ttl() - margin).saturating_sub(left.unwrap_or_default());
        let used = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
        Moment::from_nanos(self.engine.now().as_nanos().saturating_sub(used))
    }

    /// Polls the store, the last waiter alone.
    async fn last_first(&self, stored: &AcquireRequest) -> Result<LockGuard> {
        let place = (stored.key().clone(), next());
        lock(&self.waiters).push(place.clone());
        let _place = Place(&self.waiters, place.1);
        let attempt = stored.clone().with_wait(Wait::Never);
        let poll = async {
            loop {
                let last = lock(&self.waiters)
                    .iter()
                    .rfind(|(key, _)| *key == place.0)
                    .cloned();
                if last.as_ref() == Some(&place) {
                    match self.memory.acquire(&attempt).await {
                        Err(error) if error.kind() == ErrorKind::Contended => {}
                        answer => return answer,
                    }
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let limit = match stored.wait() {
            Wait::AtMost(limit) => limit,
            _ => LONG * 100,
        };
        let polled = tokio::time::timeout(limit, poll).await;
        polled.unwrap_or_else(|_| Err(contended(stored)))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for FlawedMemory {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.memory.capabilities();
        capabilities.admin = false;
        capabilities.downgrade = false;
        capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities().check(request)?;
        let stored = self.stored(request);
        let guard = match self.guard(stored.clone()).await {
            Ok(guard) => guard,
            Err(_) if self.is(Flaw::ErrorsAreContention) => return Err(contended(request)),
            Err(error) => return Err(error.with_key(request.key())),
        };
        let sent = match self.flaw {
            Some(Flaw::CountsFromReply) => self.engine.now(),
            _ => self.sent(&stored, &guard),
        };
        let token = match self.flaw {
            Some(Flaw::TokensRepeat) => Some(FencingToken::new(1)),
            _ => guard.fencing_token(),
        };
        let lease = FlawedLease(Arc::new(Stored {
            memory: self.memory.client(),
            request: stored,
            flaw: self.flaw,
            id: self.engine.lease_id(),
            token,
            guard: tokio::sync::Mutex::new(Some(guard)),
        }));
        let pending = self
            .engine
            .pending(request.key(), Arc::new(lease), request.ttl());
        pending.granted(request, Grant::new(sent, token))
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        None
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.engine.drain(within).await && self.memory.shutdown(within).await
    }
}

#[async_trait]
impl Harness for FlawedMemory {
    async fn client(&self) -> Arc<dyn DistributedLock> {
        Arc::new(Self {
            memory: self.memory.client(),
            flaw: self.flaw,
            engine: self.engine.clone(),
            waiters: Arc::clone(&self.waiters),
        })
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Harness::faults(&self.memory)
    }

    async fn look(&self, key: &LockKey) -> Option<Look> {
        let mut look = self.memory.look(key).await?;
        let waiters = lock(&self.waiters);
        look.waiters += waiters.iter().filter(|(other, _)| other == key).count();
        Some(look)
    }
}

/// A lease of this backend and the guard of the memory backend.
#[derive(Debug)]
struct FlawedLease(Arc<Stored>);

#[derive(Debug)]
struct Stored {
    memory: Memory,
    request: AcquireRequest,
    flaw: Option<Flaw>,
    id: LeaseId,
    token: Option<FencingToken>,
    guard: tokio::sync::Mutex<Option<LockGuard>>,
}

impl Stored {
    async fn release(&self) -> Result<Released> {
        match self.guard.lock().await.take() {
            Some(guard) => guard.release().await,
            None => Ok(Released::AlreadyLost),
        }
    }

    async fn renew_once(&self) -> Result<LeaseState> {
        let lost = Ok(LeaseState::Lost(LostReason::Stolen));
        let mut held = self.guard.lock().await;
        let Some(guard) = held.as_ref() else {
            return lost;
        };
        match guard.renew().await {
            Ok(()) => Ok(LeaseState::Held),
            Err(error) if error.kind() != ErrorKind::Lost => Err(error),
            Err(_) if self.flaw == Some(Flaw::RenewalsTake) => {
                let again = self.request.clone().with_wait(Wait::Never);
                *held = Some(self.memory.acquire(&again).await?);
                Ok(LeaseState::Held)
            }
            Err(_) => lost,
        }
    }
}

#[async_trait]
impl Lease for FlawedLease {
    fn liveness(&self) -> Liveness {
        Liveness::Renewed {
            id: self.0.id,
            renewer: Arc::clone(&self.0) as _,
        }
    }

    fn attach(&self, _control: LeaseControl) {
        // A holder learns of a loss by its renewal.
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        let keeps = self.0.flaw == Some(Flaw::HandOverKeepsToken);
        Ok(self.0.token.filter(|_| keeps))
    }

    async fn downgrade(&self) -> Result<()> {
        let message = "it does not downgrade";
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    async fn release(&self) -> Result<Released> {
        let stored = Arc::clone(&self.0);
        match stored.flaw {
            Some(Flaw::AnyoneReleases) => {
                stored.memory.expire(stored.request.key());
                Ok(Released::Clean)
            }
            Some(Flaw::ReleasesLate) => {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    stored.release().await
                });
                Ok(Released::Clean)
            }
            _ => stored.release().await,
        }
    }
}

#[async_trait]
impl Renewer for Stored {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        let mut states = Vec::new();
        // Each lease has a renewer of its own.
        for _ in due {
            states.push(self.renew_once().await);
        }
        states
    }
}

/// A guard that stays on the store when it is dropped.
struct Forgotten(Option<LockGuard>);

impl Drop for Forgotten {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            guard.abandon();
        }
    }
}

/// A waiter that leaves when it is dropped.
struct Place<'a>(&'a Mutex<Vec<(LockKey, u64)>>, u64);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        lock(self.0).retain(|(_, number)| *number != self.1);
    }
}

fn contended(request: &AcquireRequest) -> Error {
    Error::new(ErrorKind::Contended, "the lock is held").with_key(request.key())
}

/// A number that no other call gives.
fn next() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// Longer than a case waits for what should happen at once.
const LONG: Duration = Duration::from_secs(6);
