//! Whether fencing tokens grow over holders.

use crate::{Access, Hold};

/// Judges the fencing tokens of one key, hold by hold.
///
/// A token must be larger than those of all earlier holders that its holder excludes, and of all holders
/// that were granted the lock before its holder requested it. Readers that requested the lock at the same
/// time may have the same token.
///
/// Holds come in the order of [`from`](Hold::from). Memory grows with the number of shared holds and
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
