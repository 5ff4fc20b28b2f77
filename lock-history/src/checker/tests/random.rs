//! Random histories, judged twice.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::{Story, naive, permit, strict};
use crate::event::{Access, What};

/// One acquisition of a random history, with few distinct times so that ties are common.
fn acquisition(attempt: u64) -> impl Strategy<Value = Story> {
    let access = prop_oneof![
        3 => Just(Access::Exclusive),
        2 => Just(Access::Shared),
        1 => (1..3_u32).prop_map(permit),
    ];
    let times = (0..60_u64, 0..50_u64, 0..40_u64, 0..40_u64);
    let rest = (1..12_u64, 0..5_u8, any::<bool>());
    (access, times, rest).prop_map(
        move |(access, (asks, waits, lasts, uses), (token, end, clean))| {
            let (from, until) = (asks + waits, asks + waits + lasts);
            let ends = from + uses;
            let story = Story::default().asks(asks, attempt, access);
            let error = "Contended".to_owned();
            let held = story.clone().granted(from, attempt, token, until);
            match end {
                0 => story.tell(from, attempt, What::Refused { error }),
                1 => held.loses(ends, attempt, if clean { "expired" } else { "stolen" }),
                2 => held.seen(ends, attempt, Some(until + 10)),
                _ => held
                    .tell(ends, attempt, What::Releasing { held: ends < until })
                    .tell(ends + 1, attempt, What::Released { clean: Some(clean) }),
            }
        },
    )
}

fn history() -> impl Strategy<Value = Story> {
    let some = (1..9_u64).prop_flat_map(|n| (1..=n).map(acquisition).collect::<Vec<_>>());
    (some, proptest::option::of(0..90_u64)).prop_map(|(stories, interfered)| {
        let mut story = Story::default();
        for event in stories.into_iter().flat_map(|story| story.0) {
            story = story.tell(event.at, event.attempt, event.what);
        }
        match interfered {
            Some(at) => story.interfered(at),
            None => story,
        }
    })
}

/// What both judges say of a history, with a max_idle that random histories try.
fn both(story: &Story) -> (Vec<naive::Finding>, Vec<naive::Finding>) {
    let checker = strict().with_max_idle(Duration::from_nanos(15));
    let verdict = checker.check(&story.0);
    let quick = verdict.violations.iter();
    let quick = quick.map(|(_, what)| naive::kind_and_culprit(what));
    let (mut quick, mut slow) = (quick.collect::<Vec<_>>(), naive::judge(&story.0, 5, 15));
    quick.sort_unstable();
    slow.sort_unstable();
    (quick, slow)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_slow_judge_agrees(story in history()) {
        let (quick, slow) = both(&story);
        prop_assert_eq!(quick, slow);
    }
}

#[test]
fn random_histories_contain_every_kind_and_clean_ones() {
    let mut runner = TestRunner::deterministic();
    let mut kinds = BTreeSet::new();
    for _ in 0..2_000 {
        let story = history().new_tree(&mut runner).unwrap().current();
        let (quick, _) = both(&story);
        kinds.extend(quick.iter().map(|(kind, _)| *kind));
        if quick.is_empty() {
            kinds.insert("clean");
        }
    }
    let expected = [
        "clean",
        "foreign release",
        "held after loss",
        "late signal",
        "overlap",
        "starved",
        "token",
        "without cause",
    ];
    let kinds: Vec<_> = kinds.into_iter().collect();
    assert_eq!(kinds, expected, "the random histories are asleep");
}
