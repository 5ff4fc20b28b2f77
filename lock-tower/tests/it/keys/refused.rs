//! What cannot be a key is answered with 400, and nothing reaches the backend.

use http::HeaderValue;
use http::request::Parts;
use lock_tower::keys::{Compound, IdempotencyKey, Optional};
use lock_tower::{KeyError, KeyExtractor as _, Keys};

use super::support::{Bench, asking, bytes, cookie, done, head, header, post, query, with};

/// Neither a header, nor a cookie, nor an idempotency key may have this value.
async fn refuse_everywhere(value: &[u8]) {
    Bench::refuse(header(), with("x-key", value)).await;
    Bench::refuse(cookie(), with("cookie", [b"key=", value].concat())).await;
    Bench::refuse(IdempotencyKey::new(), with("idempotency-key", value)).await;
}

async fn refuse_query(value: &str) {
    Bench::refuse(query(), asking(&format!("key={value}"))).await;
}

#[tokio::test]
async fn header_of_1_mib_is_refused() {
    for length in [8193, 1 << 20] {
        let long = "x".repeat(length);
        refuse_everywhere(long.as_bytes()).await;
        Bench::refuse(Optional::new(header()), with("x-key", &long)).await;
    }
    // More than that is no URI.
    refuse_query(&"x".repeat(65_000)).await;
}

/// Line breaks and NUL cannot come in a header at all, but for what they are when encoded elsewhere.
#[tokio::test]
async fn control_characters_are_refused() {
    for control in ["\r\n", "\r", "\n", "\0", "\x7f", "\x1b[31m"] {
        let value = format!("a{control}x-admin: 1");
        assert!(HeaderValue::from_bytes(value.as_bytes()).is_err());
    }
    for control in [
        "%0d%0a", "%0D", "%0A", "%00", "%7F", "%1B[31m", "%09", "%C2%85", "%c2%9b",
    ] {
        for (before, after) in [("", "a"), ("a", "b"), ("a", "")] {
            refuse_query(&format!("{before}{control}{after}")).await;
        }
    }
    for value in ["a\tb", "a\u{80}", "\u{85}a", "a\u{9b}31m"] {
        refuse_everywhere(value.as_bytes()).await;
    }
}

#[tokio::test]
async fn invalid_utf_8_is_refused() {
    let starts_nothing = &b"\xff"[..];
    let overlong_slash = b"a\xc0\xaf";
    let surrogate = b"\xed\xa0\x80";
    let ends_too_early = b"a\xf0\x9f\xa6";
    for value in [starts_nothing, overlong_slash, surrogate, ends_too_early] {
        refuse_everywhere(value).await;
        let value: String = value.iter().map(|byte| format!("%{byte:02x}")).collect();
        refuse_query(&value).await;
    }
}

#[tokio::test]
async fn what_is_said_twice_is_refused() {
    for (a, b) in [("1", "2"), ("1", "1"), ("", "1")] {
        let twice = |name: &str, prefix: &str| {
            let first = post("/").header(name, format!("{prefix}{a}"));
            done(first.header(name, format!("{prefix}{b}")))
        };
        Bench::refuse(header(), twice("x-key", "")).await;
        Bench::refuse(IdempotencyKey::new(), twice("idempotency-key", "")).await;
        Bench::refuse(cookie(), twice("cookie", "key=")).await;
        let pairs = format!("key={a}; other=1; key={b}");
        Bench::refuse(cookie(), with("cookie", pairs)).await;
        refuse_query(&format!("{a}&%6bey={b}")).await;
    }
    Bench::refuse(query(), asking(&vec!["key=1"; 10_000].join("&"))).await;
}

#[tokio::test]
async fn what_is_missing_or_empty_is_refused() {
    for value in ["", " ", "\t"] {
        Bench::refuse(header(), with("x-key", value)).await;
        Bench::refuse(IdempotencyKey::new(), with("idempotency-key", value)).await;
    }
    Bench::refuse(header(), done(post("/"))).await;
    Bench::refuse(IdempotencyKey::new(), done(post("/"))).await;
    Bench::refuse(IdempotencyKey::new(), with("idempotency-key", "\"\"")).await;
    for list in ["", "key", "key=", "key=\"\"", "Key=1", "akey=1; keyb=1"] {
        Bench::refuse(cookie(), with("cookie", list)).await;
    }
    for list in ["", "key", "key=", "Key=1", "akey=1&keyb=1", "a=key=1"] {
        Bench::refuse(query(), asking(list)).await;
    }
    Bench::refuse(query(), done(post("/key=1"))).await;
}

#[tokio::test]
async fn one_bad_part_spoils_a_compound_key() {
    let compound = Compound::new(header(), query());
    let mut bad = asking("key=%0d%0a");
    bad.headers_mut().insert("x-key", bytes("acme"));
    for request in [asking("key=1"), with("x-key", "acme"), bad] {
        Bench::refuse(compound.clone(), request).await;
    }
}

/// Also from an extractor that checks nothing.
#[tokio::test]
async fn names_of_closures_are_checked() {
    for name in ["", "\0", "a\r\nb", "\u{85}"] {
        Bench::refuse(move |_: &Parts| Ok(Keys::one(name)), done(post("/"))).await;
        let one_of_many = move |_: &Parts| Ok(Keys::many(["fine", name]));
        Bench::refuse(one_of_many, done(post("/"))).await;
    }
}

#[test]
fn refusals_do_not_repeat_what_the_client_said() {
    let long = format!("secret{}", "x".repeat(1 << 20));
    for value in [&b"secret\xff"[..], b"secret\t1", long.as_bytes()] {
        let error = header().keys(&head(post("/").header("x-key", bytes(value))));
        let error = error.expect_err("no key");
        assert!(matches!(error, KeyError::Invalid(_)));
        let text = error.to_string();
        assert!(
            text.starts_with("the header x-key ") && !text.contains("secret"),
            "{text}"
        );
    }
}
