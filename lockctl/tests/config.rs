//! Configuration files: which backend a command uses by them, and what `config` says of them.

mod common;

use std::fs;

use serde_json::{Value, json};

use crate::common::{Place, Process};

const FILE: &str = "
default = 'main'
namespace = 'shop'

[backend.main]
url = 'sqlite:main.db'
ttl = '20s'

[backend.other]
url-env = 'OTHER_URL'

[lock.deploy]
ttl = '45s'
wait = 'never'
require = ['fencing']

[lock.order]
require = ['fair']
";

/// A place with a file.
fn place(file: &str) -> Place {
    let place = Place::new();
    fs::write(place.file("lock.toml"), file).expect("a file");
    place
}

/// What a command says on standard output, and its code.
fn answer(place: &Place, args: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = place.lockctl(args);
    command.envs(variables.iter().copied());
    let output = Process::start(command).output();
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    (common::code(output.status), stdout, stderr)
}

/// A variable that the command of `run` finds.
fn seen(place: &Place, options: &[&str], variables: &[(&str, &str)], name: &str) -> String {
    let print = format!("printf %s \"${name}\"");
    let line = [options, &["run", "k", "--", "sh", "-c", &print]].concat();
    let (code, stdout, stderr) = answer(place, &line, variables);
    assert_eq!(code, 0, "{stderr}");
    stdout
}

const CONFIG: [&str; 2] = ["--config", "lock.toml"];

#[test]
fn the_file_says_where_the_locks_are_and_for_how_long() {
    let place = place(FILE);
    assert_eq!(seen(&place, &CONFIG, &[], "LOCK_TTL_MS"), "20000");
    assert_eq!(seen(&place, &CONFIG, &[], "LOCK_NAMESPACE"), "shop");
    assert!(place.file("main.db").exists() && !place.database().exists());
    let ambient = [("LOCK_CONFIG", "lock.toml")];
    assert_eq!(seen(&place, &[], &ambient, "LOCK_TTL_MS"), "20000");
}

#[test]
fn flags_go_before_the_environment_and_that_before_the_file() {
    let place = place(FILE);
    let ttl = |options: &[&str], variables: &[(&str, &str)]| {
        seen(&place, options, variables, "LOCK_TTL_MS")
    };
    assert_eq!(ttl(&CONFIG, &[("LOCK_TTL", "25s")]), "25000");
    assert_eq!(ttl(&[], &[("LOCK_TTL", "25s")]), "25000");
    assert_eq!(ttl(&[], &[]), "30000");
    let class = [&CONFIG[..], &["--class", "deploy"]].concat();
    assert_eq!(ttl(&class, &[("LOCK_TTL", "25s")]), "45000");
    assert_eq!(ttl(&class, &[("LOCK_CLASS_DEPLOY_TTL", "50s")]), "50000");
    let line = [&CONFIG[..], &["run", "--ttl", "10s", "k", "--", "sh", "-c"]].concat();
    let line = [&line[..], &["printf %s $LOCK_TTL_MS"]].concat();
    assert_eq!(answer(&place, &line, &[("LOCK_TTL", "25s")]).1, "10000");

    let namespace = [&CONFIG[..], &["--namespace", "mine"]].concat();
    assert_eq!(seen(&place, &namespace, &[], "LOCK_NAMESPACE"), "mine");
    let variables = [("LOCK_KEY_NAMESPACE", "theirs")];
    assert_eq!(
        seen(&place, &CONFIG, &variables, "LOCK_NAMESPACE"),
        "theirs"
    );
    // What an outer lockctl tells its command of its own lock is no setting.
    let variables = [("LOCK_NAMESPACE", "outer")];
    assert_eq!(seen(&place, &CONFIG, &variables, "LOCK_NAMESPACE"), "shop");
}

#[test]
fn a_profile_names_the_backend_and_a_url_wins_over_it() {
    let place = place(FILE);
    let variables = [
        ("OTHER_URL", "sqlite:other.db"),
        ("LOCK_URL", "sqlite:url.db"),
    ];
    let profile = [
        &CONFIG[..],
        &["--profile", "other", "run", "k", "--", "true"],
    ]
    .concat();
    assert_eq!(answer(&place, &profile, &variables).0, 0);
    assert!(place.file("other.db").exists() && !place.file("url.db").exists());
    let by_variable = [&CONFIG[..], &["run", "k", "--", "true"]].concat();
    assert_eq!(answer(&place, &by_variable, &variables).0, 0);
    assert!(place.file("url.db").exists() && !place.file("main.db").exists());
    let url = ["--backend", "sqlite:mine.db"];
    let by_url = [
        &CONFIG[..],
        &["--profile", "other"],
        &url,
        &["run", "k", "--", "true"],
    ]
    .concat();
    assert_eq!(answer(&place, &by_url, &variables).0, 0);
    assert!(place.file("mine.db").exists());
    // That the variable says the same does not make it less of an option.
    let same = [("LOCK_URL", "sqlite:same.db")];
    let options = [&CONFIG[..], &["--backend", "sqlite:same.db"]].concat();
    assert_eq!(seen(&place, &options, &same, "LOCK_NAMESPACE"), "");
    assert_eq!(seen(&place, &CONFIG, &same, "LOCK_NAMESPACE"), "shop");
}

