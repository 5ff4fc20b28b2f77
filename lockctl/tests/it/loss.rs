//! When the lock is lost.

use std::fs;

#[cfg(feature = "redis")]
use lock_testkit::servers::{RedisOptions, RedisServer};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::fixture::{
    LOCKCTL, Place, Process, UNTIL_GO, assert_dead, is_alive, pid_of, state, until,
};

/// Breaks the lock; its holder learns it within a third of its ttl.
#[track_caller]
fn break_lock(place: &Place) {
    place.expect(0, "break --yes k");
}

#[test]
fn a_broken_lock_stops_the_command_and_exits_79_or_as_chosen() {
    let cases = [
        ("", "'echo TERM >> got; exit 0' TERM", "TERM\n", 79),
        (
            "--lost-exit-code=9 --signal-on-lost=USR1",
            "'echo USR1 >> got; exit 0' USR1",
            "USR1\n",
            9,
        ),
        // A command that ignores the signal is killed.
        ("", "'' TERM", "", 79),
    ];
    for (options, trap, got, code) in cases {
        let place = Place::new();
        let script = format!("trap {trap}; while :; do sleep 0.05; done");
        let options = format!("--ttl 3s --kill-after 1s {options} k");
        let process = place.hold(&options, &script);
        break_lock(&place);
        let ended = process.expect(code);
        ended.says(&["error: lost the lock on k: an administrator broke it"]);
        assert_eq!(place.read("got"), got, "the signals that came");
        assert_dead(place.pid());
    }
}

#[test]
fn grandchildren_do_not_outlive_a_lost_lock() {
    for options in ["--ttl 3s k", "--ttl 3s --pgid inherit k"] {
        let place = Place::new();
        // The command obeys, and its own child does not.
        let script = "sh -c 'trap \"\" TERM; echo $$ > grandchild; while :; do sleep 0.05; done' &
                      until test -s grandchild; do sleep 0.05; done; touch ready; wait";
        let process = place.hold(options, script);
        place.until_there("ready");
        let grandchild = pid_of(&place.read("grandchild"));
        break_lock(&place);
        process.expect(79);
        until("the grandchild is dead", || !is_alive(grandchild));
    }
}

/// The first lease after a wait is shorter than the later ones.
#[cfg(feature = "redis")]
#[test]
fn a_command_that_waited_for_its_lock_gets_all_of_its_time_to_end() {
    let time = (0..5).find_map(|_| time_to_end_after_a_wait());
    let time = time.expect("a machine that extends the first lease in one of five rounds");
    assert!(
        time > 2_500,
        "the command was killed {time} ms after its signal"
    );
}

/// The milliseconds between the signal and the KILL of a command that has waited for its lock, on a server
/// that is stopped. `None` if the machine was so busy that the command was stopped under its first lease.
#[cfg(feature = "redis")]
fn time_to_end_after_a_wait() -> Option<u64> {
    let (server, place) = (RedisServer::start(RedisOptions::new()), Place::new());
    let backend = format!("--backend {}", server.url());
    let first = place.hold(&format!("{backend} k"), UNTIL_GO);
    let options = "--ttl 12s --kill-after 4s --events events k";
    let mut command = place.lockctl(&format!("{backend} run {options} -- sh -c"));
    command.arg("trap '' TERM; while :; do sleep 0.05; done");
    let second = Process::start(command);
    place.event("waiting");
    place.go();
    first.expect(0);
    let has = |name: &str| place.events().iter().any(|event| event["event"] == name);
    until("the lease is extended, or about to end", || {
        has("renewed") || has("lost")
    });
    if has("lost") {
        return None;
    }
    server.stop();
    second.expect(79);
    let at = |name: &str| {
        let time = place.event(name)["unix_ms"].as_u64();
        time.expect("each event has its time")
    };
    Some(at("child_exit") - at("lost"))
}

#[test]
fn a_warning_lets_the_command_go_on() {
    let place = Place::new();
    let options = "--ttl 3s --on-lost warn --events events k";
    let process = place.hold(options, &format!("{UNTIL_GO}; exit 3"));
    break_lock(&place);
    assert_eq!(place.event("lost")["reason"], "broken");
    place.go();
    process.expect(3).says(&["warning: k is lost"]);
}

/// No renewal comes between the loss and the end of the command.
#[test]
fn a_loss_that_the_release_finds_counts() {
    let cases = [
        (
            "k",
            79,
            "error: lost the lock on k: it had ended before the command did",
        ),
        (
            "--on-lost warn k",
            0,
            "warning: k is lost: it had ended before the command did",
        ),
    ];
    for (options, code, said) in cases {
        let place = Place::new();
        let process = place.hold(&format!("--ttl 1m --events events {options}"), UNTIL_GO);
        break_lock(&place);
        place.go();
        let ended = process.expect(code);
        assert_eq!(place.event("released")["outcome"], "already_lost");
        let lost = place.event("lost");
        assert_eq!(
            (&lost["keys"], &lost["reason"]),
            (&json!(["k"]), &Value::Null)
        );
        ended.says(&[said]);
    }
}

