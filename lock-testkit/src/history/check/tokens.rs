//! Tokens grow over holders, and the register goes by them.

use super::Violation;
use crate::history::event::Access;
use crate::history::span::{KeyHistory, Write};

pub(super) fn check(history: &KeyHistory, found: &mut Vec<Violation>) {
    grants(history, found);
    register(&history.writes, found);
}

/// A holder's token is larger than that of everybody whom it excludes and who was granted the lock
/// before it, and than that of everybody who had been granted it before it asked.
///
/// Readers that asked at the same time may have the same token.
fn grants(history: &KeyHistory, found: &mut Vec<Violation>) {
    let mut grants: Vec<_> = history
        .tenures()
        .filter_map(|(span, tenure)| {
            tenure.token.map(|token| {
                (
                    tenure.from,
                    span.requested,
                    span.access,
                    token,
                    span.attempt,
                )
            })
        })
        .collect();
    grants.sort_unstable_by_key(|(from, .., attempt)| (*from, *attempt));
    let by_grant = LargestBefore::new(grants.iter().map(|(from, _, _, token, _)| (*from, *token)));
    let (mut of_all, mut of_exclusive) = (None, None);
    for &(_, requested, access, token, attempt) in &grants {
        let excluded = if access == Access::Exclusive {
            of_all
        } else {
            of_exclusive
        };
        let largest = excluded.max(by_grant.before(requested));
        match largest {
            Some(largest) if token == largest => {
                found.push(Violation::TokenReused {
                    later: attempt,
                    token,
                });
            }
            Some(largest) if token < largest => {
                found.push(Violation::TokenWentBack {
                    later: attempt,
                    token,
                    largest,
                });
            }
            _ => {}
        }
        of_all = of_all.max(Some(token));
        if access == Access::Exclusive {
            of_exclusive = of_exclusive.max(Some(token));
        }
    }
}

/// The largest token of all grants before a moment.
struct LargestBefore(Vec<(u64, u64)>);

impl LargestBefore {
    /// Takes moments in their order.
    fn new(grants: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut largest = 0;
        let running = grants.map(|(from, token)| {
            largest = token.max(largest);
            (from, largest)
        });
        Self(running.collect())
    }

    fn before(&self, moment: u64) -> Option<u64> {
        let count = self.0.partition_point(|(from, _)| *from < moment);
        count.checked_sub(1).map(|last| self.0[last].1)
    }
}

fn register(writes: &[Write], found: &mut Vec<Violation>) {
    let mut largest = None;
    for &Write {
        token, accepted, ..
    } in writes
    {
        match largest {
            Some(largest) if accepted && token < largest => {
                found.push(Violation::RegisterWentBack { token, largest });
            }
            _ if !accepted && Some(token) >= largest => {
                found.push(Violation::RefusedFreshToken { token });
            }
            _ => {}
        }
        if accepted {
            largest = largest.max(Some(token));
        }
    }
}
