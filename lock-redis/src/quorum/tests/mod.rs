//! Histories of acquisitions over nodes that restart and a network that loses messages.

mod history;
mod node;
mod script;
mod token_order;

use std::collections::HashSet;

use polylock_history::Violation;

use self::history::{History, Rules, TTL};

/// Enough to detect each missing rule.
const HISTORIES: u64 = 1_000;

/// The rules of the backend, for nodes that forget nothing.
const RULES: Rules = Rules {
    records: true,
    shared: false,
    restarts: None,
    renews_by_majority: true,
};

/// How many histories have a violation of each kind.
#[derive(Debug, Default, Eq, PartialEq)]
struct Violations {
    /// Two hold the lock at once.
    overlaps: u64,
    /// A token is not larger than that of an earlier holder.
    disorders: u64,
    /// Two have one token: readers that overlap as well, which the checker allows.
    twins: u64,
}

fn violations(rules: Rules) -> Violations {
    let (mut grants, mut found) = (0, Violations::default());
    for seed in 0..HISTORIES {
        let (guards, wrong) = History::new(seed, rules).run();
        let overlap = |wrong: &Violation| matches!(wrong, Violation::Overlap { .. });
        let tokens: HashSet<_> = guards.iter().map(|guard| guard.token).collect();
        found.overlaps += u64::from(wrong.iter().any(overlap));
        found.disorders += u64::from(!wrong.iter().all(overlap));
        found.twins += u64::from(tokens.len() < guards.len());
        grants += guards.len() as u64;
    }
    assert!(
        grants > 5 * HISTORIES,
        "hardly anything was granted: {grants} guards in {HISTORIES} histories"
    );
    found
}

#[test]
fn recorded_tokens_grow_over_all_majorities() {
    for shared in [false, true] {
        let found = violations(Rules { shared, ..RULES });
        assert_eq!(found, Violations::default());
    }
}

#[test]
fn the_plain_maximum_of_the_counters_goes_back() {
    let found = violations(Rules {
        records: false,
        ..RULES
    });
    assert_eq!(found.overlaps, 0);
    assert!(found.disorders > HISTORIES / 10, "{found:?}");
}

#[test]
fn nodes_that_forget_and_stay_out_let_no_second_holder_in() {
    for shared in [false, true] {
        let restarts = Some(TTL);
        let found = violations(Rules {
            shared,
            restarts,
            ..RULES
        });
        assert_eq!((found.overlaps, found.disorders), (0, 0), "{found:?}");
    }
}

#[test]
fn nodes_that_forget_and_vote_at_once_let_a_second_holder_in() {
    let restarts = Some(0);
    let found = violations(Rules { restarts, ..RULES });
    assert!(found.overlaps > HISTORIES / 100, "{found:?}");
}

#[test]
fn renewals_that_count_any_node_let_a_second_holder_in() {
    let found = violations(Rules {
        renews_by_majority: false,
        ..RULES
    });
    assert!(found.overlaps > HISTORIES / 100, "{found:?}");
}
