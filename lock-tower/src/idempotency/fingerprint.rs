use std::fmt;

use http::request::Parts;
use sha2::{Digest as _, Sha256};

/// Tells requests apart that have the same key: the SHA-256 of method, path, query and body.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(super) fn of(parts: &Parts, body: &[u8]) -> Self {
        let method = parts.method.as_str();
        let target = parts.uri.path_and_query();
        let target = target.map_or("/", |target| target.as_str());
        let mut hash = Sha256::new();
        // The lengths keep what ends one part from beginning the next.
        for part in [method.as_bytes(), target.as_bytes(), body] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// Rebuilds one that was stored.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// What to store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third, fourth, ..] = self.0;
        let head = u32::from_be_bytes([first, second, third, fourth]);
        write!(f, "Fingerprint({head:08x}..)")
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn every_part_counts() {
        let all = [
            of("POST", "/pay", b"1"),
            of("PATCH", "/pay", b"1"),
            of("POST", "/pay/", b"1"),
            of("POST", "/pay?a", b"1"),
            of("POST", "/pay", b"2"),
            of("POST", "/pay1", b""),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "{at}");
        }
        assert_eq!(all[0], of("POST", "/pay", b"1"));
    }

    #[test]
    fn the_host_does_not_count() {
        assert_eq!(of("POST", "http://a/pay", b""), of("POST", "/pay", b""));
    }

    fn of(method: &str, uri: &str, body: &[u8]) -> Fingerprint {
        let request = Request::builder().method(method).uri(uri).body(());
        let (parts, ()) = request.expect("a request").into_parts();
        Fingerprint::of(&parts, body)
    }
}
