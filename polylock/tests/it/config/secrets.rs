//! No error message shows a password of the configuration.

use polylock::config::{Config, ConfigErrors, Loader};

use super::loader;

const SECRET: &str = "s3ntinel";

/// A file without a secret.
const MEMORY: &str = "backend.main.url = 'memory:'\n";

/// Each way to give a secret.
const FILE: &str = r#"
default = "main"
namespace = "shop"

[backend.main]
url = "redis://app:s3ntinel@cache:6379/0?resp=3" # before: redis://:s3ntinel@old
ttl = "30s"

[backend.main.options]
max-waiters = 100

[backend.sessions]
url = 'redis+unix:/run/redis'
options = { password = "s3ntinel", timeout = '2s' }

[backend.db]
url-env = "DB_URL" # postgres://app:s3ntinel@db

[class.payment]
backend = "db"
wait = "5s"
require = ["fencing"]
"#;

const VARIABLES: &[(&str, &str)] = &[("DB_URL", "postgres://app:s3ntinel@db/locks")];

/// All that can be printed of what came of a text.
fn printed(result: &Result<Config, ConfigErrors>) -> String {
    let mut out = vec![format!("{result:?} {result:#?}")];
    match result {
        Ok(config) => {
            out.extend(config.warnings().iter().map(ToString::to_string));
            out.extend(config.effective().iter().map(ToString::to_string));
            for backend in config.backends() {
                out.push(format!("{backend:?}"));
                out.extend(backend.url.as_ref().map(ToString::to_string));
            }
        }
        Err(errors) => {
            let error = polylock::Error::from(errors.clone());
            let summary = errors.summary();
            out.push(format!("{errors} {summary} {error} {error:?}"));
            out.extend(errors.all().iter().map(|error| error.message.clone()));
        }
    }
    out.join(" ")
}

fn assert_silent(loader: &Loader, text: &str) {
    // Without its colon it is a part of the name of the user, which is shown.
    if text.contains("apps3ntinel") {
        return;
    }
    let printed = printed(&loader.parse(text));
    assert!(!printed.contains(SECRET), "{text}\n\n{printed}");
}

#[test]
fn no_change_of_one_character_brings_a_password_to_light() {
    let loader = loader(VARIABLES);
    let inserted = ["\"", "'", "\n", "=", "#", "[", "@", "x"];
    assert!(loader.parse(FILE).is_ok(), "{:?}", loader.parse(FILE));
    for at in 0..FILE.len() {
        assert_silent(&loader, &format!("{}{}", &FILE[..at], &FILE[at + 1..]));
        // Far from a password, one of them at each place.
        let near = &FILE[at.saturating_sub(40)..(at + 40).min(FILE.len())];
        let count = if near.contains(SECRET) {
            inserted.len()
        } else {
            1
        };
        for text in inserted.iter().cycle().skip(at).take(count) {
            assert_silent(&loader, &format!("{}{text}{}", &FILE[..at], &FILE[at..]));
        }
    }
}

#[test]
fn no_line_that_is_left_out_brings_a_password_to_light() {
    let lines: Vec<_> = FILE.lines().collect();
    for left_out in 0..lines.len() {
        let mut rest = lines.clone();
        rest.remove(left_out);
        assert_silent(&loader(VARIABLES), &rest.join("\n"));
    }
}

