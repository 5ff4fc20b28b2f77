//! What each extractor takes, and that they can be put together.

use std::sync::Arc;

use http::header;
use http::request::Parts;
use lock_core::ErrorKind;
use lock_tower::keys::{Compound, Cookie, Extension, Fixed, Header, IdempotencyKey, Optional};
use lock_tower::{KeyError, KeyExtractor, Keys};

use super::support::{Bench, asking, cookie, done, head, post, query};

fn idempotency_key(sent: &str) -> Result<Keys, KeyError> {
    IdempotencyKey::new().keys(&head(post("/").header("Idempotency-Key", sent)))
}

fn in_cookies(list: &str) -> Result<Keys, KeyError> {
    cookie().keys(&head(post("/").header("Cookie", list)))
}

#[test]
fn names_that_nothing_can_have_are_refused_at_once() {
    let headers = ["", "x key", "x\r\n", "x:"].map(|name| Header::new(name).err());
    let cookies = ["", "a b", "a=b", "a;b", "\"a\"", "\u{e9}"].map(|name| Cookie::new(name).err());
    let fixed = ["", "a\n"].map(|name| Fixed::new(name).err());
    for error in headers.into_iter().chain(cookies).chain(fixed) {
        let error = error.expect("nothing has that name");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    }
}

#[test]
fn header_is_found_in_any_case() {
    let parts = head(post("/").header("host", "a.example"));
    for extractor in [Header::new("HOST").expect("a name"), header::HOST.into()] {
        assert_eq!(extractor.keys(&parts).unwrap(), Keys::one("a.example"));
    }
}

#[test]
fn cookie_is_found_in_any_list() {
    for (list, value) in [
        ("key=1", "1"),
        ("a=b;key=1", "1"),
        ("  key = 1 ;a", "1"),
        ("key=\"a b\"", "a b"),
        ("key=\"\"1\"\"", "\"1\""),
        ("key=\"1", "\"1"),
        ("key=\"", "\""),
        ("key=a=b==", "a=b=="),
        ("key=100%", "100%"),
        ("KEY=2; key=1; key2=3; =4; ;", "1"),
    ] {
        assert_eq!(in_cookies(list).unwrap(), Keys::one(value), "{list}");
    }
    let split = post("/").header("cookie", "a=1");
    let split = head(split.header("cookie", "key=1; b=2"));
    assert_eq!(cookie().keys(&split).unwrap(), Keys::one("1"));
}

/// Some services decode cookies, names included, and others do not.
#[test]
fn a_cookie_that_services_read_in_two_ways_is_none() {
    for list in [
        "key=c%2D17",
        "key=%61",
        "key=1; %6bey=2",
        "%6Bey=%31",
        "key=1; k%65y=1",
    ] {
        let error = in_cookies(list).unwrap_err();
        assert!(matches!(error, KeyError::Invalid(_)), "{list}: {error}");
    }
}

