//! How a lock stays held: reports of the server, and renewals by the scheduler.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use super::{HeldLease, State};
use crate::engine::Moment;
use crate::error::Result;
use crate::event::EventKind;
use crate::lease::{
    Controlled, LeaseState, LeaseTiming, Liveness, RenewalRequest, Renewer, Scheduled, Slot,
};
use crate::lost_reason::LostReason;

impl Controlled for HeldLease {
    fn lose(&self, reason: LostReason) {
        Self::lose(self, reason);
    }

    fn limit(self: Arc<Self>, deadline: Moment) {
        self.failing.store(true, Ordering::Relaxed);
        if self.validity.limit(self.engine.now(), deadline) {
            self.reschedule();
        }
    }

    fn confirm(self: Arc<Self>) {
        if self.validity.limit(self.engine.now(), Moment::NEVER) {
            self.failing.store(false, Ordering::Relaxed);
            self.reschedule();
        }
    }

    fn is_over(&self) -> bool {
        Self::is_over(self)
    }

    fn check(self: Arc<Self>) {
        if self.is_kept() {
            *self.renewal() = self.engine.now();
            self.reschedule();
        }
    }
}

impl Scheduled for HeldLease {
    fn slot(&self) -> &Slot {
        &self.slot
    }

    fn due(&self) -> Option<Moment> {
        match self.validity.load() {
            State::Held(until) => Some(until.min(self.max_until).min(*self.renewal())),
            State::Ended(_) => None,
        }
    }

    fn process_due(self: Arc<Self>, now: Moment) -> Option<(RenewalRequest, Arc<dyn Renewer>)> {
        if !self.fire(now) {
            return None;
        }
        let due = *self.renewal() <= now;
        let renewal = if due { self.begin_renewal() } else { None };
        self.reschedule();
        renewal
    }

    fn renew_in_batch(self: Arc<Self>, now: Moment) -> Option<(RenewalRequest, Arc<dyn Renewer>)> {
        let renewal = if self.fire(now) {
            self.begin_renewal()
        } else {
            None
        };
        self.reschedule();
        renewal
    }

    fn is_renewed_by(&self, renewer: &Arc<dyn Renewer>, by: Moment) -> bool {
        let same = match &self.liveness {
            Liveness::Renewed { renewer: own, .. } => Arc::ptr_eq(own, renewer),
            Liveness::Reported => false,
        };
        same && *self.renewal() <= by
    }

    fn renewed(self: Arc<Self>, sent: Moment, answer: Result<LeaseState>) {
        let now = self.engine.now();
        match answer {
            Ok(LeaseState::Held) => {
                let deadline = self.timing.valid_until(sent);
                let left = self.left(now);
                // Late or not, a success says nothing about a lock that was lost meanwhile.
                if self.validity.extend(now, deadline) {
                    self.provisional.store(false, Ordering::Relaxed);
                    self.failing.store(false, Ordering::Relaxed);
                    let slack = deadline.since(now);
                    self.events.emit(EventKind::Renewed { slack, left });
                }
                self.set_renewal(self.timing.renew_at(sent, self.slot.jitter()));
            }
            Ok(LeaseState::Lost(reason)) => {
                // After the deadline it had run out before, whatever became of it since.
                self.look(now);
                self.lose(reason);
            }
            Err(error) => {
                self.failing.store(true, Ordering::Relaxed);
                self.events.emit(EventKind::RenewalFailed { error: &error });
                self.set_renewal(self.lease_in_hand().retry_at(now));
            }
        }
        self.look(now);
        self.reschedule();
    }

    fn try_later(self: Arc<Self>, now: Moment) {
        self.set_renewal(self.lease_in_hand().retry_at(now));
        self.reschedule();
    }

    fn timing(&self) -> LeaseTiming {
        self.timing
    }

    fn attempt_timeout(&self) -> Duration {
        self.lease_in_hand().attempt_timeout()
    }
}

impl HeldLease {
    /// Validity that is left at `now`.
    fn left(&self, now: Moment) -> Duration {
        match self.validity.load() {
            State::Held(until) => until.since(now),
            State::Ended(_) => Duration::ZERO,
        }
    }

    /// The lease to ask for, if it is one that is renewed.
    pub(crate) fn renewal_request(
        &self,
        ttl: Duration,
    ) -> Option<(RenewalRequest, Arc<dyn Renewer>)> {
        match &self.liveness {
            Liveness::Renewed { id, renewer } => {
                let mut request = RenewalRequest::new(self.key.clone(), *id, ttl);
                // That of the lease in hand, which may be shorter or longer than the next one.
                request.timeout = self.attempt_timeout();
                Some((request, Arc::clone(renewer)))
            }
            Liveness::Reported => None,
        }
    }

    /// Fires the ends that have come by `now`; true if the lock is held.
    fn fire(&self, now: Moment) -> bool {
        let held = matches!(self.look(now), State::Held(_));
        if held && now >= self.max_until {
            self.lose(LostReason::MaxHold);
            return false;
        }
        held
    }

    /// Whether the scheduler has sent a renewal that has no reply yet.
    pub(crate) fn is_renewal_under_way(&self) -> bool {
        self.is_kept() && *self.renewal() == Moment::NEVER
    }

    fn begin_renewal(&self) -> Option<(RenewalRequest, Arc<dyn Renewer>)> {
        *self.renewal() = Moment::NEVER;
        self.renewal_request(self.timing.ttl())
    }

    pub(super) fn set_renewal(&self, at: Moment) {
        let mut renew_at = self.renewal();
        // Checked under the mutex: a concurrent switch to automatic renewal sets its time
        // afterwards.
        *renew_at = if self.is_kept() { at } else { Moment::NEVER };
    }

    /// Makes the scheduler renew the lease from now on, or leaves renewal to the holder.
    pub(crate) fn keep(self: &Arc<Self>, automatic: bool) {
        if self.automatic.swap(automatic, Ordering::Relaxed) != automatic {
            self.set_renewal(self.engine.now());
            self.reschedule();
        }
    }

    /// The same for what it consists of.
    pub(crate) fn set_parts_automatic(&self, automatic: bool) {
        for part in self.parts().into_iter().flat_map(|parts| parts.iter()) {
            part.keep(automatic);
        }
    }

    /// Whether the scheduler renews the lease: as long as it is held, or until the server has
    /// granted the full ttl that the holder was promised.
    fn is_kept(&self) -> bool {
        let renewed = matches!(self.liveness, Liveness::Renewed { .. });
        renewed
            && (self.automatic.load(Ordering::Relaxed) || self.provisional.load(Ordering::Relaxed))
    }

    /// The terms of the lease as it is, which may be shorter than what is asked for.
    pub(super) fn lease_in_hand(&self) -> LeaseTiming {
        match self.validity.load() {
            State::Held(until) if self.provisional.load(Ordering::Relaxed) => {
                LeaseTiming::new(until.since(self.since))
            }
            _ => self.timing,
        }
    }

    /// Updates the schedule.
    pub(super) fn reschedule(self: &Arc<Self>) {
        if !self.is_over() {
            let hold: Arc<Self> = Arc::clone(self);
            self.engine.scheduler().schedule(hold);
        }
    }

    pub(super) fn renewal(&self) -> MutexGuard<'_, Moment> {
        self.renew_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
