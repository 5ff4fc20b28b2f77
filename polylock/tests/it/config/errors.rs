//! Errors are reported where they are, with a hint.

use super::{loader, messages, wrong};

/// Texts with one error each, and below them its message. `\n` ends a line of a text, and `(nothing)` is
/// nothing.
const TABLE: &str = r#"
defualt = 'main'\nbackend.main.url = 'memory:'
    1:1: unknown key "defualt", did you mean "default"?
[backend.main]\nurl = 'memory:'\ntll = '30s'
    3:1: unknown key "tll" of [backend.main], did you mean "ttl"?
[backend.main]\nurl = 'memory:'\nrenew-every = '10s'
    3:1: unknown key "renew-every" of [backend.main]; a lease is renewed every third of its ttl,
    which cannot be changed; set the ttl
[backend.main]\nurl = 'redis://cache'\n[backend.main.redis]\nnotify = true
    3:15: unknown key "redis" of [backend.main]; parameters of a backend belong in its table
    "options"
backend.main.url = 'memory:'\n[class.a]\nkind = 'x'\n
    3:1: unknown key "kind" of [class.a]; the scheme of the url selects the backend
backend.main.url = 'memory:'\n[class.a]\ncolor = 'x'\n
    3:1: unknown key "color" of [class.a] (known: backend, max-hold, min-hold, require, ttl, wait)
default = 'mian'\nbackend.main.url = 'memory:'
    1:11: there is no backend "mian", did you mean "main"?
backend.main.url = 'memory:'\n[class.pay]\nbackend = 'ledger'
    3:11: there is no backend "ledger" (known: main)
backend.a.url = 'memory:'\nbackend.b.url = 'memory:'\n[class.pay]\nttl = '5s'
    3:8: the class "pay" has no backend, and there is no default one: write backend = "NAME" here,
    or default = "NAME" at the top
[backend.main]\nurl = 'memory:'\nttl = '400ms'
    3:7: ttl must be at least 500ms on Redis (not a quorum) and in memory, 2s on etcd and 1s
    elsewhere, not 400ms
[backend.main]\nurl = 'memory:'\nttl = 30
    3:7: a duration has a unit, write "30s"
[backend.main]\nurl = 'memory:'\nwait = 'soon'
    3:8: "soon" is not a duration, write for example "500ms", "30s" or "5m", or "never" or
    "forever"
[backend.main]\nurl = 'memory:'\nwait = '0s'
    3:8: write "never" for a wait of zero
[backend.main]\nurl = 'memory:'\nmax-hold = '0s'
    3:12: max-hold must be more than zero, not 0s
[backend.main]\nurl = 'memory:'\nmax-hold = '1m'\nmin-hold = '2m'
    3:12: max-hold must be at least min-hold, and 1m is less than 2m
backend.main.url = 'memory:'\n[class.a]\nmin-hold = '2h'
    3:12: max-hold must be at least min-hold, and 1h is less than 2h
[backend.main]\nurl = 'memory:'\nmin-hold = '2h'\n[class.a]\nwait = 'never'
    3:12: max-hold must be at least min-hold, and 1h is less than 2h
[backend.main]\nurl = 'memory:'\nmax-hold = '1m'\n[class.a]\nmin-hold = '2m'
    5:12: max-hold must be at least min-hold, and 1m is less than 2m
backend.main.url = 'memory:'\n[class.a]\nrequire = ['fencing', 'fare']
    3:23: unknown requirement "fare", did you mean "fair"?
backend.main.url = 'memory:'\n[class.a]\nrequire = 'fencing'
    3:11: this must be an array, as in ["fencing"]
[backend.main]\nttl = '5s'
    1:10: the backend "main" has none of url, url-env and url-file
[backend.main]\nurl = 5
    2:7: this must be a string
[backend.main]\nurl-env = 'CACHE_URL'
    2:11: the variable "CACHE_URL" is not set, or empty
[backend.main]\nurl-file = '/nowhere/url'
    2:12: the file /nowhere/url cannot be read: No such file or directory (os error 2)
[backend.main]\nurl = '$CACHE_URL'
    2:7: there is no scheme; write SCHEME://HOST:PORT, or SCHEME:PATH for a file; variables are
    not expanded here, name one by url-env
[backend.main]\nurl = 'localhost:6379'
    2:7: there is no scheme; did you mean redis://localhost:6379?
namespace = 'a:b'\nbackend.main.url = 'memory:'
    1:13: a namespace has 1 to 64 bytes without colons and control characters
[backend.main]\nurl = 'sqlite:x.db'\n[backend.main.options]\nbusy-timout = '5s'
    4:1: unknown parameter "busy-timout", did you mean "busy-timeout"? (known: busy-timeout,
    create-dir, handover-time, local-queue, max-handovers, max-waiters, mode, namespace,
    retention, table)
[backend.main]\nurl = 'memory:'\noptions.max-waiters = 0
    3:9: parameter "max-waiters" is "0" and must be a whole number from 1 to 1000000
[backend.main]\nurl = 'memory:'\noptions.mode = [1]
    3:16: this must be a string, a whole number or a boolean
[backend.main]\nurl = 'memory:?namespace=a'\noptions.namespace = 'b'
    3:9: parameter "namespace" is given twice
backend.main = 'memory:'
    1:9: each backend has a table of its own, [backend.NAME]
