//! Whether a lock is granted while another holder relies on it, and whether fencing tokens grow.

use std::collections::BTreeMap;

use crate::Access;

/// The time in which one acquisition held a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Hold {
    /// Number of the acquisition. Those of one key differ.
    pub holder: u64,
    /// How the lock was held.
    pub access: Access,
    /// When the lock was requested, for [`TokenOrder`] of readers.
    pub requested: u64,
    /// When the holder knew that it had the lock.
    pub from: u64,
    /// Until when it relied on the lock; this moment does not belong to the hold.
    pub until: u64,
    /// The fencing token, if there are any.
    pub token: Option<u64>,
}

impl Hold {
    /// An exclusive hold without a token, requested when it was granted.
    #[must_use]
    pub fn new(holder: u64, from: u64, until: u64) -> Self {
        Self {
            holder,
            access: Access::Exclusive,
            requested: from,
            from,
            until,
            token: None,
        }
    }

    /// An exclusive hold whose end is unknown as yet; see [`Exclusion::leave`].
    #[must_use]
    pub fn open(holder: u64, from: u64) -> Self {
        Self::new(holder, from, u64::MAX)
    }

    /// Sets how the lock was held.
    #[must_use]
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets when the lock was requested.
    #[must_use]
    pub fn with_requested(mut self, requested: u64) -> Self {
        self.requested = requested;
        self
    }

    /// Sets the fencing token.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<Option<u64>>) -> Self {
        self.token = token.into();
        self
    }
}

/// Judges the mutual exclusion of one key, hold by hold.
///
/// Add holds in the order of [`from`](Hold::from). The judge keeps only holds that last, so its memory does
/// not grow with the length of a run. Each hold takes logarithmic time in their number.
#[derive(Clone, Debug, Default)]
pub struct Exclusion {
    exclusive: OpenHolds,
    shared: OpenHolds,
    permits: OpenHolds,
}

/// Holds that last, by their ends.
type OpenHolds = BTreeMap<(u64, u64), Hold>;

impl Exclusion {
    /// A key without a holder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a hold, and returns a hold that excludes it and lasts when it begins: the one that ends last.
    ///
    /// For permits, that is one of the holds that have reached the limit of the new hold. A hold that ends
    /// when it begins excludes no other.
    pub fn enter(&mut self, hold: Hold) -> Option<Hold> {
        if hold.until <= hold.from {
            return None;
        }
        for inside in self.all() {
            while inside
                .first_key_value()
                .is_some_and(|((until, _), _)| *until <= hold.from)
            {
                inside.pop_first();
            }
        }
        let other = self.excludes(hold.access);
        let inside = match hold.access {
            Access::Exclusive => &mut self.exclusive,
            Access::Permit(_) => &mut self.permits,
            Access::Shared => &mut self.shared,
        };
        inside.insert((hold.until, hold.holder), hold);
        other
    }

    /// Ends a hold before its time, in a run that is judged while it goes on.
    pub fn leave(&mut self, holder: u64) {
        for inside in self.all() {
            inside.retain(|(_, other), _| *other != holder);
        }
    }

    fn all(&mut self) -> [&mut OpenHolds; 3] {
        [&mut self.exclusive, &mut self.shared, &mut self.permits]
    }

    fn excludes(&self, access: Access) -> Option<Hold> {
        let last = |inside: &OpenHolds| inside.last_key_value().map(|(_, hold)| *hold);
        last(&self.exclusive).or_else(|| match access {
            Access::Exclusive => last(&self.shared).or_else(|| last(&self.permits)),
            Access::Permit(limit) => last(&self.shared).or_else(|| {
                let limit = usize::try_from(limit.get()).unwrap_or(usize::MAX);
                last(&self.permits).filter(|_| self.permits.len() >= limit)
            }),
            Access::Shared => last(&self.permits),
        })
    }
}

/// Judges the fencing tokens of one key, hold by hold.
///
/// A token must be larger than those of all earlier holders that its holder excludes, and of all holders
/// that were granted the lock before its holder requested it. Readers that requested the lock at the same
/// time may have the same token.
///
/// Holds come in the order of [`from`](Hold::from); one that was noted after its lease had ended may be out
/// of order, see [`check_holds`](crate::check_holds). Memory grows with the number of shared holds and
/// permits, and not with that of exclusive holds.
#[derive(Clone, Debug, Default)]
pub struct TokenOrder {
    of_all: Option<Hold>,
    of_exclusive: Option<Hold>,
    /// Each shared hold or permit with a larger token than those before it, by when it began.
    of_others: Vec<Hold>,
}

impl TokenOrder {
    /// A key that has had no holder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a hold, and returns an earlier one whose token is not smaller although it should be: the
    /// one with the largest token. A hold without a token is left out.
    pub fn grant(&mut self, hold: Hold) -> Option<Hold> {
        hold.token?;
        let before = match hold.access {
            Access::Exclusive => self.of_all,
            Access::Permit(_) | Access::Shared => {
                larger(self.of_exclusive, self.other_before(hold.requested))
            }
        };
        self.of_all = larger(self.of_all, Some(hold));
        if hold.access == Access::Exclusive {
            self.of_exclusive = larger(self.of_exclusive, Some(hold));
        } else if self
            .of_others
            .last()
            .is_none_or(|last| hold.token > last.token)
        {
            self.of_others.push(hold);
        }
        before.filter(|before| before.token >= hold.token)
    }

    fn other_before(&self, moment: u64) -> Option<Hold> {
        let count = self.of_others.partition_point(|hold| hold.from < moment);
        count.checked_sub(1).map(|last| self.of_others[last])
    }
}

/// The one with the larger token, the first if both are the same.
fn larger(first: Option<Hold>, second: Option<Hold>) -> Option<Hold> {
    match (first, second) {
        (Some(first), Some(second)) if second.token > first.token => Some(second),
        (first, second) => first.or(second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_left_excludes_no_other_holder() {
        let mut exclusion = Exclusion::new();
        assert_eq!(exclusion.enter(Hold::open(1, 10)), None);
        let first = Some(Hold::open(1, 10));
        assert_eq!(exclusion.enter(Hold::open(2, 11)), first);
        exclusion.leave(1);
        exclusion.leave(2);
        assert_eq!(exclusion.enter(Hold::open(3, 12)), None);
    }

    #[test]
    fn a_hold_of_no_length_is_none() {
        let mut exclusion = Exclusion::new();
        assert_eq!(exclusion.enter(Hold::new(1, 5, 9)), None);
        assert_eq!(exclusion.enter(Hold::new(2, 6, 6)), None);
        let first = Some(Hold::new(1, 5, 9));
        assert_eq!(exclusion.enter(Hold::new(3, 6, 7)), first);
        assert_eq!(exclusion.enter(Hold::new(4, 8, 9)), first);
        assert_eq!(exclusion.enter(Hold::new(5, 9, 9)), None);
    }
}
