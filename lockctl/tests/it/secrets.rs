//! Passwords are in no output. A parameter that no backend knows may be a password whose name is
//! misspelt: nothing shows its value.

use crate::fixture::{Place, Process};

const SECRET: &str = "s3ntinel";

const MISSPELT: &[&str] = &[
    "PASSWORD",
    "pasword",
    "paswd",
    "psw",
    "pw",
    "sentinel-pasword",
];

/// The first two have no listener.
const URLS: &[&str] = &[
    "redis://127.0.0.1:1/0",
    "redis-sentinel://127.0.0.1:1/main",
    "sqlite:locks.db",
    "memory:",
];

/// Checks the output of a command in both formats.
#[track_caller]
fn assert_silent(place: &Place, line: &str, variables: &[(&str, &str)]) {
    for format in ["text", "json"] {
        let mut command = place.lockctl(&format!("-vv --format {format} {line}"));
        command.envs(variables.iter().copied());
        let ended = Process::start(command).ended();
        let is_said = !ended.stdout.is_empty() || !ended.stderr.is_empty();
        assert!(is_said, "it says nothing at all: {ended}");
        ended.says_nothing_of(&[SECRET, "ntinel@"]);
    }
}

#[test]
fn commands_do_not_show_the_password_of_a_url() {
    let place = Place::new();
    for (code, url) in [
        // The port has no listener.
        (69, "redis://app:s3ntinel@127.0.0.1:1/0?timeout=1s"),
        (69, "redis://app:s3ntinel@no-such-host.invalid"),
        (69, "postgres://app:s3ntinel@127.0.0.1:1/shop"),
        (69, "mysql://app:s3ntinel@127.0.0.1:1/shop"),
        (69, "zk://app:s3ntinel@127.0.0.1:1/locks?connect-timeout=1s"),
        (78, "sqlite://u:s3ntinel@h/x"),
        (78, "redis://u:s3#ntinel@h:x"),
        (78, "carrier-pigeon://u:s3ntinel@h"),
    ] {
        let ended = place.expect(code, &["-vv", "--backend", url, "run", "k", "--", "true"]);
        ended.says_nothing_of(&[SECRET, "ntinel@"]);
        let ended = place.expect(1, &["-vv", "--format", "json", "doctor", url]);
        ended.says_nothing_of(&[SECRET, "ntinel@"]);
        let ended = place.expect(1, &["-vv", "doctor", url]);
        ended.says_nothing_of(&[SECRET, "ntinel@"]);
    }
}

#[test]
fn commands_do_not_show_a_misspelt_password_of_a_url() {
    let place = Place::new();
    let commands = [
        "run -n k -- true",
        "list",
        "schema print",
        "doctor",
        "inspect k",
    ];
    for (at, name) in MISSPELT.iter().enumerate() {
        // Each command meets different names and backends, by option and by variable.
        for shift in 0..2 {
            let base = URLS[(at + shift) % URLS.len()];
            let url = format!("{base}?timeout=1s&{name}={SECRET}&mode=lease");
            let command = commands[(2 * at + shift) % commands.len()];
            assert_silent(&place, &format!("--backend {url} {command}"), &[]);
            assert_silent(&place, command, &[("LOCK_URL", &url)]);
        }
        let url = format!("{}?{name}={SECRET}", URLS[at % URLS.len()]);
        assert_silent(&place, &format!("doctor {url}"), &[]);
        assert_silent(&place, &format!("bench --target a={url}"), &[]);
    }
}

#[test]
fn commands_do_not_show_a_misspelt_password_of_a_file() {
    let place = Place::new();
    let commands = [
        "config check",
        "config check --all",
        "config show",
        "doctor",
        "run -n k -- true",
    ];
    for (at, name) in MISSPELT.iter().enumerate() {
        let url = URLS[at % URLS.len()];
        let secret = format!("{url}?{name}={SECRET}");
        let files = [
            format!("[backend.a]\nurl = '{secret}'"),
            format!("[backend.a]\nurl = '{url}'\noptions.{name} = '{SECRET}'"),
            format!("[backend.a]\nurl = '{url}'\n{name} = '{SECRET}'"),
            "[backend.a]\nurl-env = 'URL'".to_owned(),
        ];
        for (file, text) in files.iter().enumerate() {
            place.write("lock.toml", text);
            // Each file meets each command, with different names and backends.
            let command = commands[(at + file) % commands.len()];
            let variables = [("LOCK_CONFIG", "lock.toml"), ("URL", &secret)];
            assert_silent(&place, command, &variables);
        }
    }
}