#[test]
fn what_a_class_requires_is_demanded_at_the_start() {
    let place = place(FILE);
    let class = |name| [&CONFIG[..], &["--class", name, "run", "k", "--", "true"]].concat();
    let (code, _, stderr) = answer(&place, &class("order"), &[]);
    assert_eq!(code, 78, "{stderr}");
    let expected = "the class \"order\" requires fair, which sqlite of its backend \"main\" does \
                    not have";
    assert!(stderr.contains(expected), "{stderr}");
    assert_eq!(answer(&place, &class("deploy"), &[]).0, 0);
    let (code, _, stderr) = answer(&place, &class("deplyo"), &[]);
    assert_eq!(code, 78, "{stderr}");
    assert!(stderr.contains("did you mean \"deploy\"?"), "{stderr}");
}

#[test]
fn a_server_that_is_not_there_is_told_with_its_cause() {
    let place = place("backend.main.url = 'redis://app:s3ntinel@127.0.0.1:1'\n");
    let line = [&CONFIG[..], &["run", "k", "--", "true"]].concat();
    let (code, _, stderr) = answer(&place, &line, &[]);
    assert_eq!(code, 69, "{stderr}");
    assert!(
        stderr.contains("the backend \"main\" cannot be opened"),
        "{stderr}"
    );
    assert!(stderr.contains("cannot connect to 127.0.0.1:1"), "{stderr}");
    assert!(!stderr.contains("s3ntinel"), "{stderr}");
}

#[test]
fn a_class_says_how_long_to_wait_and_hints_repeat_the_options() {
    let place = place(FILE);
    let line = [
        &CONFIG[..],
        &["run", "k", "--", "sh", "-c", "touch began; sleep 60"],
    ]
    .concat();
    let _holder = place.start(&line);
    common::until("the lock is held", || place.file("began").exists());
    let line = [
        &CONFIG[..],
        &["--class", "deploy", "run", "k", "--", "true"],
    ]
    .concat();
    let (code, _, stderr) = answer(&place, &line, &[]);
    assert_eq!(code, 75, "{stderr}");
    let list = [&CONFIG[..], &["list"]].concat();
    assert!(answer(&place, &list, &[]).1.contains('k'));
    assert!(
        stderr.contains("lockctl --config lock.toml --class deploy"),
        "{stderr}"
    );
}

#[test]
fn options_of_a_file_need_one() {
    let place = place(FILE);
    let table = [
        (
            &["--profile", "main"][..],
            64,
            "--profile names a part of a configuration file",
        ),
        (
            &["--class", "deploy"],
            64,
            "--class names a part of a configuration file",
        ),
        (
            &["--config", "missing.toml"],
            78,
            "missing.toml: No such file or directory",
        ),
        (
            &["--config", "lock.toml", "--profile", "mian"],
            78,
            "flag: there is no backend \"mian\", did you mean \"main\"?",
        ),
    ];
    for (options, expected, said) in table {
        let line = [options, &["list"]].concat();
        let (code, _, stderr) = answer(&place, &line, &[]);
        assert_eq!(code, expected, "{options:?}: {stderr}");
        assert!(stderr.contains(said), "{stderr}");
    }
    let (code, _, stderr) = answer(&place, &["list"], &[("LOCK_TTL", "1")]);
    assert_eq!(code, 78, "{stderr}");
    assert!(
        stderr.contains("env LOCK_TTL: a duration has a unit"),
        "{stderr}"
    );
}

const WRONG: &str = "
default = 'mian'
[backend.main]
url = 'redis://app:s3ntinel@cache'
tll = '5s'
[lock.a]
ttl = '5 parsecs'
";

