//! What is merely odd is carried exactly: equal names exclude each other, different ones do not.

use http::Request;
use lock_tower::keys::Compound;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::support::{Bench, NAMESPACE, asking, bytes, cookie, header, query, with};

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

fn by_header(name: &str) -> Request<()> {
    with("x-key", name)
}

fn by_query(name: &str) -> Request<()> {
    let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
    asking(&format!("key={name}"))
}

#[tokio::test]
async fn odd_names_are_carried_exactly_and_exclude_their_equals_and_nobody_else() {
    for a in ODD {
        let key = format!("{NAMESPACE}:{a}");
        assert_eq!(Bench::key(header(), by_header(a)).await, key);
        assert_eq!(Bench::key(query(), by_query(a)).await, key);
        for b in ODD {
            let excludes = Bench::excludes(header(), by_header(a), by_header(b)).await;
            assert_eq!(excludes, a == b, "{a:?} and {b:?} in a header");
            let excludes = Bench::excludes(query(), by_query(a), by_query(b)).await;
            assert_eq!(excludes, a == b, "{a:?} and {b:?} in a query");
        }
    }
}

#[tokio::test]
async fn same_parameter_in_two_spellings_is_one_lock() {
    for (a, b) in [
        ("key=%2e%2e%2f", "key=../"),
        ("key=a+b", "%6bey=a%20b"),
        ("key=1&other=2", "other=3&key=1"),
    ] {
        let excludes = Bench::excludes(query(), asking(a), asking(b)).await;
        assert!(excludes, "{a} and {b}");
    }
}

#[tokio::test]
async fn parts_of_a_compound_key_keep_their_borders() {
    let compound = Compound::new(header(), query());
    let by_both = |(tenant, id): (&str, &str)| {
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
            let excludes = Bench::excludes(compound.clone(), by_both(a), by_both(b)).await;
            assert_eq!(excludes, a == b, "{a:?} and {b:?}");
        }
    }
}

#[tokio::test]
async fn names_of_up_to_8_kib_are_hashed_to_256_bytes() {
    let long = "x".repeat(8192);
    let key = Bench::key(header(), by_header(&long)).await;
    assert_eq!(key.len(), 256);
    assert!(key.starts_with("ns:xxx"));
    let hash = key.strip_prefix("ns:").expect("the namespace");
    for (other, is_same) in [(&long[..], true), (&long[1..], false), (hash, false)] {
        let excludes = Bench::excludes(header(), by_header(&long), by_header(other)).await;
        assert_eq!(excludes, is_same, "{other:.20}");
    }
}

#[tokio::test]
async fn spaces_around_a_header_are_no_part_of_it() {
    for (value, key) in [("\t 42 \t", "ns:42"), ("4 2", "ns:4 2")] {
        assert_eq!(Bench::key(header(), by_header(value)).await, key);
    }
}

#[tokio::test]
async fn one_name_among_10_000_is_found() {
    let others: String = (0..9_999).map(|n| format!("k{n:04}&")).collect();
    let request = asking(&format!("{others}key=42"));
    assert_eq!(Bench::key(query(), request).await, "ns:42");
    let others: String = (0..9_999).map(|n| format!("k{n}=1; ")).collect();
    let request = with("cookie", format!("{others}key=42"));
    assert_eq!(Bench::key(cookie(), request).await, "ns:42");
}
