//! Every exit code.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::Place;

#[test]
fn the_code_of_the_command_is_passed_on() {
    let place = Place::new();
    for code in [0, 1, 2, 64, 75, 79, 255] {
        let exit = format!("exit {code}");
        assert_eq!(
            place.code(&["run", "k", "--", "sh", "-c", &exit]),
            (code, String::new())
        );
    }
}

#[test]
fn a_command_that_a_signal_killed_is_128_and_the_signal() {
    let place = Place::new();
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130)] {
        let kill = format!("kill -{signal} $$");
        assert_eq!(place.code(&["run", "k", "--", "sh", "-c", &kill]).0, code);
    }
}

#[test]
fn a_command_that_does_not_exist_is_127() {
    let place = Place::new();
    let (code, said) = place.code(&["run", "k", "--", "no-such-command"]);
    assert_eq!(code, 127);
    assert!(
        said.starts_with("lockctl: error: no-such-command: command not found"),
        "{said}"
    );
    assert!(!place.is_held("k"));
}

#[test]
fn a_command_that_cannot_be_executed_is_126() {
    let place = Place::new();
    fs::write(place.file("data"), "no program").unwrap();
    fs::set_permissions(place.file("data"), fs::Permissions::from_mode(0o644)).unwrap();
    let (code, said) = place.code(&["run", "k", "--", "./data"]);
    assert_eq!(code, 126);
    assert!(
        said.starts_with("lockctl: error: ./data cannot be executed"),
        "{said}"
    );
}

#[test]
fn a_held_lock_is_75_or_what_is_asked_for() {
    let place = Place::new();
    let _holder = place.hold(&["k"], "exec sleep 60");
    assert_eq!(place.code(&["run", "-n", "k", "--", "true"]).0, 75);
    assert_eq!(place.code(&["run", "-w", "0.2", "k", "--", "true"]).0, 75);
    assert_eq!(
        place.code(&["run", "-n", "-E", "9", "k", "--", "true"]).0,
        9
    );
    assert_eq!(place.code(&["acquire", "-n", "k"]).0, 75);
    assert_eq!(place.code(&["try", "k"]).0, 75);
    assert_eq!(place.code(&["try", "other"]).0, 0);
}

#[test]
fn a_held_lock_may_be_success() {
    let place = Place::new();
    let _holder = place.hold(&["k"], "exec sleep 60");
    let (code, said) = place.code(&["run", "--skip-if-held", "k", "--", "touch", "ran"]);
    assert_eq!((code, said.as_str()), (0, "lockctl: skipped: k is held\n"));
    assert!(!place.file("ran").exists());
}

#[test]
fn wrong_usage_is_64() {
    let place = Place::new();
    let long = "x".repeat(257);
    let lines: &[&[&str]] = &[
        &[],
        &["fly"],
        &["run"],
        &["run", "k"],
        &["run", "k", "true"],
        &["run", "", "--", "true"],
        &["run", "a\nb", "--", "true"],
        &["run", &long, "--", "true"],
        &["run", "-n", "-w", "1", "k", "--", "true"],
        &["run", "-s", "-x", "k", "--", "true"],
        &["run", "--slots", "0", "k", "--", "true"],
        &["run", "-w", "soon", "k", "--", "true"],
        &["run", "--ttl", "0", "k", "--", "true"],
        &["run", "--ttl", "25h", "k", "--", "true"],
        &[
            "run",
            "--ttl",
            "30s",
            "--kill-after",
            "11s",
            "k",
            "--",
            "true",
        ],
        &["run", "--signal-on-lost", "STOP", "k", "--", "true"],
        &["run", "-c", "true", "k", "--", "true"],
        &["run", "--events", "fd:x", "k", "--", "true"],
        &["-v", "-q", "list"],
        &["break", "k"],
        &["renew", "k", "--lease", "12"],
        &["release", "k"],
        &["completions", "tcl"],
    ];
    for line in lines {
        let (code, said) = place.code(line);
        assert_eq!(code, 64, "{line:?}: {said}");
        assert!(!said.is_empty(), "{line:?}");
    }
}

#[test]
fn a_lease_too_short_for_the_end_of_the_command_is_explained() {
    let (code, said) = Place::new().code(&[
        "run",
        "--ttl",
        "9s",
        "--kill-after",
        "5s",
        "k",
        "--",
        "true",
    ]);
    assert_eq!(code, 64);
    assert!(
        said.contains("--kill-after 5s does not fit into --ttl 9s"),
        "{said}"
    );
    assert!(
        said.contains("use --kill-after 3s or less, or --ttl 15s or more"),
        "{said}"
    );
}

