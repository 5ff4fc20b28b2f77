//! Shared locks, permits, and locks that outlast the command.

use std::time::{Duration, Instant};

use crate::fixture::Place;

#[test]
fn modes_decide_which_caller_is_excluded() {
    // Options of two holders, and whether the second one gets the lock.
    for (first, second, code) in [("-s k", "-s k", 0), ("-s k", "-x k", 75), ("k", "-s k", 75)] {
        let place = Place::new();
        let _first = place.holder(first);
        place.expect(code, &format!("run -n {second} -- true"));
    }
}

#[test]
fn modes_and_namespaces_are_shown() {
    let place = Place::new();
    let lock = |key: &str| place.json(&["inspect", key])["lock"].clone();
    let _reader = place.holder("-s shared");
    assert_eq!(lock("shared")["mode"], "shared");
    let _first = place.holder("--permits 2 k");
    let _second = place.holder("--permits 2 k");
    place.expect(75, "run -n --permits 2 k -- true");
    let permits = lock("k");
    assert_eq!(permits["mode"], "permit", "{permits}");
    assert_eq!(permits["limit"], 2, "{permits}");
    assert_eq!(
        permits["holders"].as_array().map(Vec::len),
        Some(2),
        "{permits}"
    );

    let _other = place.expect(0, "--namespace a acquire other");
    let listed = place.json("--namespace a list");
    assert_eq!(
        listed["locks"].as_array().map(Vec::len),
        Some(1),
        "{listed}"
    );
    assert_eq!(listed["locks"][0]["key"], "other", "{listed}");
}

#[test]
fn a_lock_may_outlast_its_command() {
    let place = Place::new();
    let began = Instant::now();
    let line = "run --ttl 2s --min-hold 3s --events events k -- true";
    place.expect(0, line).says_only("");
    // That lockctl does not stay itself is shown by what is left.
    place.expect(75, "run -n k -- true");
    assert_eq!(place.event("released")["outcome"], "clean");
    place.until_free("k");
    let held = began.elapsed();
    assert!(
        held >= Duration::from_millis(2900),
        "k was free after {held:?}"
    );
}
