//! Judges a history by what the holders saw and by what was true on the store.

use std::collections::BTreeMap;
use std::time::Duration;

use polylock_core::{ErrorKind, LostReason, Mode, Released, Renewal, Wait};

use super::fault::SimFault;
use super::log::{AcquireOutcome, Book, GuardEnding, Operation};
use super::plan::{MAX_DRIFT, SETTLING};
use super::store::LeaseTenure;
use super::violation::{SimViolation, ViolationKind};
use super::world::SimWorld;
use crate::history::{Checker, Summary, Violation};

/// What happened in one history or in many, in numbers.
#[non_exhaustive]
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Locks that were acquired.
    pub acquisitions: usize,
    /// What was injected.
    pub faults: BTreeMap<SimFault, usize>,
    /// Leases that passed to another task of the same process.
    pub hand_overs: usize,
    /// Locks that were lost before they were released, those with `max_hold` not counted.
    pub leases_lost: usize,
}

impl Tally {
    /// Adds the numbers of other histories.
    pub fn add(&mut self, other: &Self) {
        self.acquisitions += other.acquisitions;
        self.hand_overs += other.hand_overs;
        self.leases_lost += other.leases_lost;
        for (fault, number) in &other.faults {
            *self.faults.entry(*fault).or_default() += number;
        }
    }
}

struct JudgedHistory<'a> {
    world: &'a SimWorld,
    book: &'a Book,
    /// Every holder on the store, with the true times of begin and end.
    tenures: &'a [(LeaseTenure, Duration, Duration)],
    violations: Vec<SimViolation>,
}

/// Looks for everything that must not happen, in addition to what was `found` at the end.
pub(crate) fn judge(
    world: &SimWorld,
    book: &Book,
    tenures: &[(LeaseTenure, Duration, Duration)],
    found: Vec<SimViolation>,
) -> (Vec<SimViolation>, Tally) {
    let mut case = JudgedHistory {
        world,
        book,
        tenures,
        violations: found,
    };
    let summary = case.judge_exclusion();
    case.judge_losses();
    case.judge_answers();
    case.judge_orphans();
    case.violations.sort_by_key(|violation| violation.at);
    let lost = |operation: &&Operation| {
        let reason = operation.lost.map(|(_, reason)| reason);
        reason.is_some_and(|reason| reason != LostReason::MaxHold)
    };
    let tally = Tally {
        acquisitions: summary.grants,
        faults: book.faults.clone(),
        hand_overs: case.hand_overs(),
        leases_lost: book.operations.iter().filter(lost).count(),
    };
    (case.violations, tally)
}

impl JudgedHistory<'_> {
    fn found(&mut self, kind: ViolationKind, at: Duration, what: String) {
        self.violations.push(SimViolation::new(kind, at, what));
    }

    /// How many holders got a token that the store had not granted to them.
    fn hand_overs(&self) -> usize {
        let handed_over = |operation: &&Operation| {
            let lease = self
                .tenure_of(operation)
                .map(|(tenure, ..)| tenure.tokens.0);
            lease.is_some() && operation.token != lease
        };
        self.book.operations.iter().filter(handed_over).count()
    }

    /// Whether a process did not run for a part of a time.
    fn was_paused(&self, process: usize, from: Duration, until: Duration) -> bool {
        let overlaps = |&(of, begin, end): &(usize, Duration, Duration)| {
            of == process && begin <= until && end >= from
        };
        self.book.pauses.iter().any(overlaps)
    }

    /// The lease on the store that an operation held, with its true begin and end.
    fn tenure_of(&self, operation: &Operation) -> Option<&(LeaseTenure, Duration, Duration)> {
        let token = operation.token?;
        let holds = |(tenure, ..): &&(LeaseTenure, Duration, Duration)| {
            is_of(tenure, operation) && tenure.has(token)
        };
        self.tenures.iter().rev().find(holds)
    }
}

/// Whether a lease on the store is for the key of an operation.
fn is_of(tenure: &LeaseTenure, operation: &Operation) -> bool {
    tenure.key.as_str().strip_prefix("sim:") == Some(operation.request.key().as_str())
}