#[test]
fn a_command_without_dashes_is_explained() {
    let (code, said) = Place::new().code(&["run", "k", "true"]);
    assert_eq!(code, 64);
    assert!(said.contains("lockctl run KEY -- CMD ARGS"), "{said}");
}

#[test]
fn help_and_version_are_success() {
    let place = Place::new();
    for line in [
        &["--help"][..],
        &["run", "--help"],
        &["--version"],
        &["help", "break"],
    ] {
        let output = place.run(line);
        assert_eq!(output.status.code(), Some(0), "{line:?}");
        assert!(
            !output.stdout.is_empty() && output.stderr.is_empty(),
            "{line:?}"
        );
    }
}

#[test]
fn a_wrong_url_is_78() {
    let place = Place::new();
    for url in [
        "carrier-pigeon://roof",
        "localhost:6379",
        "sqlite:x.db?tll=3",
        "sqlite://x.db",
    ] {
        let (code, said) = place.code(&["--backend", url, "list"]);
        assert_eq!(code, 78, "{url}: {said}");
    }
}

#[test]
fn a_password_in_a_url_is_not_said() {
    let place = Place::new();
    let urls = [
        // Nobody listens there.
        ("redis://app:s3ntinel@127.0.0.1:1/0", 69),
        ("sqlite://u:s3ntinel@h/x", 78),
        ("redis://u:s3#ntinel@h:x", 78),
    ];
    for (url, expected) in urls {
        let (code, said) = place.code(&["-vv", "--backend", url, "run", "k", "--", "true"]);
        assert_eq!(code, expected, "{url}");
        assert!(
            !said.contains("s3ntinel") && !said.contains("ntinel@"),
            "{said}"
        );
    }
}

#[test]
fn no_home_for_the_default_backend_is_78() {
    let place = Place::new();
    let mut command = place.lockctl(&["list"]);
    command.env_remove("XDG_STATE_HOME");
    let output = common::Process::start(command).output();
    assert_eq!(output.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--backend URL"));
}

#[test]
fn the_home_is_the_second_choice_for_the_default_backend() {
    let place = Place::new();
    let mut command = place.lockctl(&["run", "k", "--", "true"]);
    command
        .env_remove("XDG_STATE_HOME")
        .env("HOME", place.file("home"));
    assert_eq!(common::Process::start(command).code(), 0);
    let database = place.file("home/.local/state/polylock/locks.db");
    assert!(database.exists());
    let mode = database
        .parent()
        .unwrap()
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn the_option_goes_before_the_variable() {
    let place = Place::new();
    let mut command = place.lockctl(&["--backend", "sqlite:a.db", "run", "k", "--", "true"]);
    command.env("LOCK_URL", "sqlite:b.db");
    assert_eq!(common::Process::start(command).code(), 0);
    assert!(place.file("a.db").exists() && !place.file("b.db").exists());
    let mut command = place.lockctl(&["run", "k", "--", "true"]);
    command.env("LOCK_URL", "sqlite:b.db");
    assert_eq!(common::Process::start(command).code(), 0);
    assert!(place.file("b.db").exists() && !place.database().exists());
}

#[test]
fn a_database_that_cannot_be_opened_is_69() {
    let place = Place::new();
    fs::create_dir(place.file("dir")).unwrap();
    fs::write(
        place.file("noise"),
        "no database at all, and long enough to be read as a header ".repeat(20),
    )
    .unwrap();
    for url in ["sqlite:dir", "sqlite:noise", "sqlite:missing/locks.db"] {
        let (code, said) = place.code(&["--backend", url, "run", "-n", "k", "--", "touch", "ran"]);
        assert_eq!(code, 69, "{url}: {said}");
    }
    assert!(!place.file("ran").exists());
}

#[test]
fn a_state_directory_that_cannot_be_made_is_69() {
    let place = Place::new();
    fs::write(place.file("polylock"), "a file in the way").unwrap();
    let (code, said) = place.code(&["run", "k", "--", "true"]);
    assert_eq!(code, 69, "{said}");
    assert!(said.contains("cannot make the directory"), "{said}");
}
