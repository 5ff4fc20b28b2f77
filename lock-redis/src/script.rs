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
    ACQUIRE = "acquire": "holders", "queue", "acquire"
);
script!(
    /// Compares for how long a run of the server is known to be up.
    AGE = "age": "age"
);
script!(
    /// Takes the lock from its holders.
    BREAK = "break": "holders", "queue", "inspect", "break"
);
script!(
    /// Makes an exclusive holder a shared one.
    DOWNGRADE = "downgrade": "holders", "queue", "downgrade"
);
script!(
    /// Names the types of keys, of which one is no part of a lock.
    TYPES = "types": "types"
);
script!(
    /// Shows the lock.
    INSPECT = "inspect": "holders", "queue", "inspect", "inspect.return"
);
script!(
    /// Records a token that several nodes agree on.
    RAISE = "raise": "holders", "raise"
);
script!(
    /// Releases the lock, or leaves its queue, and grants it to the first waiter.
    RELEASE = "release": "release", "holders", "queue", "release.rest"
);
script!(
    /// Extends leases.
    RENEW = "renew": "renew"
);
script!(
    /// Draws tokens for hand-overs.
    RESERVE = "reserve": "holders", "queue", "reserve"
);
script!(
    /// Takes the vote of one of several nodes.
    VOTE = "vote": "holders", "vote"
);
script!(
    /// Reports whether a lost lock was broken.
    LOSS_REASON = "loss_reason": "loss_reason"
);

script!(
    /// Takes back the vote of one of several nodes.
    WITHDRAW = "withdraw": "holders", "withdraw"
);

/// Tokens that are set aside for hand-overs at first; the scripts of a quorum know it as well.
pub(crate) const BLOCK: u64 = 32;

#[cfg(test)]
mod tests {
    use lock_testkit::servers::{RedisOptions, RedisServer};

    use super::*;

    /// Thousands within a millisecond: a script sees one time from its beginning to its end.
    #[test]
    fn no_token_is_drawn_twice() {
        const BURST: &str = concat!(
            include_str!("scripts/holders.lua"),
            include_str!("scripts/queue.lua"),
            r"
            local last, wrong = 0, 0
            for n = 1, 3000 do
              local count, first = 1
              if n % 4 == 0 then
                local ms, number = string.match(call('XADD', TOKENS, 'MAXLEN', 0, '*', 't', ''), '(%d+)-(%d+)')
                first = tonumber(number) < 1000 and ms * 1000 + number
              else
                count = n % 4 == 1 and 1 or 256
                first = draw(count)
              end
              if first then
                wrong = wrong + (first <= last and 1 or 0)
                last = first + count - 1
              end
            end
            return wrong
            "
        );
        let server = RedisServer::start(RedisOptions::new());
        let keys = ["4", "a", "{}:tokens", "{a}:waiters", "{a}:notes"];
        let eval: Vec<_> = ["EVAL", BURST].into_iter().chain(keys).collect();
        for clock in 0..20 {
            let wrong = server.command(&eval).integer();
            assert_eq!(wrong, Some(0), "tokens that did not grow, in run {clock}");
        }
    }

    const KEYS: [&str; 5] = ["4", "a", "{}:tokens", "{a}:waiters", "{a}:notes"];
    const ID: &str = "000102030405060708090a0b0c0d0e0f";
    const NEXT: &str = "100102030405060708090a0b0c0d0e0f";

    fn run(server: &RedisServer, script: &Script, args: &[&str]) -> lock_testkit::servers::Reply {
        let eval = ["EVAL", script.text].into_iter().chain(KEYS);
        let eval: Vec<_> = eval.chain(args.iter().copied()).collect();
        server.command(&eval)
    }

    /// A lock is held, and has a waiter.
    fn held_and_wanted() -> RedisServer {
        let server = RedisServer::start(RedisOptions::new());
        let holder = format!("{ID}|label");
        server.command(&["SET", "a", &holder, "PX", "30000"]);
        let waiter = format!("{NEXT}|label");
        let place = ["", "3000", "3000", "1", "channel"];
        let args = [&[waiter.as_str(), "x", "30000"][..], &place].concat();
        run(&server, &ACQUIRE, &args);
        assert_eq!(server.command(&["ZCARD", "{a}:waiters"]).integer(), Some(1));
        server
    }

    #[test]
    fn a_waiter_keeps_its_place_where_no_token_can_be_drawn() {
        for (script, args) in [(&RELEASE, &[ID, ""][..]), (&BREAK, &["reason"])] {
            let server = held_and_wanted();
            server.command(&["SET", "{}:tokens", "not a stream"]);
            let failed = run(&server, script, args);
            let name = script.name;
            assert!(failed.is_error(), "{name}: {failed:?}");
            let free = server.command(&["EXISTS", "a"]).integer();
            assert_eq!(free, Some(0), "{name}: the lock is not free");
            let waiting = server.command(&["ZCARD", "{a}:waiters"]).integer();
            assert_eq!(waiting, Some(1), "{name}: the waiter has lost its place");
        }
    }

    #[test]
    fn a_release_grants_nothing_to_the_holder() {
        let server = held_and_wanted();
        let members = server.command(&["ZRANGE", "{a}:waiters", "0", "0"]);
        let next = members.items().first().and_then(|one| one.text());
        let twice = next.expect("a member").replacen(NEXT, ID, 1);
        server.command(&["ZADD", "{a}:waiters", "1", &twice]);
        let released = run(&server, &RELEASE, &[ID, ""]);
        assert_eq!(released.integer(), Some(2), "{released:?}");
        let holder = server.command(&["GET", "a"]);
        let holder = holder.text().expect("a holder");
        assert!(holder.starts_with(NEXT), "the holder has it again");
    }

    #[test]
    fn scripts_are_data_and_take_theirs_from_outside() {
        for script in [
            &ACQUIRE,
            &AGE,
            &BREAK,
            &DOWNGRADE,
            &INSPECT,
            &RAISE,
            &RELEASE,
            &RENEW,
            &RESERVE,
            &VOTE,
            &LOSS_REASON,
            &WITHDRAW,
        ] {
            assert_eq!(script.hash().len(), 40, "{}", script.name);
            assert!(!script.text.contains("loadstring"), "{}", script.name);
        }
    }
}
