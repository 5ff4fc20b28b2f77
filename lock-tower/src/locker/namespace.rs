use std::fmt::Write as _;
use std::sync::Arc;

use polylock_core::{Error, LockKey, Result};
use sha2::{Digest as _, Sha256};

use crate::keys::KeyError;

/// The prefix of every key of a locker, so that lockers of different purposes share no keys.
#[derive(Clone, Debug)]
pub(crate) struct Namespace(Arc<str>);

impl Namespace {
    pub(crate) fn new(name: &str) -> Result<Self> {
        if name.is_empty() || name.len() > 64 || name.contains(|c: char| c == ':' || c.is_control())
        {
            return Err(Error::config(
                "a namespace has 1 to 64 bytes without colons and control characters",
            ));
        }
        Ok(Self(name.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The key of a name of any length. Equal names give equal keys, different names different keys.
    pub(crate) fn key(&self, name: &str) -> Result<LockKey, KeyError> {
        if name.is_empty() {
            return Err(KeyError::Missing(
                "the name of the lock is empty".to_owned(),
            ));
        }
        if name.contains(char::is_control) {
            let what = "the name of the lock has control characters";
            return Err(KeyError::Invalid(what.to_owned()));
        }
        // No name collides with the hash of another: a plain key has at most 255
        // bytes, a hashed one has exactly 256.
        let key = match self.0.len() + 1 + name.len() < LockKey::MAX_LEN {
            true => format!("{}:{name}", self.0),
            false => self.hashed(name),
        };
        LockKey::new(key).map_err(|e| KeyError::Invalid(e.message().to_owned()))
    }

    /// The beginning of the name, for people, and SHA-256 of the whole.
    fn hashed(&self, name: &str) -> String {
        let mut key = format!("{}:", self.0);
        let head = name.floor_char_boundary(HEAD - key.len());
        key.push_str(&name[..head]);
        // One `~` separates; more stand for the part of a character that has no room.
        key.extend(std::iter::repeat_n('~', HEAD + 1 - key.len()));
        for byte in Sha256::digest(name) {
            write!(key, "{byte:02x}").expect("BUG: a string takes what is written");
        }
        key
    }
}

/// Bytes of a hashed key before the `~`.
const HEAD: usize = LockKey::MAX_LEN - 1 - 2 * 32;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn key(namespace: &str, name: &str) -> LockKey {
        let namespace = Namespace::new(namespace).expect("a namespace");
        namespace.key(name).expect("a name")
    }

    #[test]
    fn name_of_up_to_255_bytes_is_carried_exactly() {
        for name in "42 ../.. a:b ~ \u{202e}live \u{1f980} %2e%2e%2f".split(' ') {
            assert_eq!(key("ns", name).as_str(), format!("ns:{name}"));
        }
        let longest = "x".repeat(255 - 3);
        assert_eq!(key("ns", &longest).as_str(), format!("ns:{longest}"));
        let longer = format!("{longest}x");
        assert_ne!(key("ns", &longer).as_str(), format!("ns:{longer}"));
    }

    /// All processes have to agree, those of another version too.
    #[test]
    fn longer_name_keeps_its_head_and_gets_its_hash() {
        let hash = "0d4e2ca9e9cbced7a7a5380eb29e1a3783b9b6d0db72de36a1051038e1c1fbc7";
        let (head, long) = ("x".repeat(191 - 3), "x".repeat(300));
        assert_eq!(key("ns", &long).as_str(), format!("ns:{head}~{hash}"));

        // The room of 191 bytes ends after the 47th crab, or in the 48th.
        for (namespace, end) in [("ns", "~"), ("n", "~~")] {
            let crabs = key(namespace, &"\u{1f980}".repeat(1 << 18));
            assert_eq!(crabs.as_str().len(), 256);
            let is_hash = |c: char| c.is_ascii_hexdigit();
            let head = crabs.as_str().trim_end_matches(is_hash);
            assert_eq!(head, format!("{namespace}:{}{end}", "\u{1f980}".repeat(47)));
        }
    }

    #[test]
    fn what_cannot_be_a_name_is_refused_without_being_repeated() {
        let namespace = Namespace::new("ns").expect("a namespace");
        assert!(matches!(namespace.key(""), Err(KeyError::Missing(_))));
        let long = "x".repeat(1 << 14);
        for control in ('\0'..='\u{ff}').filter(|c| c.is_control()) {
            for name in [format!("secret{control}"), format!("secret{long}{control}")] {
                let error = namespace.key(&name).expect_err("no key");
                assert!(matches!(error, KeyError::Invalid(_)));
                assert!(!error.to_string().contains("secret"));
            }
        }
    }

    #[test]
    fn different_names_have_different_keys() {
        let long = "n".repeat(64);
        let namespaces = ["n", "n~", "nn", &long];
        let mut seen = HashMap::new();
        for name in names() {
            for namespace in namespaces {
                let made = key(namespace, &name);
                assert!(made.as_str().len() <= 256);
                assert_eq!(made, key(namespace, &name));
                let whose = (namespace, name.clone());
                let before = seen.entry(made).or_insert_with(|| whose.clone());
                assert_eq!(*before, whose, "two names, one key");
            }
        }
        assert!(seen.len() > 4 * 500);
    }

    /// Names with lengths around those at which keys change their form, built from pieces that look like
    /// parts of keys; and names that equal the key of another name.
    fn names() -> Vec<String> {
        let hash = "0123456789abcdef".repeat(4);
        let pieces = "a b / ~ %2F \u{e9} \u{1f980} n : n:".split(' ');
        let pieces: Vec<_> = pieces.chain([&*hash]).collect();
        let lengths = (1..10).chain(120..130).chain(180..195).chain(245..300);
        let mut names: Vec<_> = lengths.map(|length| "~".repeat(length)).collect();
        // Long common heads, and tails that differ.
        for length in [2, 190, 252, 300] {
            for head in &pieces {
                let head = head.repeat(length / head.len());
                names.extend(pieces.iter().map(|tail| head.clone() + tail));
            }
        }
        let keys: Vec<_> = names.iter().map(|name| key("n", name)).collect();
        let keys = keys.iter().map(|key| key.as_str());
        names.extend(keys.clone().map(|key| key["n:".len()..].to_owned()));
        names.extend(keys.map(str::to_owned).collect::<Vec<_>>());
        names
    }
}
