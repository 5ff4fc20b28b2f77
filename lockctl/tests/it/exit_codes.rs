//! Every exit code.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::fixture::{LOCKCTL, Place, Process};

#[test]
fn the_code_of_the_command_is_passed_on() {
    let place = Place::new();
    for code in [0, 1, 2, 64, 75, 79, 255] {
        let line = format!("run k -- sh -c 'exit {code}'");
        place.expect(code, &line).says_only("");
    }
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130)] {
        place.expect(code, &format!("run k -- sh -c 'kill -{signal} $$'"));
    }
}

#[test]
fn a_command_that_cannot_be_started_is_127_or_126() {
    let place = Place::new();
    place.write("data", "no program");
    fs::set_permissions(place.file("data"), fs::Permissions::from_mode(0o644))
        .expect("a file of the test");
    for (code, command, says) in [
        (127, "no-such-command", "no-such-command: command not found"),
        (126, "./data", "./data cannot be executed"),
    ] {
        let ended = place.expect(code, &["run", "k", "--", command]);
        let begins = format!("lockctl: error: {says}");
        assert!(ended.stderr.starts_with(&begins), "{ended}");
        assert!(!place.is_held("k"), "{command} does not run and holds k");
    }
}

/// Which limit is too low for what depends on what the test runner leaves open.
#[cfg(feature = "sqlite")]
#[test]
fn a_process_that_may_open_few_files_is_told_so() {
    let place = Place::new();
    let ends = (6..30).map(|limit| {
        let script =
            format!("ulimit -n {limit}; exec {LOCKCTL} --backend sqlite:locks.db run k -- true");
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        place.settle(&mut command);
        Process::start(command).ended()
    });
    let ends: Vec<_> = ends.collect();
    let thread = "cannot start the thread that renews locks\n  cause:  Too many open files";
    assert!(
        ends.iter().any(|ended| ended.stderr.contains(thread)),
        "{ends:?}"
    );
    for ended in ends {
        assert!([0, 69, 70].contains(&ended.code), "{ended}");
        ended.says_nothing_of(&["panicked"]);
    }
}

/// The file of a database, and that of the events.
#[cfg(feature = "sqlite")]
#[test]
fn a_file_that_must_not_grow_kills_neither_lockctl_nor_its_command() {
    let place = Place::new();
    let run = |limit: u32, options: &str, then: &str| {
        let run = format!("exec {LOCKCTL} --backend sqlite:locks.db run {options} k -- {then}");
        let mut command = Command::new("bash");
        command.args(["-c", &format!("ulimit -f {limit}; {run}")]);
        place.settle(&mut command);
        Process::start(command)
    };
    run(1, "", "true").expect(69);
    place.write("events", &"x".repeat(200 * 1024));
    let ended = run(200, "--ttl 1s --events events", "sleep 2").expect(0);
    ended.says(&["events"]);
}

/// SQLite calls it an I/O error.
#[cfg(feature = "sqlite")]
#[test]
fn a_disk_without_room_for_the_shared_memory_of_a_database_is_told() {
    let place = Place::new();
    place.expect(0, "--backend sqlite:locks.db run k -- true");
    // The process may end before the library has closed the file.
    drop(fs::remove_file(place.file("locks.db-shm")));
    let mut command = Command::new("bash");
    let run = format!("exec {LOCKCTL} --backend sqlite:locks.db run k -- true");
    command.args(["-c", &format!("ulimit -f 20; {run}")]);
    place.settle(&mut command);
    let ended = Process::start(command).expect(69);
    ended.says(&["no room for the shared memory (-shm) of the database file"]);
}

#[test]
fn a_held_lock_is_75_or_what_is_asked_for() {
    let place = Place::new();
    let _holder = place.holder("k");
    for (code, line) in [
        (75, "run -n k -- touch ran"),
        (75, "run -w 1.2 k -- touch ran"),
        (9, "run -n -E 9 k -- touch ran"),
        (75, "acquire -n k"),
        (75, "try k"),
        (0, "try other"),
    ] {
        place.expect(code, line);
    }
    let began = Instant::now();
    place.expect(75, "run -w 1300ms k -- touch ran");
    let waited = began.elapsed();
    assert!(
        waited >= Duration::from_millis(1300),
        "-w 1300ms waited {waited:?}"
    );
    let skipped = place.expect(0, "run --skip-if-held k -- touch ran");
    skipped.says_only("lockctl: skipped: k is held\n");
    place.assert_not_run();
}

