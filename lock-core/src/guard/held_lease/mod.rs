mod renewal;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::LockGuard;
use super::entries::Entries;
use super::release::{ReleaseHook, release_once_dropped, release_timeout};
use super::validity::{End, Validity, ValidityState};
use crate::engine::{Engine, Moment, Mutex, catch_panic, isolated};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{EventEmitter, EventKind};
use crate::key::LockKey;
use crate::lease::{Grant, Lease, LeaseControl, LeaseTiming, Liveness, Released, Slot, TICK};
use crate::lost_reason::LostReason;
use crate::mode::{Mode, Renewal};
use crate::request::AcquireRequest;
use crate::token::FencingToken;

/// One holder of one lease: the state that the guard, the scheduler and the signals share.
///
/// A hand-over inside the process makes a new `HeldLease`, so that references to the former holder can
/// change nothing.
pub(crate) struct HeldLease {
    /// As the backend stores it.
    pub(super) key: LockKey,
    token: Option<FencingToken>,
    pub(super) lease: Arc<dyn Lease>,
    pub(super) liveness: Liveness,
    pub(super) engine: Engine,
    pub(crate) timing: LeaseTiming,
    events: EventEmitter,
    since: Moment,
    min_until: Moment,
    /// When the lock ends although it is renewed.
    pub(super) max_until: Moment,
    pub(super) entries: Entries,
    /// In nanoseconds: until when the lock stays held after its last guard has left. Zero as long as no caller has
    /// received a guard; `keep_for` extends it.
    kept_until: AtomicU64,
    /// Held during a downgrade; whether the server has confirmed one.
    downgrade: tokio::sync::Mutex<bool>,
    validity: Validity,
    ended: Notify,
    upkeep: Mutex<Upkeep>,
    slot: Slot,
    hook: OnceLock<Arc<dyn ReleaseHook>>,
    migration: OnceLock<Box<Mutex<Migration>>>,
}

/// How the lease is kept alive.
#[derive(Clone, Copy)]
struct Upkeep {
    /// How it is renewed after its first full ttl.
    renewal: Renewal,
    next: NextRenewal,
    /// Whether the server gave the lease less than its ttl so far.
    provisional: bool,
    /// Failed renewals since the last that succeeded: if the lease expires, they are the reason.
    failures: u32,
    /// Latest end of the lease after its holder requested more than its ttl.
    extended_until: Moment,
    /// When the last renewal is over, answered or not.
    settled: Moment,
}

/// The next renewal by the scheduler.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum NextRenewal {
    Due(Moment),
    UnderWay,
    /// The lease has no time limit, or its holder renews it.
    Unwanted,
}

