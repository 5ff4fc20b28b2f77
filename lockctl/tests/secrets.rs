//! A parameter that nobody knows may be a password whose name is misspelt: nothing shows its value.

mod common;

use std::fs;

use crate::common::{Place, Process};

const SECRET: &str = "s3ntinel";

const MISSPELT: &[&str] = &[
    "PASSWORD",
    "pasword",
    "paswd",
    "psw",
    "pw",
    "sentinel-pasword",
];

/// Nobody listens at the first two.
const URLS: &[&str] = &[
    "redis://127.0.0.1:1/0",
    "redis-sentinel://127.0.0.1:1/main",
    "sqlite:locks.db",
    "memory:",
];

/// Everything that a command says.
fn printed(place: &Place, line: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = place.lockctl(line);
    command.envs(variables.iter().copied());
    let output = Process::start(command).output();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(!stdout.is_empty() || !stderr.is_empty(), "{line:?}");
    format!("{stdout}{stderr}")
}

fn assert_silent(place: &Place, line: &[&str], variables: &[(&str, &str)]) {
    for format in ["text", "json"] {
        let line = [&["-vv", "--format", format], line].concat();
        let printed = printed(place, &line, variables);
        assert!(
            !printed.contains(SECRET),
            "{line:?} {variables:?}\n{printed}"
        );
    }
}

#[test]
fn commands_do_not_show_a_misspelt_password_of_a_url() {
    let place = Place::new();
    let commands: &[&[&str]] = &[
        &["run", "-n", "k", "--", "true"],
        &["list"],
        &["schema", "print"],
        &["doctor"],
        &["bench", "--duration", "50ms", "--repeats", "1"],
    ];
    for (at, name) in MISSPELT.iter().enumerate() {
        let base = URLS[at % URLS.len()];
        let url = format!("{base}?timeout=1s&{name}={SECRET}&mode=lease");
        for command in commands {
            assert_silent(&place, &[&["--backend", &url], *command].concat(), &[]);
            assert_silent(&place, command, &[("LOCK_URL", &url)]);
        }
        assert_silent(&place, &["doctor", &url], &[]);
        assert_silent(&place, &["bench", "--target", &format!("a={url}")], &[]);
    }
}

#[test]
fn commands_do_not_show_a_misspelt_password_of_a_file() {
    let place = Place::new();
    let commands: &[&[&str]] = &[
        &["config", "check"],
        &["config", "check", "--all"],
        &["config", "show"],
        &["doctor"],
        &["run", "-n", "k", "--", "true"],
    ];
    for (at, name) in MISSPELT.iter().enumerate() {
        let url = URLS[at % URLS.len()];
        let files = [
            format!("[backend.a]\nurl = '{url}?{name}={SECRET}'"),
            format!("[backend.a]\nurl = '{url}'\noptions.{name} = '{SECRET}'"),
            format!("[backend.a]\nurl = '{url}'\n{name} = '{SECRET}'"),
            "[backend.a]\nurl-env = 'URL'".to_owned(),
        ];
        for file in files {
            fs::write(place.file("lock.toml"), &file).expect("a file");
            let variables = [
                ("LOCK_CONFIG", "lock.toml"),
                ("URL", &format!("{url}?{name}={SECRET}")),
            ];
            for command in commands {
                assert_silent(&place, command, &variables);
            }
        }
    }
}

#[test]
fn the_doctor_names_the_parameter_and_hides_its_value() {
    let place = Place::new();
    let said = printed(&place, &["doctor", "sqlite:locks.db?paswd=s3ntinel"], &[]);
    assert!(said.starts_with("sqlite:locks.db?paswd=***\n"), "{said}");
    assert!(said.contains("unknown parameter \"paswd\""), "{said}");
}
