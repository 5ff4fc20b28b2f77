//! Records the operations of the workload, the clients and the scheduler.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use polylock_core::engine::LeaseId;
use polylock_core::layers::{EventKind, Observer};
use polylock_core::{AcquireRequest, ErrorKind, LockGuard, LostReason, Released};
use tokio::time::Instant;

use super::log::{AcquireOutcome, GuardEnding, LoggedValidity, Operation, nanos};
use super::process::SimProcess;
use super::world::SimWorld;
use crate::history::{What, access_of};

impl SimWorld {
    /// Changes the record of an operation, and writes a line and an event about it.
    fn change(
        &self,
        number: usize,
        what: fmt::Arguments<'_>,
        event: Option<What>,
        change: impl FnOnce(&mut Operation, Duration),
    ) {
        let (at, mut book) = (self.now(), self.log.book());
        let Some(operation) = book.operations.get_mut(number) else {
            return;
        };
        // The dead do nothing, although their destructors run.
        if operation
            .ended
            .is_some_and(|(_, how)| how == GuardEnding::Killed)
        {
            return;
        }
        change(operation, at);
        let (process, key) = (operation.process, operation.request.key().clone());
        book.note(
            at,
            format_args!("process {process} {key} #{number}: {what}"),
        );
        if let Some(event) = event {
            book.event(at, &key, number, event);
        }
    }

    /// Opens the record of an operation; its number.
    pub(crate) fn asked(&self, process: usize, request: &AcquireRequest) -> usize {
        let at = self.now();
        let mut book = self.log.book();
        let number = book.operations.len();
        let (key, mode, wait) = (request.key(), request.mode(), request.wait());
        let ttl = request.ttl();
        book.note(
            at,
            format_args!("process {process} {key} #{number}: ask {mode:?} {wait:?} {ttl:?}"),
        );
        book.operations.push(Operation {
            number,
            process,
            request: request.clone(),
            asked: at,
            answered: None,
            token: None,
            validity: Vec::new(),
            seen_held: Duration::ZERO,
            lost: None,
            ended: None,
            released: None,
            lingers: !request.min_hold().is_zero(),
        });
        let what = What::Requested {
            access: access_of(mode),
            exact: true,
        };
        book.event(at, key, number, what);
        number
    }

    /// Notes for which operation an acquisition is made; `class` is its number.
    pub(crate) fn bind(&self, id: LeaseId, class: Option<&str>) {
        if let Some(number) = class.and_then(|class| class.parse().ok()) {
            self.log.book().ids.insert(id, number);
        }
    }

    pub(crate) fn answered(&self, number: usize, answer: AcquireOutcome) {
        let event = match answer {
            AcquireOutcome::Failed(kind) => What::Refused {
                error: format!("{kind:?}"),
            },
            _ => What::Cancelled,
        };
        let what = format_args!("{answer:?}");
        self.change(number, what, Some(event), |operation, at| {
            operation.answered = Some((at, answer));
        });
    }

    pub(crate) fn acquired(&self, number: usize, process: &SimProcess, guard: &LockGuard) {
        let token = guard.fencing_token().map(|token| token.value());
        let validity = self.validity(process, guard);
        let what = format_args!("acquired with {token:?}, {validity:?}");
        let held = guard.is_held();
        let event = What::Granted {
            token,
            until: Some(nanos(validity.until)),
        };
        self.change(number, what, Some(event), |operation, at| {
            operation.answered = Some((at, AcquireOutcome::Acquired));
            operation.token = token;
            if held {
                operation.seen_held = at;
            }
            operation.validity.push(validity);
        });
    }

    /// Until when a guard says that it is valid, and its lease on the store.
    fn validity(&self, process: &SimProcess, guard: &LockGuard) -> LoggedValidity {
        let at = self.now();
        let left = match guard.valid_until() {
            Some(until) => process.true_time(until.saturating_duration_since(Instant::now())),
            None => FOR_EVER,
        };
        let token = guard.fencing_token().map(|token| token.value());
        LoggedValidity {
            at,
            until: at + left,
            expiry: self.expiry(guard.key(), token),
        }
    }

