//! What is merely odd is carried exactly: equal names exclude each other, different ones do not.

use http::Request;
use lock_tower::keys::{Compound, Cookie, Header, QueryParam};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::support::{Bench, NAMESPACE, bytes, done, post};

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

fn header() -> Header {
    Header::new("x-key").expect("a name")
}

fn by_header(name: &str) -> Request<()> {
    done(post("/").header("x-key", bytes(name)))
}

fn by_query(name: &str) -> Request<()> {
    let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
    done(post(&format!("/?key={name}")))
}

#[tokio::test]
async fn odd_names_are_carried_exactly() {
    for name in ODD {
        let key = format!("{NAMESPACE}:{name}");
        assert_eq!(Bench::key(header(), by_header(name)).await, key);
        assert_eq!(
            Bench::key(QueryParam::new("key"), by_query(name)).await,
            key
        );
    }
}

#[tokio::test]
async fn odd_names_exclude_their_equals_and_nobody_else() {
    for a in ODD {
        for b in ODD {
            let excludes = Bench::excludes(header(), by_header(a), by_header(b)).await;
            assert_eq!(excludes, a == b, "{a:?} and {b:?} in a header");
            let param = QueryParam::new("key");
            let excludes = Bench::excludes(param, by_query(a), by_query(b)).await;
            assert_eq!(excludes, a == b, "{a:?} and {b:?} in a query");
        }
    }
}

#[tokio::test]
async fn same_parameter_in_two_spellings_is_one_lock() {
    let spelt = |query: &str| done(post(&format!("/?{query}")));
    for (a, b) in [
        ("key=%2e%2e%2f", "key=../"),
        ("key=a+b", "%6bey=a%20b"),
        ("key=1&other=2", "other=3&key=1"),
    ] {
        let excludes = Bench::excludes(QueryParam::new("key"), spelt(a), spelt(b)).await;
        assert!(excludes, "{a} and {b}");
    }
}

#[tokio::test]
async fn parts_of_a_compound_key_keep_their_borders() {
    let compound = Compound::new(header(), QueryParam::new("key"));
    let by_both = |tenant: &str, id: &str| {
        let mut request = by_query(id);
        request.headers_mut().insert("x-key", bytes(tenant));
        request
    };
    let pairs = [
        ("a/b", "c"),
        ("a", "b/c"),
        ("a%2Fb", "c"),
        ("a", "b%2Fc"),
        ("a", "b"),
    ];
    for a in pairs {
        for b in pairs {
            let (first, second) = (by_both(a.0, a.1), by_both(b.0, b.1));
            let excludes = Bench::excludes(compound.clone(), first, second).await;
            assert_eq!(excludes, a == b, "{a:?} and {b:?}");
        }
    }
}

#[tokio::test]
async fn names_of_up_to_8_kib_are_hashed_to_256_bytes() {
    let (long, other) = ("x".repeat(8192), "x".repeat(8191));
    let key = Bench::key(header(), by_header(&long)).await;
    assert_eq!(key.len(), 256);
    assert!(key.starts_with("ns:xxx"));
    assert!(Bench::excludes(header(), by_header(&long), by_header(&long)).await);
    assert!(!Bench::excludes(header(), by_header(&long), by_header(&other)).await);

    let hash = key.strip_prefix("ns:").expect("the namespace").to_owned();
    assert!(!Bench::excludes(header(), by_header(&long), by_header(&hash)).await);
}

#[tokio::test]
async fn spaces_around_a_header_are_no_part_of_it() {
    let spaced = by_header("\t 42 \t");
    assert_eq!(Bench::key(header(), spaced).await, "ns:42");
    assert_eq!(Bench::key(header(), by_header("4 2")).await, "ns:4 2");
}

#[tokio::test]
async fn one_parameter_among_10_000_is_found() {
    let others: String = (0..9_999).map(|n| format!("k{n:04}&")).collect();
    let request = done(post(&format!("/?{others}key=42")));
    assert_eq!(Bench::key(QueryParam::new("key"), request).await, "ns:42");
}

#[tokio::test]
async fn one_cookie_among_10_000_is_found() {
    let others: String = (0..9_999).map(|n| format!("k{n}=1; ")).collect();
    let request = done(post("/").header("cookie", format!("{others}key=42")));
    let cookie = Cookie::new("key").expect("a name");
    assert_eq!(Bench::key(cookie, request).await, "ns:42");
}
