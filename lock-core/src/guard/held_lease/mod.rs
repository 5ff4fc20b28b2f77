mod renewal;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::entries::Entries;
use super::release::ReleaseHook;
use super::release::release_in_background;
use super::validity::{End, State, Validity};
use crate::engine::{Engine, Moment, catch_panic};
use crate::error::Result;
use crate::event::{EventEmitter, EventKind};
use crate::key::LockKey;
use crate::lease::{Grant, Lease, LeaseControl, LeaseTiming, Liveness, Slot};
use crate::lost_reason::LostReason;
use crate::mode::{Mode, Renewal};
use crate::request::AcquireRequest;
use crate::token::FencingToken;

/// One holder of one lease: the state that the guard, the scheduler and the signals share.
///
/// A lease that is handed over inside the process gets a new `HeldLease`, so that whatever still refers
/// to the former holder can change nothing.
pub(crate) struct HeldLease {
    key: LockKey,
    token: Option<FencingToken>,
    lease: Arc<dyn Lease>,
    liveness: Liveness,
    engine: Engine,
    timing: LeaseTiming,
    events: EventEmitter,
    since: Moment,
    min_until: Moment,
    max_until: Moment,
    /// Whether the lease is kept for the holder, and not only extended to its first full ttl.
    automatic: AtomicBool,
    /// Whether the server gave the lease less than its ttl so far.
    provisional: AtomicBool,
    entries: Entries,
    validity: Validity,
    ended: Notify,
    /// When to renew next, [`Moment::NEVER`] while a renewal is under way or none is wanted.
    renew_at: Mutex<Moment>,
    /// Whether the last renewal failed, which is why the lease will have run out.
    failing: AtomicBool,
    slot: Slot,
    hook: OnceLock<Arc<dyn ReleaseHook>>,
    /// What it consists of: it is held while these are.
    parts: Option<Parts>,
}

/// The locks that a joined one consists of.
pub(crate) type Parts = Arc<[Arc<HeldLease>; 2]>;

/// A lock that was held when its holder gave it up.
pub(crate) struct GivenUp {
    pub(crate) at: Moment,
    /// The end of its validity.
    pub(crate) until: Moment,
}

impl HeldLease {
    /// Starts holding what was granted.
    pub(crate) fn new(
        engine: Engine,
        request: &AcquireRequest,
        lease: Arc<dyn Lease>,
        grant: Grant,
        parts: Option<Parts>,
    ) -> Arc<Self> {
        let (ttl, sent) = (request.ttl(), grant.sent);
        let timing = LeaseTiming::new(grant.lasts.map_or(ttl, |lasts| lasts.min(ttl)));
        let deadline = match lease.liveness() {
            Liveness::Renewed { .. } => timing.valid_until(sent),
            Liveness::Reported => Moment::NEVER,
        };
        let hold = Self::start(engine, request, lease, grant.token, deadline, parts);
        if timing.ttl() < ttl {
            hold.provisional.store(true, Ordering::Relaxed);
            hold.plan(|slot| timing.extend_at(sent, hold.since, slot.jitter()));
        } else {
            hold.plan(|slot| timing.renew_at(sent, slot.jitter()));
        }
        hold
    }

    /// Passes the lease of a holder that gave it up to the next one in this process.
    pub(crate) fn succeed(
        &self,
        request: &AcquireRequest,
        token: Option<FencingToken>,
        deadline: Moment,
    ) -> Arc<Self> {
        let request = request.clone().stored_as(self.key.clone());
        let lease = Arc::clone(&self.lease);
        // Whatever is on its way for the predecessor will not be an answer for its successor.
        let planned = *self.renewal();
        let renew_at = if planned == Moment::NEVER {
            self.engine.now()
        } else {
            planned
        };
        let (engine, parts) = (self.engine.clone(), self.parts.clone());
        let hold = Self::start(engine, &request, lease, token, deadline, parts);
        hold.failing
            .store(self.failing.load(Ordering::Relaxed), Ordering::Relaxed);
        hold.provisional
            .store(self.provisional.load(Ordering::Relaxed), Ordering::Relaxed);
        hold.set_parts_automatic(request.renewal() == Renewal::Automatic);
        hold.plan(|_| renew_at);
        hold
    }

