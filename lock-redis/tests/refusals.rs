//! A refusal of the server is an error of the documented kind, and never a grant.

use std::sync::Arc;

use lock_testkit::proxy::{Command, Fate};
#[cfg(feature = "tls")]
use lock_testkit::servers::{ClientCertificate, ServerCertificate, TestCertificates};
use lock_testkit::servers::{RedisCluster, RedisOptions, RedisSentinels, RedisServer, RespClient};
use polylock_core::admin::Record;
use polylock_core::layers::LocalQueue;
use polylock_core::memory::Request;
use polylock_core::{DistributedLock, Error, ErrorKind, FencingToken, LockGuard, Mode, Registry};
use polylock_redis::{Redis, RedisBackend, RedisConfig, Redlock};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::health::try_check;
use crate::support::{
    LONG_TTL, Place, SOON, TTL, acquire, any_id, assert_error, attempt, follow, granted, info,
    is_kind, key, look, ms, of, open, pass, release, renewed, request, stays_held, take, take_long,
    until, waiting, within,
};

/// The error of one attempt.
async fn refused(locks: &Redis) -> Error {
    let attempt = attempt("a");
    let error = locks.acquire(&attempt).await.expect_err("it is granted");
    assert_eq!(error.key(), Some(&key("a")));
    error
}

fn assert_unavailable(error: &Error, says: &str) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.is_retryable(), "{error:?}");
    assert!(error.to_string().contains(says), "{error}");
}

/// The refusal is over: the next one gets the lock, and nothing was left.
async fn assert_works_again(place: &Place, locks: &Arc<Redis>) {
    pass(locks, "a").await;
    place.assert_nothing_left(&[locks], "a").await;
}

#[tokio::test]
async fn a_server_that_a_script_keeps_busy_is_unavailable() {
    let place = Place::new();
    let locks = place.elsewhere().await;
    place.command(&["CONFIG", "SET", "busy-reply-threshold", "10"]);
    let mut blocker = RespClient::connect(place.server.port(), SOON).expect("connected");
    blocker
        .send(&["EVAL", "while true do end", "0"])
        .expect("it is sent");
    until("it is busy", || place.command(&["PING"]).is_error()).await;
    let error = refused(&locks).await;
    assert_unavailable(&error, "SCRIPT KILL");
    assert!(!error.is_outcome_unknown(), "{error:?}");
    // Nothing was executed, so that there is nothing to release.
    assert!(locks.shutdown(ms(0)).await, "it releases something");
    assert!(!place.command(&["SCRIPT", "KILL"]).is_error());
    assert_works_again(&place, &locks).await;
}

#[tokio::test]
async fn a_server_without_memory_is_unavailable() {
    let place = Place::new();
    let locks = place.elsewhere().await;
    let held = take_long(&locks, "held").await;
    place.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = refused(&locks).await;
    assert_unavailable(&error, "maxmemory");
    assert!(!error.is_outcome_unknown(), "{error:?}");
    // A held lock stays held, and can be released.
    renewed(&held).await;
    held.release().await.expect("it is released");
    place.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_works_again(&place, &locks).await;
}

#[tokio::test]
async fn a_wait_in_the_local_queue_ends_with_the_refusal() {
    let place = Place::new();
    let queue = LocalQueue::new(place.elsewhere().await);
    for (setting, value, says) in [
        ("maxmemory", "1", "raise maxmemory"),
        (
            "min-replicas-to-write",
            "1",
            "min-replicas-to-write asks for",
        ),
    ] {
        place.command(&["CONFIG", "SET", setting, value]);
        let wait = within(request("a"), TTL);
        let error = assert_error(&queue, &wait, ErrorKind::Unavailable).await;
        assert_unavailable(&error, says);
        place.command(&["CONFIG", "SET", setting, "0"]);
    }
    release(acquire(&queue, &within(request("a"), SOON)).await).await;
}