#[test]
fn the_doctor_names_the_parameter_and_hides_its_value() {
    let place = Place::new();
    let ended = place.expect(1, "doctor sqlite:locks.db?paswd=s3ntinel");
    let ended = ended.prints(&["unknown parameter \"paswd\""]);
    assert!(
        ended.stdout.starts_with("sqlite:locks.db?paswd=***\n"),
        "{ended}"
    );
}

/// The user, password and host of a URL, and URLs without slashes.
#[test]
fn a_url_in_place_of_a_file_is_not_repeated() {
    let place = Place::new();
    place.write("lock.toml", "[backend.a]\nurl-file = 'app:s3ntinel@cache'");
    place.write(
        "other.toml",
        "[backend.a]\nurl-file = 'memory:?psw=s3ntinel'",
    );
    for url in [
        "app:s3ntinel@cache",
        ":s3ntinel@cache",
        "memory:?psw=s3ntinel",
    ] {
        for line in [
            format!("--config {url} list"),
            format!("--config {url} doctor"),
            format!("config check {url}"),
            format!("config show {url}"),
            format!("run --events {url}/x k -- true"),
            format!("run k -- {url}"),
            format!("list x {url}"),
        ] {
            assert_silent(&place, &line, &[]);
        }
        assert_silent(&place, "list", &[("LOCK_CONFIG", url)]);
        let ended = place.expect(78, &format!("--config {url} list"));
        ended.says(&["there is an error in ***", "***: No such file"]);
    }
    for file in ["lock.toml", "other.toml"] {
        assert_silent(&place, &format!("config check {file}"), &[]);
    }
}

/// A path with an @ or a colon is no URL, and its name helps.
#[test]
fn the_name_of_a_file_is_shown() {
    let place = Place::new();
    for file in ["lock@host.toml", "at-10:30.toml"] {
        let says = format!("{file}: No such file");
        place.expect(78, &["--config", file, "list"]).says(&[&says]);
    }
}

#[test]
fn a_wrong_command_line_is_not_repeated_with_its_secrets() {
    let place = Place::new();
    let url = "redis://app:s3ntinel@cache";
    for (code, line, says) in [
        (64, format!("{url} list"), "unrecognized subcommand '***'"),
        (
            64,
            format!("list x {url}"),
            "unexpected argument '***' found",
        ),
        (78, format!("--config {url} list"), "***: No such file"),
    ] {
        let ended = place.expect(code, &line).says(&[says]);
        ended.says_nothing_of(&[SECRET, "ntinel@"]);
    }
    let tip = "tip: the URL of a lock service is given by --backend URL\n";
    for line in [
        format!("{url} list"),
        format!("list x {url}"),
        format!("schema apply {url}"),
    ] {
        place.expect(64, &line).says(&[tip]);
    }
    let check = place.expect(78, &format!("--format json config check {url}"));
    check.says_nothing_of(&[SECRET, "ntinel@"]);

    let id = "0123456789abcdef".repeat(2);
    let ended = place.expect_with(64, "release k", &[("LOCK_LEASE", &format!("{id} "))]);
    let ended = ended.says(&["invalid value '***' for '--lease <ID>'"]);
    ended.says_nothing_of(&[&id]);
    place
        .expect(64, &["renew", "k", &id])
        .says_nothing_of(&[&id]);
}

/// Without `--backend` it would be a key in the file of this user.
#[test]
fn a_url_in_place_of_a_key_is_refused() {
    let place = Place::new();
    let id = "0123456789abcdef".repeat(2);
    let commands = [
        "run -n KEY -- touch ran",
        "run -n k KEY -- touch ran",
        "run KEY --once-per 1h -- touch ran",
        "lead KEY -- touch ran",
        "leader KEY",
        "try KEY",
        "list KEY",
        "inspect KEY",
        "watch KEY",
        "break --yes KEY",
        "acquire KEY",
        &format!("renew KEY --lease {id}"),
        &format!("release KEY --lease {id}"),
    ];
    let urls = ["redis://:s3ntinel@h:1", "ETCD://root:s3ntinel@h"];
    for (at, command) in commands.iter().enumerate() {
        let line = command.replace("KEY", urls[at % urls.len()]);
        let ended = place.expect(64, &line);
        let ended = ended.says(&["the URL of a lock service", "--backend URL"]);
        ended.says_nothing_of(&[SECRET, "ntinel@"]);
    }
    assert!(
        !place.database().exists(),
        "one has opened the default file"
    );
    // Other text with such signs is a key.
    for key in ["https://shop/orders", "redis:orders", "a://b"] {
        place.expect(0, &["try", key]);
    }
    place.assert_not_run();
}
