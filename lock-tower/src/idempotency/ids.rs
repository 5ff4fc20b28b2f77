use std::fmt;

use http::request::Parts;
use polylock_core::engine::{Entropy as _, OsEntropy};
use sha2::{Digest as _, Sha256};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $len:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Eq, Hash, PartialEq)]
        pub struct $name([u8; $len]);

        impl $name {
            /// Rebuilds one from its bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; $len]) -> Self {
                Self(bytes)
            }

            /// Its bytes.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8; $len] {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let [first, second, third, fourth, ..] = self.0;
                let head = u32::from_be_bytes([first, second, third, fourth]);
                write!(f, "{}({head:08x}..)", stringify!($name))
            }
        }
    };
}

id! {
    /// Identifies the origin of a response: one number for each time that a request reaches its
    /// handler.
    ///
    /// 128 random bits. A fencing token is none: two lock services give the same ones, and some give
    /// none at all.
    ExecutionId, 16
}

id! {
    /// Distinguishes requests that have the same key: the SHA-256 of method, path, query and body.
    Fingerprint, 32
}

impl ExecutionId {
    pub(super) fn random() -> Self {
        let mut bytes = [0; 16];
        OsEntropy::default().fill(&mut bytes);
        Self(bytes)
    }
}

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
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn every_part_counts_and_the_host_does_not() {
        let of = |method: &str, uri: &str, body: &[u8]| {
            let request = Request::builder().method(method).uri(uri).body(());
            let (parts, ()) = request.expect("a request").into_parts();
            Fingerprint::of(&parts, body)
        };
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
        assert_eq!(all[0], of("POST", "http://a/pay", b"1"));
    }
}
