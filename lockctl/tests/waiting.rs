//! While somebody else holds the lock.

mod common;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::{Place, Process, is_alive, until};

#[test]
fn a_waiter_gets_the_lock_when_it_is_given_back() {
    let place = Place::new();
    let _holder = place.hold(
        &["k"],
        "until test -e go; do sleep 0.01; done; echo first >> order",
    );
    let mut waiter = place.start(&[
        "run",
        "--events",
        "events",
        "k",
        "--",
        "sh",
        "-c",
        "echo second >> order",
    ]);
    place.event("waiting");
    fs::write(place.file("go"), "").unwrap();
    assert_eq!(waiter.code(), 0);
    assert_eq!(place.read("order"), "first\nsecond\n");
}

#[test]
fn a_lock_is_held_by_one_command_at_a_time() {
    let place = Place::new();
    let script = "n=$(cat n 2>/dev/null || echo 0); sleep 0.01; echo $((n + 1)) > n";
    let line = ["run", "k", "--", "sh", "-c", script];
    let all: Vec<_> = (0..12).map(|_| place.start(&line)).collect();
    for process in all {
        let output = process.output();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    assert_eq!(place.read("n"), "12\n");
}

#[test]
fn no_wait_and_a_limited_wait_end_in_time() {
    let place = Place::new();
    let _holder = place.hold(&["k"], "exec sleep 60");
    let began = Instant::now();
    assert_eq!(place.code(&["run", "-n", "k", "--", "true"]).0, 75);
    assert_eq!(place.code(&["run", "-w", "300ms", "k", "--", "true"]).0, 75);
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert!(began.elapsed() < common::SOON);
}

#[test]
fn who_waits_is_told_who_holds() {
    let place = Place::new();
    let holder = place.hold(&["--note", "re\u{202e}index", "k"], "exec sleep 60");
    let pid = holder.pid().as_raw_nonzero();
    let (_, said) = place.code(&["run", "-w", "0.6", "k", "--", "true"]);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert!(
        lines[0].starts_with("lockctl: waiting for k  held by "),
        "{said}"
    );
    assert!(
        lines[0].contains(&format!("(pid {pid}, user deploy) for ")),
        "{said}"
    );
    assert!(
        lines[0].contains(", note \"re\\u{202e}index\", lease ends in 2"),
        "{said}"
    );
    assert!(
        lines[1].starts_with("lockctl: error: k is held (waited 6"),
        "{said}"
    );
    assert!(lines[2].starts_with("  holder: "), "{said}");
    assert!(lines[2].contains(&format!(" pid {pid} since ")), "{said}");
    assert!(lines[2].contains(", token "), "{said}");
    assert_eq!(
        lines[3],
        "  hint:   see `lockctl inspect k`; to take it by force: `lockctl break k`"
    );
}

#[test]
fn hints_ask_the_same_backend() {
    let place = Place::new();
    let holder = place.lockctl(&["--namespace", "shop", "acquire", "a b"]);
    assert_eq!(Process::start(holder).code(), 0);
    let (_, said) = place.code(&["--namespace", "shop", "run", "-n", "a b", "--", "true"]);
    assert!(
        said.contains("see `lockctl --namespace shop inspect 'a b'`"),
        "{said}"
    );
}

#[test]
fn quiet_says_the_error_alone_and_very_quiet_nothing() {
    let place = Place::new();
    let _holder = place.hold(&["k"], "exec sleep 60");
    let (code, said) = place.code(&["-q", "run", "-w", "0.4", "k", "--", "true"]);
    assert_eq!(code, 75);
    assert!(said.starts_with("lockctl: error: k is held"), "{said}");
    assert!(!said.contains("hint"), "{said}");
    assert_eq!(
        place.code(&["-qq", "run", "-n", "k", "--", "true"]),
        (75, String::new())
    );
}

#[test]
fn colours_are_for_terminals_or_on_demand() {
    let place = Place::new();
    let _holder = place.hold(&["k"], "exec sleep 60");
    let plain = place.code(&["run", "-n", "k", "--", "true"]).1;
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    let coloured = place
        .code(&["--color", "always", "run", "-n", "k", "--", "true"])
        .1;
    assert!(coloured.contains("\u{1b}["), "{coloured:?}");
}

#[test]
fn a_signal_ends_the_waiting_and_leaves_nothing_behind() {
    let place = Place::new();
    let signals = [
        (Signal::INT, 130),
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
    ];
    for (signal, code) in signals {
        let mut holder = place.hold(&["k"], "exec sleep 60");
        let events = format!("events-{code}");
        let mut waiter = place.start(&["run", "--events", &events, "k", "--", "touch", "ran"]);
        until("it waits", || place.read(&events).contains("waiting"));
        waiter.signal(signal);
        assert_eq!(waiter.code(), code);
        // The next one gets the lock at once: nobody is in its way.
        holder.signal(Signal::TERM);
        assert_eq!(holder.code(), 143);
        assert_eq!(
            place.code(&["run", "-n", "k", "--", "true"]),
            (0, String::new())
        );
    }
    assert!(!place.file("ran").exists());
}

#[test]
fn other_signals_do_not_end_the_waiting() {
    let place = Place::new();
    let _holder = place.hold(&["k"], "until test -e go; do sleep 0.01; done");
    let mut waiter = place.start(&["run", "--events", "events", "k", "--", "touch", "ran"]);
    place.event("waiting");
    for signal in [Signal::USR1, Signal::USR2, Signal::WINCH] {
        waiter.signal(signal);
    }
    fs::write(place.file("go"), "").unwrap();
    assert_eq!(waiter.code(), 0);
    assert!(place.file("ran").exists());
}

#[test]
fn nohup_is_respected_while_waiting() {
    let place = Place::new();
    let _holder = place.hold(&["k"], "until test -e go; do sleep 0.01; done");
    let mut command = Command::new("nohup");
    command.args([
        env!("CARGO_BIN_EXE_lockctl"),
        "run",
        "--events",
        "events",
        "k",
        "--",
    ]);
    command.args(["sh", "-c", "grep SigIgn /proc/self/status"]);
    place.settle(&mut command);
    let waiter = Process::start(command);
    place.event("waiting");
    waiter.signal(Signal::HUP);
    fs::write(place.file("go"), "").unwrap();
    let output = waiter.output();
    assert_eq!(output.status.code(), Some(0));
    let mask = String::from_utf8(output.stdout).unwrap();
    let last = mask.trim().chars().last().unwrap();
    assert_eq!(
        last.to_digit(16).unwrap() & 1,
        1,
        "HUP is ignored by the command too: {mask}"
    );
}

#[test]
fn several_keys_are_all_or_nothing() {
    let place = Place::new();
    let _holder = place.hold(&["b"], "exec sleep 60");
    let (code, said) = place.code(&["run", "-w", "0.2", "c", "b", "a", "--", "touch", "ran"]);
    assert_eq!(code, 75);
    assert!(said.contains("error: b is held"), "{said}");
    assert!(!place.file("ran").exists());
    assert!(!place.is_held("a") && !place.is_held("c"));
}

#[test]
fn a_terminal_shows_a_spinner_with_the_holder() {
    let place = Place::new();
    let holder = place.hold(&["k"], "exec sleep 60");
    let line = format!("{} run -w 1 k -- true", env!("CARGO_BIN_EXE_lockctl"));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    place.settle(&mut command);
    command.env("TERM", "xterm").env("COLUMNS", "200");
    let output = Process::start(command).output();
    assert_eq!(output.status.code(), Some(75));
    let screen = String::from_utf8_lossy(&output.stdout);
    let pid = holder.pid().as_raw_nonzero();
    assert!(screen.contains("lockctl: waiting for k"), "{screen}");
    assert!(screen.contains(&format!("(pid {pid}")), "{screen}");
    assert!(
        screen.matches("waiting for k").count() > 1,
        "it turns: {screen}"
    );
    assert!(screen.contains("k is held (waited 1s)"), "{screen}");
}

#[test]
fn a_waiter_takes_over_from_a_holder_that_was_killed() {
    let place = Place::new();
    let holder = place.hold(&["--ttl", "1s", "k"], "exec sleep 60");
    let command = place.pid();
    let token = place.json(&["inspect", "k"])["lock"]["holders"][0]["token"]
        .as_u64()
        .unwrap();
    let waiter = place.start(&["run", "k", "--", "sh", "-c", "echo $LOCK_FENCING_TOKEN"]);
    holder.signal(Signal::KILL);
    let output = waiter.output();
    let next: u64 = String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(next > token);
    assert!(!is_alive(command));
}
