//! A service of one lock whose test decides how it answers and what it reports.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use async_trait::async_trait;
use polylock_core::admin::LockAdmin;
use polylock_core::engine::{Engine, LeaseId, Moment};
use polylock_core::layers::LocalQueue;
use polylock_core::prelude::*;
use polylock_core::{
    AcquireRequest, Capabilities, FencingToken, Grant, Lease, LeaseControl, LeaseState, Liveness,
    LostReason, PendingRelease, RenewalRequest, Renewer, Result,
};

use crate::support::key;

/// A client of the service.
#[derive(Clone, Debug)]
pub(crate) struct Fake(Arc<Server>);

#[derive(Debug)]
struct Server {
    engine: Engine,
    state: Mutex<State>,
}

/// A call of the core.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Call {
    Acquire,
    Attach,
    Downgrade,
    HandOver,
    Release,
    Renew,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Whether leases live with a session instead of expiring.
    pub(crate) session: bool,
    /// Whether its leases can be left to another process.
    pub(crate) adopts: bool,
    /// How long each call takes before it arrives.
    pub(crate) delay: Duration,
    /// How long the answers to a renewal take.
    pub(crate) answer_delay: Duration,
    /// How long a lease lasts until its first renewal, if that is not its ttl.
    pub(crate) first: Option<Duration>,
    /// What a lease reports as soon as it is attached.
    pub(crate) reports_in_attach: Option<fn(&LeaseControl)>,
    /// The next call of this kind panics.
    pub(crate) panics_in: Option<Call>,
    /// How many calls of that kind do not panic before.
    pub(crate) panics_after: usize,
    /// Whether the server refuses to hand a lease over.
    pub(crate) refuses_hand_overs: bool,
    /// Whether renewals are done without an answer for each.
    pub(crate) laconic: bool,
    /// Renewals that are still on their way, if the network holds them back.
    pub(crate) held_back: Option<Vec<RenewalRequest>>,
    /// How many releases get no answer.
    pub(crate) unanswered: usize,
    /// Whether it has shared locks.
    pub(crate) downgrades_locks: bool,
    /// How many downgrades get no answer.
    pub(crate) unanswered_downgrades: usize,
    /// Downgrades that arrived.
    pub(crate) downgrades: usize,
    /// What was sent, in this order.
    pub(crate) sent: Vec<Call>,
    /// The longest lease that a renewal may ask for, if that is not the default.
    pub(crate) max_ttl: Option<Duration>,
    /// Renewals for longer than that fail.
    pub(crate) max_granted: Option<Duration>,
    /// Renewals that arrived.
    pub(crate) renewals: usize,
    /// The leases that they asked for.
    pub(crate) ttls: Vec<Duration>,
    /// How long the caller of the last one waits.
    pub(crate) timeout: Duration,
    /// The handle of the latest holder.
    pub(crate) control: Option<LeaseControl>,
    lease: Weak<FakeLease>,
    holder: Option<(LeaseId, Moment)>,
    tokens: u64,
}

impl Fake {
    pub(crate) fn new() -> Self {
        Self::with_engine(Engine::on_current_runtime("fake"))
    }

    pub(crate) fn with_engine(engine: Engine) -> Self {
        let state = Mutex::default();
        Self(Arc::new(Server { engine, state }))
    }

    /// The service, and the queue of one of its clients.
    pub(crate) fn queued(self) -> (Self, LocalQueue) {
        let locks = LocalQueue::new(Arc::new(self.clone()));
        (self, locks)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state()
    }

    /// Arms the undoing of an acquisition that was never sent.
    pub(crate) fn pending(&self, ttl: Duration) -> PendingRelease {
        self.0.engine.pending(&key(), self.lease(), ttl)
    }

    fn lease(&self) -> Arc<FakeLease> {
        let (server, id) = (Arc::clone(&self.0), self.0.engine.lease_id());
        Arc::new(FakeLease { server, id })
    }

    pub(crate) fn releases(&self) -> usize {
        let state = self.state();
        let sent = state.sent.iter();
        sent.filter(|call| **call == Call::Release).count()
    }

    /// Lets renewals arrive that were held back.
    pub(crate) fn let_arrive(&self, late: &[RenewalRequest]) {
        let now = self.now();
        let mut state = self.state();
        for request in late {
            state.renew(request, now);
        }
    }

    pub(crate) fn control(&self) -> LeaseControl {
        self.state().control.clone().expect("the lock was taken")
    }

    pub(crate) fn now(&self) -> Moment {
        self.0.engine.now()
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.state().is_taken(self.now())
    }

    /// Whether the latest lease is still referenced.
    pub(crate) fn is_lease_alive(&self) -> bool {
        self.state().lease.strong_count() > 0
    }
}

impl State {
    fn is_taken(&self, now: Moment) -> bool {
        self.holder.is_some_and(|(_, expires)| now < expires)
    }

    fn is_held_by(&self, id: LeaseId, now: Moment) -> bool {
        self.is_taken(now) && self.holder.is_some_and(|(holder, _)| holder == id)
    }

    fn renew(&mut self, request: &RenewalRequest, now: Moment) -> LeaseState {
        self.renewals += 1;
        self.ttls.push(request.ttl);
        self.timeout = request.timeout;
        match self.holder {
            Some((id, end)) if self.is_held_by(request.id, now) => {
                self.holder = Some((id, request.renewed_end(now, end)));
                LeaseState::Held
            }
            _ => LeaseState::Lost(LostReason::Stolen),
        }
    }