#[test]
fn wrong_usage_is_64() {
    let place = Place::new();
    let long = format!("run {} -- true", "x".repeat(257));
    let long_namespace = format!("--namespace {} list", "x".repeat(65));
    let long_note = format!("run --note {} k -- true", "x".repeat(257));
    for line in [
        "",
        "fly",
        "run",
        "run k",
        "run '' -- true",
        "run 'a\nb' -- true",
        &long,
        "run -n -w 1 k -- true",
        "run -s -x k -- true",
        "run --permits 0 k -- true",
        "run -w soon k -- true",
        &long_note,
        "run --ttl 0 k -- true",
        "run --ttl 25h k -- true",
        "run --ttl 30s --kill-after 11s k -- true",
        "run --signal-on-lost STOP k -- true",
        "run -c true k -- true",
        "run --events fd:x k -- true",
        "run --events fd:3 k -- true",
        "run --events fd:6 k -- true",
        "run --events fd:99 k -- true",
        "run --events missing/events k -- true",
        "--namespace a:b list",
        &long_namespace,
        "-v -q list",
        "break k",
        "renew k --lease 12",
        "release k",
        "completions tcl",
        "doctor --ttl 0.4 memory:",
        "doctor --ttl 25h memory:",
    ] {
        let ended = place.expect(64, line);
        assert!(
            !ended.stderr.is_empty(),
            "it does not say what is wrong: {ended}"
        );
    }
}

#[test]
fn wrong_usage_is_explained() {
    let place = Place::new();
    place
        .expect(64, "run k true")
        .says(&["lockctl run KEY -- CMD ARGS"]);
    let ended = place.expect(64, "run --ttl 9s --kill-after 5s k -- true");
    ended.says(&[
        "--kill-after 5s does not fit into --ttl 9s",
        "use --kill-after 3s or less, or --ttl 15s or more",
    ]);
    // Three times 9 h is more than the max of a ttl.
    for time in ["9h", "1000y"] {
        let ended = place.expect(64, &format!("run --kill-after {time} k -- true"));
        ended.says(&["use --kill-after 10s or less\n"]);
    }
}

#[test]
fn a_key_with_a_hyphen_stands_behind_two_and_is_none_of_run() {
    let place = Place::new();
    place.expect(0, "try -- -dash").prints(&["-dash is free"]);
    for (line, tip) in [
        ("run -dash -- touch ran", "a KEY of `lockctl run` does"),
        ("run --dash k -- touch ran", "a KEY of `lockctl run` does"),
        ("lead --dash -- touch ran", "a NAME of `lockctl lead` does"),
    ] {
        let ended = place.expect(64, line);
        let ended = ended.says(&[&format!("tip: {tip} not begin with -\n")]);
        ended.says_nothing_of(&["as a value"]);
    }
    let tip = "tip: the command stands behind --";
    place.expect(64, "run -- -dash -- touch ran").says(&[tip]);
    place.assert_not_run();
    // The hint of a lock that is held has a command that takes its key.
    place.expect(0, "acquire -n -- -dash");
    let ended = place.expect(75, "acquire -n -- -dash");
    ended.says(&["see `lockctl inspect -- '-dash'`; to break it: `lockctl break -- '-dash'`"]);
}

#[test]
fn what_is_not_utf8_is_named() {
    let place = Place::new();
    let text = OsStr::from_bytes(b"s3ntinel\xff");
    let with = |line: &str, variable: Option<&str>| {
        let mut command = place.lockctl(line);
        match variable {
            Some(name) => command.env(name, text),
            None => command.arg(text),
        };
        Process::start(command).expect(64)
    };
    for (line, variable, says) in [
        ("list", Some("LOCK_URL"), "the variable LOCK_URL"),
        ("release k", Some("LOCK_LEASE"), "the variable LOCK_LEASE"),
        ("try", None, "argument 2"),
        ("--backend memory: run k", None, "argument 5"),
    ] {
        let ended = with(line, variable).says_only(&format!("error: {says} is not UTF-8\n"));
        ended.says_nothing_of(&["s3ntinel"]);
    }
}

