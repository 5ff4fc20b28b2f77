//! Until when a lock is held, and why it is not: one atomic word.

use std::fmt;

use super::atomic::{AtomicU64, Ordering};
use crate::engine::Moment;
use crate::lost_reason::LostReason;

/// The deadline of a held lock, or how it ended.
///
/// One word holds both, so that a lost lock never appears held again: every change is a
/// compare-and-swap from a deadline that has not passed, and an end is final.
#[derive(Debug)]
pub(crate) struct Validity(AtomicU64);

/// How a lock stopped being held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// Given up by its holder: by this moment it is released or handed over, if it is not abandoned.
    GivenUp(Moment),
    /// Lost.
    Lost(LostReason),
}

/// What the word says at a moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ValidityState {
    /// Held until then; [`Moment::NEVER`] has no limit.
    Held(Moment),
    /// Over.
    Ended(End),
}

/// Words below this are losses; no deadline lies within the first 64 ns after boot.
const FIRST_DEADLINE: u64 = 64;

/// Words from this on were given up, except that of [`Moment::NEVER`]; no machine runs for 292 years.
const GIVEN_UP: u64 = 1 << 63;

impl Validity {
    pub(crate) fn until(deadline: Moment) -> Self {
        Self(AtomicU64::new(word(deadline)))
    }

    pub(crate) fn load(&self) -> ValidityState {
        decode(self.0.load(Ordering::Acquire))
    }

    /// The same, ordered among the changes: an operation that ends the lock afterwards sees
    /// everything written before.
    pub(crate) fn latest(&self) -> ValidityState {
        decode(self.0.fetch_or(0, Ordering::AcqRel))
    }

    /// Whether the lock is held at `now`; changes nothing.
    pub(crate) fn is_held(&self, now: Moment) -> bool {
        matches!(self.load(), ValidityState::Held(until) if now < until)
    }

    /// Whether the deadline has passed at `now` and the lock has not ended yet.
    pub(crate) fn is_overdue(&self, now: Moment) -> bool {
        matches!(self.load(), ValidityState::Held(until) if now >= until)
    }

    /// Ends the lock for good if its deadline has passed at `now`; true if this call did.
    pub(crate) fn pass(&self, now: Moment, reason: LostReason) -> bool {
        let lost = encode(End::Lost(reason));
        self.replace(|until| (now >= until).then_some(lost))
            .is_some()
    }

    /// Moves the deadline of a lock that is still held at `now`; false if it is not.
    pub(crate) fn extend(&self, now: Moment, deadline: Moment) -> bool {
        self.replace(|until| (now < until).then(|| word(until.max(deadline))))
            .is_some()
    }

    /// Replaces the deadline, earlier or later, of a lock that is still held at `now`.
    pub(crate) fn limit(&self, now: Moment, deadline: Moment) -> bool {
        self.replace(|until| (now < until).then(|| word(deadline)))
            .is_some()
    }

    /// Ends the lock; the deadline it had, or `None` if it had ended before.
    pub(crate) fn end(&self, end: End) -> Option<Moment> {
        self.replace(|_| Some(encode(end)))
    }

    /// Replaces the deadline of a lock that has not ended by the word that `next` makes of it. Returns the
    /// deadline it had; `None` if the lock had ended, or `next` returns nothing.
    fn replace(&self, next: impl Fn(Moment) -> Option<u64>) -> Option<Moment> {
        let held_until = |word| match decode(word) {
            ValidityState::Held(until) => Some(until),
            ValidityState::Ended(_) => None,
        };
        let next = |word| next(held_until(word)?);
        let replaced = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        held_until(replaced.ok()?)
    }
}

fn word(deadline: Moment) -> u64 {
    match deadline.as_nanos() {
        u64::MAX => u64::MAX,
        GIVEN_UP.. => GIVEN_UP - 1,
        nanos => nanos.max(FIRST_DEADLINE),
    }
}

fn encode(end: End) -> u64 {
    match end {
        End::GivenUp(until) => GIVEN_UP + until.as_nanos().min(GIVEN_UP - 2),
        End::Lost(reason) => reason.code(),
    }
}

fn decode(word: u64) -> ValidityState {
    match word {
        u64::MAX => ValidityState::Held(Moment::NEVER),
        GIVEN_UP.. => ValidityState::Ended(End::GivenUp(Moment::from_nanos(word - GIVEN_UP))),
        FIRST_DEADLINE.. => ValidityState::Held(Moment::from_nanos(word)),
        code => ValidityState::Ended(End::Lost(LostReason::from_code(code))),
    }
}

impl fmt::Display for ValidityState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(_) => f.write_str("held"),
            Self::Ended(End::GivenUp(_)) => f.write_str("given up"),
            Self::Ended(End::Lost(reason)) => write!(f, "lost: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Moment {
        Moment::from_nanos(1000 + n)
    }

    #[test]
    fn a_deadline_that_passed_is_lost_for_good() {
        let validity = Validity::until(at(10));
        assert!(!validity.pass(at(9), LostReason::Expired));
        assert!(validity.pass(at(10), LostReason::Unreachable));
        // A reply that comes late changes nothing, and it is lost once.
        assert!(!validity.extend(at(5), at(100)));
        assert!(!validity.pass(at(11), LostReason::Expired));
        let lost = End::Lost(LostReason::Unreachable);
        assert_eq!(validity.load(), ValidityState::Ended(lost));
    }

    #[test]
    fn an_extension_never_shortens_and_a_limit_may() {
        let validity = Validity::until(at(10));
        assert!(validity.extend(at(0), at(5)));
        assert_eq!(validity.load(), ValidityState::Held(at(10)));
        assert!(validity.limit(at(0), at(5)));
        assert_eq!(validity.load(), ValidityState::Held(at(5)));
    }

    #[test]
    fn an_overdue_lock_is_not_extended_even_if_it_was_not_checked() {
        let validity = Validity::until(at(10));
        assert!(!validity.extend(at(10), at(100)));
    }

    #[test]
    fn only_the_first_end_counts() {
        let validity = Validity::until(Moment::NEVER);
        let given_up = End::GivenUp(at(0));
        assert_eq!(validity.end(given_up), Some(Moment::NEVER));
        assert_eq!(validity.end(End::Lost(LostReason::Stolen)), None);
        assert_eq!(validity.load(), ValidityState::Ended(given_up));
    }

    #[test]
    fn every_state_survives_its_word() {
        for reason in LostReason::ALL {
            let lost = End::Lost(reason);
            assert_eq!(decode(encode(lost)), ValidityState::Ended(lost));
        }
        for until in [Moment::from_nanos(0), at(0)] {
            let given_up = End::GivenUp(until);
            assert_eq!(decode(encode(given_up)), ValidityState::Ended(given_up));
        }
        let never = End::GivenUp(Moment::NEVER);
        assert!(matches!(
            decode(encode(never)),
            ValidityState::Ended(End::GivenUp(_))
        ));
        for held in [Moment::from_nanos(FIRST_DEADLINE), at(0), Moment::NEVER] {
            assert_eq!(decode(word(held)), ValidityState::Held(held));
        }
        // A deadline of centuries.
        let (late, last) = (
            Moment::from_nanos(GIVEN_UP + 7),
            Moment::from_nanos(GIVEN_UP - 1),
        );
        assert_eq!(decode(word(late)), ValidityState::Held(last));
    }
}