/// All that an error shows.
fn chain(error: &Error) -> String {
    let mut text = format!("{error:?} {error}");
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

/// The server repeats the arguments of a command that it does not know, the id of the lease among them.
#[tokio::test]
async fn a_command_that_is_renamed_is_denied_without_the_id_of_the_lease() {
    let renamed = |name: &str| {
        let options = RedisOptions::new();
        RedisServer::start(options.with_config("rename-command", &format!("{name} \"\"")))
    };
    let server = renamed("EVALSHA");
    let locks = open(of(&server)).await;
    let long = attempt("a").with_ttl(LONG_TTL);
    let error = locks.acquire(&long).await.expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    let text = chain(&error);
    assert!(text.contains("unknown command 'EVALSHA'"), "{text}");
    // A script was to draw the first token of the lock.
    let id = server.command(&["GET", "a"]).text().expect("a holder");
    assert!(!text.contains(&id[..8]), "{text}");

    let server = renamed("SET");
    let error = refused(&*open(of(&server)).await).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(!error.is_outcome_unknown(), "{error:?}");
    assert!(chain(&error).contains("'SET'"), "{error:?}");

    // A script may have done something before.
    let server = renamed("ZADD");
    let shared = attempt("a").with_mode(Mode::Shared);
    let error = assert_error(&*open(of(&server)).await, &shared, ErrorKind::Denied).await;
    assert!(error.is_outcome_unknown(), "{error:?}");
}

#[tokio::test]
async fn a_server_that_cannot_save_is_unavailable() {
    let options = RedisOptions::new().with_config("enable-protected-configs", "yes");
    let place = Place::with(options);
    let locks = place.elsewhere().await;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("a text").to_owned();
    place.command(&["CONFIG", "SET", "save", "3600 1"]);
    place.command(&["CONFIG", "SET", "dir", &path]);
    dir.close().expect("it is removed");
    place.command(&["SET", "x", "y"]);
    place.command(&["BGSAVE"]);
    until("it fails", || place.command(&["SET", "x", "y"]).is_error()).await;
    assert_unavailable(&refused(&locks).await, "MISCONF");
    place.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    assert_works_again(&place, &locks).await;
}

#[tokio::test]
async fn a_replica_is_unavailable() {
    let (place, master) = (Place::new(), RedisServer::start(RedisOptions::new()));
    let locks = place.elsewhere().await;
    follow(&place.server, &master);
    let link = || info(&place.server, "master_link_status");
    until("it follows", || link() == "up").await;
    assert_unavailable(&refused(&locks).await, "replica");
    // Also of a lock that is held: its master may know better.
    master.command(&["SET", "held", "another holder"]);
    let is_held = || place.number(&["EXISTS", "held"]) == 1;
    until("it is replicated", is_held).await;
    let answer = locks.acquire(&attempt("held")).await;
    assert_unavailable(&answer.expect_err("it is held"), "replica");
    place.command(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    master.kill();
    until("it is alone", || link() == "down").await;
    assert_unavailable(&refused(&locks).await, "replica");
    place.command(&["REPLICAOF", "NO", "ONE"]);
    assert_works_again(&place, &locks).await;
}

/// The write that replicas were to have may be kept or lost.
#[tokio::test]
async fn a_server_that_is_demoted_while_it_waits_for_replicas_is_unavailable() {
    let options = || RedisOptions::new().with_config("repl-diskless-sync-delay", "0");
    let (place, other) = (Place::with(options()), RedisServer::start(options()));
    let careful = place.direct().with_replica_acks(1, SOON);
    let locks = open(careful.expect("it is in range")).await;
    let lead = || place.command(&["REPLICAOF", "NO", "ONE"]);
    let waits = || info(&place.server, "blocked_clients") == "1";

    let once = waiting(&locks, attempt("a").with_ttl(SOON * 4));
    until("it waits for a replica", waits).await;
    follow(&place.server, &other);
    let error = once.await.expect("no panic");
    let error = error.expect_err("no replica has it");
    assert_unavailable(&error, "became a replica");
    assert!(error.is_outcome_unknown(), "{error:?}");

    lead();
    let lasting = within(request("b").with_ttl(SOON * 4), SOON * 4);
    let waiter = waiting(&locks, lasting);
    until("it waits for a replica", waits).await;
    follow(&place.server, &other);
    until("it waits no longer", || !waits()).await;
    lead();
    follow(&other, &place.server);
    release(granted(waiter).await).await;
}

/// It may have forwarded the request.
#[tokio::test]
async fn a_proxy_that_got_no_reply_leaves_the_outcome_unknown() {
    let place = Place::new();
    let locks = open(RedisConfig::new("127.0.0.1", place.proxy().port())).await;
    let strikes = |reply| {
        let acquires = is_kind(Request::Acquire);
        place.proxy().plan(acquires, Fate::Replaced(reply))
    };
    let exclusive = within(request("a").with_ttl(SOON * 4), SOON);
    let shared = || attempt("a").with_mode(Mode::Shared).with_ttl(SOON * 4);
    for (reply, kind) in [
        ("-upstream failure\r\n", ErrorKind::Unavailable),
        ("-ERR Connection timed out\r\n", ErrorKind::Unavailable),
        ("-ERR backend gone\r\n", ErrorKind::Protocol),
    ] {
        strikes(reply);
        let error = assert_error(&locks, &shared(), kind).await;
        assert!(error.is_outcome_unknown(), "{error:?}");
        place.assert_nothing_left(&[&locks], "a").await;
        strikes(reply);
        // The other commands say that the lock is acquired.
        release(acquire(&*locks, &exclusive).await).await;
        let guard = acquire(&*locks, &exclusive).await;
        let id = guard.lease_id().expect("a lease");
        let releases = is_kind(Request::Release);
        let is_its = move |command: &Command| releases(command) && command.has(id.to_hex());
        place.proxy().plan(is_its, Fate::Replaced(reply));
        let error = guard.release().await.expect_err("no reply");
        assert_eq!(error.kind(), kind, "{error:?}");
        assert!(error.is_outcome_unknown(), "{error:?}");
        place.assert_nothing_left(&[&locks], "a").await;
    }
    let waiter = strikes("-upstream failure\r\n");
    release(acquire(&*locks, &within(shared(), SOON)).await).await;
    assert_eq!(waiter.struck(), 1);
    place.assert_nothing_left(&[&locks], "a").await;
}

#[tokio::test]
async fn a_server_that_is_loading_is_unavailable() {
    let (place, master) = (Place::new(), RedisServer::start(RedisOptions::new()));
    let locks = place.elsewhere().await;
    for n in 0..2_000 {
        master.command(&["SET", &format!("key/{n}"), "x"]);
    }
    for (name, value) in [
        ("key-load-delay", "2000"),
        ("loading-process-events-interval-bytes", "1024"),
    ] {
        let set = place.command(&["CONFIG", "SET", name, value]);
        assert!(!set.is_error(), "{set:?}");
    }
    follow(&place.server, &master);
    until("it is loading", || {
        let error = place.server.try_command(&["GET", "x"]);
        error.is_ok_and(|reply| reply.text().unwrap_or_default().starts_with("LOADING"))
    })
    .await;
    assert_unavailable(&refused(&locks).await, "loading");
    // A new client waits for it, or gets the same error.
    let config = place
        .direct()
        .with_connect_timeout(ms(300))
        .expect("it is in range");
    if let Err(error) = Redis::connect(config).await {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

#[tokio::test]
async fn a_server_that_misses_its_replicas_is_unavailable() {
    let place = Place::new();
    let locks = place.elsewhere().await;
    place.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_unavailable(&refused(&locks).await, "min-replicas-to-write");
    place.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    assert_works_again(&place, &locks).await;
}

#[tokio::test]
async fn a_server_with_too_many_clients_is_unavailable() {
    let place = Place::new();
    // After a timeout it would connect again, which is refused.
    let locks = place.patient_client().await;
    let guard = take_long(&locks, "a").await;
    place.command(&["CONFIG", "SET", "maxclients", "1"]);
    let error = Redis::connect(place.direct())
        .await
        .expect_err("it connects");
    // The refusal may be lost with the connection, which the server closes at once.
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    // Those that are connected stay so.
    guard.renew().await.expect("it is renewed");
    guard.release().await.expect("it is released");
}

#[tokio::test]
async fn credentials_that_are_missing_or_wrong_are_denied() {
    let place = RedisServer::start(RedisOptions::new().with_password("right"));
    let config = || RedisConfig::new("127.0.0.1", place.port());
    let refused = "refuses this user or password";
    for (config, says) in [
        (config(), "has none"),
        (config().with_password("wrong"), refused),
        (config().with_password("wrong").with_resp2(), refused),
        (config().with_login("nobody", "right"), refused),
    ] {
        let error = Redis::connect(config).await.expect_err("it connects");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        assert!(
            !error.is_retryable() && !error.is_outcome_unknown(),
            "{error:?}"
        );
        assert!(error.to_string().contains(says), "{error}");
        assert!(
            !format!("{error:?} {error}").contains("wrong\""),
            "{error:?}"
        );
    }
    let locks = open(config().with_password("right")).await;
    pass(&locks, "a").await;
}

/// The password of the masters is not sent to a Sentinel.
#[tokio::test]
async fn a_missing_password_of_a_sentinel_is_named() {
    let place = RedisServer::start(RedisOptions::new().with_password("right"));
    let config = RedisConfig::sentinel([("127.0.0.1", place.port())], "main");
    let error = Redis::connect(config.with_password("right")).await;
    let error = error.expect_err("it connects");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    let says = "has none; that of Sentinels is sentinel-password";
    assert!(error.to_string().ends_with(says), "{error}");
}

#[tokio::test]
async fn what_the_user_may_not_do_is_denied() {
    for denied in [
        "-evalsha",
        "resetkeys ~other:*",
        "-set",
        "-xadd",
        "-time",
        "-del",
        "-get",
        "-xrange",
        "-zscore",
    ] {
        let rules = format!("on >secret ~* &* +@all {denied}");
        let place = Place::with(RedisOptions::new().with_user("locks", &rules));
        let locks = open(place.direct().with_login("locks", "secret")).await;
        let mode = match denied {
            "-zscore" => Mode::Shared,
            _ => Mode::Exclusive,
        };
        let attempt = attempt("a").with_mode(mode).with_ttl(TTL * 5);
        match locks.acquire(&attempt).await {
            // The plain commands that take a free lock need less than a renewal and a release.
            Ok(guard) => {
                if let Err(error) = guard.renew().await {
                    assert_eq!(error.kind(), ErrorKind::Denied, "{denied}: {error:?}");
                }
                let reason = guard.lost().reason();
                assert_eq!(reason, None, "{denied} shows no loss");
                if denied == "-xrange" {
                    // Without a queue, a release does not need it.
                    place.command(&["XADD", "{a}:waiters", "*", "w", "none"]);
                }
                match guard.release().await {
                    Ok(_) => assert_eq!(denied, "-time", "released without the right to it"),
                    Err(error) => {
                        let needed = ["-del", "-evalsha", "-get", "-xrange", "-zscore"];
                        assert!(needed.contains(&denied), "{denied}: granted");
                        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
                    }
                }
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Denied, "{denied}: {error:?}");
                // The error says that a script was stopped halfway.
                let half = place.number(&["EXISTS", "a"]) == 1;
                assert!(!half || error.is_outcome_unknown(), "{denied}: {error:?}");
            }
        }
        // At worst, half of a script costs one lease: a key that is there ends by itself.
        let ends_in = place.number(&["PTTL", "a"]);
        let longest = i64::try_from((TTL * 5).as_millis()).expect("it is short");
        assert!(
            ends_in == GONE || (1..=longest).contains(&ends_in),
            "{denied}: {ends_in} ms"
        );
    }
}

/// Otherwise it would show only once the lock is free.
#[tokio::test]
async fn a_missing_right_to_acquire_is_denied_while_the_lock_is_held() {
    let rules = "on >secret ~* &* +@all -set";
    let place = Place::with(RedisOptions::new().with_user("locks", rules));
    let locks = open(place.direct().with_login("locks", "secret")).await;
    let guard = take(&*place.elsewhere().await, "a").await;
    for request in [attempt("a"), within(request("a"), SOON)] {
        let error = assert_error(&locks, &request, ErrorKind::Denied).await;
        assert!(!error.is_outcome_unknown(), "{error:?}");
    }
    release(guard).await;
}

/// Of PTTL, for a key that does not exist.
const GONE: i64 = -2;

#[tokio::test]
async fn a_server_without_subscriptions_renews_and_serves_waiters() {
    let options = RedisOptions::new()
        .with_config("rename-command", "SUBSCRIBE \"\"")
        .with_config("rename-command", "PUBLISH \"\"");
    let place = Place::with(options);
    let (locks, other) = (place.elsewhere().await, place.elsewhere().await);
    let guard = take(&locks, "a").await;
    stays_held(&guard, TTL * 2).await;
    let next = place.waiter(&other, within(request("a"), SOON)).await;
    release(guard).await;
    release(granted(next).await).await;
    place.assert_nothing_left(&[&locks, &other], "a").await;
}

#[tokio::test]
async fn a_list_with_a_key_that_may_not_be_read_is_denied() {
    let rules = "on >secret ~a ~{a}:* ~{}:tokens &* +@all";
    let place = Place::with(RedisOptions::new().with_user("locks", rules));
    let locks = open(place.direct().with_login("locks", "secret")).await;
    let admin = locks.admin().expect("it has an administration");
    place.command(&["LPUSH", "a", "1"]);
    place.command(&["SET", "b", "1"]);
    assert_eq!(admin.list("a").await.expect("it is listed").len(), 0);
    let error = admin.list("").await.expect_err("it would lack a key");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
}

/// What it has may be old. A user without the rights that show it gets what it has.
#[tokio::test]
async fn a_replica_answers_no_question_about_locks() {
    let [master, replica] = [(); 2].map(|()| RedisServer::start(RedisOptions::new()));
    follow(&replica, &master);
    let follows = || info(&replica, "master_link_status") == "up";
    until("it follows", follows).await;
    let guard = take_long(&*open(of(&master)).await, "a").await;
    until("it has the lock", || look(&replica, "a").holders == 1).await;
    let locks = open(of(&replica)).await;
    let admin = locks.admin().expect("it has an administration");
    for error in [
        admin.inspect(&key("a")).await.map(drop),
        admin.inspect(&key("free")).await.map(drop),
        admin.list("").await.map(drop),
        admin.list("free").await.map(drop),
        admin.watch("").await.map(drop),
        admin.break_lock(&key("free"), "test").await.map(drop),
        // Its data may be older than the lease, or than the release of the lock.
        locks
            .acquire(&attempt("a").with_mode(Mode::Shared))
            .await
            .map(drop),
        admin
            .adopt_lease(&key("a"), any_id(), any_id(), SOON)
            .await
            .map(drop),
        admin
            .renew_lease(&key("free"), any_id(), SOON)
            .await
            .map(drop),
    ] {
        assert_unavailable(&error.expect_err("it is a replica"), "name its master");
    }
    let few = "ACL SETUSER few on >pw ~* &* +@all -role -hdel";
    let set = replica.command(&few.split(' ').collect::<Vec<_>>());
    assert!(!set.is_error(), "{set:?}");
    let locks = open(of(&replica).with_login("few", "pw")).await;
    let admin = locks.admin().expect("it has an administration");
    assert_eq!(admin.list("").await.expect("it is listed").len(), 1);
    assert!(
        admin
            .inspect(&key("a"))
            .await
            .expect("it is seen")
            .is_some()
    );
    release(guard).await;
}

/// Renewals that are due together are one call, which the server refuses if the user may not use one of its keys.
#[tokio::test]
async fn a_key_that_is_denied_costs_no_lease_of_another_key() {
    let servers = [(); 3].map(|()| RedisServer::start(RedisOptions::new()));
    let allow = |keys: &str| {
        let rules = format!("ACL SETUSER few on >pw resetkeys {keys} &* +@all");
        for server in &servers {
            let set = server.command(&rules.split(' ').collect::<Vec<_>>());
            assert!(!set.is_error(), "{set:?}");
        }
    };
    allow("~*");
    let single = of(&servers[0]).with_login("few", "pw");
    let single: Arc<dyn DistributedLock> = open(single).await;
    let masters = servers.iter().map(|server| ("127.0.0.1", server.port()));
    let quorum = RedisConfig::quorum(masters).with_login("few", "pw");
    let quorum = quorum.with_rejoin_delay(ms(0)).expect("it is in range");
    let quorum = Redlock::connect(quorum).await.expect("it connects");
    let quorum: Arc<dyn DistributedLock> = Arc::new(quorum);
    let ttl = TTL * 3;
    let mut guards = Vec::new();
    for (locks, kind) in [(&single, "single"), (&quorum, "quorum")] {
        for n in 0..8 {
            let name = format!("{kind}{n}");
            let request = within(request(&name).with_ttl(ttl), SOON);
            guards.push(acquire(&**locks, &request).await);
        }
    }
    allow("~single[0-6] ~{single[0-6]}:* ~quorum[0-6] ~{quorum[0-6]}:* ~{}:tokens");
    tokio::time::sleep(ttl * 2).await;
    let lost = guards.iter().filter(|guard| !guard.is_held());
    let lost: Vec<_> = lost.map(|guard| guard.key().to_string()).collect();
    assert_eq!(lost, ["single7", "quorum7"]);
    for guard in guards.into_iter().filter(LockGuard::is_held) {
        release(guard).await;
    }
}

#[tokio::test]
async fn a_key_with_something_else_in_it_is_no_lock() {
    let place = Place::new();
    let locks = place.elsewhere().await;
    for words in [
        &["ZADD", "a", "1", "b", "2", "c"][..],
        &["HSET", "a", "b", "c"],
        &["LPUSH", "a", "b"],
        &["SADD", "a", "b"],
    ] {
        place.command(words);
        let before = place.command(&["DUMP", "a"]);
        let error = refused(&locks).await;
        assert_eq!(error.kind(), ErrorKind::Foreign, "{words:?}: {error:?}");
        assert!(
            error.to_string().contains("not written by polylock"),
            "{error}"
        );
        // The undo in the background does not change it either.
        assert!(locks.shutdown(SOON).await);
        assert_eq!(place.number(&["EXISTS", "a"]), 1);
        // Nor does an administrator find a lock there, or harm it.
        let admin = locks.admin().expect("it has an administration");
        assert_eq!(admin.list("").await.expect("it is listed").len(), 0);
        admin.inspect(&key("a")).await.expect_err("it is no lock");
        let broken = admin.break_lock(&key("a"), "test").await;
        broken.expect_err("it is no lock");
        assert_eq!(place.command(&["DUMP", "a"]), before, "{words:?}");
        place.command(&["DEL", "a"]);
    }
    // A companion that is not ours fails closed as well.
    place.command(&["DEL", "{}:tokens"]);
    place.command(&["HSET", "{}:tokens", "b", "c"]);
    let error = refused(&locks).await;
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error:?}");
    place.command(&["DEL", "{}:tokens"]);
    assert!(locks.shutdown(SOON).await);
    // A foreign value at the queue's key does not block a free lock.
    place.command(&["SET", "{a}:waiters", "b"]);
    let guard = take(&locks, "a").await;
    let error = refused(&*place.elsewhere().await).await;
    assert_eq!(error.kind(), ErrorKind::Contended, "{error:?}");
    guard.release().await.expect("it is released");
    place.command(&["DEL", "{a}:waiters"]);
    assert_works_again(&place, &locks).await;
}

#[tokio::test]
async fn what_another_program_has_written_is_no_record() {
    let place = Place::new();
    let locks = place.elsewhere().await;
    let (at, admin) = ("{a}:record", locks.admin().expect("it has one"));
    let record = Record::new(FencingToken::new(7), "done");
    for (words, what) in [
        (["SET", at, "7|done"], "a string"),
        (["LPUSH", at, "7|done"], "a list"),
    ] {
        place.command(&words);
        let before = place.command(&["DUMP", at]);
        let read = admin.record(&key("a")).await.map(drop);
        let written = admin.write_record(&key("a"), &record, SOON).await;
        for error in [read, written.map(drop)].map(Result::unwrap_err) {
            assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
            assert!(error.message().contains(what), "{error}");
            assert!(!error.is_outcome_unknown(), "{error}");
        }
        assert_eq!(place.command(&["DUMP", at]), before);
        place.command(&["DEL", at]);
    }
    // One of ours is not listed with the locks, and no lock has its name.
    let written = admin.write_record(&key("a"), &record, SOON).await;
    assert!(written.expect("it is stored"));
    assert_eq!(place.number(&["EXISTS", at]), 1);
    assert_eq!(admin.list("").await.expect("it is listed"), []);
    let named = key(at);
    for error in [
        admin.record(&named).await.map(drop),
        admin.write_record(&named, &record, SOON).await.map(drop),
    ] {
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidKey);
    }
}

#[tokio::test]
async fn a_key_that_was_replaced_by_something_else_costs_no_other_lease() {
    let place = Place::new();
    let locks = place.elsewhere().await;
    for words in [&["RPUSH", "a", "b"][..], &["HSET", "a", "b", "c"]] {
        let (replaced, other) = (take(&locks, "a").await, take(&locks, "b").await);
        place.command(&["DEL", "a"]);
        place.command(words);
        tokio::time::sleep(TTL * 2).await;
        assert!(other.is_held(), "{words:?}: {:?}", other.lost().reason());
        assert!(!replaced.is_held(), "{words:?}");
        other.release().await.expect("it is released");
        drop(replaced);
        place.command(&["DEL", "a"]);
        assert!(locks.shutdown(SOON).await);
    }
}

/// Answers each connection with these bytes, before or after it is asked, and closes it.
async fn stranger(says: &'static [u8]) -> u16 {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
    let listener = listener.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let read = stream.read(&mut [0; 256]).await;
                drop((read, stream.write_all(says).await));
            });
        }
    });
    port
}