#[test]
fn a_url_in_the_wrong_place_is_not_repeated() {
    let url = "redis://app:s3ntinel@cache";
    let texts = [
        format!("default = '{url}'"),
        format!("namespace = '{url}'\nbackend.main.url = 'memory:'"),
        format!("'{url}' = 1"),
        format!("[backend.'{url}']\nurl = 'memory:'"),
        format!("[backend.'{url}']\ntll = '5s'"),
        format!("default = 'main'\n[backend.'{url}']\nurl = 'memory:'"),
        format!("backend.main.url = 'memory:'\n[class.'{url}']\ntll = '5s'"),
        format!("[backend.main]\nurl-env = '{url}'"),
        format!("[backend.main]\nurl-file = '{url}'"),
        "[backend.main]\nurl-file = 'memory:?psw=s3ntinel'".to_owned(),
        format!("[backend.main]\nurl = 'memory:'\nttl = '{url}'\nwait = '{url}'"),
        format!("[backend.main]\nurl = 'memory:'\noptions.mode = '{url}'"),
        "[backend.main]\nurl = 'redis+unix:/run/a'\noptions.pasword = 's3ntinel'".to_owned(),
        format!("[backend.main]\nurl = 'memory:'\nmigrate-from = '{url}'"),
        format!("backend.main.url = 'memory:'\n[class.a]\nbackend = '{url}'\nrequire = ['{url}']"),
        format!("[backend.main]\nurl = \"\"\"\n{url}\n"),
        format!("[backend.main]\nurl = {url}?a=b"),
        format!("{url}?a=b"),
        url.to_owned(),
    ];
    for text in texts {
        assert!(loader(&[]).parse(&text).is_err(), "{text}");
        assert_silent(&loader(&[]), &text);
    }
}

#[test]
fn a_url_in_place_of_a_file_is_not_repeated() {
    for url in [
        "redis://app:s3ntinel@cache",
        "app:s3ntinel@cache",
        ":s3ntinel@cache",
        "memory:?psw=s3ntinel",
    ] {
        let printed = printed(&loader(&[]).load(url));
        assert!(printed.contains("there is an error in ***"), "{printed}");
        assert!(!printed.contains(SECRET), "{printed}");
    }
}

