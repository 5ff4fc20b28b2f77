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
    ($($(#[$doc:meta])* $constant:ident = $name:literal: $($part:literal),+;)*) => {$(
        $(#[$doc])*
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

scripts! {
    /// Acquires the lock or a place in its queue, and is the heartbeat of both.
    ACQUIRE = "acquire": "holders", "queue", "acquire";
    /// Gives a held lock another id.
    ADOPT = "adopt": "holders", "queue", "places", "adopt";
    /// Compares the known ages of a run of the server.
    AGE = "age": "age";
    /// Takes the lock from its holders.
    BREAK = "break": "holders", "queue", "inspect", "places", "break";
    /// Makes an exclusive holder a shared one.
    DOWNGRADE = "downgrade": "holders", "queue", "downgrade";
    /// Names the types of keys, one of which is not part of a lock.
    TYPES = "types": "types";
    /// Shows the lock.
    INSPECT = "inspect": "holders", "queue", "inspect", "inspect.return";
    /// Records a token that several nodes agree on.
    AGREE = "agree": "holders", "agree";
    /// Stores the record of a key.
    RECORD = "record": "record";
    /// Releases the lock, or leaves its queue, and grants it to the first waiter.
    RELEASE = "release": "release", "holders", "queue", "release.rest";
    /// Extends leases.
    RENEW = "renew": "renew";
    /// Draws tokens for hand-overs.
    RESERVE = "reserve": "holders", "queue", "reserve";
    /// Takes the vote of one of several nodes.
    VOTE = "vote": "holders", "vote";
    /// Withdraws the vote of one of several nodes.
    WITHDRAW = "withdraw": "holders", "withdraw";
}

/// Tokens that are set aside for hand-overs at first; the scripts of a quorum know it as well.
pub(crate) const BLOCK: u64 = 32;
