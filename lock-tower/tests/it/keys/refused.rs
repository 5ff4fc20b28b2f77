//! What cannot be a key is answered with 400, and nothing reaches the backend.

use http::{HeaderValue, Request};
use lock_tower::keys::{Compound, Cookie, Header, IdempotencyKey, Optional, QueryParam};
use lock_tower::{KeyError, Keys};

use super::support::{Bench, bytes, done, head, post};

fn header() -> Header {
    Header::new("x-key").expect("a name")
}

fn cookie() -> Cookie {
    Cookie::new("key").expect("a name")
}

fn sent(name: &str, value: impl AsRef<[u8]>) -> Request<()> {
    done(post("/").header(name, bytes(value)))
}

fn query(query: &str) -> Request<()> {
    done(post(&format!("/?{query}")))
}

#[tokio::test]
async fn header_of_1_mib_is_refused() {
    for length in [8193, 1 << 20] {
        let long = "x".repeat(length);
        Bench::refuse(header(), sent("x-key", &long)).await;
        Bench::refuse(Optional::new(header()), sent("x-key", &long)).await;
        Bench::refuse(IdempotencyKey::new(), sent("idempotency-key", &long)).await;
        Bench::refuse(cookie(), sent("cookie", format!("key={long}"))).await;
    }
    // More than that is no URI.
    Bench::refuse(
        QueryParam::new("key"),
        query(&format!("key={}", "x".repeat(65_000))),
    )
    .await;
}

/// They cannot come in a header at all, but for what they are when encoded elsewhere.
#[tokio::test]
async fn line_breaks_and_nul_are_refused() {
    for control in ["\r\n", "\r", "\n", "\0", "\x7f", "\x1b[31m"] {
        let value = format!("a{control}x-admin: 1");
        assert!(HeaderValue::from_bytes(value.as_bytes()).is_err());
    }
    for control in [
        "%0d%0a", "%0D", "%0A", "%00", "%7F", "%1B[31m", "%09", "%C2%85", "%c2%9b",
    ] {
        for value in [
            format!("{control}a"),
            format!("a{control}b"),
            format!("a{control}"),
        ] {
            Bench::refuse(QueryParam::new("key"), query(&format!("key={value}"))).await;
        }
    }
}

#[tokio::test]
async fn control_characters_that_headers_carry_are_refused() {
    for value in ["a\tb", "a\u{80}", "\u{85}a", "a\u{9b}31m"] {
        Bench::refuse(header(), sent("x-key", value)).await;
        Bench::refuse(cookie(), sent("cookie", format!("key={value}"))).await;
        Bench::refuse(IdempotencyKey::new(), sent("idempotency-key", value)).await;
    }
}

#[tokio::test]
async fn invalid_utf_8_is_refused() {
    // A byte that starts nothing, an overlong `/`, a surrogate, what ends too early.
    for value in [
        &b"\xff"[..],
        b"a\xc0\xaf",
        b"\xed\xa0\x80",
        b"a\xf0\x9f\xa6",
    ] {
        Bench::refuse(header(), sent("x-key", value)).await;
        Bench::refuse(cookie(), sent("cookie", [b"key=", value].concat())).await;
        Bench::refuse(IdempotencyKey::new(), sent("idempotency-key", value)).await;
        let value: String = value.iter().map(|byte| format!("%{byte:02x}")).collect();
        Bench::refuse(QueryParam::new("key"), query(&format!("key={value}"))).await;
    }
}

#[tokio::test]
async fn what_is_said_twice_is_refused() {
    for (a, b) in [("1", "2"), ("1", "1"), ("", "1")] {
        let twice = post("/").header("x-key", a).header("x-key", b);
        Bench::refuse(header(), done(twice)).await;
        let twice = post("/")
            .header("idempotency-key", a)
            .header("idempotency-key", b);
        Bench::refuse(IdempotencyKey::new(), done(twice)).await;
        let pairs = format!("key={a}; other=1; key={b}");
        Bench::refuse(cookie(), sent("cookie", pairs)).await;
        let twice = post("/").header("cookie", format!("key={a}"));
        Bench::refuse(cookie(), done(twice.header("cookie", format!("key={b}")))).await;
        Bench::refuse(QueryParam::new("key"), query(&format!("key={a}&%6bey={b}"))).await;
    }
    let many = vec!["key=1"; 10_000].join("&");
    Bench::refuse(QueryParam::new("key"), query(&many)).await;
}

#[tokio::test]
async fn what_is_missing_or_empty_is_refused() {
    for value in ["", " ", "\t"] {
        Bench::refuse(header(), sent("x-key", value)).await;
        Bench::refuse(IdempotencyKey::new(), sent("idempotency-key", value)).await;
    }
    Bench::refuse(header(), done(post("/"))).await;
    Bench::refuse(IdempotencyKey::new(), done(post("/"))).await;
    Bench::refuse(IdempotencyKey::new(), sent("idempotency-key", "\"\"")).await;
    for list in ["", "key", "key=", "key=\"\"", "Key=1", "akey=1; keyb=1"] {
        Bench::refuse(cookie(), sent("cookie", list)).await;
    }
    for list in ["", "key", "key=", "Key=1", "akey=1&keyb=1", "a=key=1"] {
        Bench::refuse(QueryParam::new("key"), query(list)).await;
    }
    Bench::refuse(QueryParam::new("key"), done(post("/key=1"))).await;
}

#[tokio::test]
async fn one_bad_part_spoils_a_compound_key() {
    let compound = Compound::new(header(), QueryParam::new("key"));
    Bench::refuse(compound.clone(), query("key=1")).await;
    Bench::refuse(compound.clone(), sent("x-key", "acme")).await;
    let mut bad = query("key=%0d%0a");
    bad.headers_mut().insert("x-key", bytes("acme"));
    Bench::refuse(compound, bad).await;
}

/// Also from an extractor that checks nothing.
#[tokio::test]
async fn names_of_closures_are_checked() {
    for name in ["", "\0", "a\r\nb", "\u{85}"] {
        let closure = move |_: &http::request::Parts| Ok(Keys::one(name));
        Bench::refuse(closure, done(post("/"))).await;
        let one_of_many = move |_: &http::request::Parts| Ok(Keys::many(["fine", name]));
        Bench::refuse(one_of_many, done(post("/"))).await;
    }
}

#[test]
fn refusals_do_not_repeat_what_the_client_said() {
    use lock_tower::KeyExtractor as _;
    let long = format!("secret{}", "x".repeat(1 << 20));
    for value in [&b"secret\xff"[..], b"secret\t1", long.as_bytes()] {
        let error = header().keys(&head(post("/").header("x-key", bytes(value))));
        let error = error.expect_err("no key");
        assert!(matches!(error, KeyError::Invalid(_)));
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(
            error.to_string().starts_with("the header x-key "),
            "{error}"
        );
    }
}