#[tokio::test]
async fn what_is_no_redis_is_named() {
    for (says, named) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "an HTTP server"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "an SSH server"),
        (b"J\0\0\0\x0a5.5.5-10.11.6-MariaDB\0", "MySQL or MariaDB"),
        (b"\x15\x03\x01\0\x02\x02\x50", "TLS only: use rediss:"),
        (b"220 mail.example\r\n", "says \"220 mail.example\""),
        // One that closes connections is not guessed at.
        (b"", "cannot connect to"),
    ] {
        let port = stranger(says).await;
        let error = Redis::connect(RedisConfig::new("127.0.0.1", port)).await;
        let error = error.expect_err("it is no Redis");
        assert_unavailable(&error, named);
        let place = format!("127.0.0.1:{port}");
        assert!(error.to_string().contains(&place), "{error}");
    }
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_on_one_side_alone_is_named() {
    let files = TestCertificates::new(ServerCertificate::Valid);
    let secure =
        RedisServer::start(RedisOptions::new().with_tls(&files, ClientCertificate::Ignored));
    let plain = RedisServer::start(RedisOptions::new());
    let url = format!("redis://127.0.0.1:{}", secure.port());
    assert_unavailable(&unconnected(&url).await, "TLS only: use rediss:");
    let url = format!("rediss://127.0.0.1:{}", plain.port());
    assert_unavailable(&unconnected(&url).await, "a Redis without TLS");
}

