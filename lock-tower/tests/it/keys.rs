//! The locks that requests name, and the responses to hostile requests.

use http::request::{Builder, Parts};
use http::{HeaderValue, Request};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use polylock_core::ErrorKind;
use polylock_core::memory::Reachable;
use polylock_tower::keys::{Cookie, Header, QueryParam};
use polylock_tower::{KeyError, KeyExtractor, KeyLockLayer, Keys};
use tower::Layer as _;

use crate::support::{Scene, handler, send};

/// The extractors of most tests, each of which looks for the same name.
fn header() -> Header {
    Header::new("x-key").expect("a name")
}

fn cookie() -> Cookie {
    Cookie::new("key").expect("a name")
}

fn query() -> QueryParam {
    QueryParam::new("key")
}

/// A tenant in a header, and an id in the query.
fn joined(parts: &Parts) -> Result<Keys, KeyError> {
    Ok(Keys::joined([header().read(parts)?, query().read(parts)?]))
}

fn post(uri: &str) -> Builder {
    Request::post(uri)
}

fn done(request: Builder) -> Request<String> {
    request.body(String::new()).expect("a request")
}

fn head(request: Request<String>) -> Parts {
    request.into_parts().0
}

fn bytes(value: impl AsRef<[u8]>) -> HeaderValue {
    HeaderValue::from_bytes(value.as_ref()).expect("a value of a header")
}

#[track_caller]
fn keys(extractor: &impl KeyExtractor, request: Request<String>) -> Keys {
    extractor.keys(&head(request)).expect("it has a key")
}

/// A request with one header.
fn with(name: &str, value: impl AsRef<[u8]>) -> Request<String> {
    done(post("/").header(name, bytes(value)))
}

/// A request with this query.
fn asking(query: &str) -> Request<String> {
    done(post(&format!("/?{query}")))
}

fn by_query(name: &str) -> Request<String> {
    let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
    asking(&format!("key={name}"))
}

/// Sends a request that must not reach its handler, while the backend is unreachable: a request that
/// needs the backend gets a 503.
async fn refuse(extractor: impl KeyExtractor, request: Request<String>) {
    let what = format!("{:.200}", format!("{request:?}"));
    let scene = Scene::new();
    scene.set_reachable(Reachable::Cut);
    let layer = KeyLockLayer::new(scene.locker(), extractor);
    let service = layer.layer(handler(async |_| panic!("it is handled")));
    assert_eq!(send(&service, request).await.status, 400, "{what}");
    assert_eq!(layer.locker().live_keys(), 0);
}

#[test]
fn names_that_nothing_can_have_are_refused_at_once() {
    let headers = ["", "x key", "x\r\n", "x:"].map(|name| Header::new(name).err());
    let cookies = ["", "a b", "a=b", "a;b", "\"a\"", "\u{e9}"].map(|name| Cookie::new(name).err());
    for error in headers.into_iter().chain(cookies) {
        let error = error.expect("nothing has that name");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    }
}

const ODD: [&str; 14] = [
    "../..",
    "..%2f..",
    "%2e%2e%2f",
    "%0d%0a",
    "/etc/passwd",
    "\\\\host\\share",
    "'; DROP TABLE locks; --",
    "{ns}:*?[a]",
    "\u{1f980}\u{200d}\u{1f468}",
    "\u{202e}evil",
    "\u{e9}",
    "e\u{301}",
    "\u{feff}",
    "ns:42",
];

#[test]
fn names_are_carried_exactly() {
    let named = |name: &str| Keys::one(name);
    let long = "x".repeat(8192);
    for name in ODD.into_iter().chain([&*long]) {
        assert_eq!(keys(&header(), with("x-key", name)), named(name));
        assert_eq!(keys(&query(), by_query(name)), named(name));
    }
    for (value, name) in [("\t 42 \t", "42"), ("4 2", "4 2")] {
        assert_eq!(keys(&header(), with("x-key", value)), named(name));
    }
    for name in ["HOST", "host"].map(|name| Header::new(name).expect("a name")) {
        let keys = keys(&name, with("host", "a.example"));
        assert_eq!(keys, named("a.example"));
    }
    let others: String = (0..9_999).map(|n| format!("k{n:04}&")).collect();
    let last = asking(&format!("{others}key=42"));
    assert_eq!(keys(&query(), last), named("42"));
}

#[test]
fn cookie_is_found_in_any_list() {
    let others: String = (0..9_999).map(|n| format!("k{n}=1; ")).collect();
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
        (&format!("{others}key=42"), "42"),
    ] {
        let keys = keys(&cookie(), with("cookie", list));
        assert_eq!(keys, Keys::one(value), "{list:.80}");
    }
    let split = post("/").header("cookie", "a=1");
    let split = done(split.header("cookie", "key=1; b=2"));
    assert_eq!(keys(&cookie(), split), Keys::one("1"));
}

fn gives(keys: Keys) -> impl KeyExtractor {
    move |_: &Parts| Ok(keys.clone())
}

