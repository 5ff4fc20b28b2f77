//! How a lock stays held: reports of the server, and renewals by the scheduler.

use std::sync::Arc;
use std::time::Duration;

use super::{HeldLease, NextRenewal, ValidityState};
use crate::engine::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::event::EventKind;
use crate::lease::{LeaseState, LeaseTiming, Liveness, RenewalRequest, Renewer, Slot};
use crate::mode::Renewal;
use crate::request::AcquireRequest;

/// The reports of a [`LeaseControl`](crate::LeaseControl).
impl HeldLease {
    pub(crate) fn limit(self: &Arc<Self>, deadline: Moment) {
        if self.validity.limit(self.engine.now(), deadline) {
            self.reschedule();
        }
    }

    pub(crate) fn check(self: &Arc<Self>) {
        self.set_renewal(self.engine.now());
        self.reschedule();
    }
}

/// What the scheduler calls.
impl HeldLease {
    /// Its place in the schedule.
    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// When it has to be processed; `None` if it has ended.
    pub(crate) fn due(&self) -> Option<Moment> {
        match self.validity.load() {
            ValidityState::Held(until) => {
                let renewal = self.renewal_due().unwrap_or(Moment::NEVER);
                Some(until.min(self.max_until).min(renewal))
            }
            ValidityState::Ended(_) => None,
        }
    }

    /// Fires what is due at `now`; the renewal to send, if that is due by `horizon`.
    pub(crate) fn process_due(
        self: &Arc<Self>,
        now: Moment,
        horizon: Moment,
    ) -> Option<(RenewalRequest, Arc<dyn Renewer>)> {
        let is_held = matches!(self.look(now), ValidityState::Held(_));
        let is_due = is_held && self.renewal_due().is_some_and(|due| due <= horizon);
        let mut renewal = None;
        if is_due {
            self.upkeep.lock().next = NextRenewal::UnderWay;
            renewal = self.renewal_request(self.timing.ttl());
        }
        self.reschedule();
        renewal
    }

    /// Notes that its renewal is sent now; false if the lock has ended since that was due.
    pub(crate) fn begin_renewal(&self) -> bool {
        // In this order: a release that has not seen the note has ended the validity before.
        self.note_sent();
        !self.is_over()
    }

    /// Whether this server renews it, and a renewal is due `by` then.
    pub(crate) fn is_renewed_by(&self, renewer: &Arc<dyn Renewer>, by: Moment) -> bool {
        let same = match &self.liveness {
            Liveness::Renewed { renewer: own, .. } => Arc::ptr_eq(own, renewer),
            Liveness::Reported => false,
        };
        same && self.renewal_due().is_some_and(|due| due <= by)
    }

    /// Puts the lock back into the schedule after a failed renewal.
    pub(crate) fn try_later(self: &Arc<Self>, now: Moment) {
        self.set_renewal(self.lease_in_hand().retry_at(now));
        self.reschedule();
    }

    /// Longest time that a renewal may take.
    pub(crate) fn attempt_timeout(&self) -> Duration {
        self.lease_in_hand().attempt_timeout()
    }
}

impl HeldLease {
    /// Applies the reply to a renewal for `ttl`. The next renewal is due as after one for the ttl of the
    /// request: it shortens no lease, and detects a loss.
    pub(crate) fn renewed_for(
        self: &Arc<Self>,
        ttl: Duration,
        sent: Moment,
        answer: Result<LeaseState>,
    ) {
        let now = self.engine.now();
        match answer {
            Ok(LeaseState::Held) => {
                let deadline = LeaseTiming::new(ttl).valid_until(sent);
                let left = self.left(now);
                // Late or not, a success says nothing about a lock that was lost meanwhile.
                if self.validity.extend(now, deadline) {
                    let mut upkeep = self.upkeep.lock();
                    (upkeep.provisional, upkeep.failures) = (false, 0);
                    drop(upkeep);
                    let slack = deadline.since(now);
                    self.events.emit(EventKind::Renewed { slack, left });
                }
                self.set_renewal_after(sent, self.timing.renew_at(sent, self.slot.jitter()));
            }
            Ok(LeaseState::Lost(reason)) => {
                // After its deadline the lease had expired before, whatever the server says.
                self.look(now);
                self.lose(reason);
            }
            Err(error) => {
                let mut upkeep = self.upkeep.lock();
                upkeep.failures = upkeep.failures.saturating_add(1);
                let failures = upkeep.failures;
                drop(upkeep);
                let error = &error;
                self.events
                    .emit(EventKind::RenewalFailed { error, failures });
                let retry = self.lease_in_hand().retry_at(now);
                // A failed renewal of the holder does not postpone the scheduled one.
                self.plan_renewal(|next| match next {
                    NextRenewal::Due(due) => due.min(retry),
                    NextRenewal::UnderWay | NextRenewal::Unwanted => retry,
                });
            }
        }
        self.look(now);
        self.reschedule();
    }

    /// Whether the lease can last for the min hold of a request, so that the request may inherit it. The
    /// backend refuses other requests.
    pub(crate) fn suffices_for(&self, request: &AcquireRequest) -> bool {
        match &self.liveness {
            Liveness::Renewed { renewer, .. } => request.min_hold() <= renewer.max_ttl(),
            Liveness::Reported => true,
        }
    }

