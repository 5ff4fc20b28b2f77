//! How the workload writes down what it sees.

use std::sync::Weak;
use std::time::Duration;

use polylock_core::engine::LeaseId;
use polylock_core::layers::{Event, EventKind, Observer};
use polylock_core::{AcquireRequest, ErrorKind, LockGuard, LostReason, Released, Renewal};
use tokio::time::Instant;

use super::log::{Answer, Ending, Operation, Validity, nanos};
use super::process::Process;
use super::world::World;
use crate::history::{What, access_of};

impl World {
    /// Opens the record of an operation; its number.
    pub(crate) fn asked(&self, process: usize, request: &AcquireRequest) -> usize {
        let at = self.now();
        let mut book = self.log.book();
        let number = book.operations.len();
        let (key, mode, wait) = (request.key().clone(), request.mode(), request.wait());
        let ttl = request.ttl();
        book.note(
            at,
            format_args!("process {process} {key} #{number}: ask {mode:?} {wait:?} {ttl:?}"),
        );
        book.operations.push(Operation {
            number,
            process,
            key: key.clone(),
            mode,
            wait,
            ttl,
            automatic: request.renewal() == Renewal::Automatic,
            asked: at,
            answered: None,
            token: None,
            validity: Vec::new(),
            looks: Vec::new(),
            lost: None,
            ended: None,
            released: None,
            lingers: !request.min_hold().is_zero(),
        });
        let what = What::Requested {
            access: access_of(mode),
            exact: true,
        };
        book.event(at, &key, Some(number), what);
        number
    }

    /// Notes for which operation an acquisition is made; `class` is its number.
    pub(crate) fn bind(&self, id: LeaseId, class: Option<&str>) {
        if let Some(number) = class.and_then(|class| class.parse().ok()) {
            self.log.book().ids.insert(id, number);
        }
    }

    pub(crate) fn answered(&self, number: usize, answer: Answer) {
        let at = self.now();
        let event = match answer {
            Answer::Failed(kind) => What::Refused {
                error: format!("{kind:?}"),
            },
            _ => What::Cancelled,
        };
        let what = format_args!("{answer:?}");
        self.log.change(number, at, what, Some(event), |operation| {
            operation.answered = Some((at, answer));
        });
    }

    pub(crate) fn acquired(&self, number: usize, process: &Process, guard: &LockGuard) {
        let at = self.now();
        let token = guard.fencing_token().map(|token| token.value());
        let validity = self.validity(process, guard);
        let what = format_args!("acquired with {token:?}, {validity:?}");
        let held = guard.is_held();
        let event = What::Granted {
            token,
            until: Some(nanos(validity.until)),
        };
        self.log.change(number, at, what, Some(event), |operation| {
            operation.answered = Some((at, Answer::Acquired));
            operation.token = token;
            operation.looks.push((at, held));
            operation.validity.push(validity);
        });
    }

    /// Until when a guard says that it is valid, and its lease on the store.
    fn validity(&self, process: &Process, guard: &LockGuard) -> Validity {
        let at = self.now();
        let left = match guard.valid_until() {
            Some(until) => process.true_time(until.saturating_duration_since(Instant::now())),
            None => FOR_EVER,
        };
        let token = guard.fencing_token().map(|token| token.value());
        Validity {
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
            operation.and_then(|operation| Some((operation.key.clone(), operation.token?)))
        };
        let Some((key, token)) = known else { return };
        let validity = Validity {
            at,
            until: at + left,
            expiry: self.expiry(&key, Some(token)),
        };
        let event = What::Held {
            until: Some(nanos(validity.until)),
        };
        let what = format_args!("renewed, {validity:?}");
        self.log.change(number, at, what, Some(event), |operation| {
            operation.validity.push(validity);
        });
    }

    /// The holder has looked whether the lock is held, and at the deadline.
    pub(crate) fn looked(&self, number: usize, process: &Process, guard: &LockGuard, held: bool) {
        let at = self.now();
        let validity = self.validity(process, guard);
        let event = held.then(|| What::Held {
            until: Some(nanos(validity.until)),
        });
        let what = format_args!("held: {held}, {validity:?}");
        self.log.change(number, at, what, event, |operation| {
            operation.looks.push((at, held));
            if held {
                operation.validity.push(validity);
            }
        });
    }

    pub(crate) fn lost(&self, number: usize, reason: LostReason) {
        let at = self.now();
        let event = What::Lost {
            reason: reason.as_str().to_owned(),
        };
        let what = format_args!("lost: {reason}");
        self.log.change(number, at, what, Some(event), |operation| {
            operation.lost = Some((at, reason));
        });
    }

    /// The holder is about to give the lock up.
    pub(crate) fn ended(&self, number: usize, guard: &LockGuard, how: Ending) {
        let at = self.now();
        let event = What::Releasing {
            held: guard.is_held(),
        };
        let what = format_args!("ended: {how:?}");
        self.log.change(number, at, what, Some(event), |operation| {
            operation.ended = Some((at, how));
            operation.lingers |= how == Ending::Abandoned;
        });
    }

    pub(crate) fn released(&self, number: usize, answer: Result<Released, ErrorKind>) {
        let at = self.now();
        let event = What::Released {
            clean: answer.ok().map(|found| found == Released::Clean),
        };
        let what = format_args!("release: {answer:?}");
        self.log.change(number, at, what, Some(event), |operation| {
            operation.released = Some((at, answer));
        });
    }
}

/// Notes the renewals that the scheduler makes by itself.
#[derive(Debug)]
pub(crate) struct RenewalObserver {
    world: Weak<World>,
    process: Weak<Process>,
}

impl RenewalObserver {
    pub(crate) fn new(world: Weak<World>, process: Weak<Process>) -> Self {
        Self { world, process }
    }
}

impl Observer for RenewalObserver {
    fn event(&self, event: &Event<'_>) {
        let (Some(world), Some(process)) = (self.world.upgrade(), self.process.upgrade()) else {
            return;
        };
        let EventKind::Renewed { slack, .. } = event.kind else {
            return;
        };
        // The workload puts the number of the operation there.
        let number = event.class.and_then(|class| class.parse().ok());
        if let Some(number) = number {
            world.log.book().renewals += 1;
            world.extended(number, process.true_time(slack));
        }
    }
}

/// Longer than any history.
const FOR_EVER: Duration = Duration::from_secs(1000);
