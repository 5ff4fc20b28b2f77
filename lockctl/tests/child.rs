//! The command: its streams, its process group, its signals, its end.

mod common;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Place, Process, is_alive, pid_of, state, until};

#[test]
fn standard_streams_are_those_of_lockctl() {
    let place = Place::new();
    let mut command = place.lockctl(&["run", "k", "--", "sh", "-c", "cat; echo oops >&2"]);
    command.stdin(Stdio::piped());
    let mut process = Process::start(command);
    process
        .child()
        .stdin
        .take()
        .unwrap()
        .write_all(b"in\n")
        .unwrap();
    let output = process.output();
    assert_eq!(output.stdout, b"in\n");
    assert_eq!(output.stderr, b"oops\n");
}

#[test]
fn signals_reach_the_whole_group_of_the_command() {
    let place = Place::new();
    for signal in ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"] {
        // The trap belongs to a grandchild, which a signal to the command alone would not reach.
        let script = format!(
            "trap : {signal}
             sh -c 'trap \"echo {signal} >> got; exit\" {signal}; touch ready
                    while :; do sleep 0.01; done'
             exit 5"
        );
        let mut process = place.hold(&["k"], &script);
        until("the trap is set", || place.file("ready").exists());
        let number = rustix_signal(signal);
        process.signal(number);
        assert_eq!(process.code(), 5, "{signal}");
        assert_eq!(place.read("got"), format!("{signal}\n"));
        fs::remove_file(place.file("got")).unwrap();
        fs::remove_file(place.file("ready")).unwrap();
    }
}

#[test]
fn a_change_of_the_window_is_passed_on() {
    let place = Place::new();
    let mut process = place.hold(
        &["k"],
        "trap 'exit 6' WINCH; touch ready; while :; do sleep 0.01; done",
    );
    until("the trap is set", || place.file("ready").exists());
    process.signal(Signal::WINCH);
    assert_eq!(process.code(), 6);
}

fn rustix_signal(name: &str) -> Signal {
    match name {
        "INT" => Signal::INT,
        "TERM" => Signal::TERM,
        "HUP" => Signal::HUP,
        "QUIT" => Signal::QUIT,
        "USR1" => Signal::USR1,
        _ => Signal::USR2,
    }
}

#[test]
fn the_second_interrupt_kills() {
    let place = Place::new();
    let script = "trap 'echo x >> got' INT; touch ready; while :; do sleep 0.01; done";
    let mut process = place.hold(&["k"], script);
    until("the trap is set", || place.file("ready").exists());
    process.signal(Signal::INT);
    until("the first is passed on", || place.read("got") == "x\n");
    assert!(process.is_running());
    process.signal(Signal::INT);
    assert_eq!(process.code(), 137);
    assert!(!place.is_held("k"));
}

#[test]
fn the_command_dies_with_lockctl() {
    let place = Place::new();
    let mut process = place.hold(&["k"], "trap '' TERM HUP INT; while :; do sleep 0.01; done");
    let command = place.pid();
    assert!(is_alive(command));
    process.signal(Signal::KILL);
    assert_eq!(process.code(), 137);
    until("the command is dead", || !is_alive(command));
}

/// Kills `lockctl` under a command that does not die with it, which takes for ever what is a moment
/// for others, and checks that nobody gets the lock before the command has ended.
#[cfg(all(target_os = "linux", any(feature = "mysql", feature = "postgres")))]
fn assert_lock_is_held_until_the_command_is_dead(url: &str) {
    let place = Place::new();
    let lives_on = "exec setpriv --pdeathsig clear sh -c 'touch cleared; exec sleep 60'";
    let mut process = place.hold(&["--backend", url, "k"], lives_on);
    until("the command lives on", || place.file("cleared").exists());
    let command = place.pid();
    process.signal(Signal::KILL);
    assert_eq!(process.code(), 137);
    let next = |wait: &str| place.code(&["--backend", url, "run", "-w", wait, "k", "--", "true"]);
    let (code, said) = next("2s");
    assert!(is_alive(command), "{url}");
    assert_eq!(code, 75, "{url}: {said}");
    kill_process(command, Signal::KILL).expect("it is there");
    let (code, said) = next("20s");
    assert_eq!(code, 0, "{url}: {said}");
}

#[cfg(all(target_os = "linux", feature = "postgres"))]
#[test]
fn sessions_of_postgres_outlive_a_killed_lockctl_until_its_command_is_dead() {
    let server = lock_testkit::servers::PostgresServer::shared();
    for mode in ["row", "advisory"] {
        let url = format!("{}?mode={mode}", server.database());
        assert_lock_is_held_until_the_command_is_dead(&url);
    }
}

#[cfg(all(target_os = "linux", feature = "mysql"))]
#[test]
fn sessions_of_mariadb_outlive_a_killed_lockctl_until_its_command_is_dead() {
    let server = lock_testkit::servers::MariaDbServer::shared();
    for mode in ["row", "advisory"] {
        let url = format!("{}?mode={mode}", server.database());
        assert_lock_is_held_until_the_command_is_dead(&url);
    }
}

#[test]
fn the_command_leads_a_group_of_its_own_without_a_terminal() {
    let place = Place::new();
    let group = |args: &[&str]| {
        let line = [
            &["run", "k"],
            args,
            &["--", "sh", "-c", "cut -d' ' -f5 /proc/$$/stat; echo $$"],
        ]
        .concat();
        let output = place.run(&line);
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers: Vec<i32> = text
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        numbers[0] == numbers[1]
    };
    assert!(group(&[]));
    assert!(group(&["--pgid", "own"]));
    assert!(!group(&["--pgid", "inherit"]));
}