    /// The lease to request so that it lasts for `ttl`; fails where it cannot be that long.
    pub(crate) fn check_extension(&self, ttl: Duration) -> Result<Duration> {
        let refused = |kind, message: String| Err(Error::new(kind, message));
        let Liveness::Renewed { renewer, .. } = &self.liveness else {
            let message =
                "the lock lives with a session or a connection and has no lease to extend";
            return refused(ErrorKind::Unsupported, message.to_owned());
        };
        let max_ttl = renewer.max_ttl();
        if ttl > max_ttl {
            let message = format!("a lease cannot be extended to {ttl:?}, at most to {max_ttl:?}");
            return refused(ErrorKind::InvalidRequest, message);
        }
        let left = self.max_until.since(self.engine.now());
        if ttl > left {
            let message = format!(
                "a lease cannot be extended to {ttl:?}: the max_hold of the lock ends it in {left:?}"
            );
            return refused(ErrorKind::InvalidRequest, message);
        }
        // The first lease may be shorter than the ttl, and is extended to that at least.
        Ok(ttl.max(self.timing.ttl()))
    }

    /// Notes that a renewal is sent now. The server may execute it until its timeout, also if its caller is
    /// gone.
    pub(crate) fn note_sent(&self) {
        let settled = self.engine.now() + self.attempt_timeout();
        let mut upkeep = self.upkeep.lock();
        upkeep.settled = upkeep.settled.max(settled);
    }

    /// Notes that the lease may last for `longest_left`: a former holder extended it, or a request to extend it is
    /// sent now, which the server may execute although no reply comes.
    pub(crate) fn may_last(&self, longest_left: Duration) {
        let until = self.engine.now() + longest_left;
        let mut upkeep = self.upkeep.lock();
        upkeep.extended_until = upkeep.extended_until.max(until);
    }

    /// How long the lease may last if nothing renews it any more.
    pub(crate) fn longest_left(&self) -> Duration {
        let extended = self.upkeep.lock().extended_until.since(self.engine.now());
        extended.max(self.timing.ttl())
    }

    /// Whether the lease may last for longer than its ttl.
    pub(crate) fn is_extended(&self) -> bool {
        let (until, ttl) = (self.upkeep.lock().extended_until, self.timing.ttl());
        // Called at each release: the clock is read only if the lease was extended.
        until > self.since + ttl && until.since(self.engine.now()) > ttl
    }

    /// Validity that is left at `now`.
    fn left(&self, now: Moment) -> Duration {
        match self.validity.load() {
            ValidityState::Held(until) => until.since(now),
            ValidityState::Ended(_) => Duration::ZERO,
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

    /// When all renewals are over, also those without a caller.
    pub(crate) fn settled(&self) -> Moment {
        self.upkeep.lock().settled.max(self.engine.now())
    }

    /// Sets when the scheduler renews the lease.
    pub(super) fn set_renewal(&self, at: Moment) {
        self.plan_renewal(|_| at);
    }

    /// The same after a renewal that was sent at `sent` and succeeded. That says nothing about a check that was
    /// requested later, which stays due.
    fn set_renewal_after(&self, sent: Moment, at: Moment) {
        self.plan_renewal(|next| match next {
            NextRenewal::Due(due) if (sent..=self.engine.now()).contains(&due) => due,
            _ => at,
        });
    }

    /// Sets when the lease is renewed: as long as it is held, or until the server has granted the full ttl that
    /// the holder was promised. `at` is called with the mutex held.
    fn plan_renewal(&self, at: impl FnOnce(NextRenewal) -> Moment) {
        let is_renewed = matches!(self.liveness, Liveness::Renewed { .. });
        let mut upkeep = self.upkeep.lock();
        let is_kept = upkeep.renewal == Renewal::Automatic || upkeep.provisional;
        upkeep.next = match is_renewed && is_kept {
            true => NextRenewal::Due(at(upkeep.next)),
            false => NextRenewal::Unwanted,
        };
    }

    fn renewal_due(&self) -> Option<Moment> {
        match self.upkeep.lock().next {
            NextRenewal::Due(at) => Some(at),
            NextRenewal::UnderWay | NextRenewal::Unwanted => None,
        }
    }

    /// Whether the lease is a first one that is shorter than the ttl, and nothing says yet that it stays so.
    pub(super) fn will_be_extended(&self) -> bool {
        let upkeep = self.upkeep.lock();
        upkeep.provisional && upkeep.failures == 0
    }

    /// The timing of the current lease, which may be shorter than the requested one.
    pub(super) fn lease_in_hand(&self) -> LeaseTiming {
        match self.validity.load() {
            ValidityState::Held(until) if self.upkeep.lock().provisional => {
                LeaseTiming::new(until.since(self.since))
            }
            _ => self.timing,
        }
    }

    /// Updates the schedule.
    pub(super) fn reschedule(self: &Arc<Self>) {
        if !self.is_over() {
            self.engine.scheduler().schedule(Arc::clone(self));
        }
    }
}
