//! The scripts that the server runs: `scripts/*.lua`, put together from their parts.

use std::fmt;
use std::sync::LazyLock;

/// A script with the hash by which the server knows it.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) hash: LazyLock<String>,
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

macro_rules! scripts {
    ($($constant:ident = $name:literal: $($part:literal),+;)*) => {$(
        pub(crate) static $constant: Script = {
            const TEXT: &str = concat!($(include_str!(concat!("scripts/", $part, ".lua"))),+);
            Script {
                name: $name,
                text: TEXT,
                hash: LazyLock::new(|| redis::Script::new(TEXT).get_hash().to_owned()),
            }
        };
    )*};
}

// The file of each script documents it.
scripts! {
    ACQUIRE = "acquire": "master", "holders", "queue", "acquire";
    ADOPT = "adopt": "master", "holders", "queue", "places", "adopt";
    AGE = "age": "age";
    BREAK = "break": "master", "holders", "queue", "inspect", "places", "break";
    DOWNGRADE = "downgrade": "master", "holders", "queue", "downgrade";
    TYPES = "types": "types";
    INSPECT = "inspect": "master", "holders", "queue", "inspect", "inspect.return";
    AGREE = "agree": "master", "holders", "agree";
    RECORD = "record": "record";
    RELEASE = "release": "release", "master", "holders", "queue", "release.rest";
    RENEW = "renew": "master", "renew";
    RESERVE = "reserve": "master", "holders", "queue", "reserve";
    VOTE = "vote": "master", "holders", "vote";
    WITHDRAW = "withdraw": "master", "holders", "withdraw";
}

/// Tokens that are set aside for hand-overs at first; the scripts of a quorum know it as well.
pub(crate) const BLOCK: u64 = 32;