#[tokio::test]
async fn a_database_that_is_not_there_is_a_mistake_of_the_configuration() {
    let server = RedisServer::start(RedisOptions::new());
    let error = unconnected(&format!("{}/99", server.url())).await;
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    assert!(error.to_string().contains("databases"), "{error}");
}

#[tokio::test]
async fn a_server_of_another_kind_names_the_right_scheme() {
    let (cluster, sentinels) = (RedisCluster::start(2, 0), RedisSentinels::start_light());
    let (node, sentinel) = (cluster.ports()[0], sentinels.ports()[0]);
    let single = sentinels.master().port();
    for (url, right) in [
        (format!("redis://127.0.0.1:{node}"), "redis-cluster://"),
        (format!("redis://127.0.0.1:{sentinel}"), "redis-sentinel://"),
        (
            format!("redis-sentinel://127.0.0.1:{single}/main"),
            "redis://",
        ),
        (format!("redis-cluster://127.0.0.1:{single}"), "redis://"),
        (format!("redis-cluster://127.0.0.1:{sentinel}"), "redis://"),
    ] {
        assert_misconfigured(&url, &format!("use {right}")).await;
    }
}

/// A start waits for a majority, so each of these has two masters of the wrong kind.
#[tokio::test]
async fn a_quorum_refuses_nodes_of_a_cluster_and_sentinels() {
    let (cluster, sentinels) = (RedisCluster::start(2, 0), RedisSentinels::start_light());
    let (nodes, watchers) = (cluster.ports(), sentinels.ports());
    let single = sentinels.master().port();
    for (wrong, what) in [
        ([nodes[0], nodes[1]], "a node of a cluster"),
        ([watchers[0], watchers[1]], "a Sentinel"),
    ] {
        let [one, other] = wrong;
        let url = format!("redlock://127.0.0.1:{single},127.0.0.1:{one},127.0.0.1:{other}");
        let cause = format!("is {what}: the masters of a quorum are single servers");
        assert_misconfigured(&url, &cause).await;
    }
}

