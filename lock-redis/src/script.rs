//! The scripts that the server runs.

use std::fmt;
use std::sync::LazyLock;

/// A script with the hash by which the server knows it.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    hash: LazyLock<String>,
}

impl Script {
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Script").field(&self.name).finish()
    }
}

macro_rules! script {
    ($(#[$doc:meta])* $constant:ident, $name:literal) => {
        $(#[$doc])*
        pub(crate) static $constant: Script = Script {
            name: $name,
            text: include_str!(concat!("scripts/", $name, ".lua")),
            hash: LazyLock::new(|| {
                let text = include_str!(concat!("scripts/", $name, ".lua"));
                redis::Script::new(text).get_hash().to_owned()
            }),
        };
    };
}

script!(
    /// Takes the lock or a place in its queue, and is the heartbeat of both.
    ACQUIRE,
    "acquire"
);