#[test]
fn a_command_on_a_terminal_stays_in_the_foreground() {
    let place = Place::new();
    // A background group would be stopped as soon as it reads.
    let line = format!(
        "{} run k -- sh -c 'read x; echo got $x'",
        env!("CARGO_BIN_EXE_lockctl")
    );
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    place.settle(&mut command);
    command.stdin(Stdio::piped());
    let mut process = Process::start(command);
    let mut keyboard = process.child().stdin.take().unwrap();
    keyboard.write_all(b"word\n").unwrap();
    let output = process.output();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("got word"));
}

#[test]
fn an_interrupt_on_a_terminal_reaches_the_command_once() {
    let place = Place::new();
    let script =
        "trap \"echo x >> got\" INT; touch ready; until test -e go; do sleep 0.01; done; exit 3";
    let line = format!(
        "exec {} run k -- sh -c '{script}'",
        env!("CARGO_BIN_EXE_lockctl")
    );
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    place.settle(&mut command);
    command.stdin(Stdio::piped());
    let mut process = Process::start(command);
    let mut keyboard = process.child().stdin.take().unwrap();
    until("the trap is set", || place.file("ready").exists());
    keyboard.write_all(b"\x03").unwrap();
    until("the first interrupt is there", || {
        place.read("got") == "x\n"
    });
    keyboard.write_all(b"\x03").unwrap();
    until("the second interrupt is there", || {
        place.read("got") == "x\nx\n"
    });
    fs::write(place.file("go"), "").unwrap();
    assert_eq!(process.code(), 3);
    assert_eq!(place.read("got"), "x\nx\n");
}

/// Waits until Ctrl-Z has stopped both. The command must not fork: the kernel may not call a shell
/// stopped that waits for a child that is stopped before it has become another program.
fn until_both_are_stopped(process: &Process, command: Pid) {
    until("both are stopped", || {
        state(process.pid()) == Some('T') && state(command) == Some('T')
    });
}

#[test]
fn ctrl_z_stops_both_and_fg_lets_both_go_on() {
    let place = Place::new();
    let mut process = place.hold(&["k"], "until test -e go; do :; done; exit 4");
    process.signal(Signal::TSTP);
    until_both_are_stopped(&process, place.pid());
    fs::write(place.file("go"), "").unwrap();
    process.signal(Signal::CONT);
    assert_eq!(process.code(), 4);
}

#[test]
fn a_command_that_slept_through_its_lease_does_not_go_on() {
    let place = Place::new();
    let script = "trap 'echo > went-on' CONT TERM; while :; do :; done";
    let mut process = place.hold(&["--ttl", "1s", "k"], script);
    let command = place.pid();
    process.signal(Signal::TSTP);
    until_both_are_stopped(&process, command);
    until("the lease has ended", || !place.is_held("k"));
    process.signal(Signal::CONT);
    assert_eq!(process.code(), 79);
    assert!(!is_alive(command));
    assert!(!place.file("went-on").exists());
}

#[test]
fn a_stopped_lockctl_notices_that_its_lock_is_gone() {
    let place = Place::new();
    let mut process = place.hold(&["--ttl", "1s", "k"], "exec sleep 60");
    let command = place.pid();
    process.signal(Signal::STOP);
    until("the lease has ended", || !place.is_held("k"));
    process.signal(Signal::CONT);
    assert_eq!(process.code(), 79);
    assert!(!is_alive(command));
}

#[test]
fn a_command_that_ended_after_its_lease_is_not_a_success() {
    let place = Place::new();
    let process = place.hold(
        &["--ttl", "1s", "k"],
        "until test -e go; do sleep 0.01; done",
    );
    let command = place.pid();
    process.signal(Signal::STOP);
    until("the lease has ended", || !place.is_held("k"));
    fs::write(place.file("go"), "").unwrap();
    until("the command has ended", || !is_alive(command));
    process.signal(Signal::CONT);
    let output = process.output();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(79), "{said}");
    assert!(said.contains("ended with exit status: 0"), "{said}");
}

#[test]
fn a_command_that_runs_too_long_is_stopped() {
    let place = Place::new();
    let options = ["--max-run", "300ms", "--kill-after", "200ms", "k"];
    assert_eq!(place.hold(&options, "exec sleep 60").code(), 143);
    let mut stubborn = place.hold(&options, "trap '' TERM; while :; do sleep 0.01; done");
    assert_eq!(stubborn.code(), 137);
    assert!(!is_alive(place.pid()));
    assert!(!place.is_held("k"));
}

#[test]
fn what_the_command_leaves_running_lives_on_after_a_normal_end() {
    let place = Place::new();
    let mut process = place.hold(&["k"], "sleep 60 >/dev/null 2>&1 & echo $! > background");
    assert_eq!(process.code(), 0);
    let background = pid_of(&place.read("background"));
    assert!(is_alive(background));
    kill_process(background, Signal::KILL).unwrap();
}

#[test]
fn a_reader_who_does_not_read_holds_up_nobody() {
    let place = Place::new();
    // Standard error is a full pipe from the beginning, and the command leaves it alone.
    let (reader, mut full) = std::io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&full, rustix::fs::OFlags::NONBLOCK).unwrap();
    while full.write(&[b'x'; 4096]).is_ok() {}
    while full.write(b"x").is_ok() {}
    rustix::fs::fcntl_setfl(&full, rustix::fs::OFlags::empty()).unwrap();
    let mut command = place.lockctl(&[
        "run",
        "k",
        "--max-run",
        "200ms",
        "--",
        "sh",
        "-c",
        "exec sleep 60 2>&-",
    ]);
    command.stderr(full);
    let mut process = Process::start(command);
    assert_eq!(process.code(), 143);
    drop(reader);
}
