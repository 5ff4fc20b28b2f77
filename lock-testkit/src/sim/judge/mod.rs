//! Judges a history by what the holders saw and by what was true on the store.

mod answers;
mod exclusion;
mod losses;
mod orphans;
mod witnesses;

use std::fmt;
use std::time::Duration;

use super::log::{Book, Operation};
use super::tally::{Tally, count};
use super::tenure::Tenure;
use super::world::World;

/// Something that must not happen.
#[derive(Clone, Debug)]
pub struct Violation {
    kind: ViolationKind,
    at: Duration,
    what: String,
}

/// What is wrong.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ViolationKind {
    /// A guard was valid when the store had given the lock away or might have.
    BeyondExpiry,
    /// Contention was reported although nobody else had the lock.
    FalseContention,
    /// An error was reported although nothing was wrong.
    FalseError,
    /// A release took the lock of another holder.
    ForeignRelease,
    /// The store had a lock after its release was confirmed.
    HeldAfterRelease,
    /// A loss was signaled after the lease had run out, or not at all.
    LateSignal,
    /// Something was on the store or in a process long after everybody was done.
    LeftBehind,
    /// Increments of the unfenced counter were lost although every writer held the lock.
    LostIncrement,
    /// A lock was gone before its time.
    LostWithoutCause,
    /// A lease ran out although there was time to renew it.
    NotRenewed,
    /// A lease or a place in the queue was not given back when everybody was done.
    Orphan,
    /// Two guards that exclude each other were valid at once.
    Overlap,
    /// A guard was returned that was not held.
    OverWhenAcquired,
    /// A waiter waited although the lock was free.
    PassedOver,
    /// The fenced register took a smaller token after a larger one.
    RegisterWentBack,
    /// An operation did not end.
    Stuck,
    /// A later holder had no larger token.
    TokenOrder,
    /// A lock was held again after it was lost.
    Unlost,
    /// The fenced register refused the holder of the lock.
    WriterRefused,
}

impl Violation {
    pub(super) fn new(kind: ViolationKind, at: Duration, what: String) -> Self {
        Self { kind, at, what }
    }

    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> ViolationKind {
        self.kind
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?}: {}", self.kind, self.at, self.what)
    }
}

/// What the judges look at.
pub(super) struct Case<'a> {
    pub(super) world: &'a World,
    pub(super) book: &'a Book,
    /// Everybody who had a lock on the store, with the true times of begin and end.
    pub(super) tenures: &'a [(Tenure, Duration, Duration)],
    pub(super) violations: Vec<Violation>,
}

/// Looks for everything that must not happen, in addition to what was `found` at the end.
pub(super) fn judge(
    world: &World,
    book: &Book,
    tenures: &[(Tenure, Duration, Duration)],
    found: Vec<Violation>,
) -> (Vec<Violation>, Tally) {
    let mut case = Case {
        world,
        book,
        tenures,
        violations: found,
    };
    case.judge_exclusion();
    case.judge_losses();
    case.judge_answers();
    case.judge_orphans();
    let mut tally = case.judge_writes();
    tally.hand_overs = count(case.hand_overs());
    case.violations.sort_by_key(|violation| violation.at);
    tally.count(book, case.violations.len());
    (case.violations, tally)
}

impl Case<'_> {
    fn found(&mut self, kind: ViolationKind, at: Duration, what: String) {
        self.violations.push(Violation::new(kind, at, what));
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
    fn tenure_of(&self, operation: &Operation) -> Option<&(Tenure, Duration, Duration)> {
        let token = operation.token?;
        let holds = |(tenure, ..): &&(Tenure, Duration, Duration)| {
            is_of(tenure, operation) && (tenure.tokens.0..=tenure.tokens.1).contains(&token)
        };
        self.tenures.iter().rev().find(holds)
    }
}

/// Whether a lease on the store is for the key of an operation.
fn is_of(tenure: &Tenure, operation: &Operation) -> bool {
    tenure.key.as_str().strip_prefix("sim:") == Some(operation.key.as_str())
}