impl JudgedHistory<'_> {
    /// Reported contention, errors and releases are true, and no waiter waits for a free lock.
    fn judge_answers(&mut self) {
        let book = self.book;
        for operation in &book.operations {
            match operation.answered {
                Some((at, AcquireOutcome::Failed(ErrorKind::Contended))) => {
                    self.judge_contention(operation, at);
                }
                Some((at, AcquireOutcome::Failed(kind))) => self.judge_error(operation, at, kind),
                _ => {}
            }
            if self.is_calm(operation.asked) {
                self.judge_waiting(operation);
                self.judge_release(operation);
            }
        }
    }

    /// During the wait, another operation held the lock, or another task of the process requested it.
    fn judge_contention(&mut self, operation: &Operation, at: Duration) {
        let own = |id| self.book.ids.get(id) == Some(&operation.number);
        let held = self.tenures.iter().any(|(tenure, from, until)| {
            let meets = *from <= at && *until >= operation.asked;
            is_of(tenure, operation) && meets && !own(&tenure.id)
        });
        if !held && !self.has_rival(operation, at) {
            let what = format!(
                "#{} met nobody, {:?}",
                operation.number,
                operation.request.wait()
            );
            self.found(ViolationKind::FalseContention, at, what);
        }
    }

    /// Whether another task of the process stood before this one in the local queue: it waited, or
    /// had a lock whose loss was not noticed yet.
    fn has_rival(&self, operation: &Operation, at: Duration) -> bool {
        self.book.operations.iter().any(|other| {
            let local = other.process == operation.process
                && other.request.key() == operation.request.key();
            let exclusive =
                other.request.mode() == Mode::Exclusive && other.number != operation.number;
            local && exclusive && other.asked <= at && other.over() >= operation.asked
        })
    }

    fn judge_error(&mut self, operation: &Operation, at: Duration, kind: ErrorKind) {
        if kind != ErrorKind::Unavailable || self.is_calm(operation.asked) {
            let what = format!("#{} got {kind:?}", operation.number);
            self.found(ViolationKind::FalseError, at, what);
        }
    }

    /// The lock is not free for long while it has waiters.
    fn judge_waiting(&mut self, operation: &Operation) {
        let Some((answered, _)) = operation
            .answered
            .filter(|_| operation.request.wait() != Wait::Never)
        else {
            return;
        };
        let mut free_since = operation.asked;
        let mut longest = Duration::ZERO;
        // The store grants a key in the order of time, so that the tenures are sorted.
        for (_, from, until) in self.tenures.iter().filter(|(t, ..)| is_of(t, operation)) {
            if *until >= operation.asked && *from < answered {
                longest = longest.max(from.saturating_sub(free_since));
                free_since = free_since.max(*until);
            }
        }
        longest = longest.max(answered.saturating_sub(free_since));
        if longest > IDLE {
            let what = format!("#{} waited {longest:?} for a free lock", operation.number);
            self.found(ViolationKind::PassedOver, answered, what);
        }
    }

    /// A lock that was released is free, or has been handed over.
    fn judge_release(&mut self, operation: &Operation) {
        let clean = matches!(operation.released, Some((_, Ok(Released::Clean))));
        let Some((at, _)) = operation.released.filter(|_| clean && !operation.lingers) else {
            return;
        };
        let Some((tenure, _, until)) = self.tenure_of(operation) else {
            return;
        };
        let taken_over = self.book.operations.iter().any(|other| {
            let later = other.token > operation.token;
            is_of(tenure, other) && later && other.token <= Some(tenure.tokens.1)
        });
        if *until > at + IDLE && !taken_over {
            let what = format!("#{} is on the store until {until:?}", operation.number);
            self.found(ViolationKind::HeldAfterRelease, at, what);
        }
    }

    /// Whether the faults are over and their effects as well.
    fn is_calm(&self, at: Duration) -> bool {
        at >= self.world.plan.faults_end + SETTLING
    }

    /// Runs the history checker on the events that the holders saw: no two exclusive holders at once,
    /// tokens grow, and no holder loses its lock without a cause.
    fn judge_exclusion(&mut self) -> Summary {
        // It knows nothing of pauses and faults, which make signals late and waits long.
        let checker = Checker::new().with_signal_delay(LONG).with_max_idle(LONG);
        let verdict = checker.check(&self.book.events);
        for (key, violation) in verdict.violations {
            if self.is_explained(&violation) {
                continue;
            }
            let what = format!("{key}: {violation}");
            self.found(kind(&violation), Duration::ZERO, what);
        }
        verdict.summary
    }

    /// Whether a lock that seems to be lost without a cause had expired before its holder was
    /// notified, or had been released by an earlier copy of the answered release.
    fn is_explained(&self, violation: &Violation) -> bool {
        let Violation::LostWithoutCause { holder } = violation else {
            return false;
        };
        let number = usize::try_from(holder - 1).unwrap_or(usize::MAX);
        let Some(holder) = self.book.operations.get(number) else {
            return false;
        };
        let until = holder.deadline();
        let ran_out = holder.lost.is_some_and(|(lost, _)| Some(lost) >= until);
        let gone = self.tenure_of(holder).map(|(_, _, until)| *until);
        let released = holder.ended.is_some_and(|(ended, _)| gone >= Some(ended));
        ran_out || holder.lost.is_none() && released
    }

    /// Guards are not valid for longer than the lease on the store, and losses are signaled in time.
    fn judge_losses(&mut self) {
        let book = self.book;
        for operation in &book.operations {
            self.judge_validity(operation);
            self.judge_tries(operation);
            self.judge_signal(operation);
        }
    }

    fn judge_validity(&mut self, operation: &Operation) {
        for validity in &operation.validity {
            if validity.expiry.is_none_or(|expiry| validity.until > expiry) {
                let what = format!("#{}: {validity:?}", operation.number);
                self.found(ViolationKind::BeyondExpiry, validity.at, what);
            }
        }
        let Some(until) = operation.valid_until() else {
            return;
        };
        let ended = self.tenure_of(operation).map(|(_, _, until)| *until);
        if ended.is_none_or(|ended| until > ended) {
            let what = format!(
                "#{} was valid until {until:?}, its lease ended at {ended:?}",
                operation.number
            );
            self.found(ViolationKind::BeyondExpiry, until, what);
        }
    }

    fn judge_signal(&mut self, operation: &Operation) {
        let Some(until) = operation.deadline() else {
            return;
        };
        let expiry = operation.validity.last();
        let expiry = expiry.and_then(|validity| validity.expiry);
        let lost = operation.lost.map(|(at, _)| at);
        let ended = operation.ended.map(|(at, _)| at);
        let told = lost.or(ended).unwrap_or(Duration::MAX);
        let late = told > until + SLACK || expiry.is_some_and(|expiry| told > expiry);
        if late && !self.was_paused(operation.process, until, told) {
            let what = format!(
                "#{} was valid until {until:?}, its lease until {expiry:?}, and was told {:?}",
                operation.number, operation.lost
            );
            self.found(ViolationKind::LateSignal, told.min(until + SLACK), what);
        }
    }

    /// An expired lease had more than one renewal attempt: one lost message costs no lock.
    fn judge_tries(&mut self, operation: &Operation) {
        let ran_out = |(_, reason): &(_, LostReason)| {
            matches!(reason, LostReason::Expired | LostReason::Unreachable)
        };
        let lost = operation.lost.as_ref().filter(|lost| ran_out(lost));
        let (Some((lost, _)), Some(acquired)) = (lost, operation.acquired_at()) else {
            return;
        };
        let until = operation.deadline().unwrap_or_default();
        let since = until.saturating_sub(operation.request.ttl() * 8 / 10);
        let paused = self.was_paused(operation.process, since, *lost);
        let Some((tenure, ..)) = self.tenure_of(operation) else {
            return;
        };
        // A lease that was granted late has no time for two tries.
        if operation.request.renewal() != Renewal::Automatic || acquired > since || paused {
            return;
        }
        let tries = self.book.tries.get(&tenure.id).into_iter().flatten();
        let tries = tries.filter(|at| (since..*lost).contains(*at)).count();
        if tries < 2 {
            let what = format!(
                "#{} was tried to be renewed {tries} times",
                operation.number
            );
            self.found(ViolationKind::NotRenewed, *lost, what);
        }
    }

    /// The release of a lease without a holder is retried until the store answers.
    fn judge_orphans(&mut self) {
        let tenures = self.tenures;
        for (tenure, _, until) in tenures.iter().filter(|(tenure, ..)| tenure.ended.is_none()) {
            let Some((since, operation)) = self.orphaned(tenure) else {
                continue;
            };
            let time = until.saturating_sub(since);
            if time < SOON || self.was_paused(operation.process, since, *until) {
                continue;
            }
            let releases = self.book.releases.get(&tenure.id).into_iter().flatten();
            let tries: Vec<_> = releases
                .filter(|(at, _)| (since..*until).contains(at))
                .collect();
            let unanswered = tries.iter().all(|(_, answered)| !answered);
            // Retries end after one TTL.
            let again = self.world.plan.patience + MAX_RELEASE_BACKOFF;
            let least = if time.min(operation.request.ttl()) < again {
                1
            } else {
                2
            };
            if unanswered && tries.len() < least {
                let what = format!(
                    "the lease of #{} was tried to be given back {} times in {time:?}",
                    operation.number,
                    tries.len()
                );
                self.found(ViolationKind::Orphan, *until, what);
            }
        }
    }

    /// When a lease lost its holder, and the operation that had it; `None` if it may have a holder.
    fn orphaned(&self, tenure: &LeaseTenure) -> Option<(Duration, &Operation)> {
        let operations = &self.book.operations;
        let holders = operations.iter().filter(|operation| {
            is_of(tenure, operation) && operation.token.is_some_and(|token| tenure.has(token))
        });
        if let Some(last) = holders.max_by_key(|operation| operation.token) {
            let (at, how) = last.ended?;
            let given_back =
                matches!(how, GuardEnding::Dropped | GuardEnding::Released) && !last.lingers;
            return given_back.then_some((at, last));
        }
        let asker = &operations[*self.book.ids.get(&tenure.id)?];
        let (at, answer) = asker.answered?;
        // A definite refusal needs no release: a grant to a late copy of the request has no
        // holder, and expires.
        let refused = asker.request.wait() == Wait::Never && answer == CONTENDED;
        // The local queue may have passed the attempt to another task.
        let kept = answer == AcquireOutcome::Acquired || self.has_rival(asker, Duration::MAX);
        let given_up = !refused && !kept;
        given_up.then_some((at, asker))
    }
}

