//! What happened in a history: one record for each operation, and every event as a line.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, Weak};
use std::time::Duration;

use polylock_core::engine::LeaseId;
use polylock_core::layers::{EventKind, Observer};
use polylock_core::{AcquireRequest, ErrorKind, LockGuard, LockKey, LostReason, Released};
use tokio::time::Instant;

use super::nemesis::SimFault;
use super::process::SimProcess;
use super::rng::hash;
use super::world::SimWorld;
use crate::history::{HistoryEvent, What, access_of};
use crate::lock;

#[derive(Debug, Default)]
pub(crate) struct SimLog(Mutex<Book>);

#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) operations: Vec<Operation>,
    pub(crate) faults: BTreeMap<SimFault, usize>,
    /// Times in which a process was paused or dead.
    pub(crate) pauses: Vec<(usize, Duration, Duration)>,
    /// When the process of an acquisition on the store tried to renew it.
    pub(crate) tries: BTreeMap<LeaseId, Vec<Duration>>,
    /// When it was tried to release one, and whether there was an answer.
    pub(crate) releases: BTreeMap<LeaseId, Vec<(Duration, bool)>>,
    /// Which operation an acquisition on the store was made for.
    pub(crate) ids: BTreeMap<LeaseId, usize>,
    /// The same for the checker, at times that grow from one event to the next.
    pub(crate) events: Vec<HistoryEvent>,
    pub(crate) lines: Vec<String>,
}

/// One acquisition and everything that followed from it. All times are true ones.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) number: usize,
    pub(crate) process: usize,
    pub(crate) request: AcquireRequest,
    pub(crate) asked: Duration,
    pub(crate) answered: Option<(Duration, AcquireOutcome)>,
    pub(crate) token: Option<u64>,
    /// The deadlines that the guard had, each with the expiry on the store at that time.
    pub(crate) validity: Vec<LoggedValidity>,
    /// When the holder saw `is_held` last.
    pub(crate) seen_held: Duration,
    pub(crate) lost: Option<(Duration, LostReason)>,
    /// When the holder released, dropped or abandoned the guard, or was killed.
    pub(crate) ended: Option<(Duration, GuardEnding)>,
    pub(crate) released: Option<(Duration, Result<Released, ErrorKind>)>,
    /// Whether the lock may stay taken after its release.
    pub(crate) lingers: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedValidity {
    pub(crate) at: Duration,
    pub(crate) until: Duration,
    pub(crate) expiry: Option<Duration>,
}

/// How an acquisition ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AcquireOutcome {
    Acquired,
    /// The future was dropped.
    Dropped,
    Failed(ErrorKind),
}

/// How a guard ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum GuardEnding {
    Abandoned,
    Dropped,
    Killed,
    Released,
}

impl SimLog {
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.0)
    }

    pub(crate) fn fault(&self, fault: SimFault) {
        *self.book().faults.entry(fault).or_default() += 1;
    }

    /// Writes a line.
    pub(crate) fn note(&self, at: Duration, what: fmt::Arguments<'_>) {
        self.book().note(at, what);
    }
}

impl Book {
    pub(crate) fn note(&mut self, at: Duration, what: fmt::Arguments<'_>) {
        self.lines
            .push(format!("{:>10.3} {what}", at.as_secs_f64() * 1000.0));
    }

    /// Adds an event for the checker, which counts acquisitions from 1.
    pub(crate) fn event(&mut self, at: Duration, key: &LockKey, of: Option<usize>, what: What) {
        let at = nanos(at);
        // What happens at one moment of virtual time still happens one after the other.
        let at = self.events.last().map_or(at, |last| at.max(last.at + 1));
        let attempt = of.map_or(0, |number| u64::try_from(number).unwrap_or(0) + 1);
        let mut event = HistoryEvent::new(at, key.as_str(), attempt, what);
        event.seq = u64::try_from(self.events.len()).unwrap_or(u64::MAX);
        self.events.push(event);
    }

    /// A number that is the same for the same history.
    pub(crate) fn digest(&self) -> u64 {
        hash(self.lines.iter().flat_map(|line| line.bytes()))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Operation {
    /// The latest deadline that the guard had; `None` if there was none.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.validity.iter().map(|validity| validity.until).max()
    }

    /// Until when the guard was valid; `None` if there was none.
    pub(crate) fn valid_until(&self) -> Option<Duration> {
        let deadline = self.deadline()?.max(self.seen_held);
        let ended = self.ended.map(|(at, _)| at);
        let lost = self.lost.map(|(at, _)| at);
        Some(ended.into_iter().chain(lost).fold(deadline, Duration::min))
    }

    /// When its process knew that it neither waits for the lock nor holds it.
    pub(crate) fn over(&self) -> Duration {
        let over = match self.answered {
            Some((_, AcquireOutcome::Acquired)) => self.lost.map(|(at, _)| at),
            Some((at, _)) => Some(at),
            None => None,
        };
        let ended = self.ended.map(|(at, _)| at);
        over.into_iter().chain(ended).min().unwrap_or(Duration::MAX)
    }

    /// Whether it waits, holds or releases.
    pub(crate) fn is_open(&self) -> bool {
        let unanswered = self.answered.is_none();
        self.ended.is_none() && (unanswered || self.acquired_at().is_some())
    }

    pub(crate) fn acquired_at(&self) -> Option<Duration> {
        match self.answered {
            Some((at, AcquireOutcome::Acquired)) => Some(at),
            _ => None,
        }
    }
}

impl SimLog {
    /// Ends the operations of a process that dies.
    pub(crate) fn kill(&self, process: usize, at: Duration) {
        let mut book = self.book();
        book.note(at, format_args!("process {process} dies"));
        book.pauses.push((process, at, Duration::MAX));
        for operation in &mut book.operations {
            if operation.process == process && operation.ended.is_none() {
                operation.ended = Some((at, GuardEnding::Killed));
            }
        }
    }
}

/// How the workload writes down what it sees.
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
            book.event(at, &key, Some(number), event);
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
        book.event(at, key, Some(number), what);
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
