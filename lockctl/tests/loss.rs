//! When the lock is lost.

mod common;

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Place, code, is_alive, pid_of, until};

/// Breaks the lock; its holder learns it within a third of its ttl.
fn break_lock(place: &Place) {
    let (code, said) = place.code(&["break", "--yes", "k"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_broken_lock_stops_the_command_and_exits_79() {
    let place = Place::new();
    let script = "trap 'echo TERM >> got; exit 0' TERM; while :; do sleep 0.01; done";
    let process = place.hold(&["--ttl", "3s", "--kill-after", "1s", "k"], script);
    break_lock(&place);
    let output = process.output();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(code(output.status), 79, "{said}");
    assert_eq!(place.read("got"), "TERM\n");
    assert!(
        said.contains("error: lost the lock on k: an administrator broke it"),
        "{said}"
    );
    assert!(!is_alive(place.pid()));
}

#[test]
fn the_code_and_the_signal_of_a_loss_can_be_chosen() {
    let place = Place::new();
    let script = "trap 'echo USR1 >> got; exit 0' USR1; while :; do sleep 0.01; done";
    let options = [
        "--ttl=3s",
        "--kill-after=1s",
        "--lost-exit-code=9",
        "--signal-on-lost=USR1",
        "k",
    ];
    let mut process = place.hold(&options, script);
    break_lock(&place);
    assert_eq!(process.code(), 9);
    assert_eq!(place.read("got"), "USR1\n");
}

#[test]
fn a_command_that_ignores_the_signal_is_killed() {
    let place = Place::new();
    let options = ["--ttl", "1s", "--kill-after", "300ms", "k"];
    let mut process = place.hold(&options, "trap '' TERM; while :; do sleep 0.01; done");
    break_lock(&place);
    assert_eq!(process.code(), 79);
    assert!(!is_alive(place.pid()));
}

#[test]
fn grandchildren_do_not_outlive_a_lost_lock() {
    let place = Place::new();
    for options in [
        &["--ttl", "1s", "k"][..],
        &["--ttl", "1s", "--pgid", "inherit", "k"],
    ] {
        // The command obeys, and what it started does not.
        let script = "sh -c 'trap \"\" TERM; echo $$ > grandchild; while :; do sleep 0.01; done' &
                      until test -s grandchild; do sleep 0.01; done; touch ready; wait";
        let mut process = place.hold(options, script);
        until("the grandchild runs", || place.file("ready").exists());
        let grandchild = pid_of(&place.read("grandchild"));
        break_lock(&place);
        assert_eq!(process.code(), 79);
        until("the grandchild is dead", || !is_alive(grandchild));
        fs::remove_file(place.file("ready")).unwrap();
        fs::remove_file(place.file("grandchild")).unwrap();
    }
}

#[test]
fn a_warning_lets_the_command_go_on() {
    let place = Place::new();
    let options = [
        "--ttl",
        "1s",
        "--on-lost",
        "warn",
        "--events",
        "events",
        "k",
    ];
    let process = place.hold(&options, "until test -e go; do sleep 0.01; done; exit 3");
    break_lock(&place);
    assert_eq!(place.event("lost")["reason"], "broken");
    fs::write(place.file("go"), "").unwrap();
    let output = process.output();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(code(output.status), 3, "{said}");
    assert!(said.contains("warning: k is lost"), "{said}");
}

#[test]
fn the_loss_of_one_of_several_locks_counts() {
    let place = Place::new();
    let process = place.hold(
        &["--ttl", "1s", "--events", "events", "j", "k"],
        "exec sleep 60",
    );
    break_lock(&place);
    assert_eq!(code(process.output().status), 79);
    assert_eq!(place.event("lost")["keys"], json!(["k"]));
    assert!(!place.is_held("j"));
}

#[test]
fn the_command_is_asked_to_stop_before_its_lease_ends() {
    let place = Place::new();
    let script =
        "trap 'date +%s%3N > asked; exit 0' TERM; touch ready; while :; do sleep 0.01; done";
    let options = [
        "--ttl",
        "3s",
        "--kill-after",
        "1s",
        "--events",
        "events",
        "k",
    ];
    let process = place.hold(&options, script);
    until("the trap is set", || place.file("ready").exists());
    make_unusable(&place);
    let output = process.output();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(code(output.status), 79, "{said}");
    assert!(
        said.contains("its lease could not be renewed in time"),
        "{said}"
    );
    let relied_on = place
        .events()
        .iter()
        .filter_map(validity)
        .next_back()
        .unwrap();
    let asked: u64 = place.read("asked").trim().parse().unwrap();
    assert!(asked < relied_on, "{asked} {relied_on}");
    assert!(
        asked + 1100 > relied_on,
        "not sooner than needed: {asked} {relied_on}"
    );
}

#[test]
fn the_command_is_dead_before_the_lease_of_a_lost_database_ends() {
    let place = Place::new();
    let script = "trap '' TERM; while :; do date +%s%3N > beat.new; mv beat.new beat; done";
    let process = place.hold(&["--ttl", "3s", "--events", "events", "k"], script);
    until("it beats", || place.file("beat").exists());
    // From here on no renewal can succeed; the lease ends in the old file as it was.
    make_unusable(&place);
    let output = process.output();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(code(output.status), 79, "{said}");
    assert!(!is_alive(place.pid()));
    let relied_on = place
        .events()
        .iter()
        .filter_map(validity)
        .next_back()
        .unwrap();
    let lease = relied_on + 300;
    let beat: u64 = place.read("beat").trim().parse().unwrap();
    assert!(beat < lease, "{beat} {lease} {said}");
}

/// Until when the lock was relied on after this event; a tenth of the ttl before the lease ends.
fn validity(event: &Value) -> Option<u64> {
    match event["event"].as_str()? {
        "acquired" => event["deadline_unix_ms"].as_u64(),
        "renewed" => Some(event["unix_ms"].as_u64()? + event["valid_ms"].as_u64()?),
        _ => None,
    }
}

/// Puts something else in the place of the database.
fn make_unusable(place: &Place) {
    let database = place.database();
    fs::write(place.file("other"), "no database").expect("files can be moved");
    for suffix in ["-wal", "-shm"] {
        let mut name = database.clone().into_os_string();
        name.push(suffix);
        fs::rename(&name, place.file(&format!("old{suffix}"))).ok();
    }
    fs::rename(&database, place.file("old")).expect("files can be moved");
    fs::rename(place.file("other"), &database).expect("files can be moved");
}

#[test]
fn a_long_command_keeps_its_lock_by_renewal() {
    let place = Place::new();
    let process = place.hold(
        &["--ttl", "1s", "--events", "events", "k"],
        "until test -e go; do sleep 0.01; done",
    );
    until("several renewals", || {
        place
            .events()
            .iter()
            .filter(|event| event["event"] == "renewed")
            .count()
            >= 5
    });
    let renewed = place.event("renewed");
    assert_eq!(renewed["key"], "k");
    assert!(renewed["valid_ms"].as_u64().unwrap() > 500, "{renewed}");
    assert_eq!(place.code(&["run", "-n", "k", "--", "true"]).0, 75);
    fs::write(place.file("go"), "").unwrap();
    assert_eq!(process.said(), "");
}

#[test]
fn events_tell_the_whole_story() {
    let place = Place::new();
    let _holder = place.hold(&["a"], "until test -e go; do sleep 0.01; done");
    let mut process = place.start(&[
        "--namespace",
        "",
        "run",
        "--events",
        "events",
        "b",
        "a",
        "--",
        "sh",
        "-c",
        "exit 3",
    ]);
    let waiting = place.event("waiting");
    assert_eq!(waiting["keys"], json!(["b", "a"]));
    assert_eq!(waiting["holders"][0]["user"], "deploy");
    fs::write(place.file("go"), "").unwrap();
    assert_eq!(process.code(), 3);
    let events = place.events();
    let names: Vec<_> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["waiting", "acquired", "child_exit", "released"]);
    assert_eq!(events[1]["locks"][0]["key"], "a");
    assert!(events[1]["locks"][0]["token"].is_u64() && events[1]["deadline_unix_ms"].is_u64());
    assert!(events[1]["waited_ms"].is_u64());
    assert_eq!(
        (&events[2]["code"], &events[2]["signal"]),
        (&3.into(), &Value::Null)
    );
    assert_eq!(events[3]["outcome"], "clean");
    assert!(
        events
            .iter()
            .all(|event| event["time"].is_string() && event["unix_ms"].is_u64())
    );
}

#[test]
fn events_go_to_a_descriptor() {
    let place = Place::new();
    let mut command = std::process::Command::new("sh");
    let lockctl = env!("CARGO_BIN_EXE_lockctl");
    command.args([
        "-c",
        &format!("{lockctl} run --events fd:3 k -- true 3>&- 3> events"),
    ]);
    place.settle(&mut command);
    assert_eq!(common::Process::start(command).code(), 0);
    assert_eq!(place.events().len(), 3);
}

#[test]
fn a_term_to_lockctl_is_no_loss() {
    let place = Place::new();
    let process = place.hold(&["k"], "exec sleep 60");
    process.signal(Signal::TERM);
    let output = process.output();
    assert_eq!((code(output.status), output.stderr), (143, Vec::new()));
    assert!(!place.is_held("k"));
}
