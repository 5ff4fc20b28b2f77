//! The directories of contenders: one per key.

use std::fmt;
use std::sync::Arc;

use polylock_core::LockKey;

/// The directory of one key, by its path below the root.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Directory(Arc<str>);

impl Directory {
    pub(crate) fn of(key: &LockKey) -> Self {
        Self(format!("/{}", encode(key.as_str())).into())
    }

    pub(crate) fn path(&self) -> &str {
        &self.0
    }

    /// The path of a node in it.
    pub(crate) fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }
}

impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The key that a directory of this name belongs to; `None` if it is not one of ours.
pub(crate) fn key_of(name: &str) -> Option<LockKey> {
    let reserved = RESERVED
        .iter()
        .find(|(key, spelling)| name == *key || name == *spelling);
    match reserved {
        Some((key, spelling)) => (name == *spelling).then(|| LockKey::new(*key).ok())?,
        None => LockKey::unescape(name),
    }
}

/// One spelling for each key: characters with a meaning in a path or to a terminal are escaped.
fn encode(key: &str) -> String {
    let reserved = RESERVED.iter().find(|(reserved, _)| key == *reserved);
    reserved.map_or_else(
        || LockKey::escape(key),
        |(_, spelling)| (*spelling).to_owned(),
    )
}

/// Keys with a spelling of their own: `.` and `..` are no names in a path, and `zookeeper` is the name of
/// ZooKeeper's own directory.
const RESERVED: &[(&str, &str)] = &[(".", "%2E"), ("..", "%2E%2E"), ("zookeeper", "%7Aookeeper")];

#[cfg(test)]
mod tests {
    use lock_testkit::locks::key;

    use super::*;

    #[test]
    fn every_key_has_a_directory_and_every_directory_its_key() {
        let cases = [
            ("orders", "/orders"),
            ("orders/42", "/orders%2F42"),
            ("shop:orders", "/shop:orders"),
            (".", "/%2E"),
            ("..", "/%2E%2E"),
            ("...", "/..."),
            ("a.b", "/a.b"),
            ("zookeeper", "/%7Aookeeper"),
            ("zookeeper/quota", "/zookeeper%2Fquota"),
            ("50%", "/50%25"),
            ("%2F", "/%252F"),
            ("é", "/%C3%A9"),
            ("a b", "/a%20b"),
        ];
        for (name, path) in cases {
            let directory = Directory::of(&key(name));
            assert_eq!(directory.path(), path);
            assert_eq!(key_of(&path[1..]), Some(key(name)), "{path}");
        }
    }

    #[test]
    fn names_that_no_key_has_are_not_ours() {
        for name in [
            "=orders",
            "%2f",
            "a b",
            "%",
            "%FF",
            "%00",
            "zookeeper",
            "%61",
        ] {
            assert_eq!(key_of(name), None, "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_two_keys_share_a_directory(name in "\\PC{1,60}") {
            let key = key(&name);
            let directory = Directory::of(&key);
            proptest::prop_assert!(!directory.path()[1..].contains('/'));
            proptest::prop_assert_eq!(key_of(&directory.path()[1..]), Some(key));
        }
    }
}
