//! Backends that no other process would see: nothing is locked in them.

use crate::fixture::Place;

/// Options, variables, and what comes of them.
type Case<'a, T> = (&'a str, &'a [(&'a str, &'a str)], T);

const RUN: &str = "run -n k -- touch ran";

#[track_caller]
fn assert_nothing_is_locked(place: &Place) {
    place.assert_not_run();
    assert!(
        !place.database().exists(),
        "the database of this user is in use"
    );
}

#[test]
fn an_empty_option_is_not_taken_for_none() {
    let place = Place::new();
    let url = ("LOCK_URL", "sqlite:named.db");
    for option in ["--backend", "--config"] {
        for variables in [&[][..], &[url]] {
            let ended = place.expect_with(64, &format!("{option} '' {RUN}"), variables);
            ended.says(&[&format!("{option} is empty")]);
        }
    }
    for query in ["list", "acquire k", "try k", "doctor"] {
        place.expect(64, &format!("--backend '' {query}"));
    }
    let variables = [url, ("LOCK_KEY_NAMESPACE", "shop")];
    for command in [RUN, "list", "doctor memory:", "config show lock.toml"] {
        let ended = place.expect_with(64, &format!("--namespace '' {command}"), &variables);
        ended.says(&["'--namespace <NS>': must not be empty", "?namespace="]);
    }
    assert_nothing_is_locked(&place);
}

#[test]
fn an_empty_variable_does_not_lead_to_the_file_of_this_user() {
    let place = Place::new();
    for variable in ["LOCK_URL", "LOCK_CONFIG"] {
        let ended = place.expect_with(78, RUN, &[(variable, "")]);
        ended.says(&[&format!("{variable} is set and empty")]);
    }
    assert_nothing_is_locked(&place);
}

#[test]
fn a_variable_of_a_file_does_not_lead_to_the_file_of_this_user() {
    let place = Place::new();
    for (name, value) in [
        ("LOCK_DEFAULT_BACKEND", "main"),
        ("LOCK_BACKEND_MAIN_URL", "sqlite:main.db"),
    ] {
        let ended = place.expect_with(78, RUN, &[(name, value)]);
        ended.says(&[&format!(
            "{name} is for a configuration file, and none is read"
        )]);
    }
    // A name may have what steers a terminal.
    let ended = place.expect_with(78, RUN, &[("LOCK_BACKEND_\u{1b}[2J_URL", "memory:")]);
    ended.says(&["LOCK_BACKEND_\\u{1b}[2J_URL is for a configuration file"]);
    assert_nothing_is_locked(&place);
    let url = ("LOCK_URL", "sqlite:url.db");
    place.expect_with(0, RUN, &[("LOCK_DEFAULT_BACKEND", "main"), url]);
    place.remove_only("url.db");
    place.remove(&["ran"]);
    // Empty variables count as unset.
    place.expect_with(
        0,
        RUN,
        &[("LOCK_DEFAULT_BACKEND", ""), ("LOCK_BACKEND_A_URL", "")],
    );
}

#[test]
fn an_option_goes_before_a_variable_and_both_before_an_empty_one() {
    let place = Place::new();
    place.write("lock.toml", "[backend.main]\nurl = 'sqlite:file.db'");
    let empty = [("LOCK_URL", ""), ("LOCK_CONFIG", "")];
    let both = [("LOCK_URL", "sqlite:url.db")];
    let table: [Case<'_, &str>; 6] = [
        ("--backend sqlite:option.db", &both, "option.db"),
        ("", &both, "url.db"),
        ("--backend sqlite:option.db", &empty, "option.db"),
        ("", &[both[0], empty[1]], "url.db"),
        ("--config lock.toml", &empty[..1], "file.db"),
        ("", &[empty[0], ("LOCK_CONFIG", "lock.toml")], "file.db"),
    ];
    for (options, variables, database) in table {
        place.expect_with(0, &format!("{options} {RUN}"), variables);
        place.remove_only(database);
        place.remove(&["ran"]);
    }
}

#[test]
fn an_empty_value_in_a_file_is_a_mistake() {
    let place = Place::new();
    place.write("empty", "");
    for file in [
        "[backend.main]\nurl = ''",
        "[backend.main]\nurl = '  '",
        "[backend.main]\nurl-env = 'NOWHERE'",
        "[backend.main]\nurl-env = ''",
        "[backend.main]\nurl-file = 'empty'",
        "[backend.main]\nurl-file = ''",
        "default = ''\n[backend.main]\nurl = 'sqlite:x.db'",
    ] {
        place.write("lock.toml", file);
        place.expect_with(78, &format!("--config lock.toml {RUN}"), &[("NOWHERE", "")]);
    }
    assert_nothing_is_locked(&place);
}

