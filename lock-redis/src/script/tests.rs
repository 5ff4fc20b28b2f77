//! What the scripts do on a server.

use lock_testkit::servers::{RedisOptions, RedisServer, Reply};

use crate::script::{
    ACQUIRE, ADOPT, AGREE, BREAK, DOWNGRADE, RELEASE, RENEW, RESERVE, Script, VOTE,
};

/// Thousands within a millisecond: a script sees one time from its beginning to its end.
#[test]
fn no_token_is_drawn_twice() {
    const BURST: &str = concat!(
        include_str!("../scripts/holders.lua"),
        include_str!("../scripts/queue.lua"),
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
    let eval: Vec<_> = ["EVAL", BURST].into_iter().chain(KEYS).collect();
    for clock in 0..20 {
        let wrong = server.command(&eval).integer();
        assert_eq!(wrong, Some(0), "tokens that did not grow, in run {clock}");
    }
}

const KEYS: [&str; 5] = ["4", "a", "{}:tokens", "{a}:waiters", "{a}:notes"];
const ID: &str = "000102030405060708090a0b0c0d0e0f";
const NEXT: &str = "100102030405060708090a0b0c0d0e0f";
const LAST: &str = "200102030405060708090a0b0c0d0e0f";

fn run(server: &RedisServer, script: &Script, args: &[&str]) -> Reply {
    let eval = ["EVAL", script.text].into_iter().chain(KEYS);
    let eval: Vec<_> = eval.chain(args.iter().copied()).collect();
    server.command(&eval)
}

/// A lock is held.
fn held() -> RedisServer {
    let server = RedisServer::start(RedisOptions::new());
    server.command(&["SET", "a", &format!("{ID}|label"), "PX", "30000"]);
    server
}

/// The same, and it has a waiter for this mode.
fn held_and_wanted(mode: &str) -> RedisServer {
    let server = held();
    let waiter = format!("{NEXT}|3000|3000|1|{mode}|channel|label");
    run(&server, &ACQUIRE, &["30000", "", &waiter]);
    assert_eq!(waiters(&server), Some(1));
    server
}

fn waiters(server: &RedisServer) -> Option<i64> {
    server.command(&["XLEN", "{a}:waiters"]).integer()
}

#[track_caller]
fn assert_held_by(server: &RedisServer, id: &str, case: &str) {
    let holder = server.command(&["GET", "a"]).text().unwrap_or_default();
    assert!(holder.starts_with(id), "{case}: held by {holder:?}");
}

/// A companion of another type fails a script, which then has changed nothing but what it was asked
/// for: a release frees the lock.
#[test]
fn a_waiter_keeps_its_place_where_a_companion_is_foreign() {
    let (tokens, notes) = ("{}:tokens", "{a}:notes");
    for (script, args, mode, foreign, is_free) in [
        (&RELEASE, &[ID, ""][..], "x", tokens, true),
        (&BREAK, &["reason"], "x", tokens, true),
        (&RELEASE, &[ID, ""], "s", notes, true),
        (&BREAK, &["reason"], "s", notes, false),
        (&DOWNGRADE, &[ID, "7"], "s", notes, false),
        (&ADOPT, &[ID, LAST, "30000", "3000"], "x", tokens, false),
    ] {
        let server = held_and_wanted(mode);
        server.command(&["SET", foreign, "something else"]);
        let failed = run(&server, script, args);
        let case = format!("{} with {foreign}", script.name);
        assert!(failed.is_error(), "{case}: {failed:?}");
        let held = server.command(&["EXISTS", "a"]).integer();
        assert_eq!(held, Some(i64::from(!is_free)), "{case}");
        let waiting = waiters(&server);
        assert_eq!(waiting, Some(1), "{case}: the waiter has lost its place");
    }
}

#[test]
fn a_release_and_an_adoption_need_no_memory_to_grant_the_lock() {
    for (script, args, next) in [
        (&RELEASE, &[ID, ""][..], NEXT),
        (&BREAK, &["reason"], NEXT),
        (&ADOPT, &[ID, LAST, "30000", "3000"], LAST),
    ] {
        let server = held_and_wanted("x");
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let name = script.name;
        assert!(server.command(&["SET", "b", "c"]).is_error(), "{name}");
        let released = run(&server, script, args);
        assert!(!released.is_error(), "{name}: {released:?}");
        assert_held_by(&server, next, name);
    }
}

/// From Redis 7.2 on, `WAIT` counts every replica on a connection that has written nothing. A command is
/// replicated if it counts as a change.
#[test]
fn a_repeated_change_writes_for_the_replicas_that_acknowledge_it() {
    let server = held();
    let changes = || {
        let info = server.command(&["INFO", "persistence"]).text();
        let info = info.expect("a text");
        let mut lines = info.lines();
        let count = lines.find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        let count = count.map(str::parse::<u64>).expect("it is shown");
        count.expect("a number")
    };
    for n in 0..3 {
        let before = changes();
        let left = server.command(&["PTTL", "a"]).integer();
        let downgraded = run(&server, &DOWNGRADE, &[ID, "7"]);
        assert_eq!(downgraded.integer(), Some(1), "{n}: {downgraded:?}");
        assert!(changes() > before, "downgrade {n} has written nothing");
        let later = server.command(&["PTTL", "a"]).integer();
        assert!(later > Some(0) && later <= left, "{later:?} after {left:?}");
    }
    server.command(&["FLUSHALL"]);
    for limit in ["0", "1"] {
        server.command(&["CONFIG", "SET", "maxmemory", limit]);
        let before = changes();
        let broken = run(&server, &BREAK, &["reason", ""]);
        assert_eq!(broken, Reply::Nil, "{limit}");
        assert_eq!(changes(), before, "{limit}: no replica was asked for");
        let broken = run(&server, &BREAK, &["reason", "acks"]);
        assert_eq!(broken, Reply::Nil, "{limit}");
        assert!(changes() > before, "{limit}: a break has written nothing");
        assert_eq!(server.command(&["DBSIZE"]).integer(), Some(0), "{limit}");
    }
}

/// A repeated request leaves a second place in the queue, however many come after it; one that is dead already
/// may stay. A companion of another type has none.
#[test]
fn an_adoption_removes_the_places_of_the_former_holder() {
    for foreign in [None, Some("{a}:waiters"), Some("{a}:notes")] {
        let server = held();
        let add = "for i = 1, ARGV[3] do redis.call('XADD', KEYS[1], ARGV[1], 'w', ARGV[2]) end";
        let places = [
            (ID, "1-0", "1"),
            (ID, "*", "1"),
            (NEXT, "*", "1000"),
            (ID, "*", "1"),
        ];
        for (id, ticket, times) in places {
            let entry = format!("{id}|3000|3000|1|x|channel|label");
            server.command(&["EVAL", add, "1", "{a}:waiters", ticket, &entry, times]);
            let (field, note) = (format!("w:{id}"), "1|2|channel");
            server.command(&["HSET", "{a}:notes", &field, note]);
        }
        if let Some(foreign) = foreign {
            server.command(&["SET", foreign, "something else"]);
        }
        for repetition in 0..2 {
            let adopted = run(&server, &ADOPT, &[ID, LAST, "30000", "3000"]);
            assert!(adopted.integer() > Some(0), "{repetition}: {adopted:?}");
        }
        if foreign != Some("{a}:waiters") {
            assert_eq!(waiters(&server), Some(1001));
        }
        if foreign.is_none() {
            let notes = server.command(&["HLEN", "{a}:notes"]).integer();
            assert_eq!(notes, Some(1));
            run(&server, &RELEASE, &[LAST, ""]);
            assert_held_by(&server, NEXT, "after the adopter");
        }
    }
}

/// A repeated request leaves a second place of a holder in the queue, which a waiter is behind.
#[test]
fn the_end_of_a_lock_grants_nothing_to_its_former_holders() {
    for (script, args, mode, holders) in [
        (&RELEASE, &[ID, ""][..], "x", &[ID][..]),
        (&BREAK, &["reason"], "x", &[ID]),
        (&BREAK, &["reason"], "s", &[ID, NEXT]),
    ] {
        let server = RedisServer::start(RedisOptions::new());
        let case = format!("{} of {mode}", script.name);
        for id in holders {
            let holder = format!("{id}|0|0|0|{mode}||label");
            let granted = run(&server, &ACQUIRE, &["30000", "", &holder]);
            assert!(granted.integer() > Some(0), "{case}: {granted:?}");
        }
        let places = holders.iter().map(|id| (*id, mode)).chain([(LAST, "x")]);
        for (id, mode) in places {
            let entry = format!("{id}|3000|3000|1|{mode}|channel|label");
            server.command(&["XADD", "{a}:waiters", "*", "w", &entry]);
        }
        let ended = run(&server, script, args);
        // What they say of a lock that was held.
        let is_done = ended.integer() == Some(2) || ended.items().len() == 4;
        assert!(is_done, "{case}: {ended:?}");
        assert_held_by(&server, LAST, &case);
        assert_eq!(waiters(&server), Some(0), "{case}");
    }
}

/// Also where the adopter has the lock by plain commands, or the counter was lost while the clock is behind.
#[test]
fn an_adopter_has_a_token_above_the_one_that_is_stored() {
    let ahead = 9_000_000_000_000_123_u64;
    let told = format!("|label|{ahead}|9000000000000");
    for (holder, label, last) in [
        (ID, "|label", 0),
        (LAST, "|label", 0),
        (ID, &*told, ahead),
        (LAST, &*told, ahead - 1),
    ] {
        let server = RedisServer::start(RedisOptions::new());
        server.command(&["SET", "a", &format!("{holder}{label}"), "PX", "30000"]);
        let adopt = || run(&server, &ADOPT, &[ID, LAST, "30000", "3000"]).integer();
        let token = adopt().expect("a token");
        assert!(token.unsigned_abs() > last, "{token} after {last}");
        assert_eq!(adopt(), Some(token), "it is repeated");
        if holder == ID {
            let next = run(&server, &RESERVE, &[LAST, "1"]).integer();
            assert!(next > Some(token), "{next:?} after {token}");
        }
    }
}

/// A key that expires at once is deleted, with all of its holders.
#[test]
fn a_renewal_for_no_time_ends_no_lease_of_another_holder() {
    for rule in ["least", "exact"] {
        let server = RedisServer::start(RedisOptions::new());
        for id in [ID, NEXT] {
            let holder = format!("{id}|0|0|0|s||label");
            let granted = run(&server, &ACQUIRE, &["30000", "", &holder]);
            assert!(granted.integer() > Some(0), "{rule}: {granted:?}");
        }
        let renew = |id, ttl, rule| {
            let eval = ["EVAL", RENEW.text, "2", "a", "{a}:notes"];
            let reply = server.command(&[&eval[..], &[id, ttl, rule, ""]].concat());
            reply.items().first().and_then(Reply::integer)
        };
        assert_eq!(renew(ID, "0", rule), Some(1), "{rule}");
        assert_eq!(renew(NEXT, "30000", "least"), Some(1), "{rule}");
    }
}

/// A waiter that came and had a heartbeat so many ms ago; one without a channel polls.
#[test]
fn a_release_passes_over_waiters_that_are_not_alive() {
    for (came, heard, channel, lives) in [
        (0, None, "channel", true),
        (20_000, None, "channel", true),
        (40_000, None, "channel", false),
        (40_000, Some(20_000), "channel", true),
        (90_000, Some(40_000), "channel", false),
        (20_000, Some(10_000), "", true),
        (40_000, None, "", false),
    ] {
        let server = held();
        let time = server.command(&["TIME"]).items()[0].text();
        let seconds: u64 = time.expect("a text").parse().expect("a number");
        let at = |ago: u64| seconds * 1_000 - ago;
        let first = format!("{NEXT}|30000|3000|1|x|{channel}|label");
        let ticket = format!("{}-0", at(came));
        server.command(&["XADD", "{a}:waiters", &ticket, "w", &first]);
        if let Some(heard) = heard {
            let (field, note) = (format!("w:{NEXT}"), format!("{}|2|{channel}", at(heard)));
            server.command(&["HSET", "{a}:notes", &field, &note]);
        }
        let last = format!("{LAST}|30000|3000|1|x|channel|label");
        server.command(&["XADD", "{a}:waiters", "*", "w", &last]);
        let case = format!("{came} {heard:?} {channel:?}");
        let released = run(&server, &RELEASE, &[ID, ""]);
        assert_eq!(released.integer(), Some(2), "{case}: {released:?}");
        assert_held_by(&server, if lives { NEXT } else { LAST }, &case);
        assert_eq!(waiters(&server), Some(i64::from(lives)), "{case}");
        assert_eq!(server.command(&["HLEN", "{a}:notes"]).integer(), Some(0));
    }
}

/// The queue ends with its last waiters, and the notes last for as long as readers come.
#[test]
fn waiters_that_end_with_their_queue_leave_nothing_that_piles_up() {
    let server = RedisServer::start(RedisOptions::new());
    let reader = format!("{ID}|0|0|0|s||label");
    run(&server, &ACQUIRE, &["30000", "", &reader]);
    let wait = |id: &str| {
        let waiter = format!("{id}|3000|3000|1|x||label");
        let joined = run(&server, &ACQUIRE, &["30000", "", &waiter]);
        let ticket = joined.items().get(2).and_then(Reply::text);
        let ticket = ticket.expect("it waits");
        let waits = run(&server, &ACQUIRE, &["30000", &ticket, &waiter]);
        assert_eq!(waits.items().len(), 3, "{waits:?}");
    };
    for dead in 3..6 {
        let id = format!("{dead}00102030405060708090a0b0c0d0e0f");
        wait(&id);
        let (field, long_ago) = (format!("w:{id}"), "1|1|");
        server.command(&["HSET", "{a}:notes", &field, long_ago]);
        server.command(&["PEXPIRE", "{a}:waiters", "0"]);
    }
    wait(NEXT);
    wait(LAST);
    let fields = server.command(&["HKEYS", "{a}:notes"]);
    let mut fields: Vec<_> = fields.items().iter().filter_map(Reply::text).collect();
    fields.sort_unstable();
    let expected = [
        "h:".to_owned(),
        format!("h:{ID}"),
        format!("w:{NEXT}"),
        format!("w:{LAST}"),
    ];
    assert_eq!(fields, expected);
}

/// Its data may be old. In a cluster, a renewal names the lock alone.
#[test]
fn a_replica_says_of_no_lease_that_it_is_lost() {
    let server = held();
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    for keys in [&["1", "a"][..], &["2", "a", "{a}:notes"]] {
        let renew = [&["EVAL", RENEW.text], keys, &[NEXT, "30000", "least", ""]].concat();
        let reply = server.command(&renew);
        let says = format!("{reply:?}");
        assert!(reply.is_error() && says.contains("READONLY"), "{says}");
    }
}

/// At the master the lock may be held, by this id as well, or be free.
#[test]
fn a_replica_answers_no_script_by_what_it_has() {
    let holder = format!("{LAST}|label");
    let vote = ["60000", LAST, &holder, "x", "30000", "0", "", "", "9e15"];
    // A heartbeat that comes too soon to be stored.
    let waiter = format!("{NEXT}|3000|3000|2|x|channel|label");
    let mut answered = Vec::new();
    for (script, args, is_held) in [
        (&ACQUIRE, &["30000", "?", &waiter][..], true),
        (&RELEASE, &[LAST, ""], true),
        (&RESERVE, &[LAST, "1"], true),
        (&AGREE, &["60000", LAST, "7", "7"], true),
        (&VOTE, &vote, true),
        (&BREAK, &["reason", ""], false),
    ] {
        let server = match is_held {
            true => held_and_wanted("x"),
            false => RedisServer::start(RedisOptions::new()),
        };
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        let reply = run(&server, script, args);
        if !format!("{reply:?}").contains("READONLY") {
            answered.push((script.name, reply));
        }
    }
    assert_eq!(answered, []);
}