#[tokio::test]
async fn extractors_name_one_lock_or_several_or_none() {
    async fn keys(extractor: impl KeyExtractor) -> String {
        let layer = KeyLockLayer::new(Scene::new().locker(), extractor);
        let service = layer.layer(tower::service_fn(async |request: Request<String>| {
            let held = request.extensions().get::<polylock_tower::HeldLock>();
            let keys = held.into_iter().flat_map(|held| held.keys());
            let keys: Vec<_> = keys.map(ToString::to_string).collect();
            Ok::<_, std::convert::Infallible>(http::Response::new(keys.join(" ")))
        }));
        send(&service, asking("key=1")).await.body
    }
    assert_eq!(keys(query()).await, "test:1");
    let boxed = Box::new(|_: &Parts| Ok(Keys::one("c")));
    assert_eq!(keys(boxed).await, "test:c");
    let several = Keys::many(["b", "a", "b"]);
    assert_eq!(keys(gives(several)).await, "test:a test:b");
    assert_eq!(keys(gives(Keys::Skip)).await, "");
}

/// Too long, with control characters, and not UTF-8. Line breaks and NUL cannot come in a header.
#[tokio::test]
async fn what_cannot_be_a_key_is_refused() {
    let long = [8193, 1 << 20].map(|length| "x".repeat(length));
    let control = ["a\tb", "a\u{80}", "\u{85}a", "a\u{9b}31m"].map(str::as_bytes);
    let not_utf_8 = [
        &b"\xff"[..],
        b"a\xc0\xaf",
        b"\xed\xa0\x80",
        b"a\xf0\x9f\xa6",
    ];
    let long = long.iter().map(String::as_bytes);
    for value in long.chain(control).chain(not_utf_8) {
        refuse(header(), with("x-key", value)).await;
        refuse(cookie(), with("cookie", [b"key=", value].concat())).await;
        // More than that is no URI.
        let value = &value[..value.len().min(10_000)];
        let value: String = value.iter().map(|byte| format!("%{byte:02x}")).collect();
        refuse(query(), asking(&format!("key={value}"))).await;
    }
    for control in [
        "%0d%0a", "%0D", "%0A", "%00", "%7F", "%1B[31m", "%09", "%C2%85",
    ] {
        for (before, after) in [("", "a"), ("a", "b"), ("a", "")] {
            refuse(query(), asking(&format!("key={before}{control}{after}"))).await;
        }
    }
    // Names that an extractor has not checked are checked all the same.
    for name in ["", "\0", "a\r\nb", "\u{85}"] {
        refuse(gives(Keys::one(name)), done(post("/"))).await;
        refuse(gives(Keys::many(["fine", name])), done(post("/"))).await;
    }
}

/// Also what services read in two ways: some decode cookies, names included, and others do not.
#[tokio::test]
async fn what_is_said_twice_is_refused() {
    for (a, b) in [("1", "2"), ("1", "1"), ("", "1")] {
        let twice = |name: &str, prefix: &str| {
            let first = post("/").header(name, format!("{prefix}{a}"));
            done(first.header(name, format!("{prefix}{b}")))
        };
        refuse(header(), twice("x-key", "")).await;
        refuse(cookie(), twice("cookie", "key=")).await;
        let pairs = format!("key={a}; other=1; key={b}");
        refuse(cookie(), with("cookie", pairs)).await;
        refuse(query(), asking(&format!("key={a}&%6bey={b}"))).await;
    }
    refuse(query(), asking(&vec!["key=1"; 10_000].join("&"))).await;
    for list in [
        "key=c%2D17",
        "key=%61",
        "key=1; %6bey=2",
        "%6Bey=%31",
        "key=1; k%65y=1",
    ] {
        refuse(cookie(), with("cookie", list)).await;
    }
}

#[tokio::test]
async fn what_is_missing_or_empty_is_refused() {
    for value in ["", " ", "\t"] {
        refuse(header(), with("x-key", value)).await;
    }
    refuse(header(), done(post("/"))).await;
    for list in ["", "key", "key=", "key=\"\"", "Key=1", "akey=1; keyb=1"] {
        refuse(cookie(), with("cookie", list)).await;
    }
    for list in ["", "key", "key=", "Key=1", "akey=1&keyb=1", "a=key=1"] {
        refuse(query(), asking(list)).await;
    }
    refuse(query(), done(post("/key=1"))).await;
    let mut bad = asking("key=%0d%0a");
    bad.headers_mut().insert("x-key", bytes("acme"));
    for request in [asking("key=1"), with("x-key", "acme"), bad] {
        refuse(joined, request).await;
    }
}

#[test]
fn refusals_do_not_repeat_what_the_client_said() {
    let long = format!("secret{}", "x".repeat(1 << 20));
    for value in [&b"secret\xff"[..], b"secret\t1", long.as_bytes()] {
        let error = header().keys(&head(with("x-key", value)));
        let error = error.expect_err("no key");
        assert!(matches!(error, KeyError::Invalid(_)));
        let text = error.to_string();
        assert!(
            text.starts_with("the header x-key ") && !text.contains("secret"),
            "{text}"
        );
    }
}