/// Each command that locks or shows locks.
const COMMANDS: [&str; 12] = [
    RUN,
    "run --once-per 1h k -- touch ran",
    "lead k -- touch ran",
    "leader k",
    "acquire k",
    "renew k --lease 0123456789abcdef0123456789abcdef",
    "release k --lease 0123456789abcdef0123456789abcdef",
    "try k",
    "list",
    "inspect k",
    "watch",
    "break --yes k",
];

#[test]
fn one_backend_of_two_is_asked_by_its_own_url() {
    let place = Place::new();
    place.write_migration("sqlite:old.db");
    let _holder = place.holder("--config lock.toml k");
    // A lock can be acquired, and has a message of its own where it cannot be handed out.
    let refused = COMMANDS.iter();
    for command in refused.filter(|command| **command != RUN && **command != "acquire k") {
        let ended = place.expect(78, &format!("--config lock.toml {command}"));
        ended.says(&["(`migrate-from`)", "lockctl --backend URL list"]);
    }
    place.assert_not_run();
    for options in [
        "--backend sqlite:new.db",
        "--config lock.toml --default-backend old",
    ] {
        place.expect(75, &format!("{options} try k"));
    }
}

/// On the old backend another process holds it, on the new one it is free.
#[test]
fn hints_of_a_lock_on_two_backends_are_commands_that_work() {
    let place = Place::new();
    place.write_migration("sqlite:old.db");
    let _holder = place.holder("--backend sqlite:old.db k");
    let ended = place.expect(75, "--config lock.toml run -n k -- touch ran");
    let ended = ended.says(&["error: k is held\n"]);
    let quoted = ended.stderr.split('`').skip(1).step_by(2);
    let quoted: Vec<_> = quoted.collect();
    for (command, prints) in [
        ("lockctl --backend sqlite:old.db inspect k", "holder"),
        ("lockctl --backend sqlite:old.db break k", "k is broken"),
        ("lockctl --backend sqlite:new.db inspect k", "k is free"),
        ("lockctl --backend sqlite:new.db break k", "k is free"),
    ] {
        assert!(quoted.contains(&command), "no {command}: {ended}");
        let line = command.strip_prefix("lockctl").unwrap_or_default();
        let line = line.replace(" break", " break --yes");
        place.expect(0, &line).prints(&[prints]);
    }
    place.assert_not_run();
}

#[test]
fn memory_excludes_no_other_process_and_is_refused() {
    let place = Place::new();
    let file = "default = 'dev'\n[backend.dev]\nurl = 'memory:shop'\n\
                [backend.prod]\nurl = 'sqlite:prod.db'\n[class.job]\nbackend = 'dev'";
    place.write("lock.toml", file);
    let ambient = [
        ("LOCK_CONFIG", "lock.toml"),
        ("LOCK_DEFAULT_BACKEND", "dev"),
    ];
    let sources: [Case<'_, i32>; 6] = [
        ("--backend memory:", &[], 64),
        ("--backend MEMORY:shop?namespace=a", &[], 64),
        ("", &[("LOCK_URL", "memory:")], 78),
        ("--config lock.toml", &[], 78),
        (
            "--config lock.toml --default-backend prod --class job",
            &[],
            78,
        ),
        ("", &ambient, 78),
    ];
    for (at, command) in COMMANDS.iter().enumerate() {
        // Each meets two sources, and each source several commands.
        for shift in [0, 3] {
            let (options, variables, code) = sources[(at + shift) % sources.len()];
            let ended = place.expect_with(code, &format!("{options} {command}"), variables);
            ended.says(&["memory: is a store of one process"]);
        }
    }
    assert_nothing_is_locked(&place);
    place.expect(
        0,
        &format!("--config lock.toml --default-backend prod {RUN}"),
    );
}

#[cfg(all(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite",
    feature = "tls",
    feature = "zk"
))]
#[test]
fn a_tls_file_that_hangs_is_waited_for_no_longer_than_a_server() {
    let place = Place::new();
    place.program("mkfifo", &["ca.pem"]).expect(0);
    let urls = [
        "mysql://u@127.0.0.1:1/d?timeout=1s",
        "postgres://u@127.0.0.1:1/d?timeout=1s",
        "redis://127.0.0.1:1?connect-timeout=1s",
        "redis-cluster://127.0.0.1:1?connect-timeout=1s",
        "redis-sentinel://127.0.0.1:1/main?connect-timeout=1s",
        "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3?connect-timeout=1s",
        "zk://127.0.0.1:1/locks?connect-timeout=1s",
    ];
    crate::fixture::side_by_side(&urls, |url| {
        let url = format!("{url}&tls=on&tls-ca-file=ca.pem");
        let ended = place.expect(69, &["--backend", &url, "list"]);
        ended.says(&["the TLS files were not read within 1s"]);
        let ended = place.expect(1, &["doctor", &url]);
        ended.prints(&["the TLS files were not read within 1s"]);
    });
}
