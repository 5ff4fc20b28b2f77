//! Configuration files: which backend a command uses by them, and what `config` says of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::fixture::Place;

const FILE: &str = "
default = 'main'
namespace = 'shop'

[backend.main]
url = 'sqlite:main.db'
ttl = '20s'

[backend.other]
url-env = 'OTHER_URL'

[class.deploy]
ttl = '45s'
wait = 'never'
require = ['fencing']

[class.order]
require = ['fair']
";

const CONFIG: &str = "--config lock.toml";

/// A place with a file.
fn place(file: &str) -> Place {
    let place = Place::new();
    place.write("lock.toml", file);
    place
}

#[test]
fn flags_go_before_the_environment_and_that_before_the_file() {
    let place = place(FILE);
    let run = "--config lock.toml run";
    let class = "--config lock.toml --class deploy run";
    let with_ttl = "--config lock.toml run --ttl 10s";
    let with_namespace = "--config lock.toml --namespace mine run";
    let ttl = [("LOCK_TTL", "25s")];
    // The variables that an outer lockctl sets for its command are no settings.
    let outer = [("LOCK_NAMESPACE", "outer")];
    for (line, variables, name, expected) in [
        (run, &[][..], "TTL_MS", "20000"),
        ("run", &[("LOCK_CONFIG", "lock.toml")], "TTL_MS", "20000"),
        (run, &ttl, "TTL_MS", "25000"),
        ("run", &ttl, "TTL_MS", "25000"),
        ("run", &[], "TTL_MS", "30000"),
        (class, &ttl, "TTL_MS", "45000"),
        (
            class,
            &[("LOCK_CLASS_DEPLOY_TTL", "50s")],
            "TTL_MS",
            "50000",
        ),
        (with_ttl, &ttl, "TTL_MS", "10000"),
        (run, &[], "NAMESPACE", "shop"),
        (with_namespace, &[], "NAMESPACE", "mine"),
        (run, &[("LOCK_KEY_NAMESPACE", "its")], "NAMESPACE", "its"),
        (run, &outer, "NAMESPACE", "shop"),
    ] {
        let line = format!("{line} k -- sh -c 'printf %s \"$LOCK_{name}\"'");
        place.expect_with(0, &line, variables).prints_only(expected);
    }
}

#[test]
fn an_option_names_the_default_backend_and_a_url_wins_over_it() {
    let place = place(FILE);
    let variables = [
        ("OTHER_URL", "sqlite:other.db"),
        ("LOCK_URL", "sqlite:url.db"),
    ];
    // A backend of the file has its namespace, and that of an option has none, whatever the
    // variable says.
    for (options, variables, database, namespace) in [
        ("", &[][..], "main.db", "shop"),
        ("--default-backend other", &variables, "other.db", "shop"),
        ("", &variables, "url.db", "shop"),
        (
            "--default-backend other --backend sqlite:mine.db",
            &variables,
            "mine.db",
            "",
        ),
        ("--backend sqlite:url.db", &variables, "url.db", ""),
    ] {
        let line = format!("{CONFIG} {options} run k -- sh -c 'printf %s \"$LOCK_NAMESPACE\"'");
        place
            .expect_with(0, &line, variables)
            .prints_only(namespace);
        place.remove_only(database);
    }
}

#[test]
fn what_a_class_requires_is_demanded_at_the_start() {
    let place = place(FILE);
    let fair = "the class \"order\" requires fair, which sqlite of its backend \"main\" does not \
                have";
    for (code, class, says) in [
        (78, "order", fair),
        (0, "deploy", ""),
        (78, "deplyo", "did you mean \"deploy\"?"),
    ] {
        let line = format!("{CONFIG} --class {class} run k -- true");
        place.expect(code, &line).says(&[says]);
    }
}

#[test]
fn a_server_that_is_not_there_is_told_with_its_cause() {
    let place = place("backend.main.url = 'redis://app:s3ntinel@127.0.0.1:1'\n");
    let ended = place.expect(69, &format!("{CONFIG} run k -- true"));
    ended
        .says(&[
            "the backend \"main\" cannot be opened",
            "cannot connect to 127.0.0.1:1",
            "`lockctl --config lock.toml doctor` looks for the cause",
        ])
        .says_nothing_of(&["s3ntinel"]);
}

#[test]
fn a_class_says_how_long_to_wait_and_hints_repeat_the_options() {
    let place = place(FILE);
    let _holder = place.holder(&format!("{CONFIG} k"));
    let ended = place.expect(75, &format!("{CONFIG} --class deploy run k -- true"));
    ended.says(&["lockctl --config lock.toml --class deploy"]);
    place.expect(0, &format!("{CONFIG} list")).prints(&["\nk "]);
}

#[test]
fn options_of_a_file_need_one() {
    let place = place(FILE);
    let part = "names a part of a configuration file";
    let unknown = "flag: there is no backend \"mian\", did you mean \"main\"?";
    for (code, options, says) in [
        (64, "--default-backend main", part),
        (64, "--class deploy", part),
        (78, "--config missing.toml", "missing.toml: No such file"),
        (78, "--config lock.toml --default-backend mian", unknown),
    ] {
        place.expect(code, &format!("{options} list")).says(&[says]);
    }
    let ended = place.expect_with(78, "list", &[("LOCK_TTL", "1")]);
    ended.says(&["env LOCK_TTL: a duration has a unit"]);
    let variables = [("LOCK_TTL", "10"), ("LOCK_WAIT", "soon")];
    let ended = place.expect_with(78, "list", &variables);
    let ended = ended.says(&[
        "error: env LOCK_TTL: a duration has a unit, write \"10s\"\n",
        "\n  env LOCK_WAIT: \"soon\" is not a duration",
    ]);
    ended.says_nothing_of(&["configuration"]);
}

