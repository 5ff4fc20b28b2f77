//! The header of the draft.

use http::HeaderMap;

use crate::keys::KeyError;

pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Longest key, in bytes.
const LONGEST: usize = 255;

/// Reads the key: a string of RFC 8941, as the draft has it, or the bare characters that most
/// clients send. `None` if there is no such header.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, KeyError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(invalid("the request has more than one Idempotency-Key"));
    }
    let text = value.as_bytes().trim_ascii();
    let key = match text.strip_prefix(b"\"") {
        Some(quoted) => unquote(quoted),
        None => bare(text),
    };
    let key = key.ok_or_else(|| invalid("the Idempotency-Key is not a string"))?;
    match key.len() {
        1..=LONGEST => Ok(Some(key)),
        0 => Err(invalid("the Idempotency-Key is empty")),
        _ => Err(invalid("the Idempotency-Key has more than 255 characters")),
    }
}

/// What comes after the first quotation mark. Parameters, which the draft does not define, are
/// refused like everything else behind the last one.
fn unquote(text: &[u8]) -> Option<String> {
    let mut key = String::new();
    let mut rest = text.iter();
    loop {
        match rest.next()? {
            b'"' => return rest.as_slice().is_empty().then_some(key),
            b'\\' => match rest.next()? {
                escaped @ (b'"' | b'\\') => key.push(char::from(*escaped)),
                _ => return None,
            },
            plain @ b' '..=b'~' => key.push(char::from(*plain)),
            _ => return None,
        }
    }
}

/// A comma would be the list that proxies make of two headers.
fn bare(text: &[u8]) -> Option<String> {
    let is_plain = |b: &u8| b.is_ascii_graphic() && !matches!(b, b'"' | b',' | b';' | b'\\');
    let text = text.iter().all(is_plain).then_some(text)?;
    String::from_utf8(text.to_vec()).ok()
}

fn invalid(detail: &str) -> KeyError {
    KeyError::Invalid(detail.to_owned())
}

/// The name of the lock. A slash ends the scope, so that no other scope and key make the same.
pub(super) fn name(scope: &str, key: &str) -> String {
    let mut name = String::with_capacity(scope.len() + key.len() + 1);
    for c in scope.chars() {
        match c {
            '%' => name.push_str("%25"),
            '/' => name.push_str("%2F"),
            c => name.push(c),
        }
    }
    name.push('/');
    name.push_str(key);
    name
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn quoted_and_bare_keys_are_the_same() {
        assert_eq!(key(b"\"8e03978e\"").as_deref(), Some("8e03978e"));
        assert_eq!(key(b"8e03978e").as_deref(), Some("8e03978e"));
        assert_eq!(
            key(br#"  "a \"b\" \\ c"  "#).as_deref(),
            Some(r#"a "b" \ c"#)
        );
    }

    #[test]
    fn what_is_no_string_is_refused() {
        for bad in [
            &b""[..],
            b"\"\"",
            b"\"a",
            b"\"",
            b"a\"",
            b"\"a\\",
            b"\"a\\b\"",
            b"\"a\";p=1",
            b"\"a\", \"b\"",
            b"a, b",
            b"a b",
            b"caf\xc3\xa9",
            b"\"caf\xc3\xa9\"",
            b"\xff",
        ] {
            assert_eq!(key(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn a_key_has_at_most_255_characters() {
        assert!(key(&[b'k'; LONGEST]).is_some());
        assert_eq!(key(&[b'k'; LONGEST + 1]), None);
    }

    #[test]
    fn two_headers_are_refused_and_none_is_no_key() {
        let mut headers = HeaderMap::new();
        assert!(matches!(idempotency_key(&headers), Ok(None)));
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("a"));
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("a"));
        assert!(idempotency_key(&headers).is_err());
    }

    #[test]
    fn scopes_and_keys_do_not_run_into_each_other() {
        assert_eq!(name("acme", "1"), "acme/1");
        assert_ne!(name("a", "b/c"), name("a/b", "c"));
        assert_ne!(name("a%2Fb", "c"), name("a/b", "c"));
        assert_ne!(name("", "a/b"), name("a", "b"));
    }

    fn key(value: &[u8]) -> Option<String> {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_bytes(value).expect("a header");
        headers.append(IDEMPOTENCY_KEY, value);
        idempotency_key(&headers).ok().flatten()
    }
}