#[test]
fn a_loss_that_the_release_finds_counts_for_a_command_that_ran_too_long() {
    let place = Place::new();
    let process = place.holder("--ttl 1m --max-run 3s k");
    break_lock(&place);
    let ended = process.expect(79);
    ended.says(&["error: lost the lock on k: it had ended before the command did"]);
}

#[test]
fn a_leader_says_that_only_its_release_found_the_loss() {
    let place = Place::new();
    let script = format!("touch begun; {UNTIL_GO}");
    let line = format!("lead --ttl 1m --events events k -- sh -c '{script}'");
    let mut leader = place.start(&line);
    place.until_there("begun");
    break_lock(&place);
    place.go();
    leader.until_says("warning: k: the lead is lost: it had ended before the command did");
    assert_eq!(place.event("lost")["keys"], json!(["k"]));
    leader.terminate(0);
}

#[test]
fn the_loss_of_one_of_several_locks_counts() {
    let place = Place::new();
    let process = place.holder("--ttl 3s --events events j k");
    break_lock(&place);
    process.expect(79);
    assert_eq!(place.event("lost")["keys"], json!(["k"]));
    assert!(!place.is_held("j"), "the other lock is not released");
}

#[test]
fn a_lock_that_is_lost_while_others_are_waited_for_counts() {
    let place = Place::new();
    let _holder = place.holder("l");
    let options = "--ttl 3s --lost-exit-code 9 --events events";
    let process = place.start(&format!("run {options} k l -- touch ran"));
    place.waiting_event();
    break_lock(&place);
    let ended = process.expect(9);
    ended.says(&["the lock was lost: an administrator broke it"]);
    place.assert_not_run();
    let lost = place.event("lost");
    assert_eq!(
        (&lost["keys"], &lost["reason"]),
        (&json!(["k"]), &json!("broken")),
        "{lost}"
    );
}

#[test]
fn the_command_is_asked_to_stop_before_its_lease_ends() {
    let place = Place::new();
    let script =
        "trap 'date +%s%3N > asked; exit 0' TERM; touch ready; while :; do sleep 0.05; done";
    let process = place.hold("--ttl 6s --kill-after 2s --events events k", script);
    place.until_there("ready");
    make_unusable(&place);
    let ended = process.expect(79);
    let ended = ended.says(&["its lease could not be renewed in time"]);
    let (relied_on, asked) = (relied_on_until(&place), moment(&place, "asked"));
    let left = i128::from(relied_on) - i128::from(asked);
    assert!(
        left > 0,
        "it is asked {left} ms before its lease ends: {ended}"
    );
    assert!(
        left < 2100,
        "it is asked {left} ms before its lease ends, too soon: {ended}"
    );
}

#[test]
fn the_command_is_dead_before_the_lease_of_a_lost_database_ends() {
    let place = Place::new();
    let script = "trap '' TERM; while :; do date +%s%3N > beat.new; mv beat.new beat; done";
    let process = place.hold("--ttl 10s --events events k", script);
    place.until_there("beat");
    // A busy machine may delay the kill by the safety margin, a tenth of the TTL: 1 s.
    // From here on no renewal can succeed; the lease ends in the old file as it was.
    make_unusable(&place);
    let ended = process.expect(79);
    assert_dead(place.pid());
    let (lease, beat) = (relied_on_until(&place) + 1000, moment(&place, "beat"));
    assert!(
        beat < lease,
        "it lived until {beat}, its lease until {lease}: {ended}"
    );
}

/// The time in a file, in milliseconds since 1970.
#[track_caller]
pub(crate) fn moment(place: &Place, file: &str) -> u64 {
    let text = place.read(file);
    let moment = text.trim().parse();
    moment.unwrap_or_else(|e| panic!("no time in {file} ({e}): {text:?}"))
}

/// The last deadline of the lock, a tenth of the TTL before the lease ends.
#[track_caller]
pub(crate) fn relied_on_until(place: &Place) -> u64 {
    let events = place.events();
    let validity = |event: &Value| match event["event"].as_str()? {
        "acquired" => event["deadline_unix_ms"].as_u64(),
        "renewed" => Some(event["unix_ms"].as_u64()? + event["valid_ms"].as_u64()?),
        _ => None,
    };
    let last = events.iter().filter_map(validity).next_back();
    last.unwrap_or_else(|| panic!("no acquisition in {events:?}"))
}

/// Puts something else in the place of the database.
fn make_unusable(place: &Place) {
    let database = place.database();
    place.write("other", "no database");
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
    let mut process = place.hold("--ttl 3s --events events k", UNTIL_GO);
    process.until("five renewals", |_| {
        let events = place.events();
        let renewals = events.iter().filter(|event| event["event"] == "renewed");
        renewals.count() >= 5
    });
    let renewed = place.event("renewed");
    assert_eq!(renewed["key"], "k", "{renewed}");
    let valid = renewed["valid_ms"].as_u64();
    assert!(
        valid > Some(500),
        "a renewal of 3s is valid for {valid:?} ms"
    );
    place.expect(75, "run -n k -- true");
    place.go();
    process.expect(0).says_only("");
}

