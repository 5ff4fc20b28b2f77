//! While another process holds the lock.

use rustix::process::Signal;

use crate::fixture::{LOCKCTL, Place, Process, UNTIL_GO, full_pipe};

#[test]
fn a_lock_is_held_by_one_command_at_a_time() {
    let place = Place::new();
    let script = "n=$(cat n 2>/dev/null || echo 0); sleep 0.01; echo $((n + 1)) > n";
    let line = ["run", "k", "--", "sh", "-c", script];
    let all: Vec<_> = (0..12).map(|_| place.start(&line)).collect();
    for process in all {
        process.expect(0);
    }
    assert_eq!(
        place.read("n"),
        "12\n",
        "one count was lost to another command"
    );
}

#[test]
fn a_waiter_is_told_the_holder() {
    let place = Place::new();
    let holder = place.holder("--note re\u{202e}index k");
    let pid = holder.child.id();
    let ended = place.expect(75, "run -w 2 k -- true");
    let lines: Vec<_> = ended.stderr.lines().collect();
    let [waiting, error, holder, hint] = lines[..] else {
        panic!("there are not four lines: {ended}");
    };
    let expected = [
        (waiting, "lockctl: waiting for k  held by "),
        (waiting, &format!("(pid {pid}, user deploy) for ")),
        (waiting, ", note \"re\\u{202e}index\", lease ends in 2"),
        (error, "lockctl: error: k is held (waited 2"),
        (holder, "  holder: "),
        (holder, &format!(" pid {pid} since ")),
        (holder, ", token "),
    ];
    for (line, part) in expected {
        assert!(line.contains(part), "no {part:?} in {line:?}: {ended}");
    }
    assert_eq!(
        hint,
        "  hint:   see `lockctl inspect k`; to break it: `lockctl break k`"
    );
}

#[test]
fn hints_ask_the_same_backend() {
    let place = Place::new();
    place.expect(0, "--namespace shop acquire 'a b'");
    let ended = place.expect(75, "--namespace shop run -n 'a b' -- true");
    ended.says(&["see `lockctl --namespace shop inspect 'a b'`"]);
}

#[test]
fn options_say_how_much_is_said_and_in_which_colors() {
    let place = Place::new();
    let _holder = place.holder("k");
    let quiet = place.expect(75, "-q run -w 3 k -- true");
    let quiet = quiet.says_nothing_of(&["hint", "waiting for"]);
    assert!(
        quiet.stderr.starts_with("lockctl: error: k is held"),
        "{quiet}"
    );
    place.expect(75, "-qq run -n k -- true").says_only("");
    let plain = place.expect(75, "run -n k -- true");
    plain.says_nothing_of(&["\u{1b}"]);
    place
        .expect(75, "--color always run -n k -- true")
        .says(&["\u{1b}["]);
    // Another process says that a command cannot be executed.
    place
        .expect(127, "-qq run free -- no-such-command")
        .says_only("");
    let colored = place.expect(127, "--color always run free -- no-such-command");
    colored.says(&["\u{1b}[", "no-such-command: command not found"]);
}

#[test]
fn a_signal_ends_the_waiting_and_leaves_nothing_behind() {
    for (signal, code) in [
        (Signal::INT, 130),
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
    ] {
        let place = Place::new();
        let holder = place.holder("k");
        let mut waiter = place.start("run --events events k -- touch ran");
        place.event("waiting");
        waiter.signal(signal);
        waiter.expect(code);
        // The next one gets the lock at once: the dead waiter does not block it.
        holder.terminate(143).says_only("");
        place.expect(0, "run -n k -- true").says_only("");
        place.assert_not_run();
    }
}

