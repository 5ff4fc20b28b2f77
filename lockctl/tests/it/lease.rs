//! `acquire`, `renew` and `release`: a lease without a process.

use std::fs::OpenOptions;

use serde_json::Value;

use crate::fixture::{LOCKCTL, Place, Process};

/// Acquires a lease, and returns its id and the whole answer.
#[track_caller]
fn acquire(place: &Place, options: &str) -> (String, Value) {
    let answer = place.json(&format!("acquire {options}"));
    let id = answer["lease"].as_str();
    let id = id.unwrap_or_else(|| panic!("no lease in {answer}"));
    (id.to_owned(), answer)
}

#[track_caller]
fn number(answer: &Value, name: &str) -> u64 {
    let number = answer[name].as_u64();
    number.unwrap_or_else(|| panic!("{name} is no number in {answer}"))
}

#[test]
fn a_lease_outlives_its_process_and_is_released_by_its_id() {
    let place = Place::new();
    let (lease, answer) = acquire(&place, "k --note 'by hand'");
    assert_eq!(answer["key"], "k", "{answer}");
    number(&answer, "token");
    number(&answer, "deadline_unix_ms");
    let shown = place.json("inspect k");
    assert_eq!(shown["lock"]["holders"][0]["note"], "by hand", "{shown}");
    place.expect(75, "run -n k -- true");
    place
        .expect(0, &["release", "k", "--lease", &lease])
        .says_only("");
    assert!(!place.is_held("k"), "k is released and held");
    let (lease, _) = acquire(&place, "k");
    place.expect_with(0, "release k", &[("LOCK_LEASE", &lease)]);
    assert!(!place.is_held("k"), "k is released by LOCK_LEASE and held");
}

#[test]
fn the_answer_can_be_evaluated_by_a_shell() {
    let place = Place::new();
    let script = format!(
        "lease=$({LOCKCTL} acquire \"it's; a key\" --ttl 30s) || exit
         eval \"$lease\"
         test -n \"$LOCK_FENCING_TOKEN\" && test -n \"$LOCK_DEADLINE_UNIX_MS\" &&
         {LOCKCTL} renew \"$LOCK_KEY\" --lease $LOCK_LEASE --ttl 40s &&
         {LOCKCTL} release \"$LOCK_KEY\" --lease $LOCK_LEASE && echo \"$LOCK_KEY\""
    );
    let ended = place.program("sh", &["-c", &script]).expect(0);
    let stdout = &ended.stdout;
    assert!(stdout.starts_with("LOCK_DEADLINE_UNIX_MS="), "{ended}");
    assert!(stdout.ends_with("it's; a key\n"), "{ended}");
    assert!(!place.is_held("it's; a key"), "the shell has released it");
}

/// The recipe of the manual goes no further without the lock, and ends with the code of `acquire`.
#[test]
fn a_script_does_not_go_on_without_its_lease() {
    let place = Place::new();
    let _holder = place.holder("deploy");
    let manual = include_str!("../../../docs/lockctl.md");
    let (_, recipe) = manual
        .split_once("## Leases without a process\n\n```sh\n")
        .expect("it is there");
    let (acquire, _) = recipe
        .split_once("\ntrap ")
        .expect("it releases the lease at its end");
    let acquire = acquire.replace("lockctl acquire", &format!("{LOCKCTL} acquire -n"));
    for shell in ["sh", "bash"] {
        let script = format!("{acquire}\ntouch ran");
        place.program(shell, &["-c", &script]).expect(75);
        place.assert_not_run();
    }
}

#[test]
fn only_the_id_of_a_lease_that_lasts_renews_and_releases() {
    let place = Place::new();
    let (lease, _) = acquire(&place, "k --ttl 1s");
    place.until_free("k");
    for command in ["renew", "release"] {
        let ended = place.expect(79, &[command, "k", "--lease", &lease]);
        ended.says(&["lost the lock on k"]);
    }
    acquire(&place, "k");
    for command in ["renew", "release"] {
        place.expect(79, &[command, "k", "--lease", &"0".repeat(32)]);
    }
    assert!(place.is_held("k"), "a wrong id has released k");
}

#[test]
fn a_renewed_lease_lasts_longer() {
    let place = Place::new();
    let (lease, acquired) = acquire(&place, "k --ttl 5s");
    let renewed = place.json(&["renew", "k", "--lease", &lease, "--ttl", "60s"]);
    let deadline = |answer: &Value| number(answer, "deadline_unix_ms");
    let longer = deadline(&renewed) - deadline(&acquired);
    assert!(
        longer > 30_000,
        "it lasts {longer} ms longer: {acquired}, {renewed}"
    );
    let shown = place.json("inspect k");
    let left = number(&shown["lock"]["holders"][0], "lease_left_ms");
    assert!(left > 30_000, "{left} ms are left: {shown}");
}

/// A quorum of Redis masters with default options refuses a longer one.
#[test]
fn a_lease_without_a_ttl_has_that_of_run() {
    let place = Place::new();
    let assert_short = || {
        let shown = place.json("inspect k");
        let left = number(&shown["lock"]["holders"][0], "lease_left_ms");
        assert!(left <= 30_000, "{left} ms are left: {shown}");
    };
    let (lease, _) = acquire(&place, "k");
    assert_short();
    place.expect(0, &["renew", "k", "--lease", &lease]);
    assert_short();
}

#[test]
fn a_lock_on_two_backends_is_refused_before_it_is_waited_for() {
    let place = Place::new();
    place.write_migration("sqlite:old.db");
    let _holder = place.holder("--config lock.toml k");
    let ended = place.expect(78, "--config lock.toml acquire -n k");
    ended.says(&[
        "(`migrate-from`)",
        "use `lockctl run`, which keeps the process",
    ]);
}

#[test]
fn an_id_that_cannot_be_printed_leaves_no_lease() {
    let place = Place::new();
    let mut command = place.lockctl("acquire k");
    let full = OpenOptions::new().write(true).open("/dev/full");
    command.stdout(full.expect("Linux has it"));
    Process::start(command).expect(70);
    assert!(!place.is_held("k"), "its lease id was not printed");
}
