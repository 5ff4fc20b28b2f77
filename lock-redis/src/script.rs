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

macro_rules! script {
    ($(#[$doc:meta])* $constant:ident = $name:literal: $($part:literal),+) => {
        $(#[$doc])*
        pub(crate) static $constant: Script = {
            const TEXT: &str = concat!($(include_str!(concat!("scripts/", $part, ".lua"))),+);
            Script {
                name: $name,
                text: TEXT,
                hash: LazyLock::new(|| redis::Script::new(TEXT).get_hash().to_owned()),
            }
        };
    };
}

script!(
    /// Takes the lock or a place in its queue, and is the heartbeat of both.
    ACQUIRE = "acquire": "common", "acquire"
);
script!(
    /// Takes several locks, all or none.
    ACQUIRE_ALL = "acquire_all": "acquire_all"
);
script!(
    /// Compares for how long a run of the server is known to be up.
    AGE = "age": "age"
);
script!(
    /// Takes the lock from its holders.
    BREAK = "break": "common", "inspect", "break"
);
script!(
    /// Makes an exclusive holder a shared one.
    DOWNGRADE = "downgrade": "common", "downgrade"
);
script!(
    /// Finds out which commands of the other scripts this user may run.
    EXAMINE = "examine": "examine"
);
script!(
    /// Names the types of keys, of which one is no part of a lock.
    TYPES = "types": "types"
);
script!(
    /// Gives back a lock that nobody waits for.
    GIVE = "give": "give"
);
script!(
    /// Shows the lock.
    INSPECT = "inspect": "common", "inspect", "inspect.return"
);
script!(
    /// Records a token that several nodes agree on.
    RAISE = "raise": "common", "raise"
);
script!(
    /// Gives back the lock or the place in its queue.
    RELEASE = "release": "common", "release"
);
script!(
    /// Extends leases.
    RENEW = "renew": "renew"
);
script!(
    /// Sets tokens aside for hand-overs.
    RESERVE = "reserve": "common", "reserve"
);
script!(
    /// Takes a free lock that nobody waits for.
    TAKE = "take": "take"
);
script!(
    /// Takes the vote of one of several nodes.
    VOTE = "vote": "common", "vote"
);
script!(
    /// Tells who lost a lock whether it was broken.
    WHY = "why": "common", "why"
);

/// Tokens that one grant of an exclusive lock sets aside; the scripts know it as well.
pub(crate) const BLOCK: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_data_and_take_theirs_from_outside() {
        for script in [
            &ACQUIRE,
            &ACQUIRE_ALL,
            &AGE,
            &BREAK,
            &DOWNGRADE,
            &EXAMINE,
            &GIVE,
            &INSPECT,
            &RAISE,
            &RELEASE,
            &RENEW,
            &RESERVE,
            &TAKE,
            &VOTE,
            &WHY,
        ] {
            assert_eq!(script.hash().len(), 40, "{}", script.name);
            assert!(!script.text.contains("loadstring"), "{}", script.name);
        }
    }
}