#[test]
fn check_tells_all_mistakes_at_once() {
    let place = place(WRONG);
    let (code, stdout, stderr) = answer(&place, &["config", "check", "lock.toml"], &[]);
    assert_eq!((code, stderr.as_str()), (78, ""));
    assert_eq!(
        stdout,
        "lock.toml:2:11: there is no backend \"mian\", did you mean \"main\"?\n  \
         2 | default = 'mian'\n    |           ^^^^^^\n\
         lock.toml:5:1: unknown key \"tll\" of [backend.main], did you mean \"ttl\"?\n  \
         5 | tll = ***\n    | ^^^\n\
         lock.toml:7:7: \"5 parsecs\" is no duration, write for example \"500ms\", \"30s\" or \
         \"5m\"\n  7 | ttl = '5 parsecs'\n    |       ^^^^^^^^^^^\n"
    );
    // Another command tells the same on standard error.
    let line = [&CONFIG[..], &["run", "k", "--", "true"]].concat();
    let (code, stdout, stderr) = answer(&place, &line, &[]);
    assert_eq!((code, stdout.as_str()), (78, ""));
    assert!(
        stderr.contains("error: there are 3 mistakes in lock.toml\n"),
        "{stderr}"
    );
    assert!(stderr.contains("    2 | default = 'mian'\n"), "{stderr}");
    assert!(!stderr.contains("s3ntinel"), "{stderr}");
}

#[test]
fn check_answers_programs_in_json() {
    let place = place(WRONG);
    let line = [
        "--format",
        "json",
        "--config",
        "lock.toml",
        "config",
        "check",
    ];
    let (code, stdout, _) = answer(&place, &line, &[]);
    assert!(!stdout.contains("s3ntinel"), "{stdout}");
    let value: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(
        (code, &value["ok"], &value["file"]),
        (78, &json!(false), &json!("lock.toml"))
    );
    assert_eq!(
        value["mistakes"][0],
        json!({
            "from": "file",
            "line": 2,
            "column": 11,
            "variable": null,
            "message": "there is no backend \"mian\", did you mean \"main\"?",
        })
    );
    assert_eq!(value["mistakes"].as_array().map(Vec::len), Some(3));
}

#[test]
fn a_file_without_mistakes_is_told_to_be_so() {
    let place = place(FILE);
    let (code, stdout, _) = answer(&place, &["config", "check", "lock.toml"], &[]);
    assert_eq!(code, 0);
    assert_eq!(
        stdout,
        "warning: lock.toml:10:11: the variable \"OTHER_URL\" is not set, or empty\n  \
         10 | url-env = 'OTHER_URL'\n     |           ^^^^^^^^^^^\n\
         lock.toml: no mistakes; backends: 2, classes: 2\n"
    );
    let (code, stdout, _) = answer(&place, &["config", "check", "--all", "lock.toml"], &[]);
    assert_eq!(code, 78);
    assert!(
        stdout.starts_with("lock.toml:10:11: the variable"),
        "{stdout}"
    );
    let (code, _, stderr) = answer(&place, &["config", "check"], &[]);
    assert_eq!(code, 64);
    assert!(
        stderr.contains("there is no configuration file"),
        "{stderr}"
    );
    assert!(!place.file("main.db").exists(), "nothing is opened");
}

#[test]
fn show_tells_where_each_value_comes_from() {
    let place = place(FILE);
    let variables = [
        ("OTHER_URL", "redis://app:s3ntinel@cache"),
        ("LOCK_WAIT", "3s"),
    ];
    let line = ["--config", "lock.toml", "config", "show"];
    let (code, stdout, stderr) = answer(&place, &line, &variables);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let row = |key: &str| {
        let line = stdout
            .lines()
            .find(|line| line.split_whitespace().next() == Some(key));
        let line = line.unwrap_or_else(|| panic!("no {key} in {stdout}"));
        line.split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        row("backend.main.url"),
        "sqlite:main.db?namespace=shop lock.toml:6"
    );
    assert_eq!(row("backend.main.ttl"), "20s lock.toml:7");
    assert_eq!(row("backend.main.wait"), "3s env LOCK_WAIT");
    assert_eq!(row("backend.main.max-hold"), "1h default");
    assert_eq!(
        row("backend.other.url"),
        "redis://app:***@cache?namespace=shop lock.toml:10"
    );
    assert_eq!(row("lock.deploy.require"), "fencing lock.toml:15");

    let line = [&["--format", "json"], &line[..]].concat();
    let (_, stdout, _) = answer(&place, &line, &variables);
    assert!(!stdout.contains("s3ntinel"), "{stdout}");
    let value: Value = serde_json::from_str(&stdout).expect("JSON");
    let settings = value["settings"].as_array().expect("a list");
    let wait = json!({
        "key": "backend.main.wait",
        "value": "3s",
        "from": "env",
        "line": null,
        "variable": "LOCK_WAIT",
    });
    assert!(settings.contains(&wait), "{settings:?}");
}

#[test]
fn the_schema_is_json() {
    let (code, stdout, _) = answer(&Place::new(), &["config", "schema"], &[]);
    let value: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((code, &value["title"]), (0, &json!("polylock")));
}
