//! One lock, as a majority of the nodes shows it. Pure.

use std::collections::BTreeMap;

use lock_core::admin::{HolderInfo, LockInfo};
use lock_core::{LockKey, Mode};

use super::vote::majority;
use crate::reply::Seen;

/// Merges what nodes show of a lock; `None` for a free one. Of `nodes` in all, those that are
/// missing in `seen` have not answered, and may have whatever the others have.
pub(super) fn merged(key: &LockKey, nodes: usize, seen: &[Option<Seen>]) -> Option<LockInfo> {
    let missing = nodes - seen.len();
    let counts = |count: usize| count + missing >= majority(nodes);
    let mut holders: BTreeMap<&str, Vec<HolderInfo>> = BTreeMap::new();
    let mut exclusive = 0;
    for seen in seen.iter().flatten() {
        exclusive += usize::from(seen.mode() == Mode::Exclusive);
        for holder in &seen.holders {
            let id = holder.value.split('|').next().unwrap_or_default();
            holders.entry(id).or_default().push(seen.holder(holder));
        }
    }
    // Those with fewer votes have not got the lock, or not any more.
    let holders = holders.into_values().filter(|shown| counts(shown.len()));
    let mut holders: Vec<_> = holders
        .map(|shown| agreed(shown, majority(nodes)))
        .collect();
    if holders.is_empty() {
        return None;
    }
    holders.sort_by_key(|holder| holder.token);
    let mode = if counts(exclusive) {
        Mode::Exclusive
    } else {
        Mode::Shared
    };
    Some(LockInfo::new(key.clone(), mode, holders))
}

/// What a majority says of a holder, or as many as there are.
fn agreed(mut shown: Vec<HolderInfo>, majority: usize) -> HolderInfo {
    let nth = majority.min(shown.len()) - 1;
    // The lease lasts for as long as a majority has it.
    shown.sort_by_key(|holder| std::cmp::Reverse(holder.time_left));
    let time_left = shown[nth].time_left;
    // A majority has the token on record; a late vote may have given a larger one.
    shown.sort_by_key(|holder| std::cmp::Reverse(holder.token));
    let mut holder = shown.swap_remove(nth);
    holder.time_left = time_left;
    holder
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::FencingToken;

    use super::*;
    use crate::reply::SeenHolder;

    const A: &str = "000102030405060708090a0b0c0d0e0f";
    const B: &str = "100102030405060708090a0b0c0d0e0f";

    fn key() -> LockKey {
        LockKey::new("a").unwrap()
    }

    fn held(id: &str, left: i64, token: u64) -> Option<Seen> {
        Some(Seen {
            mode: "x".into(),
            holders: vec![SeenHolder {
                value: format!("{id}|"),
                left,
                note: String::new(),
            }],
            fence: format!("{:016}|{id}", token + 31),
            waiters: vec![],
        })
    }

    #[test]
    fn a_holder_has_a_majority() {
        let seen = [
            held(A, 900, 5),
            held(B, 100, 9),
            held(A, 500, 5),
            held(A, 700, 7),
            None,
        ];
        let info = merged(&key(), 5, &seen).unwrap();
        let [holder] = &info.holders[..] else {
            panic!("{info:?}")
        };
        assert_eq!(info.mode, Mode::Exclusive);
        assert_eq!(holder.time_left, Some(Duration::from_millis(500)));
        assert_eq!(holder.token, Some(FencingToken::new(5)));
        let split = [
            held(A, 900, 5),
            held(B, 100, 9),
            held(A, 500, 5),
            held(B, 1, 1),
            None,
        ];
        assert_eq!(merged(&key(), 5, &split), None, "nobody has won");
        assert_eq!(merged(&key(), 5, &[None, None, None]), None);
    }

    #[test]
    fn who_does_not_answer_may_be_the_majority() {
        let seen = [held(A, 900, 5), None, held(A, 900, 5)];
        assert!(merged(&key(), 5, &seen).is_some());
        let seen = [held(A, 900, 5), None, None, None];
        assert!(merged(&key(), 5, &seen).is_none());
    }

    #[test]
    fn readers_are_shown_together() {
        let seen = Seen {
            mode: "s".into(),
            holders: [(A, "7|"), (B, "5|")]
                .map(|(id, note)| SeenHolder {
                    value: id.into(),
                    left: 10,
                    note: note.into(),
                })
                .to_vec(),
            fence: String::new(),
            waiters: vec![],
        };
        let info = merged(&key(), 3, &[Some(seen.clone()), None, Some(seen)]).unwrap();
        assert_eq!(info.mode, Mode::Shared);
        let tokens: Vec<_> = info
            .holders
            .iter()
            .map(|h| h.token.unwrap().value())
            .collect();
        assert_eq!(tokens, [5, 7]);
    }
}
