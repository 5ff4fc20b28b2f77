use std::collections::HashMap;

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
    contenders_in_order(names.iter().map(String::as_str), None)
}

/// One word for each: `+` holds, `eN` waits for the end of N, `pN` for its permit too, `d`
/// watches the directory.
fn shown(line: &[Contender]) -> String {
    let at = |name: &str| line.iter().position(|other| other.name == name).unwrap();
    let show = |contender: &Contender| match queue_position(line, &contender.name) {
        QueuePosition::Gone => "-".to_owned(),
        QueuePosition::Holds => "+".to_owned(),
        QueuePosition::Behind(Blocker::End(name)) => format!("e{}", at(&name)),
        QueuePosition::Behind(Blocker::EndOrPermit(name)) => format!("p{}", at(&name)),
        QueuePosition::Behind(Blocker::Directory) => "d".to_owned(),
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
        ("X P P P P P", "+ e0 e0 p2 p3 p4", 1),
        ("R P P P", "+ e0 e0 p2", 1),
        ("X P Q P P", "+ e0 e0 p2 p3", 1),
        ("X Q Q Q P Q", "+ e0 e0 e0 p3 p4", 1),
        ("Q Q P Q", "+ + d p2", 2),
        ("P P Q Q", "+ + + d", 3),
        ("P P X P P P", "+ + e1 e2 e2 p4", 2),
        ("X P P R P P P", "+ e0 e0 e2 e3 e3 p5", 1),
        ("P R X", "+ e0 e1", 1),
        ("P P X P P", "+ + e1 e2 e2", 2),
        ("P Q P", "+ + d", 2),
    ];
    for (kinds, expected, holding) in cases {
        let line = line(kinds);
        assert_eq!(shown(&line), expected, "{kinds}");
        assert_eq!(holders(&line), holding, "{kinds}");
    }
}

#[test]
fn who_is_not_there_is_gone() {
    assert_eq!(queue_position(&line("X X"), "else"), QueuePosition::Gone);
    assert_eq!(queue_position(&[], "else"), QueuePosition::Gone);
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
    let line = contenders_in_order(names, None);
    let order: Vec<_> = line.iter().map(|contender| contender.sequence.0).collect();
    assert_eq!(order, [0, 1, 2]);
}

proptest::proptest! {
    /// For any queue: writers hold alone, permits stay within their limit, there is a holder, and
    /// every waiter waits for a predecessor.
    #[test]
    fn no_contender_holds_beside_one_that_excludes_it(kinds in "[XWRPQ]( [XWRPQ]){0,12}") {
        let line = line(&kinds);
        let holding: Vec<_> = line
            .iter()
            .filter(|own| queue_position(&line, &own.name) == QueuePosition::Holds)
            .collect();
        proptest::prop_assert!(!holding.is_empty());
        proptest::prop_assert_eq!(holding.len(), holders(&line));
        let modes: Vec<_> = holding.iter().map(|own| own.mode).collect();
        let kind = std::mem::discriminant::<Mode>;
        proptest::prop_assert!(modes.windows(2).all(|pair| kind(&pair[0]) == kind(&pair[1])));
        if modes[0] == Mode::Exclusive {
            proptest::prop_assert_eq!(modes.len(), 1);
        }
        for (ahead, holder) in holding.iter().enumerate() {
            proptest::prop_assert!(limit(holder).is_none_or(|limit| ahead < limit));
        }
        for (at, own) in line.iter().enumerate() {
            if let QueuePosition::Behind(Blocker::End(name) | Blocker::EndOrPermit(name)) =
                queue_position(&line, &own.name)
            {
                proptest::prop_assert!(line[..at].iter().any(|other| other.name == name));
            }
        }
    }

    /// For any change: a contender that it does not wake still waits rightly.
    #[test]
    fn no_wake_up_is_lost(steps in steps()) {
        let mut crowd = Crowd::default();
        for (kind, number) in steps.into_iter().zip(0..) {
            match kind {
                Step::Comes(kind) => crowd.comes(name(kind, number)),
                Step::Goes(at) if !crowd.line.is_empty() => crowd.goes(at % crowd.line.len()),
                Step::Goes(_) => {}
            }
            for own in &crowd.line {
                let expected = queue_position(&crowd.line, &own.name);
                let holds = crowd.known[&own.name] == QueuePosition::Holds;
                proptest::prop_assert_eq!(expected == QueuePosition::Holds, holds, "{:?}", own);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Comes(&'static str),
    Goes(usize),
}

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    use proptest::prelude::{Strategy, prop_oneof};
    let kinds = proptest::sample::select(vec!["X", "R", "P", "P", "P", "P", "Q"]);
    let step = prop_oneof![
        3 => kinds.prop_map(Step::Comes),
        2 => (0..64_usize).prop_map(Step::Goes),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Contenders that check again when their blocker changes, and at no other time.
#[derive(Default)]
struct Crowd {
    line: Vec<Contender>,
    /// What each saw when it looked last.
    known: HashMap<String, QueuePosition>,
}

impl Crowd {
    fn comes(&mut self, name: String) {
        self.line
            .push(Contender::parse(&name).expect("it is a name"));
        let seen = queue_position(&self.line, &name);
        // A watch on the directory is set by then, and the next change of it that counts is an end.
        self.known.insert(name, seen);
    }

    fn goes(&mut self, at: usize) {
        let gone = self.line.remove(at).name;
        self.known.remove(&gone);
        let mut ends = vec![gone];
        let mut writes = Vec::new();
        while !ends.is_empty() || !writes.is_empty() {
            let (ended, written) = (std::mem::take(&mut ends), std::mem::take(&mut writes));
            let is_woken = |seen: &QueuePosition| match seen {
                QueuePosition::Behind(Blocker::End(name)) => ended.contains(name),
                QueuePosition::Behind(Blocker::EndOrPermit(name)) => {
                    ended.contains(name) || written.contains(name)
                }
                QueuePosition::Behind(Blocker::Directory) => !ended.is_empty(),
                _ => false,
            };
            let woken = self.known.iter().filter(|(_, seen)| is_woken(seen));
            let woken: Vec<_> = woken.map(|(name, _)| name.clone()).collect();
            for name in woken {
                let seen = queue_position(&self.line, &name);
                // It was created before the end that woke it, and so writes.
                if seen == QueuePosition::Holds {
                    writes.push(name.clone());
                }
                self.known.insert(name, seen);
            }
        }
    }
}