/// The longest time that a lock with waiters is free: a few heartbeats or polls of a waiter.
const IDLE: Duration = Duration::from_millis(700);

/// Longer than a history.
const LONG: Duration = Duration::from_secs(1000);

fn kind(violation: &Violation) -> ViolationKind {
    match violation {
        Violation::ForeignRelease { .. } => ViolationKind::ForeignRelease,
        Violation::HeldAfterLoss { .. } => ViolationKind::Unlost,
        Violation::LateSignal { .. } => ViolationKind::LateSignal,
        Violation::LeftBehind { .. } => ViolationKind::LeftBehind,
        Violation::LostWithoutCause { .. } => ViolationKind::LostWithoutCause,
        Violation::Overlap { .. } => ViolationKind::Overlap,
        Violation::Starved { .. } => ViolationKind::PassedOver,
        Violation::TokenReused { .. } | Violation::TokenWentBack { .. } => {
            ViolationKind::TokenOrder
        }
        other => unreachable!("BUG: the simulation has no word for {other}"),
    }
}

/// The scheduler polls once a second. With the max clock drift its timer is late by that share of a
/// second, and by the millisecond that timers are rounded to.
const SLACK: Duration = Duration::from_millis(MAX_DRIFT as u64 / 1000 + 3);

const CONTENDED: AcquireOutcome = AcquireOutcome::Failed(ErrorKind::Contended);

/// Time that it may take until a release is sent.
const SOON: Duration = Duration::from_millis(50);

/// The longest pause between the first attempt to release a lease and the next one.
const MAX_RELEASE_BACKOFF: Duration = Duration::from_millis(100);
