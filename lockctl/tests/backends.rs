//! Backends that no other process would see: nothing is locked in them.

mod common;

use std::fs;

use crate::common::{Place, Process};

/// The exit code and standard error of a command with these variables.
fn code(place: &Place, args: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
    let mut command = place.lockctl(args);
    command.envs(variables.iter().copied());
    let output = Process::start(command).output();
    let said = String::from_utf8(output.stderr).expect("text");
    (common::code(output.status), said)
}

/// Options, variables, and what comes of them.
type Case<'a, T> = (&'a [&'a str], &'a [(&'a str, &'a str)], T);

const RUN: [&str; 6] = ["run", "-n", "k", "--", "touch", "ran"];

#[test]
fn an_empty_option_is_not_taken_for_none() {
    let place = Place::new();
    let url = ("LOCK_URL", "sqlite:named.db");
    for option in ["--backend", "--config"] {
        for variables in [&[][..], &[url]] {
            let (code, said) = code(&place, &[&[option, ""], &RUN[..]].concat(), variables);
            assert_eq!(code, 64, "{option} {variables:?}: {said}");
            assert!(said.contains(&format!("{option} is empty")), "{said}");
        }
    }
    for query in [&["list"][..], &["acquire", "k"], &["try", "k"], &["doctor"]] {
        let (code, said) = code(&place, &[&["--backend", ""], query].concat(), &[]);
        assert_eq!(code, 64, "{query:?}: {said}");
    }
    assert!(!place.file("ran").exists() && !place.database().exists());
}

#[test]
fn an_empty_variable_does_not_lead_to_the_file_of_this_user() {
    let place = Place::new();
    for variable in ["LOCK_URL", "LOCK_CONFIG"] {
        let (code, said) = code(&place, &RUN, &[(variable, "")]);
        assert_eq!(code, 78, "{variable}: {said}");
        assert!(
            said.contains(&format!("{variable} is set and empty")),
            "{said}"
        );
    }
    assert!(!place.file("ran").exists() && !place.database().exists());
}

#[test]
fn an_empty_variable_is_as_good_as_none_where_something_else_names_the_backend() {
    let place = Place::new();
    fs::write(
        place.file("lock.toml"),
        "[backend.main]\nurl = 'sqlite:file.db'",
    )
    .expect("a file");
    let table: [Case<'_, &str>; 4] = [
        (
            &["--backend", "sqlite:option.db"],
            &[("LOCK_URL", ""), ("LOCK_CONFIG", "")],
            "option.db",
        ),
        (
            &[],
            &[("LOCK_URL", "sqlite:url.db"), ("LOCK_CONFIG", "")],
            "url.db",
        ),
        (&["--config", "lock.toml"], &[("LOCK_URL", "")], "file.db"),
        (
            &[],
            &[("LOCK_URL", ""), ("LOCK_CONFIG", "lock.toml")],
            "file.db",
        ),
    ];
    for (options, variables, database) in table {
        let (code, said) = code(&place, &[options, &RUN[..]].concat(), variables);
        assert_eq!(code, 0, "{options:?} {variables:?}: {said}");
        fs::remove_file(place.file(database)).expect("the database that is meant");
        fs::remove_file(place.file("ran")).expect("the command ran");
    }
}

#[test]
fn an_empty_value_in_a_file_is_a_mistake() {
    let place = Place::new();
    fs::write(place.file("empty"), "").expect("a file");
    let files = [
        "[backend.main]\nurl = ''",
        "[backend.main]\nurl = '  '",
        "[backend.main]\nurl-env = 'NOWHERE'",
        "[backend.main]\nurl-env = ''",
        "[backend.main]\nurl-file = 'empty'",
        "[backend.main]\nurl-file = ''",
        "default = ''\n[backend.main]\nurl = 'sqlite:x.db'",
    ];
    for file in files {
        fs::write(place.file("lock.toml"), file).expect("a file");
        let line = [&["--config", "lock.toml"], &RUN[..]].concat();
        let (code, said) = code(&place, &line, &[("NOWHERE", "")]);
        assert_eq!(code, 78, "{file}: {said}");
    }
    assert!(!place.file("ran").exists() && !place.database().exists());
}

/// The commands that lock, and those that tell of locks.
const COMMANDS: [&[&str]; 9] = [
    &RUN,
    &["acquire", "k"],
    &["renew", "k", "--lease", "0123456789abcdef0123456789abcdef"],
    &[
        "release",
        "k",
        "--lease",
        "0123456789abcdef0123456789abcdef",
    ],
    &["try", "k"],
    &["list"],
    &["inspect", "k"],
    &["watch"],
    &["break", "--yes", "k"],
];

#[test]
fn memory_excludes_nobody_and_is_refused() {
    let place = Place::new();
    let file = "default = 'dev'\n[backend.dev]\nurl = 'memory:shop'\n\
                [backend.prod]\nurl = 'sqlite:prod.db'\n[lock.job]\nbackend = 'dev'";
    fs::write(place.file("lock.toml"), file).expect("a file");
    let sources: [Case<'_, i32>; 6] = [
        (&["--backend", "memory:"], &[], 64),
        (&["--backend", "MEMORY:shop?namespace=a"], &[], 64),
        (&[], &[("LOCK_URL", "memory:")], 78),
        (&["--config", "lock.toml"], &[], 78),
        (
            &[
                "--config",
                "lock.toml",
                "--profile",
                "prod",
                "--class",
                "job",
            ],
            &[],
            78,
        ),
        (
            &[],
            &[("LOCK_CONFIG", "lock.toml"), ("LOCK_PROFILE", "dev")],
            78,
        ),
    ];
    for (options, variables, expected) in sources {
        for command in COMMANDS {
            let (code, said) = code(&place, &[options, command].concat(), variables);
            assert_eq!(
                code, expected,
                "{options:?} {variables:?} {command:?}: {said}"
            );
            assert!(said.contains("memory: is a store of one process"), "{said}");
        }
    }
    assert!(!place.file("ran").exists());
    let prod = ["--config", "lock.toml", "--profile", "prod"];
    assert_eq!(code(&place, &[&prod[..], &RUN].concat(), &[]).0, 0);
}