    /// Takes the lock from its holder.
    pub(crate) fn free(&mut self) {
        self.holder = None;
    }

    fn next_token(&mut self) -> FencingToken {
        self.tokens += 1;
        FencingToken::new(self.tokens)
    }
}

impl Server {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under it")
    }

    async fn arrive(&self, call: Call) {
        let delay = {
            let mut state = self.state();
            state.sent.push(call);
            state.delay
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        self.panics_if_planned(call);
    }

    fn panics_if_planned(&self, call: Call) {
        let mut state = self.state();
        if state.panics_in != Some(call) {
            return;
        }
        if let Some(left) = state.panics_after.checked_sub(1) {
            state.panics_after = left;
            return;
        }
        state.panics_in = None;
        drop(state);
        panic!("a fault of the backend");
    }
}

#[async_trait]
impl DistributedLock for Fake {
    fn capabilities(&self) -> Capabilities {
        Capabilities::minimal("fake")
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<LockGuard> {
        self.capabilities().check(request)?;
        let lease = self.lease();
        let (id, known) = (lease.id, Arc::downgrade(&lease));
        let pending = self.0.engine.pending(request.key(), lease, request.ttl());
        self.0.arrive(Call::Acquire).await;
        while self.is_taken() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let sent = self.now();
        let grant = {
            let mut state = self.state();
            let expires = if state.session {
                Moment::NEVER
            } else {
                sent + state.first.unwrap_or_else(|| request.ttl())
            };
            state.holder = Some((id, expires));
            state.lease = known;
            let grant = Grant::new(sent, Some(state.next_token()));
            state.first.map_or(grant, |lasts| grant.lasting(lasts))
        };
        pending.granted(request, grant)
    }

    fn admin(&self) -> Option<&dyn LockAdmin> {
        None
    }

    async fn shutdown(&self, within: Duration) -> bool {
        self.0.engine.drain(within).await
    }
}

#[derive(Debug)]
struct FakeLease {
    server: Arc<Server>,
    id: LeaseId,
}

#[async_trait]
impl Lease for FakeLease {
    fn liveness(&self) -> Liveness {
        if self.server.state().session {
            return Liveness::Reported;
        }
        let renewer = Arc::clone(&self.server) as Arc<dyn Renewer>;
        Liveness::Renewed {
            id: self.id,
            renewer,
        }
    }

    fn attach(&self, control: LeaseControl) {
        self.server.panics_if_planned(Call::Attach);
        let report = {
            let mut state = self.server.state();
            state.control = Some(control.clone());
            state.reports_in_attach
        };
        if let Some(report) = report {
            report(&control);
        }
    }

    async fn hand_over(&self) -> Result<Option<FencingToken>> {
        self.server.arrive(Call::HandOver).await;
        let mut state = self.server.state();
        if state.refuses_hand_overs {
            return Err(Error::new(ErrorKind::Unavailable, "no token"));
        }
        Ok(Some(state.next_token()))
    }

    async fn downgrade(&self) -> Result<()> {
        self.server.arrive(Call::Downgrade).await;
        let mut state = self.server.state();
        state.downgrades += 1;
        if let Some(left) = state.unanswered_downgrades.checked_sub(1) {
            state.unanswered_downgrades = left;
            return Err(Error::new(ErrorKind::Unavailable, "no answer").with_unknown_outcome());
        }
        if state.downgrades_locks {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unsupported, "no shared locks"))
    }

    async fn release(&self) -> Result<Released> {
        self.server.arrive(Call::Release).await;
        let now = self.server.engine.now();
        let mut state = self.server.state();
        if state.unanswered > 0 {
            state.unanswered -= 1;
            return Err(Error::new(ErrorKind::Unavailable, "no answer").with_unknown_outcome());
        }
        if !state.is_held_by(self.id, now) {
            return Ok(Released::AlreadyLost);
        }
        state.holder = None;
        Ok(Released::Clean)
    }
}

#[async_trait]
impl Renewer for Server {
    async fn renew(&self, due: &[RenewalRequest]) -> Vec<Result<LeaseState>> {
        self.arrive(Call::Renew).await;
        let is_held_back = self.state().held_back.as_mut().map(|on_their_way| {
            on_their_way.extend_from_slice(due);
        });
        if is_held_back.is_some() {
            std::future::pending::<()>().await;
        }
        let now = self.engine.now();
        let (answers, delay) = {
            let mut state = self.state();
            let renew = |request: &RenewalRequest| {
                if state.max_granted.is_some_and(|max| request.ttl > max) {
                    return Err(Error::new(
                        ErrorKind::Unavailable,
                        "no room for a longer lease",
                    ));
                }
                Ok(state.renew(request, now))
            };
            let answers = due.iter().map(renew).collect();
            let answers = if state.laconic { Vec::new() } else { answers };
            (answers, state.answer_delay)
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        answers
    }

    fn max_ttl(&self) -> Duration {
        self.state().max_ttl.unwrap_or(AcquireRequest::MAX_TTL)
    }

    fn adopts(&self) -> bool {
        self.state().adopts
    }
}