[[backend]]\nurl = 'memory:'
    1:1: this must be tables [backend.NAME]
[backend.'a b']\nurl = 'memory:'
    1:10: "a b" is not a name: a name has 1 to 64 letters, digits, - and _
backend.a-b.url = 'memory:'\nbackend.A_b.url = 'memory:'
    2:9: "A_b" and "a-b" have the same variables: names must differ in more than case, - and _
[backend.new]\nurl = 'memory:'\nmigrate-from = 'old'
    3:16: there is no backend "old" (known: new)
[backend.new]\nurl = 'memory:'\nmigrate-from = 'new'
    3:16: a backend does not migrate from itself
(nothing)
    default: there is no backend: write a table [backend.NAME] with a url, or set LOCK_URL
[backend.main]\nurl = 'memory:'\nttl = (nothing)
    3:7: string values must be quoted, expected literal string
[backend.main\nurl = 'memory:'
    1:14: unclosed table, expected `]`
"#;

#[test]
fn each_error_is_reported_where_it_is() {
    let mut differing = Vec::new();
    let mut lines = TABLE.lines().filter(|line| !line.is_empty()).peekable();
    while let Some(text) = lines.next() {
        let is_message = |line: &&str| line.starts_with("    ");
        let message = std::iter::from_fn(|| lines.next_if(is_message)).map(str::trim);
        let expected = message.collect::<Vec<_>>().join(" ");
        let found = wrong(&text.replace("(nothing)", "").replace("\\n", "\n"));
        if found != [expected.as_str()] {
            differing.push(format!(
                "{text}\n  is      {found:#?}\n  and not {expected}"
            ));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn all_errors_are_reported_at_once_in_the_order_of_the_file() {
    let text = "\
        default = 'mian'\n\
        namespace = 'a:b'\n\
        [backend.main]\n\
        url = 'redis://cache'\n\
        url-env = 'CACHE_URL'\n\
        tll = '5s'\n\
        wait = 5\n\
        [backend.main.options]\n\
        respp = 2\n\
        protocol = 3\n\
        a = []\n\
        [backend.ledger]\n\
        url = 'postgress://db'\n\
        [class.payment]\n\
        backend = 'legder'\n\
        ttl = '25h'\n\
        require = ['strong', 5]\n";
    let places: Vec<_> = wrong(text)
        .into_iter()
        .map(|told| told.splitn(3, ':').take(2).collect::<Vec<_>>().join(":"))
        .collect();
    let expected = [
        "1:11", "2:13", "4:7", "5:11", "6:1", "7:8", "9:1", "10:1", "11:5", "13:7", "15:11",
        "16:7", "17:12", "17:22",
    ];
    assert_eq!(places, expected, "{:#?}", wrong(text));
}

#[test]
fn an_error_in_the_environment_is_told_by_its_variable() {
    let table = [
        r#"LOCK_TTL=30 | a duration has a unit, write "30s""#,
        "LOCK_BACKEND_MAIN_TTL=30d | ttl must be at most 24h, not 720h",
        r#"LOCK_DEFAULT_BACKEND=mian | there is no backend "mian", did you mean "main"?"#,
        r#"LOCK_CLASS_PAY_BACKEND=x | there is no backend "x" (known: main)"#,
        r#"LOCK_URL=memroy: | unknown scheme "memroy", did you mean "memory"?"#,
        "LOCK_KEY_NAMESPACE=a:b | a namespace has 1 to 64 bytes without colons and control \
         characters",
    ];
    for line in table {
        let (setting, message) = line.split_once(" | ").expect(line);
        let (variable, value) = setting.split_once('=').expect(line);
        let expected = format!("env {variable}: {message}");
        let text = "backend.main.url = 'memory:'\n[class.pay]\n";
        let errors = loader(&[(variable, value)]).parse(text).unwrap_err();
        let found = messages(&errors);
        assert!(
            found.len() == 1 && found[0].starts_with(&expected),
            "{found:?}"
        );
        assert_eq!(errors.to_string(), found[0]);
    }
}

#[test]
fn a_variable_of_a_class_goes_before_what_the_class_inherits() {
    let file = "[backend.main]\nurl = 'memory:'\nmax-hold = '1m'\n[class.pay]\n";
    let variable = "LOCK_CLASS_PAY_MIN_HOLD";
    let errors = loader(&[(variable, "2m")]).parse(file).unwrap_err();
    let expected = "max-hold must be at least min-hold, and 1m is less than 2m";
    assert_eq!(messages(&errors), [format!("env {variable}: {expected}")]);
}

#[test]
fn an_error_has_its_place_and_a_configuration_the_number_of_errors() {
    let errors = loader(&[])
        .parse("[backend.main]\nurl = 'memory:'\ntll = '30s' # short\n")
        .unwrap_err();
    assert_eq!(
        errors.to_string(),
        "configuration:3:1: unknown key \"tll\" of [backend.main], did you mean \"ttl\"?"
    );
    assert_eq!(errors.summary(), "there is an error in configuration");
    let error = polylock::Error::from(errors);
    assert_eq!(error.kind(), polylock::ErrorKind::InvalidConfig);
    let source = std::error::Error::source(&error).expect("the errors");
    assert!(source.to_string().contains("\"tll\""));
}
