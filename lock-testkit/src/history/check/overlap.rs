//! Nobody is granted a lock while another one relies on it: a sweep over all grants.

use std::collections::BTreeSet;

use super::Violation;
use crate::history::event::Access;
use crate::history::span::KeyHistory;

pub(super) fn check(history: &KeyHistory, found: &mut Vec<Violation>) {
    let mut grants: Vec<_> = history
        .tenures()
        .map(|(span, tenure)| {
            (
                tenure.from,
                span.valid_until(tenure),
                span.access,
                span.attempt,
            )
        })
        .filter(|(from, until, ..)| from < until)
        .collect();
    grants.sort_unstable_by_key(|(from, _, _, attempt)| (*from, *attempt));
    let mut inside = Inside::default();
    for (from, until, access, attempt) in grants {
        inside.leave(from);
        if let Some(first) = inside.excludes(access) {
            found.push(Violation::Overlap {
                first,
                second: attempt,
            });
        }
        inside.enter(access, until, attempt);
    }
}

/// Who holds the lock at a moment, by their ends.
#[derive(Default)]
struct Inside {
    exclusive: BTreeSet<(u64, u64)>,
    shared: BTreeSet<(u64, u64)>,
    permits: BTreeSet<(u64, u64)>,
}

impl Inside {
    fn leave(&mut self, now: u64) {
        for holders in [&mut self.exclusive, &mut self.shared, &mut self.permits] {
            while holders.first().is_some_and(|(until, _)| *until <= now) {
                holders.pop_first();
            }
        }
    }

    fn enter(&mut self, access: Access, until: u64, attempt: u64) {
        let holders = match access {
            Access::Exclusive => &mut self.exclusive,
            Access::Permit(_) => &mut self.permits,
            Access::Shared => &mut self.shared,
        };
        holders.insert((until, attempt));
    }

    /// One of those inside who must not be there together with a new holder.
    fn excludes(&self, access: Access) -> Option<u64> {
        let any = |holders: &BTreeSet<(u64, u64)>| holders.last().map(|(_, attempt)| *attempt);
        let crowd = |limit: usize| any(&self.permits).filter(|_| self.permits.len() >= limit);
        any(&self.exclusive).or_else(|| match access {
            Access::Exclusive => any(&self.shared).or_else(|| any(&self.permits)),
            Access::Permit(limit) => any(&self.shared)
                .or_else(|| crowd(usize::try_from(limit.get()).unwrap_or(usize::MAX))),
            Access::Shared => any(&self.permits),
        })
    }
}
