//! Who of the contenders holds the lock, and what the others wait for. Pure.
//!
//! The recipe is that of ZooKeeper's documentation ("Recipes and Solutions", locks and shared locks),
//! with the nearest writer in place of the first for readers, as in Madelson's `DistributedLock`,
//! and a queue for permits whose head alone watches the directory.

use std::collections::HashMap;

use lock_core::Mode;

use crate::names::Contender;

/// Where a contender stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Standing {
    /// Its node is not there.
    Gone,
    /// It holds the lock.
    Holds,
    /// It waits.
    Behind(Blocker),
    /// Its permit is of another limit than those before it.
    OtherLimit(u32),
}

/// What a contender waits for; each wakes as few as can be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Blocker {
    /// The end of this node.
    End(String),
    /// The end of this node, or its getting a permit.
    EndOrPermit(String),
    /// Any change of the directory: the first who waits for a permit.
    Directory,
}

/// The contenders among the children of a directory, in line.
///
/// Numbers are compared with the one of `own`, if it is there, so that the order holds across the
/// wrap of the counter.
pub(crate) fn in_line<'a>(
    names: impl IntoIterator<Item = &'a str>,
    own: Option<&str>,
) -> Vec<Contender> {
    let mut line: Vec<_> = names.into_iter().filter_map(Contender::parse).collect();
    let pivot = line
        .iter()
        .find(|contender| Some(&*contender.name) == own)
        .or_else(|| line.first());
    if let Some(pivot) = pivot.map(|contender| contender.sequence) {
        line.sort_by_key(|contender| contender.sequence.after(pivot));
    }
    line
}

/// Whether their numbers do not tell the order of contenders, but only when they were created.
pub(crate) fn is_out_of_numbers(line: &[Contender]) -> bool {
    line.iter().any(|contender| contender.sequence.is_used_up())
}

/// Puts contenders in the order in which they were created; those whose node is gone drop out.
pub(crate) fn by_creation(line: &mut Vec<Contender>, created: &HashMap<String, i64>) {
    line.retain(|contender| created.contains_key(&contender.name));
    line.sort_by_key(|contender| created.get(&contender.name).copied());
}

/// Where the contender of this name stands.
pub(crate) fn standing(line: &[Contender], name: &str) -> Standing {
    let Some(at) = line.iter().position(|contender| contender.name == name) else {
        return Standing::Gone;
    };
    let (before, own) = (&line[..at], &line[at]);
    let end = |blocker: &Contender| Standing::Behind(Blocker::End(blocker.name.clone()));
    match own.mode {
        Mode::Permit { limit } => {
            if let Some(blocker) = before.iter().rev().find(|other| !is_permit(other)) {
                return end(blocker);
            }
            if let Some(other) = before.iter().find_map(|other| other_limit(other, own.mode)) {
                return Standing::OtherLimit(other);
            }
            match before.last() {
                Some(last) if before.len() > limit.get() as usize => {
                    Standing::Behind(Blocker::EndOrPermit(last.name.clone()))
                }
                _ if before.len() >= limit.get() as usize => Standing::Behind(Blocker::Directory),
                _ => Standing::Holds,
            }
        }
        Mode::Shared => {
            let is_in_the_way = |other: &&Contender| other.mode != Mode::Shared;
            before
                .iter()
                .rev()
                .find(is_in_the_way)
                .map_or(Standing::Holds, end)
        }
        _ => before.last().map_or(Standing::Holds, end),
    }
}

/// Those who hold the lock; they come first.
pub(crate) fn holders(line: &[Contender]) -> usize {
    let holds = |contender: &&Contender| standing(line, &contender.name) == Standing::Holds;
    line.iter().take_while(holds).count()
}

fn is_permit(contender: &Contender) -> bool {
    matches!(contender.mode, Mode::Permit { .. })
}

