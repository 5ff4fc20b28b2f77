//! Histories of acquisitions over nodes that forget nothing and a network that does.

mod history;
mod node;
mod script;

use std::collections::HashSet;

use lock_history::Violation;

use self::history::{History, Rules};

/// Enough for the naive rule to fail in most of them.
const HISTORIES: u64 = 3_000;

/// How many histories of so many have a token that is not larger than one before it.
fn disordered(rules: Rules) -> u64 {
    let (mut grants, mut disordered) = (0, 0);
    for seed in 0..HISTORIES {
        let (guards, wrong) = History::new(seed, rules).run();
        let overlap = |wrong: &Violation| matches!(wrong, Violation::Overlap { .. });
        assert!(!wrong.iter().any(overlap), "seed {seed}: {wrong:?}");
        if rules.records {
            assert_eq!(wrong, [], "seed {seed}");
            // Of readers that are there together as well, whom the checker lets have the same.
            let tokens: HashSet<_> = guards.iter().map(|guard| guard.token).collect();
            assert_eq!(
                tokens.len(),
                guards.len(),
                "two have one token, seed {seed}"
            );
        }
        grants += guards.len() as u64;
        disordered += u64::from(!wrong.is_empty());
    }
    assert!(
        grants > 5 * HISTORIES,
        "hardly anything was granted: {grants} guards in {HISTORIES} histories"
    );
    disordered
}

#[test]
fn recorded_tokens_grow_over_all_majorities() {
    for shared in [false, true] {
        let rules = Rules {
            records: true,
            shared,
        };
        assert_eq!(disordered(rules), 0);
    }
}

#[test]
fn the_plain_maximum_of_the_counters_goes_back() {
    let rules = Rules {
        records: false,
        shared: false,
    };
    let disordered = disordered(rules);
    assert!(
        disordered > HISTORIES / 10,
        "tokens go back in {disordered} of {HISTORIES} histories"
    );
}