    fn start(
        engine: Engine,
        request: &AcquireRequest,
        lease: Arc<dyn Lease>,
        token: Option<FencingToken>,
        deadline: Moment,
        parts: Option<Parts>,
    ) -> Arc<Self> {
        let now = engine.now();
        let liveness = lease.liveness();
        let automatic = request.renewal() == Renewal::Automatic;
        let slot = engine.scheduler().slot();
        let hold = Arc::new(Self {
            key: request.key().clone(),
            token,
            lease,
            liveness,
            timing: LeaseTiming::new(request.ttl()),
            events: EventEmitter::new(engine.backend(), request),
            since: now,
            min_until: now + request.min_hold(),
            max_until: request.max_hold().map_or(Moment::NEVER, |max| now + max),
            automatic: AtomicBool::new(automatic),
            provisional: AtomicBool::new(false),
            entries: Entries::one(request.mode() == Mode::Exclusive),
            validity: Validity::until(deadline),
            ended: Notify::new(),
            renew_at: Mutex::new(Moment::NEVER),
            failing: AtomicBool::new(false),
            slot,
            hook: OnceLock::new(),
            parts,
            engine,
        });
        let control: Weak<Self> = Arc::downgrade(&hold);
        hold.lease.attach(LeaseControl::new(control));
        // Not earlier: if the backend panics before the guard exists, nothing would end the lease.
        hold.events.emit(EventKind::Held);
        hold
    }

    /// The locks that it consists of, if it is not one by itself.
    pub(super) fn parts(&self) -> Option<&Parts> {
        self.parts.as_ref()
    }

    /// Sets the first renewal and adds the lock to the schedule.
    fn plan(self: &Arc<Self>, renew_at: impl FnOnce(&Slot) -> Moment) {
        self.set_renewal(renew_at(&self.slot));
        self.reschedule();
    }

    /// The key as the backend stores it.
    pub(crate) fn key(&self) -> &LockKey {
        &self.key
    }