const WRONG: &str = "
default = 'mian'
[backend.main]
url = 'redis://app:s3ntinel@cache'
tll = '5s'
[class.a]
ttl = '5 parsecs'
";

#[test]
fn check_tells_all_errors_at_once() {
    let place = place(WRONG);
    // Everyone can read the file, whatever the umask is.
    let mode = fs::Permissions::from_mode(0o644);
    fs::set_permissions(place.file("lock.toml"), mode).expect("a file of the test");
    place
        .expect(78, "config check lock.toml")
        .says_only("")
        .prints_only(
            "lock.toml:2:11: there is no backend \"mian\", did you mean \"main\"?\n\
         lock.toml:5:1: unknown key \"tll\" of [backend.main], did you mean \"ttl\"?\n\
         lock.toml:7:7: \"5 parsecs\" is not a duration, write for example \"500ms\", \"30s\" or \
         \"5m\"\n\
         warning: lock.toml:4:7: everyone can read this file, which may have a password in it: remove \
         the permission of others, or use url-env or url-file\n",
        );
    // Another command tells the same on standard error.
    let ended = place.expect(78, &format!("{CONFIG} run k -- true"));
    ended
        .prints_only("")
        .says(&[
            "error: there are 3 errors in lock.toml\n",
            "lock.toml:2:11: there is no backend",
        ])
        .says_nothing_of(&["s3ntinel"]);
    let ended = place.expect(78, &format!("--format json {CONFIG} config check"));
    let value = ended.says_nothing_of(&["s3ntinel"]).json();
    assert_eq!(value["ok"], false, "{value}");
    assert_eq!(value["file"], "lock.toml", "{value}");
    assert_eq!(value["errors"].as_array().map(Vec::len), Some(3), "{value}");
    assert_eq!(value["warnings"][0]["line"], 4, "{value}");
    let first = json!({
        "from": "file",
        "line": 2,
        "column": 11,
        "variable": null,
        "message": "there is no backend \"mian\", did you mean \"main\"?",
    });
    assert_eq!(value["errors"][0], first);
}

#[test]
fn a_file_without_errors_is_told_to_be_so() {
    let place = place(FILE);
    let unset = "lock.toml:10:11: the variable \"OTHER_URL\" is not set, or empty\n";
    let summary = "lock.toml: no errors; backends: 2, classes: 2\n";
    let ended = place.expect(0, "config check lock.toml");
    ended.prints_only(&format!("warning: {unset}{summary}"));
    place
        .expect(78, "config check --all lock.toml")
        .prints_only(unset);
    place
        .expect(64, "config check")
        .says(&["there is no configuration file"]);
    assert!(
        !place.file("main.db").exists(),
        "a check has opened a backend"
    );
}

#[test]
fn show_tells_where_each_value_comes_from() {
    let place = place(FILE);
    let variables = [
        ("OTHER_URL", "redis://app:s3ntinel@cache"),
        ("LOCK_WAIT", "3s"),
    ];
    let ended = place.expect_with(0, &format!("{CONFIG} config show"), &variables);
    let ended = ended.says_only("");
    let rows: Vec<_> = ended.stdout.lines().collect();
    let rows = rows
        .iter()
        .map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "));
    let rows: Vec<_> = rows.collect();
    for row in [
        "backend.main.url sqlite:main.db?namespace=shop lock.toml:6",
        "backend.main.ttl 20s lock.toml:7",
        "backend.main.wait 3s env LOCK_WAIT",
        "backend.main.max-hold 1h default",
        "backend.other.url redis://app:***@cache?namespace=shop lock.toml:10",
        "class.deploy.require fencing lock.toml:15",
    ] {
        assert!(
            rows.iter().any(|found| found == row),
            "no row {row}: {ended}"
        );
    }
    let line = format!("--format json {CONFIG} config show");
    let ended = place.expect_with(0, &line, &variables);
    let value = ended.says_nothing_of(&["s3ntinel"]).json();
    let wait = json!({
        "key": "backend.main.wait",
        "value": "3s",
        "from": "env",
        "line": null,
        "variable": "LOCK_WAIT",
    });
    let settings = value["settings"].as_array();
    assert!(
        settings.is_some_and(|all| all.contains(&wait)),
        "no {wait} in {value:#}"
    );
}

#[test]
fn show_names_what_is_unset_and_where() {
    let place = place(FILE);
    let ended = place.expect(0, &format!("{CONFIG} config show"));
    let ended = ended.says_only(
        "lockctl: warning: lock.toml:10:11: the variable \"OTHER_URL\" is not set, or empty\n",
    );
    let mut rows = ended.stdout.lines().map(str::split_whitespace);
    let is_unset = rows.any(|row| row.eq(["backend.other.url", "unset", "lock.toml:9"]));
    assert!(is_unset, "{ended}");
}

#[test]
fn the_schema_is_json() {
    let value: Value = Place::new().expect(0, "config schema").json();
    assert_eq!(value["title"], "polylock", "{value}");
}