/// It learns from the first request that the node refuses.
#[tokio::test]
async fn a_user_without_info_is_told_of_a_cluster_by_a_refusal() {
    let cluster = RedisCluster::start(2, 0);
    let user = "ACL SETUSER few on >pw ~* &* +@all -info";
    let set = cluster[0].command(&user.split(' ').collect::<Vec<_>>());
    assert!(!set.is_error(), "{set:?}");
    let config = RedisConfig::new("127.0.0.1", cluster.ports()[0]);
    let locks = open(config.with_login("few", "pw")).await;
    // The keys of the lock have several slots.
    let shared = attempt("a").with_mode(Mode::Shared);
    let error = assert_error(&locks, &shared, ErrorKind::InvalidConfig).await;
    assert!(error.message().contains("use redis-cluster://"), "{error}");
}

/// The connection and the doctor refuse a URL, and say why.
async fn assert_misconfigured(url: &str, says: &str) {
    let of_doctor = try_check(url).await.expect_err("it is refused");
    for error in [unconnected(url).await, of_doctor] {
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}: {error}");
        assert!(error.message().contains(says), "{url}: {error}");
    }
}

async fn unconnected(url: &str) -> Error {
    let registry = Registry::new().with(RedisBackend::default());
    let locks = registry.expect("one backend").connect(url).await;
    locks.expect_err("there is nothing to connect to")
}