#[test]
fn other_signals_do_not_end_the_waiting() {
    let place = Place::new();
    let _holder = place.hold("k", UNTIL_GO);
    let mut waiter = place.start("run --events events k -- touch ran");
    place.event("waiting");
    for signal in [Signal::USR1, Signal::USR2, Signal::WINCH] {
        waiter.signal(signal);
    }
    place.assert_not_run();
    place.go();
    waiter.expect(0);
    assert!(place.file("ran").exists(), "the command did not run");
}

#[test]
fn nohup_is_respected_while_waiting() {
    let place = Place::new();
    let _holder = place.hold("k", UNTIL_GO);
    let line = [LOCKCTL, "run", "--events", "events", "k", "--"];
    let command = ["grep", "SigIgn", "/proc/self/status"];
    let mut waiter = place.program("nohup", &[&line[..], &command].concat());
    place.event("waiting");
    waiter.signal(Signal::HUP);
    place.go();
    let ended = waiter.expect(0);
    let mask = ended.stdout.trim().chars().last();
    let mask = mask.and_then(|digit| digit.to_digit(16));
    assert!(
        mask.is_some_and(|mask| mask & 1 == 1),
        "the command does not ignore HUP: {ended}"
    );
}

#[test]
fn several_keys_are_all_or_nothing() {
    let place = Place::new();
    let _holder = place.holder("b");
    let ended = place.expect(75, "run -w 1.2 c b a -- touch ran");
    ended.says(&["error: b is held"]);
    place.assert_not_run();
    for key in ["a", "c"] {
        assert!(!place.is_held(key), "{key} is held without b");
    }
}

#[test]
fn a_terminal_shows_a_spinner_with_the_holder() {
    let place = Place::new();
    let holder = place.holder("k");
    let pid = holder.child.id();
    let ended = place
        .terminal(&format!("{LOCKCTL} run -w 2 k -- true"))
        .expect(75);
    let pid = format!("(pid {pid}");
    let ended = ended.prints(&["lockctl: waiting for k", &pid, "k is held (waited 2s)"]);
    let turns = ended.stdout.matches("waiting for k").count();
    assert!(turns > 1, "the spinner does not turn: {ended}");
}

/// As within an editor, or in the log of a build.
#[test]
fn a_terminal_that_cannot_replace_a_line_gets_one_line() {
    let place = Place::new();
    let _holder = place.holder("k");
    let line = format!("TERM=dumb {LOCKCTL} run -w 2 k -- true");
    let ended = place.terminal(&line).expect(75);
    // On a busy machine there may be a line without the holder before it.
    let lines = ended.stdout.matches("waiting for k  held by").count();
    assert_eq!(lines, 1, "{ended}");
    assert!(!ended.stdout.contains('\u{1b}'), "{ended}");
}

#[test]
fn the_next_key_is_told_on_a_terminal_as_well() {
    let place = Place::new();
    let holders = ["a", "b"].map(|key| (key, place.holder(key)));
    let line = format!("{LOCKCTL} run --events events a b -- true");
    let waiter = place.terminal(&line);
    for (key, holder) in holders {
        place.event_with("waiting", |event| event["key"] == key);
        holder.terminate(143);
    }
    waiter.expect(0);
}

#[test]
fn a_reader_that_does_not_read_holds_up_no_end_of_the_waiting() {
    let place = Place::new();
    let _holder = place.holder("k");
    for line in ["acquire k -w 1200ms", "run k -w 1200ms -- true"] {
        let (reader, full) = full_pipe();
        let mut command = place.lockctl(line);
        command.stderr(full);
        Process::start(command).expect(75);
        drop(reader);
    }
}

#[test]
fn a_terminal_that_takes_no_bytes_holds_up_no_end_of_the_waiting() {
    let place = Place::new();
    let _holder = place.holder("k");
    for line in ["run -w 2s k -- true", "acquire -w 2s k"] {
        let mut waiter = place.terminal(&format!("{LOCKCTL} {line}"));
        waiter.until_prints("waiting for k");
        // Ctrl-S.
        waiter.enter("\x13");
        waiter.expect(75);
    }
}
