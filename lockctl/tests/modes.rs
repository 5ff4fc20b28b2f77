//! Shared locks, permits, and locks that outlast the command.

mod common;

use std::time::{Duration, Instant};

use crate::common::{Place, until};

#[test]
fn shared_locks_exclude_exclusive_ones_only() {
    let place = Place::new();
    let _reader = place.hold(&["-s", "k"], "exec sleep 60");
    assert_eq!(place.code(&["run", "-n", "-s", "k", "--", "true"]).0, 0);
    assert_eq!(place.code(&["run", "-n", "-x", "k", "--", "true"]).0, 75);
    assert_eq!(place.json(&["inspect", "k"])["lock"]["mode"], "shared");
}

#[test]
fn an_exclusive_lock_excludes_shared_ones() {
    let place = Place::new();
    let _writer = place.hold(&["k"], "exec sleep 60");
    assert_eq!(place.code(&["run", "-n", "-s", "k", "--", "true"]).0, 75);
}

#[test]
fn slots_let_so_many_in() {
    let place = Place::new();
    let _first = place.hold(&["--slots", "2", "k"], "exec sleep 60");
    let second = place.hold(&["--slots", "2", "k"], "exec sleep 60");
    assert_eq!(
        place
            .code(&["run", "-n", "--slots", "2", "k", "--", "true"])
            .0,
        75
    );
    let lock = place.json(&["inspect", "k"])["lock"].clone();
    assert_eq!(
        (&lock["mode"], &lock["limit"]),
        (&"permit".into(), &2.into())
    );
    assert_eq!(lock["holders"].as_array().unwrap().len(), 2);
    drop(second);
}

#[test]
fn a_lock_may_outlast_its_command() {
    let place = Place::new();
    let began = Instant::now();
    let line = [
        "run",
        "--ttl",
        "2s",
        "--at-least-for",
        "3s",
        "k",
        "--",
        "true",
    ];
    assert_eq!(place.code(&line), (0, String::new()));
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "lockctl itself does not stay"
    );
    assert_eq!(place.code(&["run", "-n", "k", "--", "true"]).0, 75);
    until("it is free", || !place.is_held("k"));
    assert!(
        began.elapsed() >= Duration::from_millis(2900),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn namespaces_do_not_meet() {
    let place = Place::new();
    let _holder = place.hold(&["--namespace", "a", "k"], "exec sleep 60");
    assert_eq!(
        place
            .code(&["--namespace", "b", "run", "-n", "k", "--", "true"])
            .0,
        0
    );
    assert_eq!(
        place
            .code(&["--namespace", "a", "run", "-n", "k", "--", "true"])
            .0,
        75
    );
    let locks = place.json(&["--namespace", "a", "list"]);
    assert_eq!(locks["locks"][0]["key"], "k");
}