#[test]
fn idempotency_key_is_a_string_or_a_plain_token() {
    const UUID: &str = "8e03978e-40d5-43e8-bc93-6894a57f9324";
    let longest = "x".repeat(255);
    for (sent, key) in [
        (UUID, UUID),
        ("\"8e03978e\"", "8e03978e"),
        ("dGVzdA+/==", "dGVzdA+/=="),
        ("\"a b, c; d\"", "a b, c; d"),
        (r#""a\"b\\c""#, r#"a"b\c"#),
        (longest.as_str(), longest.as_str()),
        (&format!("\"{longest}\""), &longest),
    ] {
        assert_eq!(idempotency_key(sent).unwrap(), Keys::one(key), "{sent}");
    }
}

#[test]
fn anything_else_is_no_idempotency_key() {
    let long = "x".repeat(256);
    let spelled = r#"a b|a,b|a, a|"a", "a"|"a";v=1|a;v=1|"a|a"|"a"b|"a\b"|"a\|a\b|'a b'"#;
    let too_long = [long.clone(), format!("\"{long}\"")];
    for sent in spelled
        .split('|')
        .chain(too_long.iter().map(String::as_str))
    {
        let refused = idempotency_key(sent);
        let is_invalid = matches!(refused, Err(KeyError::Invalid(_)));
        assert!(is_invalid, "{sent}: {refused:?}");
    }
    assert!(matches!(idempotency_key("\"\""), Err(KeyError::Missing(_))));
}

#[test]
fn optional_skips_what_is_missing_and_nothing_else() {
    let optional = Optional::new(query());
    for (uri, keys) in [
        ("/", Keys::Skip),
        ("/?key=", Keys::Skip),
        ("/?key=1", Keys::one("1")),
    ] {
        assert_eq!(optional.keys(&head(post(uri))).unwrap(), keys, "{uri}");
    }
    let invalid = optional.keys(&head(post("/?key=%00")));
    assert!(matches!(invalid, Err(KeyError::Invalid(_))));
    let absent = Optional::new(Extension::new(|_: &u64| Keys::Skip)).keys(&head(post("/")));
    assert!(matches!(absent, Err(KeyError::Misconfigured(_))));
}

fn gives(keys: Keys) -> impl KeyExtractor {
    move |_: &Parts| Ok(keys.clone())
}

#[test]
fn compound_joins_several_names_with_the_other_parts() {
    let parts = head(post("/"));
    let several = Compound::new(gives(Keys::one("a/b")), gives(Keys::many(["1", "2"])))
        .with_part(gives(Keys::one("%")));
    let expected = Keys::many(["a%2Fb/1/%25", "a%2Fb/2/%25"]);
    assert_eq!(several.keys(&parts).unwrap(), expected);

    let twice = several.with_part(gives(Keys::many(["x"]))).keys(&parts);
    assert!(matches!(twice, Err(KeyError::Misconfigured(_))));
}

#[test]
fn compound_skips_if_a_part_does_and_none_fails() {
    let parts = head(post("/"));
    let compound = Compound::new(gives(Keys::one("a")), Optional::new(query()));
    assert_eq!(compound.keys(&parts).unwrap(), Keys::Skip);
    let compound = compound.with_part(query());
    assert!(matches!(compound.keys(&parts), Err(KeyError::Missing(_))));
}

#[test]
fn compound_of_compounds_keeps_the_borders() {
    let parts = head(post("/"));
    let [a, b, c] = ["a", "b", "c"].map(|name| Arc::new(gives(Keys::one(name))));
    let both = Compound::new(Arc::clone(&a), Arc::clone(&b));
    let left = Compound::new(both, Arc::clone(&c));
    let right = Compound::new(a, Compound::new(b, c));
    assert_ne!(left.keys(&parts).unwrap(), right.keys(&parts).unwrap());
}

#[tokio::test]
async fn boxed_and_shared_extractors_are_extractors() {
    let boxed: Box<dyn KeyExtractor> = Box::new(query());
    assert_eq!(Bench::key(boxed, asking("key=1")).await, "ns:1");
    let shared: Arc<dyn KeyExtractor> = Arc::new(query());
    assert_eq!(Bench::key(shared, asking("key=1")).await, "ns:1");
    let shared = Arc::new(Fixed::new("all").expect("a name"));
    assert_eq!(Bench::key(shared, done(post("/"))).await, "ns:all");
    let boxed = Box::new(|_: &Parts| Ok(Keys::one("closure")));
    assert_eq!(Bench::key(boxed, done(post("/"))).await, "ns:closure");
}

#[tokio::test]
async fn several_names_are_asked_for_in_order_and_once_and_a_skipped_request_for_none() {
    let several = gives(Keys::many(["b", "a", "b"]));
    assert_eq!(Bench::key(several, done(post("/"))).await, "ns:a\nns:b");
    let skips = Optional::new(query());
    assert_eq!(Bench::key(skips, done(post("/"))).await, "");
}

#[tokio::test]
async fn missing_extension_is_not_the_fault_of_the_client() {
    let bench = Bench::new();
    let extension = Extension::new(|id: &u64| Keys::one(id.to_string()));
    let said = bench.send(extension.clone(), done(post("/"))).await;
    assert_eq!(said.status, 500);
    assert!(!said.body.contains("u64"), "{said:?}");
    assert!(bench.locks.asked().is_empty());

    let present = done(post("/").extension(7_u64));
    assert_eq!(Bench::key(extension, present).await, "ns:7");
}