/// The same lock on the other backend of a migration: both are lost together.
#[derive(Default)]
struct Migration {
    counterpart: Weak<HeldLease>,
    /// On the old backend, one for each of its leases, however often the owner re-enters. They end with the
    /// last guard of this lease: one of the same owner may be on its way to a caller that is gone, and end
    /// nothing.
    old: Vec<LockGuard>,
    /// Whether the tokens of both backends compare.
    has_token: bool,
}

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
    ) -> Arc<Self> {
        let (ttl, sent) = (request.ttl(), grant.sent);
        let timing = LeaseTiming::new(grant.lasts.map_or(ttl, |lasts| lasts.min(ttl)));
        let deadline = match lease.liveness() {
            Liveness::Renewed { .. } => timing.valid_until(sent),
            Liveness::Reported => Moment::NEVER,
        };
        let hold = Self::start(engine, request, lease, grant.token, deadline);
        let (jitter, provisional) = (hold.slot.jitter(), timing.ttl() < ttl);
        hold.upkeep.lock().provisional = provisional;
        hold.set_renewal(match provisional {
            true => timing.extend_at(sent, hold.since, jitter),
            false => timing.renew_at(sent, jitter),
        });
        hold.begin();
        hold
    }

    /// Hands a released lease over to the next holder in this process.
    pub(crate) fn succeed(
        &self,
        request: &AcquireRequest,
        token: Option<FencingToken>,
        deadline: Moment,
    ) -> Arc<Self> {
        let request = request.clone().stored_as(self.key.clone());
        let lease = Arc::clone(&self.lease);
        let hold = Self::start(self.engine.clone(), &request, lease, token, deadline);
        let before = *self.upkeep.lock();
        let renewal = hold.upkeep.lock().renewal;
        *hold.upkeep.lock() = Upkeep { renewal, ..before };
        hold.set_renewal(match before.next {
            NextRenewal::Due(at) => at,
            // A reply to a renewal of the predecessor does not count for its successor.
            NextRenewal::UnderWay | NextRenewal::Unwanted => self.engine.now(),
        });
        hold.begin();
        hold
    }

    fn start(
        engine: Engine,
        request: &AcquireRequest,
        lease: Arc<dyn Lease>,
        token: Option<FencingToken>,
        deadline: Moment,
    ) -> Arc<Self> {
        let now = engine.now();
        let liveness = lease.liveness();
        let slot = engine.scheduler().slot();
        Arc::new(Self {
            key: request.key().clone(),
            token,
            lease,
            liveness,
            timing: LeaseTiming::new(request.ttl()),
            events: request.emitter(engine.backend()),
            since: now,
            min_until: now + request.min_hold(),
            max_until: request.max_hold().map_or(Moment::NEVER, |max| now + max),
            entries: Entries::one(request.mode() == Mode::Exclusive),
            kept_until: AtomicU64::new(0),
            downgrade: tokio::sync::Mutex::default(),
            validity: Validity::until(deadline),
            ended: Notify::new(),
            upkeep: Mutex::new(Upkeep {
                renewal: request.renewal(),
                next: NextRenewal::Unwanted,
                provisional: false,
                failures: 0,
                extended_until: Moment::from_nanos(0),
                settled: Moment::from_nanos(0),
            }),
            slot,
            hook: OnceLock::new(),
            migration: OnceLock::new(),
            engine,
        })
    }

    /// Attaches the lease, once its first renewal is planned: what the backend reports here changes that.
    fn begin(self: &Arc<Self>) {
        self.lease.attach(LeaseControl::new(Arc::downgrade(self)));
        // Not earlier: if the backend panics before the guard exists, nothing would end the lease.
        self.events.emit(EventKind::Held);
        self.reschedule();
    }

    /// The key as the user named it.
    pub(crate) fn named(&self) -> &LockKey {
        &self.events.key
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        let has_token = self.migration().is_none_or(|migration| migration.has_token);
        self.token.filter(|_| has_token)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.deadline().is_some()
    }

    /// Until when the lock is held, `None` if it is not.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        match self.look(self.engine.now()) {
            ValidityState::Held(until) => {
                match self.counterpart().map(|other| other.validity.load()) {
                    Some(ValidityState::Held(other)) => Some(until.min(other)),
                    // Its task is about to report that here.
                    Some(ValidityState::Ended(End::Lost(_))) => None,
                    Some(ValidityState::Ended(End::GivenUp(_))) | None => Some(until),
                }
            }
            ValidityState::Ended(_) => None,
        }
    }

    /// When the holder is warned, `ahead` of the end of the lock; `None` if it is not held.
    pub(super) fn warning_at(&self, ahead: Duration) -> Option<Moment> {
        self.deadline()?;
        let other = self.counterpart();
        let other = other.map_or(Moment::NEVER, |other| other.lease_warning_at(ahead));
        let own = self.lease_warning_at(ahead);
        Some(own.min(other).min(self.max_until - ahead))
    }

    /// The same for the end of the lease alone.
    fn lease_warning_at(&self, ahead: Duration) -> Moment {
        match self.validity.load() {
            ValidityState::Held(until) if self.will_be_extended() => {
                // Late enough for the extension, and in time for the holder if that has no reply.
                until - ahead.min(until.since(self.since) * 2 / 5)
            }
            ValidityState::Held(until) => until - ahead,
            ValidityState::Ended(_) => Moment::NEVER,
        }
    }

    /// [`deadline`](Self::deadline) for users, or the end of the max hold, whichever is first; now, if the lock is
    /// not held, and `None` if neither its lease nor its session limits it.
    pub(crate) fn valid_until(&self) -> Option<Instant> {
        match self.deadline() {
            Some(Moment::NEVER) => None,
            Some(until) => {
                let until = until.min(self.max_until);
                Some(Instant::now() + until.since(self.engine.now()))
            }
            None => Some(Instant::now()),
        }
    }

    /// Whether the lock has ended, without looking at the clock.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.validity.load(), ValidityState::Ended(_))
    }

    /// Whether the lock was lost or abandoned, or its release was begun and does not go on.
    pub(crate) fn is_lost_or_abandoned(&self) -> bool {
        match self.validity.load() {
            ValidityState::Held(_) => false,
            ValidityState::Ended(End::Lost(_)) => true,
            ValidityState::Ended(End::GivenUp(until)) => self.engine.now() >= until,
        }
    }

    /// The same after [`set_release_hook`](Self::set_release_hook): a loss is either seen here or
    /// reported to the hook.
    pub(crate) fn is_over_after_hook(&self) -> bool {
        matches!(self.validity.latest(), ValidityState::Ended(_))
    }

    /// Whether the server was silent until the lock was lost, without looking at the clock.
    pub(crate) fn is_lost_by_silence(&self) -> bool {
        self.validity.load() == ValidityState::Ended(End::Lost(LostReason::Unreachable))
    }

    pub(crate) fn lost_reason(&self) -> Option<LostReason> {
        match self.look(self.engine.now()) {
            ValidityState::Ended(End::Lost(reason)) => Some(reason),
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
            isolated(ended).await;
        }
    }

    /// Time for which the lock must stay taken although its last guard has left. Zero, if no caller has
    /// received a guard.
    pub(crate) fn min_hold_left(&self) -> Duration {
        match self.kept_until.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            until => Moment::from_nanos(until).since(self.engine.now()),
        }
    }

    /// Keeps the lock on the old backend of a migration taken for as long as the one on the new backend.
    pub(super) fn keep_for(&self, min_hold_left: Duration) {
        self.keep_until(self.engine.now() + min_hold_left);
    }

    fn keep_until(&self, until: Moment) {
        if until > self.since {
            self.kept_until
                .fetch_max(until.as_nanos(), Ordering::Relaxed);
        }
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        self.entries.is_exclusive()
    }

    /// Makes the lease a shared one on the server; where that is refused, the lock stays exclusive here too.
    /// A refused repetition says nothing of the first request, and the lock stays shared here.
    pub(super) async fn downgrade(&self, is_repeated: bool) -> Result<()> {
        // As in `release`: `lock` may yield before it stands in line, and a release would overtake this.
        let mut is_done = match self.downgrade.try_lock() {
            Ok(is_done) => is_done,
            Err(_) => self.downgrade.lock().await,
        };
        if *is_done {
            return Ok(());
        }
        if is_repeated && !self.entries.is_downgrading() {
            // Refused meanwhile: the lock is exclusive again.
            let message = "the downgrade that this one repeats was refused";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let answer = self.lease.downgrade().await;
        match &answer {
            Ok(()) => *is_done = true,
            Err(error) => {
                let is_refused =
                    error.kind() == ErrorKind::Unsupported && !error.is_outcome_unknown();
                if let Some(reason) = error.lost_reason() {
                    self.lose(reason);
                } else if is_refused && !is_repeated {
                    self.entries.make_exclusive();
                }
            }
        }
        answer
    }

    /// Releases the lease on the server, after a downgrade in progress: a retried downgrade could otherwise
    /// acquire the lock again. A background release does not wait for a downgrade that hangs.
    pub(super) async fn release(&self) -> Result<Released> {
        // `lock` yields in a task that has used up its budget, even if the mutex is free.
        if self.downgrade.try_lock().is_err() {
            drop(self.downgrade.lock().await);
        }
        self.lease.release().await
    }

    /// Counts one more guard of the same owner, if the lock is held and exclusive.
    ///
    /// Called under the mutex of the local queue: see [`is_in_time`](Self::is_in_time).
    pub(crate) fn enter(&self) -> bool {
        self.is_in_time() && self.entries.enter()
    }

    /// Whether the lock is held by the clock of this moment. For calls under the mutex of the local queue: a
    /// deadline or max hold that has passed is not turned into a loss here, which would call back into the queue.
    pub(crate) fn is_in_time(&self) -> bool {
        let now = self.engine.now();
        now < self.max_until && self.validity.is_held(now)
    }

    /// Counts one guard less; true for the last one.
    pub(crate) fn leave(&self) -> bool {
        // Before the count, so that the last one to leave sees it.
        self.keep_until(self.min_until);
        self.entries.leave()
    }

    /// The same for a guard that no caller has received.
    pub(super) fn leave_undelivered(&self) -> bool {
        self.entries.leave()
    }

    /// Passes the lease to `hook` before it is released.
    pub(crate) fn set_release_hook(&self, hook: Arc<dyn ReleaseHook>) {
        let occupied = self.hook.set(hook).is_err();
        debug_assert!(!occupied, "BUG: one local queue for each holder");
    }

    pub(crate) fn hook(&self) -> Option<&Arc<dyn ReleaseHook>> {
        self.hook.get()
    }

    /// Tells the local queue that this holder is gone. A task whose waker panics must not cost the release
    /// that follows, nor the waiters behind it.
    pub(super) fn notify_queue(&self) {
        if let Some(hook) = self.hook() {
            let _told = catch_panic(|| hook.on_ended(self));
        }
    }

    /// The holder gives the lock up, to be released or handed over: renewal stops here, before anything is sent.
    pub(crate) fn give_up(&self) -> Result<GivenUp, LostReason> {
        let at = self.engine.now();
        self.give_up_at(at, at + release_timeout(self.timing.ttl()))
    }

    /// The holder gives the lock up without a release: it stays held until the end of its lease.
    pub(crate) fn abandon(&self) -> Result<GivenUp, LostReason> {
        let at = self.engine.now();
        self.give_up_at(at, at)
    }

    fn give_up_at(&self, at: Moment, released_by: Moment) -> Result<GivenUp, LostReason> {
        // A deadline that passed unnoticed is a loss and not a release.
        self.look(at);
        let given_up = self.validity.end(End::GivenUp(released_by));
        self.engine.scheduler().remove(&self.slot);
        match (given_up, self.validity.load()) {
            (Some(until), _) => {
                let held = at.since(self.since);
                self.events.emit(EventKind::GivenUp { held });
                Ok(GivenUp { at, until })
            }
            (None, ValidityState::Ended(End::Lost(reason))) => Err(reason),
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
        let ends_by_itself = matches!(self.liveness, Liveness::Renewed { .. });
        let other = self.counterpart();
        // The other lease ends before the signal: an owner that is told of the loss must not enter it.
        let ends_other = other
            .as_ref()
            .is_some_and(|other| other.validity.end(End::Lost(reason)).is_some());
        // If two leases are lost together, the server of one does not know of the loss.
        let is_left = other.is_some() || (reason.may_still_be_held() && !ends_by_itself);
        let release = is_left.then(|| release_once_dropped(self));
        self.signal();
        if let Some(other) = other {
            match other.validity.load() {
                _ if ends_other => other.after_loss(reason),
                // Another thread has ended it, and may not have signaled that yet.
                ValidityState::Ended(End::Lost(_)) => other.signal(),
                ValidityState::Ended(End::GivenUp(_)) | ValidityState::Held(_) => {}
            }
        }
        let held = self.engine.now().since(self.since);
        self.events.emit(EventKind::Lost { reason, held });
        // Local waiters must not wait for a holder that has lost the lock.
        self.notify_queue();
        // The next holder comes after the signal.
        drop(release);
    }

    fn signal(&self) {
        // A waker may also panic when it is dropped.
        let _woken = catch_panic(|| self.ended.notify_waiters());
    }

    /// Reports the outcome of a lock that was given up at that time, unless it was lost before.
    pub(crate) fn emit_released(&self, given_up: Option<Moment>, outcome: &'static str) {
        let now = self.engine.now();
        let (held, took) = (now.since(self.since), given_up.map(|at| now.since(at)));
        self.events.emit(EventKind::Released {
            held,
            outcome,
            took,
        });
    }

    /// The state at `now`; a deadline or a max hold that has passed is turned into a loss here.
    fn look(&self, now: Moment) -> ValidityState {
        self.pass(now);
        if let Some(other) = self.counterpart() {
            // A deadline that has just passed may be seen here first.
            other.pass(other.engine.now());
            // Another thread may have noticed the loss of one and not reported it yet.
            if let ValidityState::Ended(End::Lost(reason)) = other.validity.load() {
                self.lose(reason);
            } else if let ValidityState::Ended(End::Lost(reason)) = self.validity.load() {
                other.lose(reason);
            }
        }
        self.validity.load()
    }

    fn migration(&self) -> Option<MutexGuard<'_, Migration>> {
        Some(self.migration.get()?.lock())
    }

    pub(super) fn counterpart(&self) -> Option<Arc<Self>> {
        self.migration()?.counterpart.upgrade()
    }

    pub(super) fn is_on_two_backends(&self) -> bool {
        self.migration.get().is_some()
    }

    /// The locks on the old backend, when the last guard of this one has ended.
    pub(super) fn take_old(&self) -> Vec<LockGuard> {
        let migration = self.migration();
        migration.map_or_else(Vec::new, |mut migration| std::mem::take(&mut migration.old))
    }

    /// Ties two leases of one lock, so that neither outlives the loss of the other.
    pub(super) fn tie(self: &Arc<Self>, old: LockGuard, has_token: bool) {
        let other = Arc::clone(old.hold());
        for (one, other) in [(self, &other), (&other, self)] {
            drop(one.migration.set(Box::default()));
            let mut migration = one.migration().expect("BUG: set above");
            migration.counterpart = Arc::downgrade(other);
        }
        let mut migration = self.migration().expect("BUG: set above");
        migration.has_token = has_token;
        let mut held = migration.old.iter();
        let is_reentry = held.any(|held| Arc::ptr_eq(held.hold(), &other));
        let surplus = match is_reentry {
            true => Some(old),
            false => {
                migration.old.push(old);
                None
            }
        };
        drop(migration);
        // Not with the mutex held. It is not the last guard of that lease.
        drop(surplus);
        // A loss is either seen here or by the other one.
        for (one, other) in [(self, &other), (&other, self)] {
            if let ValidityState::Ended(End::Lost(reason)) = one.validity.latest() {
                other.lose(reason);
            }
        }
    }

    fn pass(&self, now: Moment) {
        // Most calls come in time, and take no mutex.
        if self.validity.is_overdue(now) {
            let is_unreachable = match self.liveness {
                Liveness::Renewed { .. } => self.upkeep.lock().failures > 0,
                // A process that runs sees the deadline at once: the server did not answer until then. One
                // that was paused sees it late, and cannot know.
                Liveness::Reported => !self.validity.is_overdue(now - TICK),
            };
            let reason = match is_unreachable {
                true => LostReason::Unreachable,
                false => LostReason::Expired,
            };
            if self.validity.pass(now, reason) {
                self.after_loss(reason);
            }
        } else if now >= self.max_until {
            self.lose(LostReason::MaxHold);
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

#[cfg(all(test, not(polylock_loom)))]
mod tests {
    use super::*;
    use crate::ext::DistributedLockExt as _;
    use crate::layers::Migrate;
    use crate::memory::Memory;
    use crate::owner::Owner;

    #[tokio::test(start_paused = true)]
    async fn an_owner_that_reenters_two_backends_keeps_one_guard_of_the_old_one() {
        let engine = Engine::on_current_runtime("memory");
        let [old, new] = [(); 2].map(|()| Memory::with_engine(engine.clone()));
        let both = Migrate::new(Arc::new(old.client()), Arc::new(new.client()));
        let owner = Owner::new();
        let request = || both.request("k").owner(&owner).acquire();
        let guard = request().await.unwrap();
        for _ in 0..3 {
            drop(request().await.unwrap());
        }
        let kept = guard.hold().migration().map(|it| it.old.len());
        assert_eq!(kept, Some(1));
        assert!(guard.is_held() && old.try_lock("k").await.unwrap().is_none());
        guard.release().await.unwrap();
        assert!(old.try_lock("k").await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_old_lock_is_free_after_the_signal_although_another_thread_has_noticed_the_loss() {
        let engine = Engine::on_current_runtime("memory");
        let [old, new] = [(); 2].map(|()| Memory::with_engine(engine.clone()));
        let both = Migrate::new(Arc::new(old.client()), Arc::new(new));
        let guard = both.lock("k").await.unwrap();
        let signal = tokio::spawn(guard.lost().into_future());
        tokio::task::yield_now().await;
        // That thread has to stop here, before it signals the loss.
        let lost = LostReason::Expired;
        guard.hold().validity.end(End::Lost(lost)).unwrap();
        guard.hold().counterpart().unwrap().lose(lost);
        while old.try_lock("k").await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
        assert!(signal.is_finished());
    }
}
