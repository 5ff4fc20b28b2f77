use std::collections::HashMap;

use super::*;

#[derive(Debug)]
struct Contender {
    name: String,
    mode: Mode,
}

impl Queued for Contender {
    fn name(&self) -> &str {
        &self.name
    }

    fn mode(&self) -> Mode {
        self.mode
    }
}

/// `x` for exclusive, `s` for shared, a digit for the limit of a permit.
fn contender(kind: char, number: usize) -> Contender {
    Contender {
        name: number.to_string(),
        mode: match kind {
            'x' => Mode::Exclusive,
            's' => Mode::Shared,
            limit => Mode::Permit {
                limit: limit.to_string().parse().unwrap(),
            },
        },
    }
}

/// Contenders `0`, `1` and so on.
fn queue(kinds: &str) -> Vec<Contender> {
    let kinds = kinds.chars().zip(0..);
    kinds.map(|(kind, at)| contender(kind, at)).collect()
}

#[test]
fn each_waits_for_as_little_as_can_be() {
    // The queue, and what each of it waits for: nothing (-), an end, an end or permit (?), anything (*).
    let cases = [
        ("x", "-"),
        ("xxx", "- 0 1"),
        ("ss", "- -"),
        ("sss", "- - -"),
        ("ssxss", "- - 1 2 2"),
        ("ssxssx", "- - 1 2 2 4"),
        ("xss", "- 0 0"),
        ("xssxs", "- 0 0 2 3"),
        ("22", "- -"),
        ("222", "- - *"),
        ("22222", "- - * 2? 3?"),
        ("212", "- * 1?"),
        ("213", "- * 1?"),
        ("232", "- - *"),
        ("2233", "- - - *"),
        ("3323", "- - * 2?"),
        ("x22", "- 0 0"),
        ("x222", "- 0 0 2?"),
        ("x22222", "- 0 0 2? 3? 4?"),
        ("x2322", "- 0 0 2? 3?"),
        ("x33323", "- 0 0 0 3? 4?"),
        ("x22s222", "- 0 0 2 3 3 5?"),
        ("2x2", "- 0 1"),
        ("22x2", "- - 1 2"),
        ("22x22", "- - 1 2 2"),
        ("22x222", "- - 1 2 2 4?"),
        ("2sx", "- 0 1"),
        ("s2", "- 0"),
        ("s222", "- 0 0 2?"),
    ];
    for (kinds, expected) in cases {
        let queue = queue(kinds);
        let show = |own: &Contender| match queue_position(&queue, &own.name) {
            QueuePosition::Gone => "gone".to_owned(),
            QueuePosition::Holds => "-".to_owned(),
            QueuePosition::Behind(Blocker::Directory) => "*".to_owned(),
            QueuePosition::Behind(Blocker::End(name)) => name,
            QueuePosition::Behind(Blocker::EndOrPermit(name)) => format!("{name}?"),
        };
        let shown: Vec<_> = queue.iter().map(show).collect();
        assert_eq!(shown.join(" "), expected, "{kinds}");
        let holding = shown.iter().filter(|position| *position == "-").count();
        assert_eq!(queue_holders(&queue), holding, "{kinds}");
    }
    for kinds in ["", "xx"] {
        let queue = queue(kinds);
        assert_eq!(queue_position(&queue, "7"), QueuePosition::Gone, "{kinds}");
    }
    assert_eq!(queue_holders(&queue("")), 0);
}

proptest::proptest! {
    /// For any queue: writers hold alone, permits stay within their limit, there is a holder, and
    /// every waiter waits for a predecessor.
    #[test]
    fn no_contender_holds_beside_one_that_excludes_it(kinds in "[xs23]{1,13}") {
        let queue = queue(&kinds);
        let holding: Vec<_> = queue
            .iter()
            .filter(|own| queue_position(&queue, &own.name) == QueuePosition::Holds)
            .collect();
        proptest::prop_assert!(!holding.is_empty());
        proptest::prop_assert_eq!(holding.len(), queue_holders(&queue));
        let modes: Vec<_> = holding.iter().map(|own| own.mode).collect();
        let kind = std::mem::discriminant::<Mode>;
        proptest::prop_assert!(modes.windows(2).all(|pair| kind(&pair[0]) == kind(&pair[1])));
        if modes[0] == Mode::Exclusive {
            proptest::prop_assert_eq!(modes.len(), 1);
        }
        for (ahead, holder) in holding.iter().enumerate() {
            proptest::prop_assert!(limit(*holder).is_none_or(|limit| ahead < limit));
        }
        for (at, own) in queue.iter().enumerate() {
            if let QueuePosition::Behind(Blocker::End(name) | Blocker::EndOrPermit(name)) =
                queue_position(&queue, &own.name)
            {
                proptest::prop_assert!(queue[..at].iter().any(|other| other.name == name));
            }
        }
    }

    /// For any change: a contender that it does not wake still waits rightly.
    #[test]
    fn no_wake_up_is_lost(steps in steps()) {
        let mut contenders = Contenders::default();
        for (step, number) in steps.into_iter().zip(0..) {
            match step {
                Step::Comes(kind) => contenders.comes(contender(kind, number)),
                Step::Goes(at) if !contenders.queue.is_empty() => contenders.goes(at % contenders.queue.len()),
                Step::Goes(_) => {}
            }
            for own in &contenders.queue {
                let expected = queue_position(&contenders.queue, &own.name);
                let holds = contenders.known[&own.name] == QueuePosition::Holds;
                proptest::prop_assert_eq!(expected == QueuePosition::Holds, holds, "{:?}", own);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Comes(char),
    Goes(usize),
}

fn steps() -> impl proptest::strategy::Strategy<Value = Vec<Step>> {
    use proptest::prelude::{Strategy, prop_oneof};
    let kinds = proptest::sample::select(vec!['x', 's', '2', '2', '2', '2', '3']);
    let step = prop_oneof![
        3 => kinds.prop_map(Step::Comes),
        2 => (0..64_usize).prop_map(Step::Goes),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Contenders that check again when their blocker changes, and at no other time.
#[derive(Default)]
struct Contenders {
    queue: Vec<Contender>,
    /// What each saw when it looked last.
    known: HashMap<String, QueuePosition>,
}

impl Contenders {
    fn comes(&mut self, own: Contender) {
        let name = own.name.clone();
        self.queue.push(own);
        let seen = queue_position(&self.queue, &name);
        // A watch on the directory is set by then, and the next change of it that counts is an end.
        self.known.insert(name, seen);
    }

    fn goes(&mut self, at: usize) {
        let gone = self.queue.remove(at).name;
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
                let seen = queue_position(&self.queue, &name);
                // It was created before the end that woke it, and so writes.
                if seen == QueuePosition::Holds {
                    writes.push(name.clone());
                }
                self.known.insert(name, seen);
            }
        }
    }
}
