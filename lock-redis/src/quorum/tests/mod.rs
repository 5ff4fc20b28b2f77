//! Histories of acquisitions over nodes that forget nothing and a network that does.

mod history;
mod node;
mod script;

use self::history::{Found, History, Rules};

/// Enough for the naive rule to fail in most of them.
const HISTORIES: u64 = 3_000;

fn over_all(rules: Rules) -> Found {
    let mut all = Found::default();
    for seed in 0..HISTORIES {
        let found = History::new(seed, rules).run();
        assert_eq!(found.overlaps, 0, "two hold the lock, seed {seed}");
        if rules.records {
            assert_eq!(found.regressions, 0, "a token went back, seed {seed}");
            assert_eq!(found.doubles, 0, "two have one token, seed {seed}");
        }
        all.add(found);
    }
    assert!(
        all.grants > 5 * HISTORIES,
        "hardly anything was granted: {all:?}"
    );
    all
}

#[test]
fn recorded_tokens_grow_over_all_majorities() {
    let records = true;
    over_all(Rules {
        records,
        shared: false,
    });
}

#[test]
fn recorded_tokens_of_readers_differ_and_follow_those_before_them() {
    let records = true;
    over_all(Rules {
        records,
        shared: true,
    });
}

#[test]
fn the_plain_maximum_of_the_counters_goes_back() {
    let records = false;
    let found = over_all(Rules {
        records,
        shared: false,
    });
    assert!(found.regressions > HISTORIES / 10, "{found:?}");
}
