//! Which master Sentinels name. Pure.

use crate::config::Endpoint;

/// The master that most replies name, and whether those are a majority of all `sentinels`. In a tie, the
/// master that was named first wins.
///
/// One Sentinel may be outdated, beside a partitioned old master that does not know of its replacement.
pub(super) fn leader(named: &[Endpoint], sentinels: usize) -> Option<(&Endpoint, bool)> {
    let count = |one: &Endpoint| named.iter().filter(|other| *other == one).count();
    // The last of the largest ones is taken.
    let leader = named.iter().rev().max_by_key(|one| count(one))?;
    Some((leader, 2 * count(leader) > sentinels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_of_all_decides_and_else_most_of_those_that_answer_lead() {
        for (sentinels, said, expected) in [
            (3, &[][..], None),
            (1, &[1], Some((1, true))),
            (3, &[1], Some((1, false))),
            (3, &[1, 2], Some((1, false))),
            (3, &[1, 2, 2], Some((2, true))),
            (4, &[2, 1, 2, 1], Some((2, false))),
            (5, &[1, 2, 2], Some((2, false))),
        ] {
            let at = |port: &u16| Endpoint::tcp("a", *port);
            let named: Vec<_> = said.iter().map(at).collect();
            let expected = expected.map(|(port, is_decided)| (at(&port), is_decided));
            let found = leader(&named, sentinels);
            let found = found.map(|(leader, is_decided)| (leader.clone(), is_decided));
            assert_eq!(found, expected, "{said:?} of {sentinels}");
        }
    }
}
