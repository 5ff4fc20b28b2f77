use polylock_core::{Error, LockUrl};
use proptest::prelude::*;

use super::parse;

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
        assert_eq!(
            parse(&format!("x:?{name}=s3ntinel")).to_string(),
            format!("x:?{name}=***")
        );
    }
    let mut params = url.params();
    assert_eq!(params.string("password"), Some("s3n"));
    assert!(!format!("{params:?}").contains("s3n"));
    assert!(
        !params
            .duration("ttl")
            .unwrap_err()
            .to_string()
            .contains("tinel")
    );
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
    assert_eq!(
        error.message(),
        r#"unknown parameter "paswd" (known: none)"#
    );
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