/// And not that `-5` is an unknown option.
#[test]
fn a_negative_duration_is_said_to_be_one() {
    let place = Place::new();
    for (option, line) in [
        ("--ttl", "run --ttl -5s k -- true"),
        ("--wait", "run --wait -5s k -- true"),
        ("--ttl", "acquire --ttl -5s k"),
        ("--interval", "top --interval -5s"),
        ("--ttl", "doctor --ttl -5s memory:"),
        ("--hold", "bench --hold -5s memory:"),
        ("--ttl", "bench --ttl -5s memory:"),
        ("--duration", "bench --duration -5s memory:"),
        ("--warm-up", "bench --warm-up -5s memory:"),
    ] {
        if line.starts_with("bench") && !cfg!(feature = "bench") {
            continue;
        }
        let ended = place.expect(64, line);
        ended.says(&[
            &format!("invalid value '-5s' for '{option} <DURATION>'"),
            "must not be negative",
        ]);
    }
}

#[test]
fn help_and_version_are_success() {
    let place = Place::new();
    for line in ["--help", "run --help", "--version", "help break"] {
        let ended = place.expect(0, line).says_only("");
        assert!(!ended.stdout.is_empty(), "it prints nothing: {ended}");
    }
}

#[test]
fn the_default_backend_needs_a_home() {
    let place = Place::new();
    let ended = place.expect_with(78, "list", &[("XDG_STATE_HOME", ""), ("HOME", "")]);
    ended.says(&["--backend URL"]);
}

/// And not 69, which says that the server is away.
#[test]
fn a_password_file_that_is_not_there_is_78() {
    let place = Place::new();
    place.write_migration("redis://127.0.0.1:1?password-file=missing");
    for options in [
        "--backend redis://127.0.0.1:1?password-file=missing",
        "--config lock.toml",
    ] {
        let ended = place.expect(78, &format!("{options} run -n k -- touch ran"));
        ended.says(&[
            "error: the password-file missing cannot be read\n",
            "No such file",
        ]);
    }
    // The server is away as well, which counts once the file is there.
    place.write("missing", "s3ntinel");
    place.expect(
        69,
        "--backend redis://127.0.0.1:1?password-file=missing list",
    );
    place.assert_not_run();
}

/// Both are 69 with a server that is away, which is asked only if the file has a password.
#[test]
fn a_password_file_without_a_password_is_78() {
    let place = Place::new();
    fs::create_dir(place.file("dir")).expect("a directory of the test");
    fs::write(place.file("bytes"), b"s3ntinel\xff").expect("a file of the test");
    place.write("empty", "");
    place.write("blank", "\n");
    for (name, file, cause) in [
        ("password-file", "dir", "Is a directory"),
        ("password-file", "bytes", "valid UTF-8"),
        ("password-file", "empty", "it is empty"),
        ("password-file", "blank", "it is empty"),
        ("sentinel-password-file", "empty", "it is empty"),
    ] {
        let url = format!("redis-sentinel://127.0.0.1:1/main?{name}={file}");
        let ended = place.expect(78, &format!("--backend {url} run -n k -- touch ran"));
        let ended = ended.says(&[&format!("the {name} {file} cannot be read\n"), cause]);
        ended.says_nothing_of(&["s3ntinel"]);
    }
    place.assert_not_run();
}

/// As that of a process substitution.
#[test]
fn a_password_in_a_pipe_is_left_to_the_backend() {
    let place = Place::new();
    let script = format!(
        "echo s3ntinel | {LOCKCTL} --backend 'redis://127.0.0.1:1?password-file=/dev/stdin' list"
    );
    let ended = place.program("sh", &["-c", &script]).expect(69);
    ended.says_nothing_of(&["cannot be read", "s3ntinel"]);
}

#[test]
fn a_database_or_directory_that_cannot_be_made_is_69() {
    let place = Place::new();
    fs::create_dir(place.file("dir")).expect("a directory of the test");
    let noise = "no database at all, and long enough to be read as a header ".repeat(20);
    place.write("noise", &noise);
    for url in ["sqlite:noise", "sqlite:missing/locks.db"] {
        place.expect(69, &format!("--backend {url} run -n k -- touch ran"));
    }
    let ended = place.expect(78, "--backend sqlite:dir run -n k -- touch ran");
    ended.says(&["is a directory"]);
    place.write(
        "polylock",
        "a file in the way of the directory of the default backend",
    );
    let ended = place.expect(69, "run k -- touch ran");
    ended.says(&["cannot make the directory"]);
    place.assert_not_run();
}