#[test]
fn a_variable_or_a_flag_with_a_password_is_not_repeated() {
    let wrong = [
        "redis://app:s3ntinel@",
        "rediss://:s3ntinel@h/x?tls=s3ntinel",
        "gopher://s3ntinel@x",
    ];
    for url in wrong {
        for variable in [
            "LOCK_URL",
            "LOCK_BACKEND_MAIN_URL",
            "LOCK_TTL",
            "LOCK_DEFAULT_BACKEND",
        ] {
            assert_silent(&loader(&[(variable, url)]), MEMORY);
        }
        let flag = loader(&[]).with_url(url);
        assert!(!format!("{flag:?}").contains(SECRET));
        assert_silent(&flag, "");
        let named = loader(&[]).with_default_backend(url);
        assert!(!format!("{named:?}").contains(SECRET));
        assert_silent(&named, MEMORY);
        assert_silent(&loader(&[]).with_namespace(url), MEMORY);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_does_not_bring_a_password_to_light() {
    let file = "[backend.main]\nurl = 'redis://app:s3ntinel@127.0.0.1:1'\n\
                [backend.db]\nurl = 'postgres://app:s3ntinel@127.0.0.1:1/x'\n\
                [class.a]\nbackend = 'main'\n[class.b]\nbackend = 'db'\n";
    let config = loader(&[]).parse(file).unwrap();
    let error = config.connect().await.unwrap_err();
    assert_eq!(error.kind(), polylock::ErrorKind::Unavailable);
    let printed = format!("{error} {error:?} {error:#?}");
    assert!(!printed.contains(SECRET), "{printed}");
    for backend in ["\"main\"", "\"db\""] {
        assert!(error.message().contains(backend), "{error}");
    }
}

/// Parameters that no backend has: each may be a password whose name is misspelt.
const MISSPELT: &[&str] = &[
    "PASSWORD",
    "kennwort",
    "pasword",
    "paswd",
    "pin",
    "psw",
    "pw",
    "sentinel-pasword",
    "sentinel_pw",
    "tokn",
];

#[test]
fn the_value_of_an_unknown_parameter_is_not_shown() {
    let urls = [
        "redis://cache/0",
        "redis-sentinel://cache/main",
        "redis+unix:/run/redis",
        "zk://zk1,zk2",
        "postgres://db/locks",
        "mysql://db/locks",
        "sqlite:locks.db",
        "memory:",
        // The parameters of a backend that is not compiled in are unknown.
        "etcd://cache",
    ];
    for name in MISSPELT {
        for url in urls {
            let texts = [
                format!("[backend.main]\nurl = '{url}?{name}=s3ntinel'"),
                format!("[backend.main]\nurl = '{url}?timeout=5s&{name}=s3ntinel&strict=on'"),
                format!("[backend.main]\nurl = '{url}'\noptions.{name} = 's3ntinel'"),
                format!(
                    "default = 'main'\n[backend.main]\nurl = 'memory:'\n\
                     [backend.other]\nurl = '{url}?{name}=s3ntinel'\noptions.tls = true"
                ),
                format!("[backend.main]\nurl = '{url}'\n{name} = 's3ntinel'"),
            ];
            for text in texts {
                assert_silent(&loader(&[]), &text);
            }
            let secret = format!("{url}?{name}=s3ntinel");
            for variable in ["LOCK_URL", "LOCK_BACKEND_MAIN_URL"] {
                assert_silent(&loader(&[(variable, &secret)]), MEMORY);
            }
            assert_silent(&loader(&[("DB", &secret)]), "backend.main.url-env = 'DB'");
            assert_silent(&loader(&[]).with_url(&secret), "");
        }
    }
}

/// As in a variable or a file of another name.
#[test]
fn a_password_in_place_of_a_url_is_not_quoted() {
    for password in ["s3ntinel", "s3ntinel:rest", "s3ntinel:6379", "a:s3ntinel"] {
        let loader = loader(&[("DB", password)]);
        assert_silent(&loader, "backend.main.url-env = 'DB'");
        let unused = "default = 'main'\n[backend]\nmain.url = 'memory:'\nother.url-env = 'DB'";
        assert_silent(&loader, unused);
    }
}

#[test]
fn a_number_may_be_a_password() {
    // Serde and TOML have limits of their own for the last two.
    let numbers = ["83749", "8374983749837498374983749", &"83749".repeat(12)];
    for name in [&["password"], MISSPELT].concat() {
        for number in numbers {
            for text in [
                format!("options = {{ {name} = {number} }}"),
                format!("options.{name} = [{number}]"),
                format!("{name} = {number}"),
            ] {
                let text = format!("[backend.main]\nurl = 'redis+unix:/run/redis'\n{text}");
                let printed = printed(&loader(&[]).parse(&text));
                assert!(!printed.contains("83749"), "{text}\n\n{printed}");
            }
        }
    }
    let text = format!(
        "[backend.main]\nurl = {}\nttl = {}\n",
        numbers[1], numbers[2]
    );
    let printed = printed(&loader(&[]).parse(&text));
    assert!(!printed.contains("83749"), "{text}\n\n{printed}");
}

/// What is shown is a list in polylock-core, which must have what backends ask for.
#[tokio::test]
async fn parameters_that_backends_know_are_shown_or_secret() {
    let urls = [
        "redis://cache",
        "redis-sentinel://cache/main",
        "redis-cluster://cache",
        "redlock://a,b,c",
        "redis+unix:/run/redis",
        "zk://cache",
        "postgres://db/locks",
        "mysql://db/locks",
        "sqlite:locks.db",
        "memory:",
    ];
    for url in urls {
        let unknown = format!("{url}?unknown=1");
        let error = loader(&[]).with_url(&unknown).parse("").unwrap_err();
        let message = error.to_string();
        let (_, known) = message.split_once("(known: ").expect("a list of names");
        let (known, _) = known.split_once(')').expect("its end");
        for name in known.split(", ") {
            let is_file = name.ends_with("-file");
            let is_secret = name.contains("password") && !is_file || name == "auth";
            assert_eq!(polylock::LockUrl::shows(name), !is_secret, "{url} {name}");
        }
    }
}
