//! The meaning of URLs, and errors for wrong ones, which never show a secret.

use std::path::Path;
use std::time::Duration;

use polylock_core::{Error, ErrorKind, LockUrl};
use proptest::prelude::*;

fn parse(text: &str) -> LockUrl {
    LockUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> Error {
    let error = LockUrl::parse(text).expect_err(text);
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    error
}

/// The columns of a line of a table.
fn columns<const N: usize>(line: &str) -> [&str; N] {
    let columns: Vec<_> = line.split('|').map(str::trim).collect();
    columns.try_into().expect(line)
}

#[test]
fn a_text_that_may_be_a_url_with_a_secret_is_told_from_the_name_of_a_file() {
    for url in [
        "redis://app:s3ntinel@cache",
        "redis://cache",
        "app:s3ntinel@cache",
        ":s3ntinel@cache",
        "sqlite:locks.db?psw=s3ntinel",
    ] {
        assert!(LockUrl::may_be_url(url), "{url}");
    }
    for file in [
        "",
        "lock.toml",
        "/etc/lock@host.toml",
        "at-10:30.toml",
        "what?.toml",
    ] {
        assert!(!LockUrl::may_be_url(file), "{file}");
    }
}

#[test]
fn parts_are_told_apart() {
    // URL, hosts joined, user, password, path, what is displayed in place of the URL itself
    let cases = [
        "memory: | | - | - | | memory:",
        "memory:// | | - | - | | memory://",
        "memory:name | | - | - | name | memory:name",
        "sqlite::memory: | | - | - | :memory: | sqlite::memory:",
        "sqlite:relative/path.db | | - | - | relative/path.db | sqlite:relative/path.db",
        "sqlite:/abs | | - | - | /abs | sqlite:/abs",
        "sqlite:///abs | | - | - | /abs | sqlite:///abs",
        "sqlite:a b%23%3f.db | | - | - | a b#?.db | sqlite:a b%23%3F.db",
        "REDIS://Cache | Cache | - | - | | redis://Cache",
        "redis://user:p%40ss@h1:6379,h2/0?timeout=30s | h1:6379 h2 | user | p@ss | /0 | redis://user:***@h1:6379,h2/0?timeout=30s",
        "redis://:a:b@cache | cache | - | a:b | | redis://:***@cache",
        "redis://app@cache | cache | app | - | | redis://app@cache",
        "redis+unix:///run/redis.sock | | - | - | /run/redis.sock | redis+unix:///run/redis.sock",
        "redis+unix://:pw@/r.sock | | - | pw | /r.sock | redis+unix://:***@/r.sock",
        "zk://h1:2181,h2,h3:2183/ch%20root | h1:2181 h2 h3:2183 | - | - | /ch root | zk://h1:2181,h2,h3:2183/ch root",
        "zk://[::1]:2181,[fe80::2%25eth0] | [::1]:2181 [fe80::2%25eth0] | - | - | | zk://[::1]:2181,[fe80::2%25eth0]",
        "postgres://%2Frun%2Fpg/db | %2Frun%2Fpg | - | - | /db | postgres://%2Frun%2Fpg/db",
    ];
    for case in cases {
        let [text, hosts, username, password, path, shown] = columns(case);
        let url = parse(text);
        let found: Vec<_> = url.hosts().iter().map(ToString::to_string).collect();
        assert_eq!(found.join(" "), hosts, "{text}");
        assert_eq!(url.username().unwrap_or("-"), username, "{text}");
        assert_eq!(url.password().unwrap_or("-"), password, "{text}");
        assert_eq!(url.path(), path, "{text}");
        assert_eq!(url.to_string(), shown, "{text}");
        assert_eq!(format!("{url:?}"), format!("LockUrl({shown})"));
        assert_eq!(parse(shown).to_string(), shown);
    }
    assert_eq!(parse("  redis://cache\n").to_string(), "redis://cache");
    assert_eq!(parse("redis://[::1]").hosts()[0].name, "::1");
    assert_eq!(parse("redis://h").hosts()[0].port_or(6379), 6379);
    assert_eq!(parse("redis://h:1").hosts()[0].port_or(6379), 1);
}

#[test]
fn a_wrong_url_names_the_mistake_and_the_way_out() {
    let cases = [
        "| the URL is empty, write SCHEME://HOST:PORT, or SCHEME:PATH for a file",
        "127.0.0.1:6379/0 | there is no scheme; write SCHEME://HOST:PORT, or SCHEME:PATH for a file",
        "[::1]:2181/x | there is no scheme; write SCHEME://HOST:PORT",
        "redis | there is no scheme; write SCHEME://HOST:PORT",
        "/var/lib/locks.db | there is no scheme; write SCHEME://HOST:PORT",
        "://host | there is no scheme",
        // What looks like a port may be the beginning of a password.
        "user:1234/5@h | an @ stands once",
        "redis://h: | the port of host 1 is missing after the colon, write redis://HOST:PORT",
        "zk://h1,h2:/x | the port of host 2 is missing",
        "redis://h:http | the port of host 1 is not a number",
        "redis://h:65536 | the port of host 1 is not between 1 and 65535",
        "redis://h:0 | the port of host 1 is not between 1 and 65535",
        "redis://h:+1 | the port of host 1 is not a number",
        "zk://h1,,h2 | host 2 is empty, write zk://HOST:PORT,HOST:PORT",
        "zk://h1, | host 2 is empty",
        "redis://:6379 | host 1 is empty",
        "redis://::1:6379 | host 1 is empty",
        "redis://fe80::1:6379 | host 1 has two colons: an IPv6 address stands in brackets",
        "redis://[::1 | the bracket of host 1 is not closed",
        "redis://[::1]6379 | host 1 is followed by something that is no port",
        "redis://[cache] | host 1 is no IPv6 address",
        "redis://ca che | host 1 contains a character that no host has",
        "redis://u:100%@h | a % in a URL is written %25, also in a password",
        "redis://u:%ff@h | an escaped byte in the URL is not UTF-8",
        "redis://u:a#b@h | a # in a URL is written %23, also in a password",
        "redis://u:a@b@h | an @ stands once",
        "redis://u:a/b@h | an @ stands once",
        "redis://u:a?b@h | an @ stands once",
        "user:password@host | an @ stands once, as in SCHEME://USER:PASSWORD@HOST",
        "redis://h?ttl | a parameter is written name=value",
        r#"redis://h?ttl=1s&ttl=2s | parameter "ttl" is given twice"#,
    ];
    for case in cases {
        let [text, start] = columns(case);
        let message = refusal(text).message().to_owned();
        assert!(message.starts_with(start), "{text:?}: {message}");
    }
    let error = refusal("redis://a\nb");
    assert_eq!(error.message(), "a URL must not contain control characters");
}

#[test]
fn helpers_name_what_is_missing() {
    let file = |text: &str| {
        let url = parse(text);
        let file = url.expect_file().map(Path::to_owned);
        file.map_err(|error| error.to_string())
    };
    assert_eq!(file("sqlite:a/b.db"), Ok("a/b.db".into()));
    assert_eq!(file("sqlite:/a/b.db"), Ok("/a/b.db".into()));
    assert_eq!(file("sqlite:///a/b.db"), Ok("/a/b.db".into()));
    let refused = [
        r#"sqlite://name.db | "name.db" a host, and a file has none; write sqlite:name.db"#,
        "sqlite://data/my_locks.db | write sqlite:data/my_locks.db",
        "sqlite://u:s3ntinel@h/x.db | a file has no user and no host, write sqlite:PATH",
        "sqlite: | there is no file, write sqlite:PATH",
        "sqlite:// | there is no file, write sqlite:PATH",
        "sqlite:~/locks.db | a ~ is not expanded",
        "sqlite:a%00b | must not contain NUL",
    ];
    for case in refused {
        let [text, part] = columns(case);
        let message = file(text).unwrap_err();
        assert!(message.contains(part), "{text}: {message}");
    }
    let missing = parse("redis://").expect_hosts().unwrap_err();
    let expected = "there is no host, write redis://HOST:PORT";
    assert_eq!(missing.message(), expected);
    assert!(parse("redis:cache").expect_host().is_err());
    assert_eq!(parse("redis://cache").expect_host().unwrap().name, "cache");
    let many = parse("redis://a,b").expect_host().unwrap_err();
    assert_eq!(many.message(), "redis URLs have one host, this one has 2");
}

proptest! {
    #[test]
    fn what_is_displayed_means_the_same(
        path in r"(/[a-z%?#@ ]{0,6}){0,2}",
        user in "[a-z:/@%]{0,4}",
        value in "[a-z &=%#@?]{0,6}",
        hosts in "(h1|h2:1|\\[::1\\]:2)(,(h3|h4:5)){0,2}",
    ) {
        let escape = |text: &str| {
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
        };
        let path_escaped = path.split('/').map(escape).collect::<Vec<_>>().join("/");
        let text = format!("zk://{}@{hosts}{path_escaped}?table={}", escape(&user), escape(&value));
        let url = parse(&text);
        prop_assert_eq!(url.path(), path);
        prop_assert_eq!(url.username().unwrap_or(""), user);
        prop_assert_eq!(url.params().string("table"), Some(value.as_str()));
        let again = parse(&url.to_string());
        prop_assert_eq!(again.path(), url.path());
        prop_assert_eq!(again.hosts(), url.hosts());
        prop_assert_eq!(again.username(), url.username());
        prop_assert_eq!(again.params().string("table"), Some(value.as_str()));
    }
}

#[test]
fn parameters_have_types() {
    let url = parse("x:?d=1m 30s&on=on&off=false&n=16&word=row&text=a%26b+c&empty=");
    let mut params = url.params();
    assert_eq!(params.duration("d").unwrap(), Some(Duration::from_secs(90)));
    assert_eq!(params.bool("on").unwrap(), Some(true));
    assert_eq!(params.bool("off").unwrap(), Some(false));
    assert_eq!(params.integer("n", 0_u8..=16).unwrap(), Some(16));
    let word = params.one_of("word", &["lease", "row"]);
    assert_eq!(word.unwrap(), Some("row"));
    assert_eq!(params.string("text"), Some("a&b+c"));
    assert_eq!(params.string("empty"), Some(""));
    assert_eq!(params.string("missing"), None);
    assert_eq!(params.duration("missing-as-well").unwrap(), None);
    params.finish().unwrap();
}

#[test]
fn a_wrong_parameter_says_what_it_must_be() {
    // How it is read, its value, and what it must be.
    let cases = [
        "duration | 30 | a duration with a unit, write for example p=30s",
        "duration | soon | a duration such as 500ms, 30s or 5m",
        "duration | inf | a duration such as 500ms, 30s or 5m",
        "duration | | a duration such as 500ms, 30s or 5m",
        "duration | 99999999999999999999y | a duration such as 500ms, 30s or 5m",
        "bool | yes | on or off",
        "integer | 17 | a whole number from 1 to 16",
        "integer | -1 | a whole number from 1 to 16",
        "integer | x | a whole number from 1 to 16",
        "integer | 1.5 | a whole number from 1 to 16",
        "integer | | a whole number from 1 to 16",
        r#"word | leese | one of lease, row, did you mean "lease"?"#,
    ];
    for case in cases {
        let [kind, value, expected] = columns(case);
        let url = parse(&format!("x:?p={value}"));
        let mut params = url.params();
        let read = match kind {
            "duration" => params.duration("p").map(drop),
            "bool" => params.bool("p").map(drop),
            "integer" => params.integer("p", 1..=16).map(drop),
            _ => params.one_of("p", &["row", "lease"]).map(drop),
        };
        let error = read.expect_err(case);
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        let expected = format!("parameter \"p\" is {value:?} and must be {expected}");
        assert_eq!(error.message(), expected);
    }
}

#[test]
fn an_unknown_parameter_names_the_nearest_and_all_that_are_known() {
    let url = parse("x:?tll=1s");
    let mut params = url.params();
    assert_eq!(params.duration("ttl").unwrap(), None);
    assert_eq!(params.string("mode"), None);
    let nearest = r#"unknown parameter "tll", did you mean "ttl"? (known: mode, ttl)"#;
    assert_eq!(params.finish().unwrap_err().message(), nearest);
    let none = r#"unknown parameter "tll" (known: none)"#;
    assert_eq!(url.params().finish().unwrap_err().message(), none);
}

#[test]
fn secrets_among_the_parameters_are_not_shown() {
    let url = parse("x://h?tls-key-file=/k&password=s3n&ttl=tinel");
    assert_eq!(url.to_string(), "x://h?tls-key-file=/k&password=***");
    for name in [
        "pass",
        "sslpassword",
        "Auth-Token",
        "client_secret",
        "api-key",
        "PWD",
    ] {
        let shown = parse(&format!("x:?{name}=s3ntinel")).to_string();
        assert_eq!(shown, format!("x:?{name}=***"));
    }
    let mut params = url.params();
    assert_eq!(params.string("password"), Some("s3n"));
    assert!(!format!("{params:?}").contains("s3n"));
    let error = params.duration("ttl").unwrap_err().to_string();
    assert!(!error.contains("tinel"), "{error}");
}

/// Unknown parameter names, which may be misspelt names of a secret.
const MISSPELT: &[&str] = &[
    "PASWORD",
    "credntial",
    "geheim",
    "kennwort",
    "pasword",
    "paswd",
    "pin",
    "psw",
    "pw",
    "pwrd",
    "scret",
    "sentinel-pasword",
    "sentinel_pw",
    "tokn",
    "Username",
    "mode ",
];

#[test]
fn the_value_of_an_unknown_parameter_is_not_shown() {
    for name in MISSPELT {
        for text in [
            format!("x://h/0?{name}={CANARY}"),
            format!("x://h/0?timeout=5s&{name}={CANARY}&mode=lease"),
            // The rest of a secret with an & in it.
            format!("x://h/0?{name}=abc&{CANARY}=1"),
            format!("x://h/0?{name}=abc&{CANARY}=1&{CANARY}=2"),
            format!("x://h/0?{name}=abc&mode={CANARY}"),
        ] {
            let printed = printed(&text);
            assert!(!printed.contains(CANARY), "{text}: {printed}");
        }
    }
    let url = parse("x://h?timeout=5s&paswd=s3ntinel&mode=lease");
    assert_eq!(url.to_string(), "x://h?timeout=5s&paswd=***");
    let error = parse("x:?paswd=s3ntinel").params().finish().unwrap_err();
    let unknown = r#"unknown parameter "paswd" (known: none)"#;
    assert_eq!(error.message(), unknown);
}

/// Everything that is ever printed of a URL or of what is wrong with it.
fn printed(text: &str) -> String {
    match LockUrl::parse(text) {
        Err(error) => format!("{error} {error:?} {error:#?}"),
        Ok(url) => {
            let mut params = url.params();
            let mut out = format!("{url} {url:?} {url:#?} {params:?}");
            let mut tell = |error: Option<Error>| {
                out.extend(error.map(|error| format!("{error} {error:?}")));
            };
            tell(url.expect_file().err());
            tell(url.expect_host().err());
            tell(params.duration("ttl").err());
            tell(params.bool("password").err());
            tell(params.integer("n", 1..=2).err());
            tell(params.one_of("mode", &["lease"]).err());
            tell(params.finish().err());
            out
        }
    }
}

const CANARY: &str = "s3ntinel";

/// Text in which everything that means something in a URL is frequent.
const ANYTHING: &str = r"([:/?#@&=%,\[\].~+ ]|%40|%zz|[a-z0-9]|redis://|ttl=|mode=|\PC){0,8}";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn parsing_never_panics(text in ANYTHING, wild in any::<String>()) {
        printed(&text);
        printed(&wild);
        printed(&format!("redis://{text}"));
        printed(&format!("x:?{wild}"));
    }

    #[test]
    fn a_password_before_a_host_is_never_printed(
        scheme in prop_oneof![Just("redis".to_owned()), Just("sqlite".to_owned()), ANYTHING.boxed()],
        user in ANYTHING,
        before in ANYTHING,
        after in ANYTHING,
        host in ANYTHING,
    ) {
        for slashes in ["//", "/", ""] {
            let text = format!("{scheme}:{slashes}{user}:{before}{CANARY}{after}@{host}");
            prop_assert!(!printed(&text).contains(CANARY), "{}", text);
            let bare = format!("{user}:{before}{CANARY}{after}@{host}");
            prop_assert!(!printed(&bare).contains(CANARY), "{}", bare);
        }
    }

    #[test]
    fn a_password_among_the_parameters_is_never_printed(
        head in "(redis://u:p@h/0|sqlite:locks\\.db|memory:)",
        others in "([a-z]{1,4}=[a-z]{0,4}&){0,2}",
        name in "([a-z]{0,3}[-_]?(password|PASS|secret|token)|p[a-z]{0,3}w[a-z]{0,3}d?)",
        before in ANYTHING,
        after in ANYTHING,
    ) {
        let text = format!("{head}?{others}{name}={before}{CANARY}{after}");
        prop_assert!(!printed(&text).contains(CANARY), "{}", text);
    }
}