#[test]
fn events_tell_the_whole_story() {
    let place = Place::new();
    let _holder = place.hold("a", UNTIL_GO);
    let backend = "--backend sqlite:polylock/locks.db?namespace=";
    let process = place.start(&format!(
        "{backend} run --events events b a -- sh -c 'exit 3'"
    ));
    let waiting = place.waiting_event();
    assert_eq!(waiting["keys"], json!(["b", "a"]), "{waiting}");
    assert_eq!(waiting["holders"][0]["user"], "deploy", "{waiting}");
    place.go();
    process.expect(3);
    let mut events = place.events();
    events.retain(|event| event["event"] != "waiting" || *event == waiting);
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str()).collect();
    let expected = ["waiting", "acquired", "child_exit", "released"];
    assert_eq!(names, expected.map(Some), "{events:?}");
    let [_, acquired, child_exit, released] = &events[..] else {
        unreachable!("there are four names");
    };
    assert_eq!(acquired["locks"][0]["key"], "a", "{acquired}");
    let numbers = [
        &acquired["locks"][0]["token"],
        &acquired["deadline_unix_ms"],
        &acquired["waited_ms"],
    ];
    assert!(numbers.iter().all(|number| number.is_u64()), "{acquired}");
    assert_eq!(child_exit["code"], 3, "{child_exit}");
    assert_eq!(child_exit["signal"], Value::Null, "{child_exit}");
    assert_eq!(released["outcome"], "clean", "{released}");
    for event in &events {
        let has_time = event["time"].is_string() && event["unix_ms"].is_u64();
        assert!(has_time, "no time in {event}");
    }
}

#[test]
fn events_go_to_a_descriptor() {
    let place = Place::new();
    let script = format!("{LOCKCTL} run --events fd:3 k -- true 3>&- 3> events");
    place.program("sh", &["-c", &script]).expect(0);
    let events = place.events();
    assert_eq!(events.len(), 3, "{events:?}");
}

#[test]
fn events_go_behind_what_others_write_to_the_descriptor() {
    let place = Place::new();
    let script = format!(
        "exec > log; echo first
         {LOCKCTL} run --events fd:1 k -- sh -c 'sleep 0.2; echo job'; echo last"
    );
    place.program("sh", &["-c", &script]).expect(0);
    let log = place.read("log");
    let parsed = |line: &str| serde_json::from_str::<Value>(line);
    let (events, others): (Vec<_>, Vec<_>) = log.lines().partition(|line| parsed(line).is_ok());
    assert_eq!(others, ["first", "job", "last"], "{log}");
    // A busy machine may wait for the lock or renew it as well.
    for name in ["acquired", "child_exit", "released"] {
        let is_this = |line: &&str| parsed(line).is_ok_and(|event| event["event"] == name);
        assert_eq!(
            events.iter().filter(|line| is_this(line)).count(),
            1,
            "{name}: {log}"
        );
    }
}

#[test]
fn events_that_cannot_be_written_are_an_error_at_the_start_and_a_warning_later() {
    let place = Place::new();
    let script = format!("echo kept > file; {LOCKCTL} run --events fd:3 k -- touch ran 3< file");
    let refused = place.program("sh", &["-c", &script]).expect(64);
    refused.says(&["fd:3", "not open for writing"]);
    place.assert_not_run();
    assert_eq!(place.read("file"), "kept\n");
    let full = place.expect(0, "run --events /dev/full k -- touch ran");
    full.says(&["warning: no more events are written to /dev/full: No space left"]);
}

/// Only root can give a pipe to another user, and give up the right to open it.
#[cfg(target_os = "linux")]
#[test]
fn events_go_to_a_pipe_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let script = format!(
        "chown 65534 /proc/self/fd/1 &&
         exec setpriv --bounding-set=-all --inh-caps=-all {LOCKCTL} run --events fd:1 k -- true"
    );
    let ended = place.program("sh", &["-c", &script]).expect(0);
    ended.prints(&["\"event\":\"acquired\"", "\"event\":\"released\""]);
}

#[test]
fn a_signal_ends_the_wait_for_a_reader_of_events() {
    let place = Place::new();
    place.program("mkfifo", &["fifo"]).expect(0);
    for (command, code) in [("run", 143), ("lead", 0)] {
        let mut process = place.start(&format!("{command} --events fifo k -- touch ran"));
        let mut times = 0;
        // Not only for a moment of its start.
        process.until("it waits", |process| {
            let sleeps = catches_term(process.pid()) && state(process.pid()) == Some('S');
            times = if sleeps { times + 1 } else { 0 };
            times > 40
        });
        process.terminate(code);
    }
    place.assert_not_run();
}

/// Whether the process has a handler for TERM.
fn catches_term(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    let status = status.unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (Signal::TERM.as_raw() - 1)) != 0)
}