    /// The key as the user named it.
    pub(crate) fn named(&self) -> &LockKey {
        self.events.key()
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.token
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn lease(&self) -> &Arc<dyn Lease> {
        &self.lease
    }

    pub(crate) fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    pub(crate) fn timing(&self) -> LeaseTiming {
        self.timing
    }

    pub(crate) fn is_held(&self) -> bool {
        self.deadline().is_some()
    }

    /// Until when the lock is held, `None` if it is not.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        match self.look(self.engine.now()) {
            State::Held(until) => match self.parts.as_ref() {
                None => Some(until),
                Some(parts) => {
                    let mut of_parts = parts.iter().map(|part| part.deadline());
                    of_parts.try_fold(until, |until, part| Some(until.min(part?)))
                }
            },
            State::Ended(_) => None,
        }
    }

    /// The same for users; now, if the lock is not held, and `None` if it has no time limit.
    pub(crate) fn valid_until(&self) -> Option<Instant> {
        match self.deadline() {
            Some(Moment::NEVER) => None,
            Some(until) => Some(Instant::now() + until.since(self.engine.now())),
            None => Some(Instant::now()),
        }
    }

    /// Whether the lock has ended, without looking at the clock.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.validity.load(), State::Ended(_))
    }

    /// The same after [`set_release_hook`](Self::set_release_hook): a loss is either seen here or
    /// reported to the hook.
    pub(crate) fn is_over_after_hook(&self) -> bool {
        matches!(self.validity.latest(), State::Ended(_))
    }

    pub(crate) fn lost_reason(&self) -> Option<LostReason> {
        match self.look(self.engine.now()) {
            State::Ended(End::Lost(reason)) => Some(reason),
            _ => None,
        }
    }

    pub(crate) async fn lost(&self) -> LostReason {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Listen before looking, or a loss in between would be missed.
            ended.as_mut().enable();
            if let Some(reason) = self.lost_reason() {
                return reason;
            }
            ended.await;
        }
    }

    /// Time for which the lock must stay taken although its holder is done.
    pub(crate) fn min_hold_left(&self) -> Duration {
        if self.min_until == self.since {
            return Duration::ZERO;
        }
        self.min_until.since(self.engine.now())
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        self.entries.is_exclusive()
    }

    /// Lets no other guard of the owner enter; false if there is one.
    pub(crate) fn make_shared(&self) -> bool {
        self.entries.make_shared()
    }

    /// Counts one more guard of the same owner, if the lock is held and exclusive.
    ///
    /// Called under the mutex of the local queue, so a deadline that has passed is not turned into a
    /// loss here, which would call back into the queue.
    pub(crate) fn enter(&self) -> bool {
        let is_held = |hold: &Self| hold.validity.is_held(hold.engine.now());
        let mut parts = self.parts.iter().flat_map(|parts| parts.iter());
        is_held(self) && parts.all(|part| is_held(part)) && self.entries.enter()
    }

    /// Counts one guard less; true for the last one.
    pub(crate) fn leave(&self) -> bool {
        self.entries.leave()
    }

    pub(crate) fn set_release_hook(&self, hook: Arc<dyn ReleaseHook>) {
        let occupied = self.hook.set(hook).is_err();
        debug_assert!(!occupied, "BUG: one local queue for each holder");
    }

    pub(crate) fn hook(&self) -> Option<&Arc<dyn ReleaseHook>> {
        self.hook.get()
    }

    /// The holder gives the lock up: renewal stops here, before anything is sent.
    pub(crate) fn give_up(&self) -> Result<GivenUp, LostReason> {
        let at = self.engine.now();
        // A deadline that passed unnoticed is a loss and not a release.
        self.look(at);
        let given_up = self.validity.end(End::GivenUp);
        self.engine.scheduler().remove(&self.slot);
        match (given_up, self.validity.load()) {
            (Some(until), _) => {
                let held = at.since(self.since);
                self.events.emit(EventKind::GivenUp { held });
                Ok(GivenUp { at, until })
            }
            (None, State::Ended(End::Lost(reason))) => Err(reason),
            // Only the last guard gives up, and only once.
            (None, _) => Err(LostReason::Expired),
        }
    }

    pub(crate) fn lose(&self, reason: LostReason) {
        if self.validity.end(End::Lost(reason)).is_some() {
            self.after_loss(reason);
        }
    }

    fn after_loss(&self, reason: LostReason) {
        self.engine.scheduler().remove(&self.slot);
        // A task whose waker panics must not keep the next one waiting.
        let _woken = catch_panic(|| self.ended.notify_waiters());
        let held = self.engine.now().since(self.since);
        self.events.emit(EventKind::Lost { reason, held });
        if let Some(hook) = self.hook() {
            // Local waiters must not wait for a holder that has nothing to give.
            let _told = catch_panic(|| hook.on_ended(self));
        }
        let ends_by_itself = matches!(self.liveness, Liveness::Renewed { .. });
        if !ends_by_itself && (reason.may_still_be_held() || self.parts.as_ref().is_some()) {
            // Of a lock on two backends the other part is held still.
            release_in_background(self);
        }
    }

    /// Tells what became of a lock that was given up at that time, unless it was lost before.
    pub(crate) fn emit_released(&self, given_up: Option<Moment>, outcome: &'static str) {
        let now = self.engine.now();
        let (held, took) = (now.since(self.since), given_up.map(|at| now.since(at)));
        self.events.emit(EventKind::Released {
            held,
            outcome,
            took,
        });
    }

    /// What holds at `now`; a deadline that has passed is turned into a loss here.
    fn look(&self, now: Moment) -> State {
        let overdue = self.overdue();
        if self.validity.pass(now, overdue) {
            self.after_loss(overdue);
        }
        if let Some(parts) = self.parts.as_ref() {
            // A part reports its end when the end is noticed; a deadline that has just passed is
            // seen here first.
            for part in parts.iter() {
                if let State::Ended(End::Lost(reason)) = part.look(part.engine.now()) {
                    self.lose(reason);
                }
            }
        }
        self.validity.load()
    }

    fn overdue(&self) -> LostReason {
        match self.failing.load(Ordering::Relaxed) {
            true => LostReason::Unreachable,
            false => LostReason::Expired,
        }
    }
}

impl fmt::Debug for HeldLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldLease")
            .field("key", self.named())
            .field("token", &self.token)
            .field("state", &self.validity.load().to_string())
            .finish_non_exhaustive()
    }
}
