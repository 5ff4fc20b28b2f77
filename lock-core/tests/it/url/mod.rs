//! The meaning of URLs, and errors for wrong ones, which never show a secret.

mod params;
mod secrets;

use std::path::Path;

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
        parse(text)
            .expect_file()
            .map(Path::to_owned)
            .map_err(|e| e.to_string())
    };
    assert_eq!(file("sqlite:a/b.db"), Ok("a/b.db".into()));
    assert_eq!(file("sqlite:/a/b.db"), Ok("/a/b.db".into()));
    assert_eq!(file("sqlite:///a/b.db"), Ok("/a/b.db".into()));
    let refused = |text: &str, part: &str| {
        let message = file(text).unwrap_err();
        assert!(message.contains(part), "{text}: {message}");
    };
    refused(
        "sqlite://name.db",
        r#""name.db" a host, and a file has none; write sqlite:name.db"#,
    );
    refused("sqlite://data/my_locks.db", "write sqlite:data/my_locks.db");
    refused(
        "sqlite://u:s3ntinel@h/x.db",
        "a file has no user and no host, write sqlite:PATH",
    );
    refused("sqlite:", "there is no file, write sqlite:PATH");
    refused("sqlite://", "there is no file, write sqlite:PATH");
    refused("sqlite:~/locks.db", "a ~ is not expanded");
    refused("sqlite:a%00b", "must not contain NUL");

    let missing = parse("redis://").expect_hosts().unwrap_err();
    assert_eq!(
        missing.message(),
        "there is no host, write redis://HOST:PORT"
    );
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
