//! `acquire`, `renew` and `release`: a lease without a process.

mod common;

use serde_json::Value;

use crate::common::{Place, until};

/// Takes a lease and gives its id.
fn acquire(place: &Place, args: &[&str]) -> (String, Value) {
    let answer = place.json(&[&["acquire"], args].concat());
    (answer["lease"].as_str().expect("an id").to_owned(), answer)
}

#[test]
fn a_lease_outlives_its_process_and_is_given_back_by_id() {
    let place = Place::new();
    let (lease, answer) = acquire(&place, &["k", "--note", "by hand"]);
    assert_eq!(answer["key"], "k");
    assert!(answer["token"].is_u64() && answer["deadline_unix_ms"].is_u64());
    assert_eq!(
        place.json(&["inspect", "k"])["lock"]["holders"][0]["note"],
        "by hand"
    );
    assert_eq!(place.code(&["run", "-n", "k", "--", "true"]).0, 75);
    assert_eq!(
        place.code(&["release", "k", "--lease", &lease]),
        (0, String::new())
    );
    assert!(!place.is_held("k"));
}

#[test]
fn the_answer_can_be_evaluated_by_a_shell() {
    let place = Place::new();
    let script = format!(
        "eval \"$({0} acquire \"it's; a key\" --ttl 30s)\" &&
         test -n \"$LOCK_FENCING_TOKEN\" && test -n \"$LOCK_DEADLINE_UNIX_MS\" &&
         {0} renew \"$LOCK_KEY\" --lease $LOCK_LEASE --ttl 40s &&
         {0} release \"$LOCK_KEY\" --lease $LOCK_LEASE && echo \"$LOCK_KEY\"",
        env!("CARGO_BIN_EXE_lockctl")
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]);
    place.settle(&mut command);
    let output = common::Process::start(command).output();
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.starts_with("LOCK_DEADLINE_UNIX_MS="), "{out}");
    assert!(out.ends_with("it's; a key\n"), "{out}");
    assert!(!place.is_held("it's; a key"));
}

#[test]
fn a_lease_that_nobody_renews_ends() {
    let place = Place::new();
    let (lease, _) = acquire(&place, &["k", "--ttl", "1s"]);
    until("it is free", || !place.is_held("k"));
    for command in ["renew", "release"] {
        let (code, said) = place.code(&[command, "k", "--lease", &lease]);
        assert_eq!(code, 79, "{said}");
        assert!(said.contains("lost the lock on k"), "{said}");
    }
}

#[test]
fn a_renewed_lease_lasts_longer() {
    let place = Place::new();
    let (lease, taken) = acquire(&place, &["k", "--ttl", "5s"]);
    let renewed = place.json(&["renew", "k", "--lease", &lease, "--ttl", "60s"]);
    let deadline = |answer: &Value| answer["deadline_unix_ms"].as_u64().unwrap();
    assert!(deadline(&renewed) > deadline(&taken) + 30_000);
    let left = place.json(&["inspect", "k"])["lock"]["holders"][0]["lease_left_ms"].as_u64();
    assert!(left.unwrap() > 30_000);
}

#[test]
fn a_wrong_lease_changes_nothing() {
    let place = Place::new();
    let (_lease, _) = acquire(&place, &["k"]);
    let wrong = "0".repeat(32);
    assert_eq!(place.code(&["release", "k", "--lease", &wrong]).0, 79);
    assert_eq!(place.code(&["renew", "k", "--lease", &wrong]).0, 79);
    assert!(place.is_held("k"));
}

#[test]
fn the_lease_may_stand_in_the_environment() {
    let place = Place::new();
    let (lease, _) = acquire(&place, &["k"]);
    let mut command = place.lockctl(&["release", "k"]);
    command.env("LOCK_LEASE", lease);
    assert_eq!(common::Process::start(command).code(), 0);
    assert!(!place.is_held("k"));
}

#[test]
fn an_id_that_cannot_be_printed_leaves_no_lease() {
    let place = Place::new();
    let mut command = place.lockctl(&["acquire", "k"]);
    command.stdout(
        std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap(),
    );
    assert_eq!(common::Process::start(command).code(), 70);
    assert!(!place.is_held("k"));
}