    /// The deadline of a guard has moved.
    pub(crate) fn extended(&self, number: usize, left: Duration) {
        let at = self.now();
        let known = {
            let book = self.log.book();
            let operation = book.operations.get(number);
            operation
                .and_then(|operation| Some((operation.request.key().clone(), operation.token?)))
        };
        let Some((key, token)) = known else { return };
        let validity = LoggedValidity {
            at,
            until: at + left,
            expiry: self.expiry(&key, Some(token)),
        };
        let event = What::Held {
            until: Some(nanos(validity.until)),
        };
        let what = format_args!("renewed, {validity:?}");
        self.change(number, what, Some(event), |operation, _| {
            operation.validity.push(validity);
        });
    }

    /// The holder has looked whether the lock is held, and at the deadline.
    pub(crate) fn looked(
        &self,
        number: usize,
        process: &SimProcess,
        guard: &LockGuard,
        held: bool,
    ) {
        let validity = self.validity(process, guard);
        let event = held.then(|| What::Held {
            until: Some(nanos(validity.until)),
        });
        let what = format_args!("held: {held}, {validity:?}");
        self.change(number, what, event, |operation, at| {
            if held {
                operation.seen_held = at;
                operation.validity.push(validity);
            }
        });
    }

    pub(crate) fn lost(&self, number: usize, reason: LostReason) {
        let event = What::Lost {
            reason: reason.as_str().to_owned(),
        };
        let what = format_args!("lost: {reason}");
        self.change(number, what, Some(event), |operation, at| {
            operation.lost = Some((at, reason));
        });
    }

    /// The holder is about to give the lock up.
    pub(crate) fn ended(&self, number: usize, guard: &LockGuard, how: GuardEnding) {
        let event = What::Releasing {
            held: guard.is_held(),
        };
        let what = format_args!("ended: {how:?}");
        self.change(number, what, Some(event), |operation, at| {
            operation.ended = Some((at, how));
            operation.lingers |= how == GuardEnding::Abandoned;
        });
    }

    /// Notes a release about to be sent; its place.
    pub(crate) fn releasing(&self, id: LeaseId) -> usize {
        let at = self.now();
        let mut book = self.log.book();
        let releases = book.releases.entry(id).or_default();
        releases.push((at, false));
        releases.len() - 1
    }

    pub(crate) fn answered_release(&self, id: LeaseId, noted: usize) {
        let mut book = self.log.book();
        book.releases.entry(id).or_default()[noted].1 = true;
    }

    /// Notes renewals about to be sent.
    pub(crate) fn renewing(&self, ids: impl Iterator<Item = LeaseId>) {
        let (at, mut book) = (self.now(), self.log.book());
        ids.for_each(|id| book.tries.entry(id).or_default().push(at));
    }

    pub(crate) fn released(&self, number: usize, answer: Result<Released, ErrorKind>) {
        let event = What::Released {
            clean: answer.ok().map(|found| found == Released::Clean),
        };
        let what = format_args!("release: {answer:?}");
        self.change(number, what, Some(event), |operation, at| {
            operation.released = Some((at, answer));
        });
    }
}

/// Notes the renewals that the scheduler makes by itself.
#[derive(Debug)]
pub(crate) struct RenewalObserver {
    world: Weak<SimWorld>,
    process: Weak<SimProcess>,
}

impl RenewalObserver {
    pub(crate) fn new(world: Weak<SimWorld>, process: Weak<SimProcess>) -> Self {
        Self { world, process }
    }
}

impl Observer for RenewalObserver {
    fn event(&self, event: &polylock_core::layers::Event<'_>) {
        let (Some(world), Some(process)) = (self.world.upgrade(), self.process.upgrade()) else {
            return;
        };
        let EventKind::Renewed { slack, .. } = event.kind else {
            return;
        };
        // The workload puts the number of the operation there.
        let number = event.class.and_then(|class| class.parse().ok());
        if let Some(number) = number {
            world.extended(number, process.true_time(slack));
        }
    }
}

/// Longer than any history.
const FOR_EVER: Duration = Duration::from_secs(1000);