fn other_limit(other: &Contender, own: Mode) -> Option<u32> {
    match other.mode {
        Mode::Permit { limit } if other.mode != own => Some(limit.get()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(kind: &str, number: i64) -> String {
        let kind = match kind {
            "X" => "-lock-",
            "W" => "__WRIT__",
            "R" => "__READ__",
            "P" => "__PERM__2-",
            "Q" => "__PERM__3-",
            other => panic!("{other}"),
        };
        format!("c{kind}{number:010}")
    }

    fn line(kinds: &str) -> Vec<Contender> {
        let names: Vec<_> = kinds
            .split(' ')
            .zip(0..)
            .map(|(kind, at)| name(kind, at))
            .collect();
        in_line(names.iter().map(String::as_str), None)
    }

    /// One word for each: `+` holds, `eN` waits for the end of N, `pN` for its permit too, `d`
    /// watches the directory, `!` is of another limit.
    fn shown(line: &[Contender]) -> String {
        let at = |name: &str| line.iter().position(|other| other.name == name).unwrap();
        let show = |contender: &Contender| match standing(line, &contender.name) {
            Standing::Gone => "-".to_owned(),
            Standing::Holds => "+".to_owned(),
            Standing::Behind(Blocker::End(name)) => format!("e{}", at(&name)),
            Standing::Behind(Blocker::EndOrPermit(name)) => format!("p{}", at(&name)),
            Standing::Behind(Blocker::Directory) => "d".to_owned(),
            Standing::OtherLimit(_) => "!".to_owned(),
        };
        line.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_waits_for_as_little_as_can_be() {
        let cases = [
            ("X", "+", 1),
            ("X X X", "+ e0 e1", 1),
            ("X W X", "+ e0 e1", 1),
            ("R R R", "+ + +", 3),
            ("R R X R R X", "+ + e1 e2 e2 e4", 2),
            ("X R R X R", "+ e0 e0 e2 e3", 1),
            ("P P", "+ +", 2),
            ("P P P P P", "+ + d p2 p3", 2),
            ("P X P", "+ e0 e1", 1),
            ("X P P", "+ e0 e0", 1),
            ("R P P", "+ e0 e0", 1),
            ("P R X", "+ e0 e1", 1),
            ("P P X P P", "+ + e1 e2 e2", 2),
            ("P Q P", "+ ! !", 1),
        ];
        for (kinds, expected, holding) in cases {
            let line = line(kinds);
            assert_eq!(shown(&line), expected, "{kinds}");
            assert_eq!(holders(&line), holding, "{kinds}");
        }
    }

    #[test]
    fn who_is_not_there_is_gone() {
        assert_eq!(standing(&line("X X"), "else"), Standing::Gone);
        assert_eq!(standing(&[], "else"), Standing::Gone);
        assert_eq!(holders(&[]), 0);
    }

    #[test]
    fn the_numbers_count_and_not_the_letters_before_them() {
        let names = [
            "z-lock-0000000001",
            "a-lock-0000000002",
            "m__lock__0000000000",
            "junk",
        ];
        let line = in_line(names, None);
        let order: Vec<_> = line.iter().map(|contender| contender.sequence.0).collect();
        assert_eq!(order, [0, 1, 2]);
    }

    #[test]
    fn the_line_goes_on_across_the_wrap() {
        let names = [
            "a-lock--2147483648",
            "b-lock-2147483646",
            "c-lock-2147483647",
        ];
        for own in [None, Some(names[0]), Some(names[1]), Some(names[2])] {
            let line = in_line(names, own);
            assert!(is_out_of_numbers(&line));
            let order: Vec<_> = line.iter().map(|contender| &contender.name[..1]).collect();
            assert_eq!(order, ["b", "c", "a"], "seen from {own:?}");
        }
    }

    #[test]
    fn equal_numbers_are_told_apart_by_creation() {
        let names = [
            "a-lock-2147483647",
            "b-lock-2147483647",
            "c-lock-2147483646",
        ];
        let mut line = in_line(names, Some(names[0]));
        let created = [(names[0], 12), (names[1], 11)];
        let created = created.map(|(name, zxid)| (name.to_owned(), zxid)).into();
        by_creation(&mut line, &created);
        let order: Vec<_> = line.iter().map(|contender| &contender.name[..1]).collect();
        assert_eq!(order, ["b", "a"]);
    }

    proptest::proptest! {
        /// Whatever stands in line: writers hold alone, permits within their limit, somebody holds,
        /// and whoever waits does so for somebody before it.
        #[test]
        fn nobody_holds_beside_who_excludes_it(kinds in "[XWRP]( [XWRP]){0,12}") {
            let line = line(&kinds);
            let holding: Vec<_> = line
                .iter()
                .filter(|own| standing(&line, &own.name) == Standing::Holds)
                .collect();
            proptest::prop_assert!(!holding.is_empty());
            proptest::prop_assert_eq!(holding.len(), holders(&line));
            let modes: Vec<_> = holding.iter().map(|own| own.mode).collect();
            proptest::prop_assert!(modes.windows(2).all(|pair| pair[0] == pair[1]));
            if modes[0] == Mode::Exclusive {
                proptest::prop_assert_eq!(modes.len(), 1);
            }
            if is_permit(holding[0]) {
                proptest::prop_assert!(modes.len() <= 2);
            }
            for (at, own) in line.iter().enumerate() {
                if let Standing::Behind(Blocker::End(name) | Blocker::EndOrPermit(name)) =
                    standing(&line, &own.name)
                {
                    proptest::prop_assert!(line[..at].iter().any(|other| other.name == name));
                }
            }
        }
    }
}
